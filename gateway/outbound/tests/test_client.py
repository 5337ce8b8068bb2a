"""The outbound door against real servers on loopback that do everything a receiver can do wrong."""

import asyncio
import contextlib
import datetime
import gzip
import itertools
import socket
import ssl
import struct
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.outbound import client as outbound_module
from gateway.outbound.answer import retry_after
from gateway.outbound.client import Answer, Outbound, get_once, post_once
from gateway.outbound.dns import AddressInfo
from tests.certificates import self_signed

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
OK_AND_CLOSE = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
ERRORS = {
    "http_3xx", "http_4xx", "http_5xx", "timeout", "dns_error", "connection_error", "tls_error",
    "blocked_address", "response_too_large",
}  # fmt: skip


class Connection:
    """The receiver's side of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def request(self) -> bytes:
        """The next request, head and body; b"" when the client has gone."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = 0
            for line in head.split(b"\r\n"):
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            return head + await self.reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""

    async def answer(self, data: bytes = OK) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        self.writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        self.writer.transport.abort()

    async def gone(self) -> bool:
        """Waits until the client has closed the connection."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(1 << 20):
                pass
        return True


Behaviour = Callable[[Connection], Awaitable[None]]


class Receiver:
    """A server on loopback; `requests` and `connections` are what reached it."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.requests: list[bytes] = []
        self.connections = 0
        self.gone = asyncio.Event()
        self.port = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        connection = Connection(reader, writer)
        plain_request = connection.request

        async def recorded() -> bytes:
            request = await plain_request()
            if request:
                self.requests.append(request)
            return request

        connection.request = recorded  # type: ignore[method-assign]
        try:
            await self.behaviour(connection)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.gone.set()
            writer.close()

    def url(self, path: str = "/", host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"


Serve = Callable[..., Awaitable[Receiver]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    async with contextlib.AsyncExitStack() as stack:

        async def start(
            behaviour: Behaviour, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
        ) -> Receiver:
            receiver = Receiver(behaviour)
            tasks: set[asyncio.Task[None]] = set()

            def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = asyncio.ensure_future(receiver.handle(reader, writer))
                tasks.add(task)
                task.add_done_callback(tasks.discard)

            server = await asyncio.start_server(connected, host, port, ssl=tls)
            receiver.port = server.sockets[0].getsockname()[1]

            async def stop() -> None:
                server.close()
                for task in list(tasks):
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

            stack.push_async_callback(stop)
            return receiver

        yield start


@pytest.fixture
async def door() -> AsyncIterator[Outbound]:
    async with Outbound(allow_private=True) as outbound:
        yield outbound


async def answers_ok(connection: Connection) -> None:
    while await connection.request():
        await connection.answer()


def says(data: bytes) -> Behaviour:
    """Answers one request with these bytes and closes."""

    async def behaviour(connection: Connection) -> None:
        await connection.request()
        await connection.answer(data)

    return behaviour


class Names:
    """A resolver that knows some names; each look-up of a name takes the next of its answers."""

    def __init__(self, **names: list[list[str]]) -> None:
        self._names = {
            name: itertools.chain(found, itertools.repeat(found[-1])) for name, found in names.items()
        }
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> list[AddressInfo]:
        self.asked.append(host)
        if host not in self._names:
            raise OSError(None, "unknown name")
        return [
            (
                socket.AF_INET6 if ":" in address else socket.AF_INET,
                socket.SOCK_STREAM,
                0,
                "",
                (address, port),
            )
            for address in next(self._names[host])
        ]


# --- What is sent


async def test_sends_the_url_and_the_body_as_they_are(serve: Serve, door: Outbound) -> None:
    receiver = await serve(answers_ok)

    answer = await door.post(
        receiver.url("/hook/%7euser/../x?a=%2F&b=c+d&&"),
        b'{"\xc3\xa4": 1.0}',
        {"Content-Type": "application/json"},
    )

    assert (answer.status, answer.error, answer.ok, answer.body) == (200, None, True, b"ok")
    head, _, body = receiver.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /hook/%7euser/../x?a=%2F&b=c+d&& HTTP/1.1\r\n")
    assert body == b'{"\xc3\xa4": 1.0}'
    headers = head.lower().split(b"\r\n")
    assert b"accept-encoding: identity" in headers
    assert b"accept: */*" in headers
    assert f"host: 127.0.0.1:{receiver.port}".encode() in headers
    assert b"content-type: application/json" in headers


async def test_a_body_of_many_megabytes_arrives_whole(serve: Serve, door: Outbound) -> None:
    receiver = await serve(answers_ok)
    body = bytes(range(256)) * 4 * 4096  # 4 MiB

    assert (await door.post(receiver.url(), body, {})).ok

    assert receiver.requests[0].partition(b"\r\n\r\n")[2] == body


@pytest.mark.parametrize("value", ["a\r\nX-Other: b", "a\nX-Other: b", "a\rb", "a\0b"])
async def test_a_header_does_not_smuggle_another_in(serve: Serve, door: Outbound, value: str) -> None:
    receiver = await serve(answers_ok)

    with pytest.raises(ValueError, match="header"):
        await door.post(receiver.url(), b"{}", {"X-Name": value})

    assert receiver.connections == 0


async def test_get_for_website_checks(serve: Serve, door: Outbound) -> None:
    receiver = await serve(answers_ok)

    answer = await door.get(receiver.url("/about"), {"User-Agent": "test"})

    assert (answer.status, answer.body) == (200, b"ok")
    assert receiver.requests[0].startswith(b"GET /about HTTP/1.1\r\n")
    assert b"accept-encoding: identity" in receiver.requests[0].lower()


async def test_cookies_are_not_kept(serve: Serve, door: Outbound) -> None:
    async def sets_cookie(connection: Connection) -> None:
        while await connection.request():
            await connection.answer(OK.replace(b"\r\n\r\n", b"\r\nSet-Cookie: a=b; Path=/\r\n\r\n"))

    receiver = await serve(sets_cookie)

    await door.post(receiver.url(), b"", {})
    await door.post(receiver.url(), b"", {})

    assert len(receiver.requests) == 2
    assert all(b"cookie" not in request.lower() for request in receiver.requests)


async def test_proxies_of_the_environment_are_ignored(
    serve: Serve, door: Outbound, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver, proxy = await serve(answers_ok), await serve(answers_ok)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, proxy.url())

    assert (await door.post(receiver.url(), b"", {})).ok

    assert (receiver.connections, proxy.connections) == (1, 0)


# --- What comes back


@pytest.mark.parametrize(
    ("status", "error"),
    [
        *[(status, None) for status in (200, 201, 202, 204, 299)],
        *[(status, "http_3xx") for status in (300, 301, 302, 304, 307, 308)],
        *[(status, "http_4xx") for status in (400, 401, 404, 410, 429, 499)],
        *[(status, "http_5xx") for status in (500, 502, 503, 599, 999)],
        (101, "connection_error"),
    ],
)
async def test_only_2xx_is_success(serve: Serve, door: Outbound, status: int, error: str | None) -> None:
    receiver = await serve(says(b"HTTP/1.1 %d Something\r\nContent-Length: 0\r\n\r\n" % status))

    answer = await door.post(receiver.url(), b"{}", {})

    assert (answer.status, answer.error, answer.ok) == (status, error, error is None)


async def test_interim_answers_are_passed_over(serve: Serve, door: Outbound) -> None:
    receiver = await serve(says(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n" + OK))

    assert (await door.post(receiver.url(), b"{}", {})).status == 200


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(serve: Serve, door: Outbound, status: int) -> None:
    target = await serve(answers_ok)
    location = target.url().encode()
    receiver = await serve(
        says(b"HTTP/1.1 %d R\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % (status, location))
    )

    assert (await door.post(receiver.url(), b"{}", {})).error == "http_3xx"
    assert (await door.get(receiver.url(), {})).error == "http_3xx"

    assert (receiver.connections, target.connections) == (2, 0)


async def test_a_long_answer_is_read_to_the_limit_and_cut(serve: Serve, door: Outbound) -> None:
    sent = 0

    async def talks(connection: Connection) -> None:
        nonlocal sent
        await connection.request()
        await connection.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
        for _ in range(1000):
            await connection.answer(b"x" * 100_000)
            sent += 100_000

    receiver = await serve(talks)

    answer = await door.post(receiver.url(), b"{}", {})

    assert answer.ok
    assert answer.body == b"x" * 16 * 1024
    async with asyncio.timeout(5):
        await receiver.gone.wait()
    assert sent < 50_000_000
    assert (await door.post(receiver.url(), b"{}", {}, read_limit=10)).body == b"x" * 10
    assert receiver.connections == 2


async def test_an_answer_as_long_as_the_limit_keeps_the_connection(serve: Serve, door: Outbound) -> None:
    receiver = await serve(answers_ok)

    for _ in range(2):
        assert (await door.post(receiver.url(), b"{}", {}, read_limit=2)).body == b"ok"

    assert receiver.connections == 1


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-Name: \x01\r\nContent-Length: 5\r\n\r\nhello",
    ],
    ids=["lines that end in a line feed", "a space behind a chunk's size", "a control character"],
)
async def test_sloppy_answers_are_understood(serve: Serve, door: Outbound, data: bytes) -> None:
    receiver = await serve(says(data))

    answer = await door.post(receiver.url(), b"{}", {})

    assert (answer.status, answer.error, answer.body) == (200, None, b"hello")


async def test_an_answer_of_unknown_length_lasts_until_the_connection_ends(
    serve: Serve, door: Outbound
) -> None:
    receiver = await serve(says(b"HTTP/1.1 200 OK\r\n\r\nas long as it takes"))

    answer = await door.post(receiver.url(), b"{}", {})

    assert (answer.status, answer.error, answer.body) == (200, None, b"as long as it takes")


async def test_an_answer_before_the_body_was_read_is_the_answer(serve: Serve, door: Outbound) -> None:
    async def refuses(connection: Connection) -> None:
        await connection.reader.readuntil(b"\r\n\r\n")
        await connection.answer(b"HTTP/1.1 413 Large\r\nContent-Length: 0\r\n\r\n")
        await asyncio.Event().wait()

    receiver = await serve(refuses)

    for _ in range(2):
        answer = await door.post(receiver.url(), bytes(32 * 1024 * 1024), {}, total_timeout=5)
        assert (answer.status, answer.error) == (413, "http_4xx")
        assert answer.ms < 4000

    assert receiver.connections == 2


async def test_a_compressed_answer_is_not_unpacked(serve: Serve, door: Outbound) -> None:
    bomb = gzip.compress(bytes(30_000_000))
    receiver = await serve(
        says(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb) + bomb)
    )

    answer = await door.post(receiver.url(), b"{}", {})

    assert answer.ok
    assert answer.body == bomb[: 16 * 1024]


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nX-Long: " + b"a" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X-Name: a\r\n" * 1000 + b"\r\n",
        b"HTTP/1.1 200 " + b"O" * 100_000 + b"\r\n\r\n",
    ],
    ids=["long field", "many fields", "long status line"],
)
async def test_headers_beyond_the_bounds(serve: Serve, door: Outbound, head: bytes) -> None:
    receiver = await serve(says(head))

    answer = await door.post(receiver.url(), b"{}", {})

    assert (answer.status, answer.error) == (None, "response_too_large")


