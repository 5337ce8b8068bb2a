"""An egress proxy: tunnels only to checked addresses, named by address, with TLS to the receiver itself."""

import asyncio
import base64
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from gateway.outbound import client as egress_proxy
from gateway.outbound import client as outbound_module
from gateway.outbound.client import Outbound
from gateway.outbound.tests.receivers import Connection, KnownNames, Serve, answers_ok

ADDRESSES = ((socket.AF_INET6, "::1"), (socket.AF_INET, "127.0.0.1"))
CREDENTIALS = base64.b64encode(b"gateway:p@ss").decode()


class Proxy:
    """An HTTP proxy that supports CONNECT. `head` is its answer to CONNECT."""

    def __init__(self, head: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n") -> None:
        self.head, self.asked, self.headers = head, list[str](), list[bytes]()
        self.port = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with (
            closing(writer),
            suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError),
        ):
            head = await reader.readuntil(b"\r\n\r\n")
            self.headers.append(head)
            target = head.split(b" ")[1].decode()
            self.asked.append(target)
            writer.write(self.head)
            if b" 200 " in self.head:
                host, _, port = target.rpartition(":")
                there, back = await asyncio.open_connection(host.strip("[]"), int(port))
                with closing(back):
                    await asyncio.wait(
                        [
                            asyncio.ensure_future(_pump(reader, back)),
                            asyncio.ensure_future(_pump(there, writer)),
                        ],
                        return_when=asyncio.FIRST_COMPLETED,
                    )


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)


@asynccontextmanager
async def running(proxy: Proxy, settings: Any) -> AsyncIterator[Proxy]:
    async with await asyncio.start_server(proxy.handle, "127.0.0.1", 0) as server:
        proxy.port = server.sockets[0].getsockname()[1]
        settings.WEBHOOK_PROXY_URL = f"http://gateway:p%40ss@127.0.0.1:{proxy.port}"
        yield proxy
        server.close()


@pytest.mark.parametrize(
    ("url", "host", "port", "credentials"),
    [
        ("http://proxy:3128", "proxy", 3128, None),
        ("http://proxy:3128/", "proxy", 3128, None),
        ("http://10.0.0.7:80", "10.0.0.7", 80, None),
        ("http://user@proxy:1", "proxy", 1, b"user:"),
        ("http://us%3Aer:p%40ss@proxy:1", "proxy", 1, b"us:er:p@ss"),
    ],
)
def test_the_proxys_address_and_credentials_are_read(
    url: str, host: str, port: int, credentials: bytes | None
) -> None:
    proxy = egress_proxy.EgressProxy.from_url(url)
    header = f"Proxy-Authorization: Basic {base64.b64encode(credentials or b'').decode()}\r\n"
    assert (proxy.host, proxy.port, proxy.authorization) == (host, port, header if credentials else "")


@pytest.mark.parametrize(
    "url", ["https://proxy:1", "proxy:1", "http://proxy", "http://:1", "http://proxy:x", "http://proxy:1/x"]
)
def test_any_other_form_of_a_proxys_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"form|Port|port"):
        egress_proxy.EgressProxy.from_url(url)


@pytest.fixture
def only_this_is_public(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbound_module, "is_public", lambda address: address == "127.0.0.1")


@pytest.mark.usefixtures("only_this_is_public")
async def test_a_delivery_goes_through_the_proxy_to_the_address_that_was_checked(
    serve: Serve, settings: Any
) -> None:
    receiver = await serve(answers_ok)
    names = KnownNames(**{"shop.test": [["10.0.0.1", "127.0.0.1"]]})
    async with running(Proxy(), settings) as proxy, Outbound(allow_private=False, resolve=names) as client:
        answers = [await client.post(receiver.url(host="shop.test"), b"{}", {}) for _ in range(2)]
    assert [answer.ok for answer in answers] == [True, True]
    assert proxy.asked == [f"127.0.0.1:{receiver.port}"], "by address, and the tunnel is kept"
    assert f"Proxy-Authorization: Basic {CREDENTIALS}".encode() in proxy.headers[0]
    assert len(receiver.requests) == 2
    assert "shop.test" in str(receiver.requests[0]), "the receiver's own Host"


async def test_the_proxy_gets_an_ipv6_address_in_brackets(settings: Any) -> None:
    async with (
        running(Proxy(b"HTTP/1.1 403 Forbidden\r\n\r\n"), settings) as proxy,
        Outbound(allow_private=True) as client,
    ):
        await client.post("http://[::1]:9/hook", b"{}", {})
    assert proxy.asked == ["[::1]:9"]


async def test_a_private_address_is_refused_before_the_proxy_is_asked(serve: Serve, settings: Any) -> None:
    receiver = await serve(answers_ok)
    names = KnownNames(**{"inside.test": [["10.0.0.1", "127.0.0.1"]]})
    async with running(Proxy(), settings) as proxy, Outbound(allow_private=False, resolve=names) as client:
        by_name = await client.post(receiver.url(host="inside.test"), b"{}", {})
        by_address = await client.post(receiver.url(), b"{}", {})
    assert (by_name.error, by_address.error) == ("blocked_address", "blocked_address")
    assert (proxy.asked, receiver.connections) == ([], 0)


