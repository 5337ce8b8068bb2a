"""Strangers on a connection of the edge: drips, floods and broken protocol end in bounded time and memory."""

import contextlib
import json
import select
import socket
import time

import pytest

from edge import protocol, request
from gateway.api.limits.body_size import LargeBodyMemory
from tests.fixtures import assert_error_body


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