async def test_headers_without_end(serve: Serve, door: Outbound) -> None:
    async def talks(connection: Connection) -> None:
        await connection.request()
        await connection.answer(b"HTTP/1.1 200 OK\r\n")
        while True:
            await connection.answer(b"X-Name: value\r\n" * 10)

    receiver = await serve(talks)

    assert (await door.post(receiver.url(), b"{}", {})).error == "response_too_large"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"", None),
        (b"HTTP/1.1 200 OK\r\nContent-Le", None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", 200),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", 200),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 200),
        (b"SSH-2.0-OpenSSH_9.6\r\n", None),
    ],
)
async def test_an_answer_that_breaks_off(
    serve: Serve, door: Outbound, data: bytes, status: int | None
) -> None:
    receiver = await serve(says(data))

    answer = await door.post(receiver.url(), b"{}", {})

    assert (answer.status, answer.error) == (status, "connection_error")
    assert receiver.connections == 1


async def test_a_refusal_that_breaks_off_is_still_a_refusal(serve: Serve, door: Outbound) -> None:
    receiver = await serve(says(b"HTTP/1.1 503 No\r\nContent-Length: 100\r\nRetry-After: 7\r\n\r\nbecause"))

    answer = await door.post(receiver.url(), b"{}", {})

    assert (answer.status, answer.error, answer.body, answer.retry_after) == (
        503,
        "http_5xx",
        b"because",
        7.0,
    )


