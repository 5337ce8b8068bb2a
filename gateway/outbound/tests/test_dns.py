"""DNS of outbound calls: unknown names, names whose servers do not answer, the cache."""

import asyncio

import pytest

from gateway.outbound import addresses
from gateway.outbound.client import InvalidUrlError, Outbound
from gateway.outbound.tests.receivers import (
    OK_AND_CLOSE,
    KnownNames,
    Serve,
    answers_ok,
    says,
)


@pytest.mark.parametrize("names", [KnownNames(), KnownNames(**{"nowhere.test": [list[str]()]})])
async def test_an_unknown_name_and_one_without_addresses(names: KnownNames) -> None:
    async with Outbound(allow_private=True, resolve=names) as client:
        answer = await client.post("https://nowhere.test/", b"", {})

    assert (answer.status, answer.error) == (None, "dns_error")
    assert names.asked == ["nowhere.test"]


@pytest.mark.usefixtures("dns_server")
@pytest.mark.parametrize("host", ["a" * 64 + ".test", "a..test", "nowhere.test"])
async def test_a_name_that_does_not_exist(client: Outbound, host: str) -> None:
    assert (await client.post(f"https://{host}/", b"", {})).error == "dns_error"


@pytest.mark.usefixtures("dns_server")
async def test_a_name_is_resolved_and_its_address_is_checked(serve: Serve, client: Outbound) -> None:
    receiver = await serve(answers_ok)

    assert (await client.post(receiver.url(host="good.test"), b"", {})).ok
    async with Outbound(allow_private=False) as guarded:
        assert (await guarded.post(receiver.url(host="good.test"), b"", {})).error == "blocked_address"

    assert receiver.connections == 1


async def test_looked_up_names_are_kept_for_a_while(serve: Serve) -> None:
    receiver = await serve(says(OK_AND_CLOSE))
    names = KnownNames(**{"kept.test": [["127.0.0.1"]]})

    async with Outbound(allow_private=True, resolve=names) as client:
        for _ in range(3):
            assert (await client.post(receiver.url(host="kept.test"), b"", {})).ok

    assert receiver.connections == 3
    assert names.asked == ["kept.test"]


@pytest.mark.parametrize("failure", [addresses.UnknownNameError(), TimeoutError(), OSError()])
async def test_a_failed_look_up_is_not_kept(failure: Exception) -> None:
    answers = iter([failure, None])

    async def resolve(host: str, port: int) -> list[addresses.AddressInfo]:
        if error := next(answers):
            raise error
        return await KnownNames(**{host: [["127.0.0.1"]]})(host, port)

    names = addresses.Names(resolve, 3600.0)
    with pytest.raises(type(failure)):
        await names.addresses("moved.test", 443)
    assert [found[4] for found in await names.addresses("moved.test", 443)] == [("127.0.0.1", 443)]
    await names.close()


async def test_a_url_that_cannot_be_called() -> None:
    async with Outbound(allow_private=True, resolve=KnownNames()) as client:
        assert (await client.post("https://receiver.test:99999/", b"", {})).error == "blocked_address"


@pytest.mark.usefixtures("dns_server")
async def test_names_that_hang_do_not_delay_others(serve: Serve, client: Outbound) -> None:
    """There are more slow names than threads in the pool of the system's resolver."""
    receiver = await serve(answers_ok)
    slow = [
        asyncio.ensure_future(client.post(f"http://slow{number}.test/", b"", {}, total_timeout=4))
        for number in range(64)
    ]
    await asyncio.sleep(0)

    good = await client.post(receiver.url(host="good.test"), b"", {}, total_timeout=20)

    assert good.ok
    assert not any(task.done() for task in slow)
    assert {answer.error for answer in await asyncio.gather(*slow)} == {"timeout"}


@pytest.mark.usefixtures("dns_server")
async def test_a_look_up_ends_by_itself(client: Outbound, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "QUERY_SECONDS", 0.1)

    answer = await client.post("http://slow.test/", b"", {}, connect_timeout=20, total_timeout=20)

    assert answer.error == "timeout"
    assert answer.ms < 5000


@pytest.mark.parametrize(
    ("host", "address"),
    [
        *((host, "203.0.113.7") for host in ("203.0.113.7", "203.0.113.7.")),
        ("2001:db8::1", "2001:db8::1"),
        *(
            (host, None)
            for host in ("2130706433", "0x7f.1", "0177.0.0.1", "127.1", "a.1", "a.0X1", "1.2.3.4.5", "7.")
        ),
        *((host, "asked") for host in ("a.test", "a1", "1a", "1.a", "0x7g", "a.1x")),
    ],
)
async def test_an_address_in_a_url_is_not_looked_up_and_an_ambiguous_one_is_refused(
    host: str, address: str | None
) -> None:
    names = addresses.Names(KnownNames(**{host: [["asked"]]}), 1.0)
    if address is None:
        with pytest.raises(InvalidUrlError):
            await names.addresses(host, 443)
        return
    ((*_, sockaddr),) = await names.addresses(host, 443)
    assert sockaddr[:2] == (address, 443)


async def test_an_event_loop_that_cannot_use_a_socket_is_a_failed_connection(
    client: Outbound, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def sock_connect(sock: object, address: object) -> None:
        raise RuntimeError("File descriptor 9 is used by transport")  # what uvloop raises

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", sock_connect)
    answer = await client.post("http://127.0.0.1:9/", b"{}", {})
    assert (answer.error, answer.ok) == ("connection_error", False)
