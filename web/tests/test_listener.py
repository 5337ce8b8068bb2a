"""Strangers on a connection of the listener: slow bytes, floods and malformed input are limited in time and memory."""

import asyncio
import contextlib
import errno
import io
import json
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from django.conf import settings

from gateway.api import access_log, authentication
from gateway.api.errors import Reply
from gateway.api.limits import LargeBodyMemory
from gateway.monitoring import logs
from tests.fixtures import assert_error_body, wait_until
from tests.front import Front
from web import listener, request
from web.listener import connections
from web.request import Request
from web.routes import ROUTES, Route

LIVE = b"GET /v1/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
BEGUN = b"POST /upstream/webhook HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"
OF_STRANGER = b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"
OF_CALLER = OF_STRANGER.replace(b"Host: x", f"Host: x\r\nCookie: {settings.SESSION_COOKIE_NAME}=any".encode())
CHUNKED = b"POST /upstream/webhook HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


def closing(request: bytes) -> bytes:
    """A request with `Connection: close`."""
    return request.replace(b"Host: x", b"Host: x\r\nConnection: close")


def talk(address: tuple[str, int], *parts: bytes) -> bytes:
    """Send bytes on one connection, and read until the connection is closed."""
    with socket.create_connection(address, timeout=20) as connection:
        for part in parts:
            connection.sendall(part)
        received = b""
        while part := connection.recv(65536):
            received += part
    return received


