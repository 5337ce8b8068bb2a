"""Graph API calls from event loops and from threads: kept connections, whole answers, one error for every fault."""

import asyncio
import io
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvloop

from gateway.upstream import blocking_client
from gateway.upstream import calls as async_module
from gateway.upstream.blocking_client import FileBody
from gateway.upstream.calls import AsyncPool, GraphAnswer, GraphCall, UpstreamUnreachable
from tests.certificates import self_signed
from tests.raw_server import raw_server

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Usage: a\r\nContent-Length: 2\r\n\r\n{}"


Result = TypeVar("Result")


class Upstream:
    """A server that gives the answers which a test sets. `requests` and `connections` record what it received."""

    def __init__(self) -> None:
        self.answer = OK
        self.closes = False
        self.together: asyncio.Barrier | None = None
        self.requests: list[bytes] = []
        self.connections = 0
        self.closed = threading.Event()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            self.requests.append(head + await reader.readexactly(length))
            if self.together is not None:
                await self.together.wait()
            writer.write(self.answer)
            await writer.drain()
            if self.closes:
                writer.close()
                await writer.wait_closed()
                self.closed.set()
                return


@pytest.fixture
def upstream() -> Upstream:
    return Upstream()


class OnALoop:
    """The asynchronous pool, which threads call. It runs on an event loop in a separate thread."""

    def __init__(self, new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self._loop = new_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._pool = self._run(self._open())

    def send(self, call: GraphCall) -> GraphAnswer:
        return self._run(self._pool.send(call))

    def close(self) -> None:
        self._run(self._pool.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _open(self) -> AsyncPool:
        return await AsyncPool(limit=4).__aenter__()

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)


class FromThreads:
    """Calls from threads, on their own connections."""

    def __init__(self) -> None:
        blocking_client._pool.cache_clear()

    def send(self, call: GraphCall) -> GraphAnswer:
        return blocking_client.send(call)

    def close(self) -> None:
        blocking_client.close()
        blocking_client._pool.cache_clear()


Pool = FromThreads | OnALoop
POOLS: dict[str, Callable[[], Pool]] = {
    "threads": FromThreads,
    "asyncio": lambda: OnALoop(asyncio.new_event_loop),
    "uvloop": lambda: OnALoop(uvloop.new_event_loop),
}


@pytest.fixture(params=POOLS)
def pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    pool = POOLS[request.param]()
    yield pool
    pool.close()


@pytest.fixture
def from_threads() -> Iterator[FromThreads]:
    pool = FromThreads()
    yield pool
    pool.close()


def send(pool: Pool, url: str, body: bytes = b'{"a":1}') -> GraphAnswer:
    return pool.send(
        GraphCall("POST", f"{url}/v25.0/1/messages?appsecret_proof=ab", {"Authorization": "Bearer t"}, body)
    )


def test_what_goes_out_and_what_comes_back(upstream: Upstream, pool: Pool) -> None:
    with raw_server(upstream.connected) as url:
        answer = send(pool, url)
        assert (answer.status, answer.body, answer.headers["x-usage"], answer.ok) == (200, b"{}", "a", True)
        head, _, body = upstream.requests[0].partition(b"\r\n\r\n")
    assert body == b'{"a":1}'
    line, *headers = head.split(b"\r\n")
    assert line == b"POST /v25.0/1/messages?appsecret_proof=ab HTTP/1.1"
    assert {header for header in headers if not header.startswith(b"User-Agent: ")} == {
        b"Host: " + url.removeprefix("http://").encode(),
        b"Accept-Encoding: identity",
        b"Authorization: Bearer t",
        b"Content-Length: 7",
    }


def test_a_connection_serves_one_call_after_another_and_never_two_at_once(
    upstream: Upstream, pool: Pool
) -> None:
    with raw_server(upstream.connected) as url:
        for _ in range(3):
            assert send(pool, url).ok
        assert upstream.connections == 1
        upstream.together = asyncio.Barrier(4)
        answers: list[GraphAnswer] = []
        threads = [threading.Thread(target=lambda: answers.append(send(pool, url))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert [answer.ok for answer in answers] == [True] * 4
        assert upstream.connections == 4


def test_a_connection_that_the_upstream_has_closed_meanwhile_is_not_used(
    upstream: Upstream, pool: Pool
) -> None:
    upstream.closes = True
    with raw_server(upstream.connected) as url:
        assert send(pool, url).ok
        assert upstream.closed.wait(10)
        assert send(pool, url).ok
    assert (upstream.connections, len(upstream.requests)) == (2, 2)


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_a_connection_idle_for_too_long_is_not_used(
    upstream: Upstream, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_module, "IDLE_SECONDS", 0.0)
    pool = POOLS[kind]()
    try:
        with raw_server(upstream.connected) as url:
            assert send(pool, url).ok
            assert send(pool, url).ok
            assert upstream.connections == 2
    finally:
        pool.close()


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", b"{}"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, b"{}"),
        (b"HTTP/1.1 200 OK\r\n\r\nto the end", b"to the end"),
        (b"HTTP/1.0 500 No\r\nContent-Length: 4\r\n\r\noops", b"oops"),
        (b"HTTP/1.1 204 Nothing\r\n\r\n", b""),
    ],
)
def test_answers_of_every_form(upstream: Upstream, pool: Pool, answer: bytes, body: bytes) -> None:
    upstream.answer, upstream.closes = answer, True
    with raw_server(upstream.connected) as url:
        assert send(pool, url).body == body


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1",
        b"HTTP/1.1 200 OK\r\nContent-Length: ",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunk",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 20000000\r\n\r\n" + b"a" * 20_000_000,
    ],
    ids=[
        "nothing",
        "no HTTP",
        "a status",
        "half a header",
        "half a length",
        "no length",
        "half a coding",
        "no end of the head",
        "half a body",
        "endless head",
        "endless body",
    ],
)
def test_an_answer_that_is_none_leaves_the_outcome_unknown(
    upstream: Upstream, pool: Pool, answer: bytes
) -> None:
    upstream.answer, upstream.closes = answer, True
    with raw_server(upstream.connected) as url:
        with pytest.raises(UpstreamUnreachable) as unreachable:
            send(pool, url)
        upstream.answer, upstream.closes = OK, False
        assert send(pool, url).ok, "and harms no later call"
    assert (unreachable.value.reason, unreachable.value.is_unsent) == ("connection_error", False)
    assert len(upstream.requests) == 2