async def test_a_reset_connection(serve: Serve, door: Outbound) -> None:
    async def resets(connection: Connection) -> None:
        await connection.request()
        connection.reset()

    receiver = await serve(resets)

    assert (await door.post(receiver.url(), b"{}", {})).error == "connection_error"
    assert receiver.connections == 1


async def test_nobody_listens(door: Outbound) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        answer = await door.post(f"http://127.0.0.1:{unused.getsockname()[1]}/", b"{}", {})

    assert (answer.status, answer.error, answer.body) == (None, "connection_error", b"")


TOKENS = st.sampled_from(
    [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 ", b"HTTP/9.9", b"204", b"-1", b"\r\n", b"\n", b"\x00", b": ",
     b"\xff\xfe", b"Content-Length: 5\r\n", b"Content-Length: -5\r\n",
     b"Content-Length: 99999999999999999999\r\n",
     b"Transfer-Encoding: chunked\r\n", b"5\r\nhello\r\n", b"0\r\n\r\n", b"Content-Encoding: br\r\n",
     b"Set-Cookie: a=\x01; Domain=.; Expires=x\r\n", b"Upgrade: websocket\r\nConnection: Upgrade\r\n",
     b"Retry-After: Fri, 99 Foo 99999 99:99:99 +99999999\r\n", b"Connection: close\r\n", b"hello"]
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(data=st.lists(st.one_of(TOKENS, st.binary(max_size=8)), max_size=10).map(b"".join))
def test_whatever_the_receiver_says_there_is_an_answer(data: bytes) -> None:
    async def ask() -> Answer:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n{}")
            writer.write(data)
            writer.close()

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        async with server, Outbound(allow_private=True) as door:
            port = server.sockets[0].getsockname()[1]
            return await door.post(f"http://127.0.0.1:{port}/", b"{}", {}, total_timeout=2)

    answer = asyncio.run(ask())

    assert answer.error in ERRORS | {None}
    assert len(answer.body) <= 16 * 1024


# --- Deadlines


async def hangs(connection: Connection) -> None:
    await connection.request()
    await connection.gone()


async def drips_a_body(connection: Connection) -> None:
    await connection.request()
    await connection.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        await connection.answer(b"x")
        await asyncio.sleep(0.02)


async def drips_headers(connection: Connection) -> None:
    await connection.request()
    for byte in b"HTTP/1.1 200 OK\r\nX-Name: " + b"a" * 1000:
        await connection.answer(bytes([byte]))
        await asyncio.sleep(0.02)


async def continues_without_end(connection: Connection) -> None:
    await connection.request()
    while True:
        await connection.answer(b"HTTP/1.1 100 Continue\r\n\r\n")
        await asyncio.sleep(0.002)


@pytest.mark.parametrize(
    ("behaviour", "status"),
    [(hangs, None), (drips_a_body, 200), (drips_headers, None), (continues_without_end, None)],
)
async def test_the_deadline_covers_the_whole_answer(
    serve: Serve, door: Outbound, behaviour: Behaviour, status: int | None
) -> None:
    receiver = await serve(behaviour)

    answer = await door.post(receiver.url(), b"{}", {}, total_timeout=0.3)

    assert (answer.status, answer.error) == (status, "timeout")
    assert 290 <= answer.ms < 1500
    async with asyncio.timeout(5):
        await receiver.gone.wait()


async def test_a_refusal_with_an_endless_body_is_still_a_refusal(serve: Serve, door: Outbound) -> None:
    async def refuses(connection: Connection) -> None:
        await connection.request()
        await connection.answer(b"HTTP/1.1 500 No\r\nContent-Length: 100\r\n\r\nso")
        await connection.gone()

    receiver = await serve(refuses)

    answer = await door.post(receiver.url(), b"{}", {}, total_timeout=0.2)

    assert (answer.status, answer.error, answer.body) == (500, "http_5xx", b"so")


async def test_a_receiver_that_does_not_read_holds_nothing(serve: Serve) -> None:
    opened: list[socket.socket] = []

    class Recording(Outbound):
        def _open_socket(self, *args: Any) -> socket.socket:
            opened.append(super()._open_socket(*args))
            return opened[-1]

    async def never_reads(connection: Connection) -> None:
        await asyncio.Event().wait()

    receiver = await serve(never_reads)

    async with Recording(allow_private=True) as door:
        answer = await door.post(receiver.url(), bytes(32 * 1024 * 1024), {}, total_timeout=0.3)

        assert (answer.status, answer.error) == (None, "timeout")
        async with asyncio.timeout(5):
            while any(sock.fileno() >= 0 for sock in opened):
                await asyncio.sleep(0)
        assert len(opened) == 1


async def test_the_deadline_covers_names(door: Outbound) -> None:
    async def hangs(host: str, port: int) -> list[AddressInfo]:
        await asyncio.Event().wait()
        raise AssertionError

    async with Outbound(allow_private=True, resolve=hangs) as outbound:
        total = await outbound.post("http://receiver.test/", b"", {}, total_timeout=0.1)
        connect = await outbound.post("http://receiver.test/", b"", {}, connect_timeout=0.1)

    assert (total.error, connect.error) == ("timeout", "timeout")
    assert max(total.ms, connect.ms) < 1500


async def test_connecting_has_a_deadline_of_its_own(serve: Serve, door: Outbound) -> None:
    async def never_shakes_hands(connection: Connection) -> None:
        await connection.gone()

    receiver = await serve(never_shakes_hands)

    answer = await door.post(receiver.url(scheme="https"), b"", {}, connect_timeout=0.2)

    assert answer.error == "timeout"
    assert answer.ms < 1500


async def test_names_that_hang_do_not_delay_others(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = await serve(answers_ok)
    release = threading.Event()
    real = socket.getaddrinfo

    def slow(host: Any, *args: Any, **kwargs: Any) -> Any:
        if str(host).startswith("slow"):
            release.wait(10)
            raise socket.gaierror(socket.EAI_AGAIN, "try again")
        return real(host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    try:
        async with Outbound(allow_private=True) as door:
            slow_ones = [
                asyncio.ensure_future(door.post(f"http://slow{n}.test/", b"", {}, total_timeout=0.5))
                for n in range(20)
            ]
            await asyncio.sleep(0)
            good = await door.post(receiver.url(host="localhost"), b"", {}, total_timeout=5)
            assert good.ok
            assert not any(task.done() for task in slow_ones)
            assert {answer.error for answer in await asyncio.gather(*slow_ones)} == {"timeout"}
    finally:
        release.set()


async def test_cancelling_closes_the_connection(serve: Serve, door: Outbound) -> None:
    arrived = asyncio.Event()

    async def hangs_loudly(connection: Connection) -> None:
        await connection.request()
        arrived.set()
        await connection.gone()

    receiver = await serve(hangs_loudly)
    task = asyncio.ensure_future(door.post(receiver.url(), b"{}", {}))
    async with asyncio.timeout(5):
        await arrived.wait()

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    async with asyncio.timeout(5):
        await receiver.gone.wait()


# --- Connections that are kept


async def test_connections_are_reused(serve: Serve, door: Outbound) -> None:
    receiver = await serve(answers_ok)

    for _ in range(5):
        assert (await door.post(receiver.url(), b"{}", {})).ok

    assert (receiver.connections, len(receiver.requests)) == (1, 5)


@pytest.mark.parametrize("at_once", [True, False], ids=["with the answer", "after it"])
async def test_an_answer_that_nobody_asked_for_is_not_the_next_one(
    serve: Serve, door: Outbound, at_once: bool
) -> None:
    wrong = b"HTTP/1.1 500 Wrong\r\nContent-Length: 0\r\n\r\n"
    closed = asyncio.Event()

    async def answers_twice(connection: Connection) -> None:
        first = receiver.connections == 1
        await connection.request()
        await connection.answer(OK + wrong if first and at_once else OK)
        if first and not at_once:
            await connection.answer(wrong)
        await connection.gone()
        closed.set()

    receiver = await serve(answers_twice)

    assert (await door.post(receiver.url(), b"{}", {})).status == 200
    async with asyncio.timeout(5):
        await closed.wait()
    assert (await door.post(receiver.url(), b"{}", {})).status == 200

    assert (receiver.connections, len(receiver.requests)) == (2, 2)


async def test_idle_connections_are_closed_after_a_while(serve: Serve) -> None:
    closed = asyncio.Semaphore(0)

    async def answers_until_closed(connection: Connection) -> None:
        await answers_ok(connection)
        closed.release()

    receiver = await serve(answers_until_closed)

    async with Outbound(allow_private=True, keepalive=0.05) as door:
        await asyncio.gather(*(door.post(receiver.url(), b"{}", {}) for _ in range(3)))
        async with asyncio.timeout(5):
            for _ in range(3):
                await closed.acquire()
        assert (await door.post(receiver.url(), b"{}", {})).ok

    assert receiver.connections == 4


@pytest.mark.parametrize("how", ["closes", "resets"])
async def test_a_kept_connection_that_was_closed_is_replaced(serve: Serve, door: Outbound, how: str) -> None:
    """All of several kept connections are closed as the next request arrives on them."""
    together = asyncio.Barrier(3)

    async def answers_once(connection: Connection) -> None:
        await connection.request()
        if receiver.connections <= 3 and len(receiver.requests) <= 3:
            await together.wait()
        await connection.answer()
        if await connection.request() and how == "resets":
            connection.reset()

    receiver = await serve(answers_once)
    first = await asyncio.gather(*(door.post(receiver.url(), b"{}", {}) for _ in range(3)))
    assert all(answer.ok for answer in first)
    assert receiver.connections == 3

    for _ in range(3):
        assert (await door.post(receiver.url(), b"again", {})).ok

    assert receiver.connections == 6
    assert len(receiver.requests) == 9
    assert all(request.endswith(b"again") for request in receiver.requests[3:])


async def test_a_large_body_is_sent_again_from_its_start(serve: Serve, door: Outbound) -> None:
    async def answers_once(connection: Connection) -> None:
        await connection.request()
        await connection.answer()
        await connection.request()

    receiver = await serve(answers_once)
    body = bytes(range(256)) * 8 * 1024  # 2 MiB
    await door.post(receiver.url(), b"{}", {})

    assert (await door.post(receiver.url(), body, {})).ok
    assert receiver.requests[-1].partition(b"\r\n\r\n")[2] == body


async def test_the_second_try_has_no_more_time_than_the_first(serve: Serve, door: Outbound) -> None:
    async def then_hangs(connection: Connection) -> None:
        await connection.request()
        if receiver.connections > 1:
            await connection.gone()
        await connection.answer()
        await connection.request()

    receiver = await serve(then_hangs)
    await door.post(receiver.url(), b"{}", {})

    answer = await door.post(receiver.url(), b"{}", {}, total_timeout=0.3)

    assert answer.error == "timeout"
    assert answer.ms < 1500
    assert receiver.connections == 2


async def test_no_second_try_once_an_answer_has_begun(serve: Serve, door: Outbound) -> None:
    async def breaks_off(connection: Connection) -> None:
        await connection.request()
        await connection.answer()
        await connection.request()
        await connection.answer(b"HTTP/1.1 200 OK\r\n")

    receiver = await serve(breaks_off)
    await door.post(receiver.url(), b"{}", {})

    assert (await door.post(receiver.url(), b"{}", {})).error == "connection_error"
    assert len(receiver.requests) == 2


# --- The guard


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

    async with Outbound(allow_private=False) as door:
        answer = await door.post(receiver.url(host=host), b"{}", {}, total_timeout=5)

    assert (answer.status, answer.error) == (None, "blocked_address")
    assert receiver.connections == 0


@pytest.mark.parametrize("host", ["inside.test", "localhost."])
@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["::1"], ["10.0.0.1", "fd00::1", "::ffff:127.0.0.1"]])
async def test_names_of_addresses_that_are_not_public_are_blocked(
    serve: Serve, host: str, addresses: list[str]
) -> None:
    receiver = await serve(answers_ok)

    async with Outbound(allow_private=False, resolve=Names(**{host: [addresses]})) as door:
        answer = await door.post(receiver.url(host=host), b"{}", {})
        page = await door.get(receiver.url(host=host), {})

    assert (answer.error, page.error) == ("blocked_address", "blocked_address")
    assert receiver.connections == 0


@pytest.fixture
def only_this_is_public(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbound_module, "is_public", lambda address: address == "127.0.0.1")


@pytest.mark.usefixtures("only_this_is_public")
async def test_a_name_that_moves_to_a_private_address_is_blocked(serve: Serve) -> None:
    public = await serve(says(OK_AND_CLOSE))
    private = await serve(answers_ok, "::1", public.port)
    names = Names(**{"moves.test": [["127.0.0.1"], ["::1"]]})

    async with Outbound(allow_private=False, resolve=names, dns_seconds=0) as door:
        first = await door.post(public.url(host="moves.test"), b"{}", {})
        second = await door.post(public.url(host="moves.test"), b"{}", {})

    assert (first.error, second.error) == (None, "blocked_address")
    assert (public.connections, private.connections) == (1, 0)


@pytest.mark.usefixtures("only_this_is_public")
async def test_of_several_addresses_only_public_ones_are_called(serve: Serve) -> None:
    public = await serve(answers_ok)
    private = await serve(answers_ok, "::1", public.port)
    names = Names(**{"both.test": [["::1", "127.0.0.1"]]})

    async with Outbound(allow_private=False, resolve=names) as door:
        answer = await door.post(public.url(host="both.test"), b"{}", {})

    assert answer.ok
    assert (public.connections, private.connections) == (1, 0)


@pytest.mark.usefixtures("only_this_is_public")
async def test_a_public_address_that_refuses_is_no_blocked_address(serve: Serve) -> None:
    private = await serve(answers_ok, "::1")
    names = Names(**{"both.test": [["::1", "127.0.0.1"]]})

    async with Outbound(allow_private=False, resolve=names) as door:
        answer = await door.post(private.url(host="both.test"), b"{}", {})

    assert answer.error == "connection_error"
    assert private.connections == 0


async def test_private_addresses_where_they_are_allowed(serve: Serve, door: Outbound) -> None:
    v4 = await serve(answers_ok)
    v6 = await serve(answers_ok, "::1")

    assert (await door.post(v4.url(), b"", {})).ok
    assert (await door.post(v4.url(host="localhost"), b"", {})).ok
    assert (await door.post(v6.url(host="[::1]"), b"", {})).ok
    assert b"Host: [::1]:%d\r\n" % v6.port in v6.requests[0]


# --- Names


async def test_an_unknown_name() -> None:
    names = Names()

    async with Outbound(allow_private=True, resolve=names) as door:
        answer = await door.post("https://nowhere.test/", b"", {})

    assert (answer.status, answer.error) == (None, "dns_error")
    assert names.asked == ["nowhere.test"]


@pytest.mark.parametrize("host", ["a" * 64 + ".test", "a..test", "nowhere.test"])
async def test_a_name_the_system_does_not_resolve(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo

    def without_network(name: Any, *args: Any, **kwargs: Any) -> Any:
        if name == "nowhere.test":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", without_network)

    async with Outbound(allow_private=True) as door:
        assert (await door.post(f"https://{host}/", b"", {})).error == "dns_error"


async def test_looked_up_names_are_kept_for_a_while(serve: Serve) -> None:
    receiver = await serve(says(OK_AND_CLOSE))
    names = Names(**{"kept.test": [["127.0.0.1"]]})

    async with Outbound(allow_private=True, resolve=names) as door:
        for _ in range(3):
            assert (await door.post(receiver.url(host="kept.test"), b"", {})).ok

    assert receiver.connections == 3
    assert names.asked == ["kept.test"]


async def test_a_url_that_cannot_be_called() -> None:
    async with Outbound(allow_private=True, resolve=Names()) as door:
        assert (await door.post("https://receiver.test:99999/", b"", {})).error == "blocked_address"


# --- TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 and receiver.test that nobody vouches for, with its key."""
    return self_signed(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def server_tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


async def test_a_certificate_that_nobody_vouches_for(
    serve: Serve, door: Outbound, server_tls: ssl.SSLContext
) -> None:
    receiver = await serve(answers_ok, tls=server_tls)

    answer = await door.post(receiver.url(scheme="https"), b"secret", {})

    assert (answer.status, answer.error) == (None, "tls_error")
    assert receiver.requests == []


async def test_a_trusted_certificate(serve: Serve, certificate: Path, server_tls: ssl.SSLContext) -> None:
    receiver = await serve(answers_ok, tls=server_tls)
    trusting = ssl.create_default_context(cafile=str(certificate))
    names = Names(**{"receiver.test": [["127.0.0.1"]], "other.test": [["127.0.0.1"]]})

    async with Outbound(allow_private=True, resolve=names, tls=trusting) as door:
        by_name = await door.post(receiver.url(scheme="https", host="receiver.test"), b"{}", {})
        again = await door.post(receiver.url(scheme="https", host="receiver.test"), b"{}", {})
        wrong_name = await door.post(receiver.url(scheme="https", host="other.test"), b"{}", {})

    assert (by_name.ok, again.ok, wrong_name.error) == (True, True, "tls_error")
    assert len(receiver.requests) == 2


async def test_https_where_plain_http_is_spoken(serve: Serve, door: Outbound) -> None:
    async def plain(connection: Connection) -> None:
        await connection.reader.read(100)
        await connection.answer(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    receiver = await serve(plain)

    assert (await door.post(receiver.url(scheme="https"), b"", {})).error == "tls_error"


# --- Retry-After


def http_date(seconds: float) -> str:
    moment = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
    return format_datetime(moment, usegmt=True)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "120"}, 120.0),
        ({"Retry-After": " 0 "}, 0.0),
        ({"Retry-After": "9" * 400}, 30 * 86400.0),
        ({"Retry-After": "1.5"}, None),
        ({"Retry-After": "-3"}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "٣"}, None),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 +99999999999999"}, None),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"Retry-After": "Wed, 21 Oct 2015 07:29:00 GMT", "Date": "Wed, 21 Oct 2015 07:28:00 GMT"}, 60.0),
        ({"Retry-After": "Wed, 21 Oct 2015 07:29:00 GMT", "Date": "today"}, 0.0),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def test_retry_after_as_a_date_by_the_clock_of_this_machine() -> None:
    waiting = retry_after({"Retry-After": http_date(90)})

    assert waiting is not None
    assert 85 <= waiting <= 90


@given(value=st.text(), date=st.text())
def test_retry_after_of_any_text(value: str, date: str) -> None:
    waiting = retry_after({"Retry-After": value, "Date": date})

    assert waiting is None or 0 <= waiting <= 30 * 86400


async def test_retry_after_is_in_the_answer(serve: Serve, door: Outbound) -> None:
    receiver = await serve(says(b"HTTP/1.1 429 Slow\r\nretry-after: 33\r\nContent-Length: 0\r\n\r\n"))

    answer = await door.post(receiver.url(), b"{}", {})

    assert (answer.status, answer.error, answer.retry_after) == (429, "http_4xx", 33.0)


# --- Synchronous callers


@pytest.fixture
def threaded_server() -> Any:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body.upper())

        def do_GET(self) -> None:
            self.send_response(404)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            """Silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_post_once_and_get_once(threaded_server: str) -> None:
    posted = post_once(threaded_server, b"challenge", {}, allow_private=True, total_timeout=5.0)
    got = get_once(threaded_server, {}, allow_private=True)

    assert (posted.status, posted.error, posted.body) == (200, None, b"CHALLENGE")
    assert (got.status, got.error) == (404, "http_4xx")
    assert post_once(threaded_server, b"", {}, allow_private=False).error == "blocked_address"


def test_post_once_ends_in_time_though_the_name_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    def slow(*args: Any, **kwargs: Any) -> Any:
        release.wait(10)
        raise socket.gaierror(socket.EAI_AGAIN, "try again")

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    started = time.monotonic()
    try:
        answer = post_once("http://slow.test/", b"", {}, allow_private=True, total_timeout=0.2)
        elapsed = time.monotonic() - started
    finally:
        release.set()

    assert answer.error == "timeout"
    assert elapsed < 2
