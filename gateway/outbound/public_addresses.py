"""Public IP addresses: the check that keeps outbound requests on the Internet.

The guard of `gateway.outbound.client` asks before every connection to an address that a customer chose, so that a
webhook can never reach the machine itself, its private network or a cloud's metadata service. The table is
the IANA special-purpose address registries (RFC 6890 and successors) and multicast, not `ipaddress.is_global`,
which lets multicast and some ways of carrying an IPv4 address through.
"""

import ipaddress

_REFUSED_IPV4 = tuple(
    ipaddress.IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carrier-grade NAT
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local, cloud metadata
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarking
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)

# Only 2000::/3 is routed at all. Outside of it lie loopback, unique local, link-local, multicast, the
# addresses that carry an IPv4 one (::ffff:0:0/96, ::/96) and NAT64 (64:ff9b::/96, 64:ff9b:1::/48).
_ROUTED_IPV6 = ipaddress.IPv6Network("2000::/3")
_REFUSED_IPV6 = tuple(
    ipaddress.IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments, Teredo (carries an IPv4 address), ORCHID, benchmarking
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4 (carries an IPv4 address)
        "3fff::/20",  # documentation
    )
)


def is_public(address: str) -> bool:
    """Whether an IP address, in the form that a socket is given, is a unicast address of the public Internet.

    IPv6 addresses that lead to an IPv4 address (mapped, 6to4, Teredo, NAT64) and those with a zone are not,
    whatever they lead to; nor is anything that is no IP address.
    """
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv4Address):
        return not any(ip in network for network in _REFUSED_IPV4)
    return ip.scope_id is None and ip in _ROUTED_IPV6 and not any(ip in network for network in _REFUSED_IPV6)
