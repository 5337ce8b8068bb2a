"""The table of public addresses, tested at both ends of every range that is not public."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.outbound.addresses import is_public


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255",
        "128.0.0.0", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0",
        "192.167.0.1", "192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255",
        "2606:4700:4700::1111", "2a00:1450::1", "2001:4860:4860::8888", "2001:200::1", "2003::1",
    ],
)  # fmt: skip
def test_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "network",
    [
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
        "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15",
        "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4", "255.255.255.255/32",
        "::/128", "::1/128", "::/96",
        "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/32",
        "2001:2::/48", "2001:10::/28", "2001:20::/28", "2001:db8::/32", "2002::/16", "3fff::/20", "4000::/3",
        "5f00::/16", "fc00::/7", "fd00:ec2::254/128", "fe80::/10", "fec0::/10", "ff00::/8",
    ],
)  # fmt: skip
def test_not_public_from_first_to_last(network: str) -> None:
    parsed = ipaddress.ip_network(network)

    assert not is_public(str(parsed[0]))
    assert not is_public(str(parsed[-1]))


@pytest.mark.parametrize(
    "text", ["", "localhost", "127.1", "2130706433", "0x7f000001", "2606:4700::1%eth0", "1.1.1.1 "]
)
def test_what_is_no_plain_address_is_not_public(text: str) -> None:
    assert not is_public(text)


@given(st.ip_addresses(v=4))
def test_no_ipv6_form_of_an_ipv4_address_is_public(address: ipaddress.IPv4Address) -> None:
    number = int(address)
    for form in (
        ipaddress.IPv6Address(number),
        ipaddress.IPv6Address(0xFFFF << 32 | number),
        ipaddress.IPv6Address(0x64FF9B << 96 | number),
        ipaddress.IPv6Address(0x2002 << 112 | number << 80),
        ipaddress.IPv6Address(0x20010000 << 96 | (number ^ 0xFFFFFFFF)),
    ):
        assert not is_public(str(form))
