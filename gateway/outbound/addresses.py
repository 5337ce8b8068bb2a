"""Addresses of outbound requests: URLs that tenants choose, DNS look-up, and the check that addresses are public.

`validate_url` checks the form of a URL when a webhook endpoint or a website is saved. `gateway.outbound.client` parses
the URL again when it sends. It checks the addresses of the host at every connection, because DNS answers change.
"""

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any

from aiodns import DNSResolver
from aiodns.error import ARES_ETIMEOUT, DNSError
from yarl import URL


class UnknownNameError(Exception):
    """A host name has no address."""


class InvalidUrlError(ValueError):
    """The service does not call this URL. The message is a sentence for the tenant."""


def validate_url(url: str, *, allow_http: bool, max_length: int) -> str:
    """Return `url` unchanged, or raise `InvalidUrlError`.

    Requires https, or http with `allow_http`, and a host. Rejects user information, a fragment, and more than
    `max_length` characters. Any port is allowed. Host names may be in any script. Path and query must be
    percent-encoded.
    """
    if len(url) > max_length:
        raise InvalidUrlError(f"The URL is longer than {max_length} characters.")
    if "\\" in url or any(character.isspace() or not character.isprintable() for character in url):
        raise InvalidUrlError("The URL contains whitespace, a backslash or a control character.")
    scheme, separator, rest = url.partition("://")
    allowed = ("https", "http") if allow_http else ("https",)
    if not separator or scheme.lower() not in allowed:
        raise InvalidUrlError(f"The URL must begin with {' or '.join(f'{name}://' for name in allowed)}.")
    if "#" in rest:
        raise InvalidUrlError("The URL must not have a fragment.")
    authority = _authority(rest)
    if "@" in authority:
        raise InvalidUrlError("The URL must not contain a user name or a password.")
    if not rest[len(authority) :].isascii():
        raise InvalidUrlError("The path and query of the URL must be percent-encoded.")
    parse_url(url)
    return url


@lru_cache(maxsize=4096)
def parse_url(url: str) -> URL:
    """Parse a URL for sending: path and query byte for byte, the host in ASCII (IDNA).

    Raises `InvalidUrlError` without a host, for a host that cannot be encoded, and without a usable port.
    """
    scheme, _, rest = url.partition("://")
    authority = _authority(rest)
    path = rest[len(authority) :]
    try:
        origin = URL(f"{scheme}://{authority}").origin()
        parsed = URL(f"{origin}{path if path.startswith('/') else '/' + path}", encoded=True)
        usable = bool(parsed.raw_host and parsed.port)
    except ValueError:
        usable = False
    if not usable:
        raise InvalidUrlError("The URL has no valid host and port.")
    return parsed


