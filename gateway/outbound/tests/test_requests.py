"""The bytes of outbound requests, from asynchronous and from synchronous callers."""

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from gateway.outbound.client import Outbound, get_once
from gateway.outbound.tests.receivers import OK, Connection, Serve, answers_ok


async def test_sends_the_url_and_the_body_as_they_are(serve: Serve, client: Outbound) -> None:
    receiver = await serve(answers_ok)

    answer = await client.post(
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


async def test_a_body_of_many_megabytes_arrives_whole(serve: Serve, client: Outbound) -> None:
    receiver = await serve(answers_ok)
    body = bytes(range(256)) * 4 * 4096  # 4 MiB

    assert (await client.post(receiver.url(), body, {})).ok

    assert receiver.requests[0].partition(b"\r\n\r\n")[2] == body


@pytest.mark.parametrize("value", ["a\r\nX-Other: b", "a\nX-Other: b", "a\rb", "a\0b"])
async def test_a_header_does_not_smuggle_another_in(serve: Serve, client: Outbound, value: str) -> None:
    receiver = await serve(answers_ok)

    with pytest.raises(ValueError, match="header"):
        await client.post(receiver.url(), b"{}", {"X-Name": value})

    assert receiver.connections == 0


async def test_get_for_website_checks(serve: Serve, client: Outbound) -> None:
    receiver = await serve(answers_ok)

    answer = await client.request("GET", receiver.url("/about"), None, {"User-Agent": "test"})

    assert (answer.status, answer.body) == (200, b"ok")
    assert receiver.requests[0].startswith(b"GET /about HTTP/1.1\r\n")
    assert b"accept-encoding: identity" in receiver.requests[0].lower()


async def test_cookies_are_not_kept(serve: Serve, client: Outbound) -> None:
    async def sets_cookie(connection: Connection) -> None:
        while await connection.request():
            await connection.answer(OK.replace(b"\r\n\r\n", b"\r\nSet-Cookie: a=b; Path=/\r\n\r\n"))

    receiver = await serve(sets_cookie)

    await client.post(receiver.url(), b"", {})
    await client.post(receiver.url(), b"", {})

    assert len(receiver.requests) == 2
    assert all(b"cookie" not in request.lower() for request in receiver.requests)


async def test_proxies_of_the_environment_are_ignored(
    serve: Serve, client: Outbound, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver, proxy = await serve(answers_ok), await serve(answers_ok)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, proxy.url())

    assert (await client.post(receiver.url(), b"", {})).ok

    assert (receiver.connections, proxy.connections) == (1, 0)


@pytest.fixture
def threaded_server() -> Any:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_get_once(threaded_server: str) -> None:
    got = get_once(threaded_server, {}, allow_private=True)

    assert (got.status, got.error) == (404, "http_4xx")
    assert get_once(threaded_server, {}, allow_private=False).error == "blocked_address"


@pytest.mark.usefixtures("dns_server")
def test_get_once_ends_in_time_though_the_name_hangs() -> None:
    started = time.monotonic()

    answer = get_once("http://slow.test/", {}, allow_private=True, total_timeout=0.2)

    assert answer.error == "timeout"
    assert time.monotonic() - started < 2
