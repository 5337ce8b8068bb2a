"""Connections are opened only to public addresses, however the host is written."""

import pytest

from gateway.outbound import client as outbound_module
from gateway.outbound.client import Outbound
from gateway.outbound.tests.receivers import OK_AND_CLOSE, KnownNames, Serve, answers_ok, says


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "017700000001", "0",
        "127.0.0.1.", "１２７.０.０.１", "127。0。0。1", "localhost", "LOCALHOST", "ⓛocalhost",
        "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "224.0.0.1",
        "255.255.255.255", "[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
        "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::1]", "[fd00::1]", "[fe80::1]", "[fe80::1%25lo]",
        "[ff02::1]",
    ],
)  # fmt: skip
async def test_addresses_that_are_not_public_are_blocked(serve: Serve, host: str) -> None:
    receiver = await serve(answers_ok)

    async with Outbound(allow_private=False) as client:
        answer = await client.post(receiver.url(host=host), b"{}", {}, total_timeout=5)

    assert (answer.status, answer.error) == (None, "blocked_address")
    assert receiver.connections == 0


@pytest.mark.parametrize("host", ["inside.test", "localhost."])
@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["::1"], ["10.0.0.1", "fd00::1", "::ffff:127.0.0.1"]])
async def test_names_of_addresses_that_are_not_public_are_blocked(
    serve: Serve, host: str, addresses: list[str]
) -> None:
    receiver = await serve(answers_ok)

    async with Outbound(allow_private=False, resolve=KnownNames(**{host: [addresses]})) as client:
        answer = await client.post(receiver.url(host=host), b"{}", {})
        page = await client.request("GET", receiver.url(host=host), None, {})

    assert (answer.error, page.error) == ("blocked_address", "blocked_address")
    assert receiver.connections == 0


@pytest.fixture
def only_this_is_public(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbound_module, "is_public", lambda address: address == "127.0.0.1")


@pytest.mark.usefixtures("only_this_is_public")
async def test_a_name_that_moves_to_a_private_address_is_blocked(serve: Serve) -> None:
    public = await serve(says(OK_AND_CLOSE))
    private = await serve(answers_ok, "::1", public.port)
    names = KnownNames(**{"moves.test": [["127.0.0.1"], ["::1"]]})

    async with Outbound(allow_private=False, resolve=names, dns_seconds=0) as client:
        first = await client.post(public.url(host="moves.test"), b"{}", {})
        second = await client.post(public.url(host="moves.test"), b"{}", {})

    assert (first.error, second.error) == (None, "blocked_address")
    assert (public.connections, private.connections) == (1, 0)


@pytest.mark.usefixtures("only_this_is_public")
async def test_of_several_addresses_only_public_ones_are_called(serve: Serve) -> None:
    public = await serve(answers_ok)
    private = await serve(answers_ok, "::1", public.port)
    names = KnownNames(**{"both.test": [["::1", "127.0.0.1"]]})

    async with Outbound(allow_private=False, resolve=names) as client:
        answer = await client.post(public.url(host="both.test"), b"{}", {})

    assert answer.ok
    assert (public.connections, private.connections) == (1, 0)


@pytest.mark.usefixtures("only_this_is_public")
async def test_a_public_address_that_refuses_is_no_blocked_address(serve: Serve) -> None:
    private = await serve(answers_ok, "::1")
    names = KnownNames(**{"both.test": [["::1", "127.0.0.1"]]})

    async with Outbound(allow_private=False, resolve=names) as client:
        answer = await client.post(private.url(host="both.test"), b"{}", {})

    assert answer.error == "connection_error"
    assert private.connections == 0


async def test_private_addresses_where_they_are_allowed(serve: Serve, client: Outbound) -> None:
    v4 = await serve(answers_ok)
    v6 = await serve(answers_ok, "::1")

    assert (await client.post(v4.url(), b"", {})).ok
    assert (await client.post(v4.url(host="localhost"), b"", {})).ok
    assert (await client.post(v6.url(host="[::1]"), b"", {})).ok
    assert b"Host: [::1]:%d\r\n" % v6.port in v6.requests[0]
