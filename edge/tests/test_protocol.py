"""Strangers on a connection of the edge: drips, floods and broken protocol end in bounded time and memory."""

import contextlib
import json
import select
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from edge import protocol, request
from edge.connections import connections
from gateway.api.limits.body_size import LargeBodyMemory
from tests.fixtures import assert_error_body, wait_until


def talk(address: tuple[str, int], *parts: bytes) -> bytes:
    """Send bytes on one connection and read until it is closed."""
    with socket.create_connection(address, timeout=20) as connection:
        for part in parts:
            connection.sendall(part)
        received = b""
        while part := connection.recv(65536):
            received += part
    return received


def error_of(received: bytes, status: int, code: str) -> None:
    """The bytes are one answer in the service's form that closes the connection."""
    head, _, body = received.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0].startswith(f"HTTP/1.1 {status} ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
    assert headers["connection"] == "close"
    assert headers["x-service-request-id"] == json.loads(body)["request_id"]
    assert_error_body(json.loads(body), code)


def test_what_is_no_http_is_400(edge_address: tuple[str, int]) -> None:
    error_of(talk(edge_address, b"EHLO mail\r\n\r\n"), 400, "invalid_request")


def test_headers_without_end_are_431(edge_address: tuple[str, int]) -> None:
    flood = b"GET /v1/health HTTP/1.1\r\n" + b"X-Filler: " + b"x" * 200_000
    received = talk(edge_address, flood[:40_000], flood[40_000:66_000])
    error_of(received, 431, "headers_too_large")


def test_headers_that_drip_are_408(edge_address: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEADER_SECONDS", 0.3)
    for begun in (b"", b"GET /v1/health HTTP/1.1\r\nX-Slow: "):
        began = time.monotonic()
        error_of(talk(edge_address, begun), 408, "request_timeout")
        assert time.monotonic() - began < 5


def test_a_body_that_drips_is_408(edge_address: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "BODY_GRACE_SECONDS", 0.3)
    head = b"POST /upstream/webhook HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
    error_of(talk(edge_address, head, b"x"), 408, "request_timeout")


def test_a_body_that_never_stops_dripping_is_408(
    edge_address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte comes within the grace: all of them together are too slow."""
    monkeypatch.setattr(request, "BODY_GRACE_SECONDS", 0.4)
    head = b"POST /upstream/webhook HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
    with socket.create_connection(edge_address, timeout=20) as connection:
        connection.sendall(head)
        for _ in range(200):
            connection.sendall(b"x")
            if select.select([connection], [], [], 0.05)[0]:
                break
        else:
            pytest.fail("ten seconds were waited for 200 bytes")
        assert connection.recv(64).startswith(b"HTTP/1.1 408 ")


def test_framing_without_end_closes_the_connection(edge_address: tuple[str, int]) -> None:
    head = b"POST /upstream/webhook HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    with pytest.raises(ConnectionError):
        talk(edge_address, head, b"1\r\nx\r\n0\r\nX-Trailer: ", *[b"y" * 65_536] * 200)


def test_a_body_that_is_cut_into_dust_is_refused_early(edge_address: tuple[str, int]) -> None:
    head = b"POST /upstream/webhook HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    # The body has no end: the connection is closed for its beginning.
    assert talk(edge_address, head + b"1\r\nx\r\n" * 1100) == b""
    fair = b"1\r\nx\r\n" * 900 + b"40\r\n%b\r\n" % (b"x" * 64) * 2000
    error_of(talk(edge_address, head + fair + b"0\r\n\r\n"), 401, "unauthorized")


def test_large_bodies_share_a_bound_and_small_ones_pass(
    edge_address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = LargeBodyMemory(500_000)
    monkeypatch.setattr(request, "large_bodies", memory)
    head = b"POST /upstream/webhook HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    with socket.create_connection(edge_address) as first:
        first.sendall(head % 1_000_000 + b"x" * 400_000)
        deadline = time.monotonic() + 10
        while memory._taken < 300_000:
            assert time.monotonic() < deadline, "the first body is not counted"
            time.sleep(0.01)
        error_of(talk(edge_address, head % 300_000 + b"x" * 300_000), 503, "service_unavailable")
        error_of(talk(edge_address, head % 1000 + b"x" * 1000), 401, "unauthorized")
    while memory._taken:
        assert time.monotonic() < deadline, "what the body took is given back"
        time.sleep(0.01)


def test_a_request_refused_by_its_headers_is_not_read(edge_address: tuple[str, int]) -> None:
    head = b"PUT /upstream/webhook HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"
    error_of(talk(edge_address, head), 405, "method_not_allowed")


def test_requests_behind_each_other_on_one_connection(edge_address: tuple[str, int]) -> None:
    one = b"GET /v1/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
    last = one.replace(b"Host: x", b"Host: x\r\nConnection: close")
    assert talk(edge_address, one * 3 + last).count(b'"ok":true') == 4


def test_requests_that_wait_without_end_close_the_connection(edge_address: tuple[str, int]) -> None:
    """Each read brings thousands. Twenty connections of strangers took 400 MB and kept everybody waiting."""
    one = b"GET /v1/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
    last = one.replace(b"Host: x", b"Host: x\r\nConnection: close")
    received = b""
    with (
        contextlib.suppress(ConnectionError),
        socket.create_connection(edge_address, timeout=20) as connection,
    ):
        connection.sendall(one * 1000 + last)
        while part := connection.recv(65536):
            received += part
    assert received.count(b'"ok":true') < 1000


LIVE = b"GET /v1/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
BEGUN = b"POST /upstream/webhook HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"


def ask(connection: socket.socket) -> None:
    """One request and its answer; the connection is kept."""
    connection.sendall(LIVE)
    received = b""
    while b'"ok":true' not in received:
        received += connection.recv(65536)
        assert received, "it was closed"


def is_closed(connection: socket.socket) -> bool:
    return bool(select.select([connection], [], [], 0)[0]) and connection.recv(1, socket.MSG_PEEK) == b""


@pytest.fixture
def connect(
    edge_address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], socket.socket]]:
    """Opens connections to an edge that holds three beyond those which are there already."""
    wait_until(lambda: not connections._new, "former connections end")
    monkeypatch.setattr("edge.connections.MOST_CONNECTIONS", connections._held + 3)
    with contextlib.ExitStack() as stack:

        def new() -> socket.socket:
            before = set(connections._new)
            opened = stack.enter_context(socket.create_connection(edge_address, timeout=20))
            wait_until(lambda: bool(set(connections._new) - before), "it is counted")
            return opened

        yield new
    wait_until(lambda: not connections._new, "they end")


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


def test_a_request_in_work_never_gives_way(
    connect: Callable[[], socket.socket], edge_address: tuple[str, int]
) -> None:
    at_work = [connect() for _ in range(3)]
    for connection in at_work:
        connection.sendall(BEGUN)
    wait_until(lambda: not connections._new, "their headers have arrived")
    error_of(talk(edge_address), 503, "service_unavailable")
    for connection in at_work:
        connection.sendall(b"x" * 100)
        assert connection.recv(64).startswith(b"HTTP/1.1 401 ")
    ask(connect())


@pytest.mark.parametrize(
    ("most_untaken", "last"),
    [(1024, LIVE), (64 * 1024, LIVE.replace(b"Host: x", b"Host: x\r\nConnection: close"))],
    ids=["kept", "closing"],
)
def test_answers_that_nobody_takes_end_the_connection(
    edge_address: tuple[str, int], monkeypatch: pytest.MonkeyPatch, most_untaken: int, last: bytes
) -> None:
    """Thirty answers are more than the buffers of the kernel hold here, and less than 64 KiB."""
    made = protocol.BoundedProtocol.connection_made

    def narrow(self: protocol.BoundedProtocol, transport: Any) -> None:
        made(self, transport)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        transport.set_write_buffer_limits(high=most_untaken)

    monkeypatch.setattr(protocol.BoundedProtocol, "connection_made", narrow)
    monkeypatch.setattr(protocol, "TAKE_SECONDS", 0.3)
    held = connections._held
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        connection.connect(edge_address)
        wait_until(lambda: connections._held == held + 1, "it is counted")
        connection.sendall(LIVE * 29 + last)
        wait_until(lambda: connections._held == held, "it is dropped")