def test_an_answer_as_long_as_the_limit_is_read_and_a_longer_one_is_none(
    upstream: Upstream, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (blocking_client, async_module):
        monkeypatch.setattr(module, "MOST_BODY_BYTES", 5)
    with raw_server(upstream.connected) as url:
        for body in (b"12345", b"123456"):
            upstream.answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
            if len(body) == 5:
                assert send(pool, url).body == body
                continue
            with pytest.raises(UpstreamUnreachable) as unreachable:
                send(pool, url)
            assert (unreachable.value.reason, unreachable.value.is_unsent) == ("connection_error", False)


def test_nobody_listens(pool: Pool) -> None:
    with pytest.raises(UpstreamUnreachable) as unreachable:
        send(pool, "http://127.0.0.1:9")
    assert unreachable.value.is_unsent


def test_a_name_without_an_address(pool: Pool) -> None:
    with pytest.raises(UpstreamUnreachable) as unreachable:
        send(pool, "http://nobody.invalid")
    assert unreachable.value.is_unsent


def test_a_certificate_is_verified(
    upstream: Upstream, pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with raw_server(upstream.connected, context) as url:
        with pytest.raises(UpstreamUnreachable) as unreachable:
            send(pool, url)
        assert unreachable.value.is_unsent
        assert upstream.requests == []
        trusting = ssl.create_default_context(cafile=str(certificate))
        monkeypatch.setattr(blocking_client, "tls_context", lambda: trusting)
        blocking_client._pool.cache_clear()
        monkeypatch.setattr(async_module, "tls_context", lambda: trusting)
        for _ in range(2):
            assert send(pool, url).ok
        assert upstream.connections == 1, (
            "the failed handshake reached no handler, the kept connection served twice"
        )


@pytest.mark.parametrize("token", ["a\r\nX-Other: b", "a\nb", "a\0b"])
def test_a_header_does_not_smuggle_another_in(pool: Pool, token: Any) -> None:
    with pytest.raises(ValueError, match="header"):
        pool.send(GraphCall("POST", "http://127.0.0.1:9/", {"Authorization": f"Bearer {token}"}, b"{}"))


@pytest.mark.parametrize(("method", "length"), [("GET", None), ("POST", b"0"), ("DELETE", b"0")])
def test_a_call_without_a_body(method: str, length: bytes | None, pool: Pool) -> None:
    heads: list[bytes] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK)
        await writer.drain()

    with raw_server(connected) as url:
        assert pool.send(GraphCall(method, f"{url}/v25.0/1", {})).ok
    lines = dict(line.split(b": ") for line in heads[0].rstrip().split(b"\r\n")[1:])
    assert lines.get(b"Content-Length") == length


def file_call(url: str, size: int) -> GraphCall:
    return GraphCall("POST", f"{url}/v25.0/1/media", {}, FileBody(io.BytesIO(b"x" * size), length=size))


@pytest.mark.parametrize("size", [0, 1, blocking_client._READ_BYTES, 2 * blocking_client._READ_BYTES + 1])
def test_a_body_is_no_longer_than_its_declared_length(size: int) -> None:
    body = FileBody(io.BytesIO(b"x" * size + b"beyond" * blocking_client._READ_BYTES), length=size)
    assert b"".join(body) == b"x" * size


def test_a_file_goes_out_whole_and_its_connection_is_kept(
    upstream: Upstream, from_threads: FromThreads
) -> None:
    with raw_server(upstream.connected) as url:
        for _ in range(2):
            assert from_threads.send(file_call(url, 1_000_000)).ok
    assert [len(request.partition(b"\r\n\r\n")[2]) for request in upstream.requests] == [1_000_000] * 2
    assert upstream.connections == 1


def test_an_answer_that_comes_before_the_whole_file_counts(from_threads: FromThreads) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()

    with raw_server(refuse) as url:
        for _ in range(2):
            assert from_threads.send(file_call(url, 50_000_000)).status == 413


def test_a_streamed_answer_comes_in_bounded_pieces_and_its_connection_is_kept(
    upstream: Upstream, from_threads: FromThreads
) -> None:
    body = bytes(range(256)) * 40_000
    upstream.answer = b"HTTP/1.1 200 OK\r\nX-Name: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    with raw_server(upstream.connected) as url:
        for _ in range(2):
            stream = blocking_client.stream(GraphCall("GET", f"{url}/bytes", {}, b""))
            assert (stream.status, stream.headers["x-name"]) == (200, "a")
            pieces = list(stream)
            stream.close()
            assert b"".join(pieces) == body
            assert max(map(len, pieces)) <= 64 * 1024
    assert upstream.connections == 1


def test_a_streamed_answer_that_is_left_early_takes_its_connection_with_it(
    upstream: Upstream, from_threads: FromThreads
) -> None:
    upstream.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\n" + b"a" * 10_000_000
    with raw_server(upstream.connected) as url:
        stream = blocking_client.stream(GraphCall("GET", f"{url}/bytes", {}, b""))
        assert next(iter(stream))
        stream.close()
        upstream.answer = OK
        assert send(from_threads, url).body == b"{}"
    assert upstream.connections == 2


def test_a_streamed_answer_that_stalls_is_unreachable(
    upstream: Upstream, from_threads: FromThreads, settings: Any
) -> None:
    settings.UPSTREAM_TIMEOUT_MS = 200
    upstream.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"
    with raw_server(upstream.connected) as url:
        stream = blocking_client.stream(GraphCall("GET", f"{url}/bytes", {}, b""))
        with pytest.raises(UpstreamUnreachable) as unreachable:
            list(stream)
    assert unreachable.value.reason == "timeout"


def test_a_streamed_answer_that_breaks_off_in_its_head_is_unreachable(
    upstream: Upstream, from_threads: FromThreads
) -> None:
    upstream.answer, upstream.closes = b"HTTP/1.1 200 OK\r\nContent-Le", True
    with raw_server(upstream.connected) as url:
        stream = blocking_client.stream(GraphCall("GET", f"{url}/bytes", {}, b""))
        with pytest.raises(UpstreamUnreachable):
            list(stream)