async def test_tls_is_spoken_with_the_receiver_and_not_with_the_proxy(
    serve: Serve, settings: Any, certificate: Path, server_tls: ssl.SSLContext
) -> None:
    receiver = await serve(answers_ok, tls=server_tls)
    names = KnownNames(**{"receiver.test": [["127.0.0.1"]], "other.test": [["127.0.0.1"]]})
    trusting = ssl.create_default_context(cafile=str(certificate))
    async with (
        running(Proxy(), settings),
        Outbound(allow_private=True, resolve=names, tls=trusting) as client,
    ):
        right = await client.post(receiver.url(scheme="https", host="receiver.test"), b"{}", {})
        wrong = await client.post(receiver.url(scheme="https", host="other.test"), b"{}", {})
    assert (right.ok, wrong.error) == (True, "tls_error")


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 403 Forbidden\r\n\r\n",
        b"HTTP/1.1 502 Bad Gateway\r\n\r\n",
        b"HTTP/1.1 503 Service Unavailable\r\n\r\n",
        b"not HTTP\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 2000,
        b"",
    ],
)
async def test_a_proxy_that_opens_no_tunnel_is_a_connection_error(
    serve: Serve, settings: Any, head: bytes
) -> None:
    receiver = await serve(answers_ok)
    async with running(Proxy(head), settings), Outbound(allow_private=True) as client:
        answer = await client.post(receiver.url(), b"{}", {})
    assert (answer.status, answer.error) == (None, "connection_error")
    assert receiver.requests == []


async def test_a_proxy_that_resets_the_connection_is_a_connection_error(serve: Serve, settings: Any) -> None:
    async def resets(connection: Connection) -> None:
        await connection.request()
        connection.reset()

    proxy = await serve(resets)
    settings.WEBHOOK_PROXY_URL = proxy.url()
    async with Outbound(allow_private=True) as client:
        answer = await client.post("http://127.0.0.1:9/", b"{}", {})
    assert (answer.error, len(proxy.requests)) == ("connection_error", 1)


async def test_a_proxy_that_is_away_or_silent(
    serve: Serve, settings: Any, unused_tcp_port_factory: Callable[[], int]
) -> None:
    receiver = await serve(answers_ok)
    settings.WEBHOOK_PROXY_URL = f"http://127.0.0.1:{unused_tcp_port_factory()}"
    async with Outbound(allow_private=True) as client:
        answer = await client.post(receiver.url(), b"{}", {})
    assert (answer.error, answer.concerns_receiver) == ("egress_proxy_away", False)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100_000)
        with suppress(asyncio.CancelledError):
            await reader.read(100_000)
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        settings.WEBHOOK_PROXY_URL = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with Outbound(allow_private=True) as client:
            answer = await client.post(receiver.url(), b"{}", {}, connect_timeout=0.1)
        assert answer.error == "timeout", "perhaps the receiver's"
        server.close()


@pytest.mark.parametrize("total_timeout", [5.0, 60.0])
async def test_the_receiver_has_its_whole_time_after_a_slow_connection_to_the_proxy(
    serve: Serve, settings: Any, monkeypatch: pytest.MonkeyPatch, total_timeout: float
) -> None:
    loop, late = asyncio.get_running_loop(), 0.0
    time, connected = loop.time, egress_proxy._connected

    async def slowly(proxy: egress_proxy.EgressProxy) -> socket.socket:
        nonlocal late
        opened = await connected(proxy)
        late += 6.0
        return opened

    receiver = await serve(answers_ok)
    async with running(Proxy(), settings), Outbound(allow_private=True) as client:
        monkeypatch.setattr(egress_proxy, "PROXY_CONNECT_SECONDS", 60.0)
        monkeypatch.setattr(egress_proxy, "_connected", slowly)
        monkeypatch.setattr(loop, "time", lambda: time() + late)
        answer = await client.post(receiver.url(), b"{}", {}, total_timeout=total_timeout)
    assert answer.error is None


async def test_another_address_of_the_proxy_is_tried(
    serve: Serve, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy has an IPv6 address too, which this host cannot reach."""
    receiver = await serve(answers_ok)
    async with running(Proxy(), settings) as proxy, Outbound(allow_private=True) as client:
        found = [(family, socket.SOCK_STREAM, 0, "", (host, proxy.port)) for family, host in ADDRESSES]

        async def resolved(*_: Any, **__: Any) -> Any:
            return found

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolved)
        answer = await client.post(receiver.url(), b"{}", {})
    assert (answer.ok, len(proxy.asked)) == (True, 1)


async def test_a_proxy_that_refuses_the_service_is_away(serve: Serve, settings: Any) -> None:
    receiver = await serve(answers_ok)
    head = b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"
    async with running(Proxy(head), settings), Outbound(allow_private=True) as client:
        answer = await client.post(receiver.url(), b"{}", {})
    assert (answer.error, answer.concerns_receiver) == ("egress_proxy_away", False)


async def test_a_proxy_that_is_slow_to_connect_takes_nothing_of_the_receivers_time(
    serve: Serve, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packets to the proxy are dropped. The receiver's own deadline is shorter than the wait for the proxy."""
    monkeypatch.setattr(egress_proxy, "PROXY_CONNECT_SECONDS", 0.3)

    async def dropped(*_: Any) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(egress_proxy, "_connected", dropped)
    receiver = await serve(answers_ok)
    settings.WEBHOOK_PROXY_URL = "http://127.0.0.1:9"
    async with asyncio.timeout(20), Outbound(allow_private=True) as client:
        answer = await client.post(receiver.url(), b"{}", {}, connect_timeout=0.1, total_timeout=0.1)
    assert answer.error == "egress_proxy_away"