def error_of(received: bytes, status: int, code: str) -> None:
    """Check that the bytes are one response in the service's form, which closes the connection."""
    head, _, body = received.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0].startswith(f"HTTP/1.1 {status} ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
    assert headers["connection"] == "close"
    assert headers["x-service-request-id"] == json.loads(body)["request_id"]
    assert_error_body(json.loads(body), code)


def test_what_is_no_http_is_400(front_address: tuple[str, int]) -> None:
    error_of(talk(front_address, b"EHLO mail\r\n\r\n"), 400, "invalid_request")


def test_an_answer_without_a_request_is_logged_and_counted(
    front_address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    written, counted = io.StringIO(), list[str]()
    monkeypatch.setattr(logs, "_stream", written)
    monkeypatch.setattr(access_log, "ANSWERS", SimpleNamespace(add=lambda label: counted.append(label)))
    received = talk(front_address, b"EHLO mail\r\n\r\n")
    error_of(received, 400, "invalid_request")
    (line,) = map(json.loads, written.getvalue().splitlines())
    assert (line["event"], line["status"], line["method"], line["route"]) == ("request", 400, None, None)
    assert line["request_id"].encode() in received
    assert counted == ["api_4xx"]


def test_headers_without_end_are_431(front_address: tuple[str, int]) -> None:
    flood = b"GET /v1/health HTTP/1.1\r\n" + b"X-Filler: " + b"x" * 200_000
    received = talk(front_address, flood[:40_000], flood[40_000:66_000])
    error_of(received, 431, "headers_too_large")


def test_headers_that_drip_are_408(front_address: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "HEADER_SECONDS", 0.3)
    for begun in (b"", b"GET /v1/health HTTP/1.1\r\nX-Slow: "):
        began = time.monotonic()
        error_of(talk(front_address, begun), 408, "request_timeout")
        assert time.monotonic() - began < 5


def test_a_connection_that_sent_its_headers_in_time_is_kept(
    front_address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that sends none begins later, and is refused."""
    monkeypatch.setattr(listener, "HEADER_SECONDS", 0.3)
    with socket.create_connection(front_address, timeout=20) as kept:
        for _ in range(2):
            kept.sendall(LIVE)
            received = b""
            while b'"ok":true' not in received:
                received += kept.recv(65_536)
                assert received.startswith(b"HTTP/1.1 200 ")
            error_of(talk(front_address, b""), 408, "request_timeout")
        assert select.select([kept], [], [], 0)[0] == []


def test_an_idle_connection_is_closed_after_a_while(
    front_address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = listener.BoundedProtocol.connection_made

    def connection_made(self: listener.BoundedProtocol, transport: Any) -> None:
        made(self, transport)
        self.timeout_keep_alive = 0.1  # type: ignore[assignment]

    monkeypatch.setattr(listener.BoundedProtocol, "connection_made", connection_made)
    assert talk(front_address, LIVE).startswith(b"HTTP/1.1 200 ")


def test_a_body_that_drips_is_408(front_address: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "BODY_GRACE_SECONDS", 0.3)
    head = b"POST /upstream/webhook HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
    error_of(talk(front_address, head, b"x"), 408, "request_timeout")


async def test_a_body_has_the_time_that_its_size_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second part comes after the grace period."""
    monkeypatch.setattr(request, "BODY_GRACE_SECONDS", 0.01)
    parts = iter([b"x" * 100_000, b"y"])
    loop, later = asyncio.get_running_loop(), asyncio.Event()

    async def receive() -> request.AsgiMessage:
        part = next(parts)
        if part == b"y":
            loop.call_later(0.1, later.set)
            await later.wait()
        return {"type": "http.request", "body": part, "more_body": part != b"y"}

    scope = {
        "method": "POST",
        "path": "/v1/media",
        "query_string": b"",
        "headers": [(b"content-length", b"100001")],
    }
    asked = request.Request(scope, receive)
    assert len(await asked.part()) + len(await asked.part()) == 100_001
    assert asked.body_is_read


def test_a_body_that_never_stops_dripping_is_408(
    front_address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte arrives within the grace period, but the whole body is too slow."""
    monkeypatch.setattr(request, "BODY_GRACE_SECONDS", 0.4)
    head = b"POST /upstream/webhook HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
    with socket.create_connection(front_address, timeout=20) as connection:
        connection.sendall(head)
        for _ in range(200):
            connection.sendall(b"x")
            if select.select([connection], [], [], 0.05)[0]:
                break
        else:
            pytest.fail("ten seconds were waited for 200 bytes")
        assert connection.recv(64).startswith(b"HTTP/1.1 408 ")


def test_framing_without_end_is_431(front_address: tuple[str, int]) -> None:
    received = talk(front_address, CHUNKED + b"1\r\nx\r\n0\r\nX-Trailer: ", *[b"y" * 65_536] * 4)
    error_of(received, 431, "headers_too_large")


def test_what_follows_a_refusal_is_dropped_up_to_a_bound(front_address: tuple[str, int]) -> None:
    with pytest.raises(ConnectionError):
        talk(front_address, CHUNKED + b"1\r\nx\r\n0\r\nX-Trailer: ", *[b"y" * 65_536] * 200)


def test_a_body_that_is_cut_into_dust_is_refused_early(front_address: tuple[str, int]) -> None:
    """A stranger's megabyte in chunks of one byte would keep the interpreter busy for two seconds."""
    # The body has no end, so its beginning alone must close the connection.
    error_of(talk(front_address, CHUNKED + b"1\r\nx\r\n" * 1100), 400, "invalid_request")
    fair = b"1\r\nx\r\n" * 900 + b"40\r\n%b\r\n" % (b"x" * 64) * 2000 + b"0\r\n\r\n"
    error_of(talk(front_address, closing(CHUNKED) + fair), 401, "unauthorized")


@pytest.mark.parametrize(
    "chunks", [b"a message\r\n", b"1;\nx\r\n0\r\n\r\n", b"1\r\nx\r\n0\r\nContent-Length: 9\r\n\r\n"]
)
def test_a_body_whose_chunks_are_broken_is_400(front_address: tuple[str, int], chunks: bytes) -> None:
    """The bytes after the broken chunk must not be read as a request."""
    error_of(talk(front_address, CHUNKED + chunks + LIVE), 400, "invalid_request")


def test_large_bodies_share_a_bound_and_small_ones_pass(
    front_address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = LargeBodyMemory(500_000)
    monkeypatch.setattr(request, "large_bodies", memory)
    head = b"POST /upstream/webhook HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    with socket.create_connection(front_address) as first:
        first.sendall(head % 1_000_000 + b"x" * 400_000)
        deadline = time.monotonic() + 10
        while memory._taken < 300_000:
            assert time.monotonic() < deadline, "the first body is not counted"
            time.sleep(0.01)
        error_of(talk(front_address, head % 300_000 + b"x" * 300_000), 503, "service_unavailable")
        error_of(talk(front_address, head % 1000 + b"x" * 1000), 401, "unauthorized")
    while memory._taken:
        assert time.monotonic() < deadline, "what the body took is given back"
        time.sleep(0.01)


def test_a_request_refused_by_its_headers_is_not_read(front_address: tuple[str, int]) -> None:
    head = b"PUT /upstream/webhook HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"
    error_of(talk(front_address, head), 405, "method_not_allowed")


def test_requests_behind_each_other_on_one_connection(front_address: tuple[str, int]) -> None:
    assert talk(front_address, LIVE * 3 + closing(LIVE)).count(b'"ok":true') == 4


LOG_IN = b'{"email": "nobody@shop.example", "password": "wrong"}'
OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "framed",
    [
        b"Content-Length: %d\r\n\r\n%b" % (len(LOG_IN), LOG_IN),
        b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(LOG_IN), LOG_IN),
    ],
    ids=["one length", "chunks"],
)
def test_an_offer_of_another_protocol_is_ignored(front_address: tuple[str, int], framed: bytes) -> None:
    """Java's client makes this offer at first. The body belongs to the request, and the connection continues."""
    head = (
        b"POST /v1/console/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + OFFER
    )
    for cut in (0, 60, len(head) + 2, len(head + framed) - 10):
        sent = head + framed + closing(LIVE)
        received = talk(front_address, *filter(None, (sent[:cut], sent[cut:])))
        assert received.startswith(b"HTTP/1.1 401 ")
        assert received.count(b"HTTP/1.1 ") == 2
        assert b'"ok":true' in received


def test_a_body_behind_an_offer_is_never_a_request(front_address: tuple[str, int]) -> None:
    head = b"POST /upstream/webhook HTTP/1.1\r\nHost: x\r\n%bContent-Length: %d\r\n\r\n" % (OFFER, len(LIVE))
    received = talk(front_address, (head + LIVE) * 2 + closing(LIVE))
    assert received.count(b"HTTP/1.1 401 ") == 2
    assert received.count(b'"ok":true') == 1


def test_offers_without_end_are_refused_as_other_requests_are(front_address: tuple[str, int]) -> None:
    received = talk(front_address, LIVE.replace(b"\r\n\r\n", b"\r\n" + OFFER + b"\r\n") * 1000)
    assert 1 < received.count(b"HTTP/1.1 200 ") < 1000
    assert b"HTTP/1.1 400 " in received


def test_requests_that_wait_without_end_are_refused_after_the_first_answers(
    front_address: tuple[str, int],
) -> None:
    """One read can bring thousands of requests. Twenty such connections used 400 MB and delayed all others."""
    received = talk(front_address, LIVE * 1000)
    answers = received.split(b"HTTP/1.1 ")[1:]
    assert [answer[:3] for answer in answers[:-1]] == [b"200"] * (len(answers) - 1)
    assert 1 < len(answers) < 1000
    error_of(b"HTTP/1.1 " + answers[-1], 400, "invalid_request")


def test_a_rejection_that_waits_for_an_earlier_answer_stays_the_same(
    front_address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time for the headers of the rejected request ends while it waits."""
    begun, goes_on = threading.Event(), threading.Event()

    async def waits(request: Request) -> Reply:
        begun.set()
        assert await asyncio.to_thread(goes_on.wait, 30)
        return Reply(200, {}, b"done")

    monkeypatch.setattr(listener, "HEADER_SECONDS", 0.3)
    monkeypatch.setitem(ROUTES, "/upstream/webhook", Route({"GET": waits}))
    with socket.create_connection(front_address, timeout=20) as connection:
        connection.sendall(LIVE.replace(b"/v1/health/live", b"/upstream/webhook") + LIVE[:40])
        assert begun.wait(20)
        connection.sendall(b"malformed\r\n\r\n")
        error_of(talk(front_address), 408, "request_timeout")
        goes_on.set()
        received = b"".join(iter(partial(connection.recv, 65_536), b""))
    done, rejection = received.split(b"HTTP/1.1 ")[1:]
    assert done.startswith(b"200 ")
    error_of(b"HTTP/1.1 " + rejection, 400, "invalid_request")


def test_headers_behind_a_body_have_the_limit_of_all_headers(
    front_address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The framing that a long body may have must not let the next request's headers be longer."""
    begun, goes_on = threading.Event(), threading.Event()
    received_bytes = 0
    receive = listener.BoundedProtocol.data_received

    def data_received(self: listener.BoundedProtocol, data: bytes) -> None:
        nonlocal received_bytes
        received_bytes += len(data)
        receive(self, data)

    async def waits(request: Request) -> Reply:
        await request.body(limit=65_536)
        begun.set()
        assert await asyncio.to_thread(goes_on.wait, 30)
        return Reply(200, {}, b"done")

    monkeypatch.setattr(listener.BoundedProtocol, "data_received", data_received)
    monkeypatch.setitem(ROUTES, "/upstream/webhook", Route({"POST": waits}))
    asked = BEGUN.replace(b"100", b"65536") + b"x" * 65_536
    headers = closing(LIVE)[:-2] + b"X-Filler: " + b"x" * 300_000 + b"\r\n\r\n"
    with socket.create_connection(front_address, timeout=20) as connection:
        connection.sendall(asked)
        assert begun.wait(20)
        connection.sendall(headers)
        wait_until(lambda: received_bytes >= len(asked + headers), "the listener did not read the headers")
        goes_on.set()
        received = b"".join(iter(partial(connection.recv, 65_536), b""))
    done, rejection = received.split(b"HTTP/1.1 ")[1:]
    assert done.startswith(b"200 ")
    error_of(b"HTTP/1.1 " + rejection, 431, "headers_too_large")


@pytest.mark.parametrize(
    ("text", "status", "code"),
    [
        (b"GET /v1/health/live HTTP/1.1\r\n\r\n", 400, "invalid_request"),
        (b"GET /v1/health/live HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", 400, "invalid_request"),
        (
            b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            400,
            "invalid_request",
        ),
        (
            b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
            400,
            "invalid_request",
        ),
        (b"GET /?q=" + b"x" * 17_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414, "uri_too_long"),
    ],
    ids=["no host", "two hosts", "another coding", "two lengths", "a long URL"],
)
def test_what_two_servers_could_read_differently_is_refused(
    front_address: tuple[str, int], text: bytes, status: int, code: str
) -> None:
    error_of(talk(front_address, text), status, code)


def test_http_1_0_names_no_host(front_address: tuple[str, int]) -> None:
    assert talk(front_address, b"GET /v1/health/live HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 ")


def ask(connection: socket.socket) -> None:
    """Send one request and read its response. The connection stays open."""
    connection.sendall(LIVE)
    received = b""
    while b'"ok":true' not in received:
        received += connection.recv(65536)
        assert received, "it was closed"


def is_closed(connection: socket.socket) -> bool:
    return bool(select.select([connection], [], [], 0)[0]) and connection.recv(1, socket.MSG_PEEK) == b""


@pytest.fixture
def connect(
    front_address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], socket.socket]]:
    """Open connections to a listener that allows three."""
    # A connection of an earlier test counts until it has ended.
    wait_until(lambda: connections._count == 0, "former connections end")
    monkeypatch.setattr("web.listener.MOST_CONNECTIONS", 3)
    with contextlib.ExitStack() as stack:

        def new() -> socket.socket:
            before = set(connections._new)
            opened = stack.enter_context(socket.create_connection(front_address, timeout=20))
            wait_until(lambda: bool(set(connections._new) - before), "it is counted")
            return opened

        yield new
    wait_until(lambda: not (connections._new or connections._idle) and _are_reading(0), "they end")


def test_one_that_never_asked_gives_way_to_a_new_connection(connect: Callable[[], socket.socket]) -> None:
    kept, silent, begun = connect(), connect(), connect()
    ask(kept)
    begun.sendall(LIVE[:20])
    newcomer = connect()
    wait_until(lambda: is_closed(silent), "the silent one is closed")
    ask(newcomer)
    ask(kept)
    begun.sendall(LIVE[20:])
    wait_until(lambda: bool(select.select([begun], [], [], 0)[0]), "it is answered")
    assert begun.recv(64).startswith(b"HTTP/1.1 200 ")


def test_then_the_one_gives_way_that_has_idled_longest(connect: Callable[[], socket.socket]) -> None:
    first, second, third = connect(), connect(), connect()
    for connection in (first, second, third, first):
        ask(connection)
    ask(connect())
    wait_until(lambda: is_closed(second), "it has idled longest")
    ask(first)
    ask(third)


def _are_reading(number: int) -> bool:
    return sum(map(len, connections._reading.values())) == number


def test_then_one_gives_way_whose_body_is_still_on_its_way(connect: Callable[[], socket.socket]) -> None:
    idle, first, second = connect(), connect(), connect()
    ask(idle)
    for number, dripping in enumerate((first, second), start=1):
        dripping.sendall(BEGUN)
        wait_until(partial(_are_reading, number), "its headers have arrived")
    third = connect()
    wait_until(lambda: is_closed(idle), "one that idles is closed before")
    third.sendall(BEGUN)
    wait_until(partial(_are_reading, 3), "its headers have arrived")
    ask(connect())
    wait_until(lambda: is_closed(first), "its body has been on its way longest")
    for dripping in (second, third):
        dripping.sendall(b"x" * 100)
        assert dripping.recv(64).startswith(b"HTTP/1.1 401 ")


def test_a_strangers_body_gives_way_before_a_callers_and_a_notifications(
    connect: Callable[[], socket.socket],
) -> None:
    authentication.remember_credential(authentication.credential_digest("any"))
    notification, caller, stranger = connect(), connect(), connect()
    for number, (connection, head) in enumerate(
        ((notification, BEGUN), (caller, OF_CALLER), (stranger, OF_STRANGER)), start=1
    ):
        connection.sendall(head)
        wait_until(partial(_are_reading, number), "its headers have arrived")
    for closed in (stranger, caller):
        again = connect()
        wait_until(partial(is_closed, closed), "it gives way")
        again.sendall(BEGUN)
        wait_until(partial(_are_reading, 3), "its headers have arrived")
    notification.sendall(b"x" * 100)
    assert notification.recv(64).startswith(b"HTTP/1.1 401 ")


BEGINNINGS = {"a stranger": OF_STRANGER, "a caller": OF_CALLER, "a notification": BEGUN}


@pytest.mark.parametrize("slow", BEGINNINGS)
def test_slow_bodies_take_no_place_of_another_kind(
    front_address: tuple[str, int], monkeypatch: pytest.MonkeyPatch, slow: str
) -> None:
    wait_until(partial(_are_reading, 0), "former bodies end")
    monkeypatch.setattr("web.listener.MOST_BODIES", 2)
    authentication.remember_credential(authentication.credential_digest("any"))
    with contextlib.ExitStack() as stack:

        def begin(head: bytes, expected: int) -> socket.socket:
            opened = stack.enter_context(socket.create_connection(front_address, timeout=20))
            opened.sendall(head)
            wait_until(partial(_are_reading, expected), "its headers have arrived")
            return opened

        heads = [head for kind, head in BEGINNINGS.items() if kind != slow]
        others = [begin(head, number) for number, head in enumerate(heads, start=1)]
        dripping = [begin(BEGINNINGS[slow], expected) for expected in (3, 4, 4, 4)]
        wait_until(lambda: is_closed(dripping[0]) and is_closed(dripping[1]), "two too many have begun")
        assert not any(map(is_closed, (*others, *dripping[2:])))
    wait_until(partial(_are_reading, 0), "they end")


def test_a_request_in_work_never_gives_way(
    connect: Callable[[], socket.socket], front_address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()

    async def waits(request: Request) -> Reply:
        await request.body(limit=100)
        assert await asyncio.to_thread(goes_on.wait, 30)
        return Reply(200, {}, b"done")

    monkeypatch.setitem(ROUTES, "/upstream/webhook", Route({"GET": waits, "POST": waits}))
    at_work = [connect() for _ in range(3)]
    at_work[0].sendall(LIVE.replace(b"/v1/health/live", b"/upstream/webhook"))
    for connection in at_work[1:]:
        connection.sendall(BEGUN)
        connection.sendall(b"x" * 100)
    wait_until(lambda: not connections._new and _are_reading(0), "they are at work")
    error_of(talk(front_address), 503, "service_unavailable")
    goes_on.set()
    for connection in at_work:
        assert connection.recv(64).startswith(b"HTTP/1.1 200 ")
    ask(connect())


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Limit the kernel's buffers to less than thirty responses, and the process's buffer to a number of bytes."""

    def apply(most_untaken: int) -> None:
        made = listener.BoundedProtocol.connection_made

        def connection_made(self: listener.BoundedProtocol, transport: Any) -> None:
            made(self, transport)
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
            transport.set_write_buffer_limits(high=most_untaken)

        monkeypatch.setattr(listener.BoundedProtocol, "connection_made", connection_made)

    return apply


@contextlib.contextmanager
def taking_nothing(address: tuple[str, int]) -> Iterator[socket.socket]:
    """A connection whose client has almost no receive buffer."""
    before = set(connections._new)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        connection.settimeout(20)
        connection.connect(address)
        wait_until(lambda: bool(set(connections._new) - before), "it is counted")
        yield connection


@pytest.mark.parametrize(
    ("most_untaken", "last"),
    [(1024, LIVE), (64 * 1024, closing(LIVE))],
    ids=["kept", "closing"],
)
def test_answers_that_nobody_takes_end_the_connection(
    front_address: tuple[str, int],
    narrow: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
    most_untaken: int,
    last: bytes,
) -> None:
    """Thirty responses exceed the kernel's buffers here, but not 64 KiB."""
    narrow(most_untaken)
    monkeypatch.setattr(listener, "TAKE_SECONDS", 0.3)
    wait_until(lambda: connections._count == 0, "former connections have ended")
    with taking_nothing(front_address) as connection:
        connection.sendall(LIVE * 29 + last)
        wait_until(lambda: connections._count == 0, "it is dropped")


def test_a_client_that_takes_its_answers_after_a_pause_keeps_its_connection(
    front_address: tuple[str, int], narrow: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client that takes nothing begins later, and is dropped."""
    narrow(1024)
    monkeypatch.setattr(listener, "TAKE_SECONDS", 0.3)
    wait_until(lambda: connections._count == 0, "former connections have ended")
    with taking_nothing(front_address) as late, taking_nothing(front_address) as never:
        late.sendall(LIVE * 30)
        wait_until(lambda: len(connections._untaken) == 1, "it leaves answers")
        assert answers_of(late) == 30
        never.sendall(LIVE * 30)
        wait_until(lambda: connections._count < 2, "the other is dropped")
        late.sendall(LIVE)
        assert answers_of(late, 1) == 1


def test_of_too_many_untaken_answers_one_connections_are_dropped(
    front_address: tuple[str, int], narrow: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow(1024)
    monkeypatch.setattr(listener, "MOST_UNTAKEN", 2)
    wait_until(lambda: connections._count == 0, "former connections have ended")
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(taking_nothing(front_address)) for _ in range(3)]
        for client in clients:
            client.sendall(LIVE * 30)
        wait_until(lambda: connections._count == 2, "one is dropped")
        received = sorted(answers_of(client) for client in clients)
    assert received[0] < 30
    assert received[1:] == [30, 30]
    wait_until(lambda: not connections._untaken, "all is taken")


def answers_of(client: socket.socket, sent: int = 30) -> int:
    """How many of its responses a client receives."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while received.count(b'"ok":true') < sent and (part := client.recv(65_536)):
            received += part
    return received.count(b'"ok":true')


def test_of_too_many_untaken_answers_the_oldest_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "MOST_UNTAKEN", 2)
    held = listener.Connections()
    first, second, third, fourth = (object.__new__(listener.BoundedProtocol) for _ in range(4))
    assert [held.leave_untaken(each) for each in (first, second)] == [None, None]
    assert held.leave_untaken(third) is first
    held.take(second)
    assert held.leave_untaken(first) is None, "what is taken counts no more"
    assert held.leave_untaken(fourth) is third


class OneResponse:
    """An application that answers every request in the same way. `stop` is called when the listener begins to stop."""

    def __init__(self, stop: Callable[[], None] = lambda: None) -> None:
        self.stop = stop

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for step in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{step}.complete"})
            return
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"11")]})
        await send({"type": "http.response.body", "body": b'{"ok":true}'})