def origin_of(url: str) -> str:
    """Scheme, host and port of a URL. The rest of a URL may contain a secret."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{_authority(rest).rpartition('@')[2]}".lower()


def _authority(rest: str) -> str:
    return re.split("[/?#]", rest, maxsplit=1)[0]


# --- Public IP addresses: the check that restricts outbound requests to the Internet.
#
# The guard of `gateway.outbound.client` calls `is_public` before every connection to an address that a tenant chose. So
# a webhook can never reach the machine itself, its private network or a cloud's metadata service. The tables have the
# IANA special-purpose address registries (RFC 6890 and successors) and multicast. `ipaddress.is_global` would allow
# multicast and some forms that contain an IPv4 address.
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

# Only 2000::/3 is routed at all. Loopback, unique local, link-local and multicast addresses are outside of it, and so
# are addresses that contain an IPv4 address (::ffff:0:0/96, ::/96) and NAT64 addresses (64:ff9b::/96, 64:ff9b:1::/48).
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
    """Whether an IP address, in the form that a socket receives, is a unicast address of the public Internet.

    Never public: IPv6 addresses that contain an IPv4 address (mapped, 6to4, Teredo, NAT64), those with a zone, and
    anything that is not an IP address.
    """
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv4Address):
        return not any(ip in network for network in _REFUSED_IPV4)
    return ip.scope_id is None and ip in _ROUTED_IPV6 and not any(ip in network for network in _REFUSED_IPV6)


# --- DNS for outbound calls: concurrent look-ups of a name are shared, and its addresses are cached for a while.
#
# c-ares (aiodns) resolves names. It queries the servers of `/etc/resolv.conf` and reads `/etc/hosts`. The system's
# `getaddrinfo` needs a thread for each look-up: 40 names whose servers do not answer would occupy all 32 threads, and
# block the names of other tenants until the time-out.
QUERY_SECONDS = 2.0
"""How long the first query of a look-up waits for an answer. The second query waits twice as long."""
QUERIES = 2

_NUMBER = re.compile("[0-9]+|0x[0-9a-f]*", re.IGNORECASE)

AddressInfo = tuple[int, int, int, str, tuple[Any, ...]]
"""An address in the form of `socket.getaddrinfo`."""
Resolve = Callable[[str, int], Awaitable[list[AddressInfo]]]
"""Returns the addresses of a host and port. Raises `UnknownNameError` when there are none. Raises TimeoutError
without an answer.
"""


class Names:
    """Looks up and caches the addresses of host names, for one event loop."""

    def __init__(self, resolve: Resolve | None, keep_seconds: float) -> None:
        self._resolve = resolve or self._query
        self._keep_seconds = keep_seconds
        self._found: dict[tuple[str, int], asyncio.Task[list[AddressInfo]]] = {}
        self._resolver: DNSResolver | None = None

    async def addresses(self, host: str, port: int) -> list[AddressInfo]:
        """The addresses of a host, at least one. Raises `UnknownNameError` or TimeoutError."""
        if literal := _literal(host, port):
            return [literal]
        key = host, port
        found = self._found.get(key)
        if found is None:
            loop = asyncio.get_running_loop()
            found = self._found[key] = loop.create_task(self._resolve_one(host, port))
            loop.call_later(self._keep_seconds, self._remove, key, found)
            found.add_done_callback(lambda task: self._remove_failure(key, task))
        # If one caller is cancelled, the look-up continues for the others.
        return await asyncio.shield(found)

    async def close(self) -> None:
        """Cancel all look-ups under way."""
        for found in self._found.values():
            found.cancel()
        self._found.clear()
        if self._resolver is not None:
            await self._resolver.close()

    async def _resolve_one(self, host: str, port: int) -> list[AddressInfo]:
        found = await self._resolve(host, port)
        if not found:
            raise UnknownNameError
        return found

    async def _query(self, host: str, port: int) -> list[AddressInfo]:
        if self._resolver is None:
            self._resolver = DNSResolver(timeout=QUERY_SECONDS, tries=QUERIES)
        try:
            result = await self._resolver.getaddrinfo(host, port=port, type=socket.SOCK_STREAM)
        except DNSError as error:
            raise (TimeoutError if error.args[0] == ARES_ETIMEOUT else UnknownNameError) from error
        return [
            (node.family, node.socktype, node.protocol, "", (node.addr[0].decode(), *node.addr[1:]))
            for node in result.nodes
        ]

    def _remove(self, key: tuple[str, int], found: asyncio.Task[list[AddressInfo]]) -> None:
        if self._found.get(key) is found:
            del self._found[key]

    def _remove_failure(self, key: tuple[str, int], found: asyncio.Task[list[AddressInfo]]) -> None:
        if found.cancelled() or found.exception() is not None:
            self._remove(key, found)


def _literal(host: str, port: int) -> AddressInfo | None:
    """The address of a host that is an IP address and needs no look-up. None for a name. Raises `InvalidUrlError`
    for an ambiguous form.
    """
    host = host.rstrip(".")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        # A host that ends with a number is an address, never a name. Resolvers disagree on unusual forms: 0177.0.0.1 is
        # 127.0.0.1 for one resolver and 177.0.0.1 for another.
        if _NUMBER.fullmatch(host.rpartition(".")[2]):
            raise InvalidUrlError("The host is an IP address in a form that is not accepted.") from None
        return None
    if address.version == 4:
        return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port)
    return socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port, 0, 0)