def last_response(connection: socket.socket) -> bytes:
    """Send a request, and read until the connection is closed."""
    connection.sendall(LIVE)
    received = b""
    while part := connection.recv(65536):
        received += part
    return received


def test_an_idle_connection_serves_one_more_request_after_the_signal_to_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A proxy may have just sent a request on it. A new connection is refused, so the proxy uses another process."""
    monkeypatch.setattr(listener, "LAST_REQUEST_SECONDS", 30.0)
    front = Front(OneResponse)
    address = front.start()
    with socket.create_connection(address, timeout=20) as idle, socket.create_connection(address) as unused:
        ask(idle)
        stop = threading.Thread(target=front.close)
        stop.start()
        wait_until(lambda: not _accepts(address), "no new connection is accepted")
        for connection in (idle, unused):
            received = last_response(connection)
            assert received.startswith(b"HTTP/1.1 200 ")
            assert b"connection: close" in received
    stop.join(30)
    assert not stop.is_alive()


def test_an_idle_connection_without_a_request_is_closed_soon_after_the_signal_to_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listener, "LAST_REQUEST_SECONDS", 0.1)
    front = Front(OneResponse)
    with socket.create_connection(front.start(), timeout=20) as idle:
        ask(idle)
        front.close()
        assert idle.recv(1) == b""


def test_a_connection_that_is_not_accepted_yet_is_served_after_the_signal_to_stop() -> None:
    queued: list[socket.socket] = []

    def connect() -> None:
        """Connect while the event loop cannot accept."""
        queued.append(socket.create_connection(address, timeout=20))

    front = Front(lambda: OneResponse(connect))
    address = front.start()
    stop = threading.Thread(target=front.close)
    stop.start()
    wait_until(lambda: bool(queued), "it is connected")
    with queued[0] as connection:
        assert last_response(connection).startswith(b"HTTP/1.1 200 ")
    stop.join(30)
    assert not stop.is_alive()


@pytest.mark.parametrize("call", ["dup", "accept"])
def test_without_free_file_descriptors_the_requests_in_flight_still_finish(
    monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    in_flight, may_finish = threading.Event(), threading.Event()

    class Waiting(OneResponse):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                in_flight.set()
                await asyncio.to_thread(may_finish.wait, 20)
            await super().__call__(scope, receive, send)

    def fail(_: socket.socket) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    front = Front(Waiting)
    with socket.create_connection(front.start(), timeout=20) as connection:
        connection.sendall(LIVE)
        assert in_flight.wait(20)
        monkeypatch.setattr(socket.socket, call, fail)
        stop = threading.Thread(target=front.close)
        stop.start()
        wait_until(lambda: not _accepts(front._address), "no new connection is accepted")
        may_finish.set()
        assert connection.recv(64).startswith(b"HTTP/1.1 200 ")
    stop.join(30)
    assert not stop.is_alive()


def _accepts(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=5).close()
    except ConnectionError:
        return False
    return True
