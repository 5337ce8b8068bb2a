"""The proxy of docker-compose.yml: the contents of its logs, and the load that it keeps from the web processes."""

import contextlib
import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import requests
from django.urls import URLPattern, URLResolver, get_resolver, reverse

from tests.certificates import self_signed
from tests.fixtures import wait_until
from tests.free_ports import free_port
from tests.operating.proxy import Proxy

SECRET = "sEcret0of0somebody"
BEGUN = "POST /upstream/webhook HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n"


def paths_with_tokens(patterns: list[URLPattern | URLResolver]) -> Iterator[str]:
    """Every path with secret parts. Each secret part is replaced by `SECRET`."""
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            if pattern.app_name != "admin":
                yield from paths_with_tokens(pattern.url_patterns)
        elif {"token", "key"} & (names := set(pattern.pattern.regex.groupindex)):
            yield reverse(pattern.name, kwargs=dict.fromkeys(names, SECRET))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Proxy]]:
    with contextlib.ExitStack() as stack:

        def start(gateway: int, smaller: Mapping[str, str] | None = None) -> Proxy:
            port, certificate = free_port(), self_signed(tmp_path)
            proxy = Proxy(tmp_path / "nginx", certificate, port=port, gateway=gateway, smaller=smaller)
            stack.callback(proxy.close)
            wait_until(lambda: listens(port), "nginx listens")
            return proxy

        yield start


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def secured(port: int) -> ssl.SSLSocket:
    """A TLS connection that does not verify the server."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=20))


def test_no_log_holds_a_query_or_the_token_of_a_link(start: Callable[..., Proxy], tmp_path: Path) -> None:
    """No server runs behind nginx, so each request also makes nginx log an error."""
    proxy = start(free_port())
    paths = list(paths_with_tokens(get_resolver().url_patterns))
    assert {path.split("/")[1] for path in paths} >= {"invitation", "connect", "pay", "sign-up", "password"}
    ask = requests.Session()
    ask.verify, ask.trust_env = str(tmp_path / "receiver.pem"), False
    ask.headers["Referer"] = f"{proxy.url}/invitation/{SECRET}"
    for path in [
        *paths,
        *(path.title() for path in paths),
        f"//invitation/{SECRET}",
        f"/invitation%2F{SECRET}",
    ]:
        assert ask.get(f"{proxy.url}{path}?access_token={SECRET}", timeout=10).status_code == 502
    called = f"{proxy.url}/v25.0/1/media?access_token={SECRET}"
    authorized = {"Authorization": f"Bearer {SECRET}"}
    assert ask.get(called, headers=authorized, timeout=10).status_code == 502
    assert ask.get(called, headers={"Content-Length": "200000000"}, timeout=10).status_code == 413
    # nginx writes the access log after the response.
    lines = 2 * len(paths) + 4
    wait_until(lambda: proxy.access_log.read_text().count("\n") == lines, "every request is logged")
    logged = proxy.access_log.read_text()
    assert '"GET /invitation/..." 502' in logged
    assert '"GET /v25.0/1/media" 413' in logged
    assert SECRET.lower() not in logged.lower()
    assert SECRET.lower() not in proxy.error_log.read_text().lower()


def test_a_notification_goes_on_once_it_is_whole(start: Callable[..., Proxy]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gateway, contextlib.ExitStack() as stack:
        proxy = start(gateway.getsockname()[1])
        gateway.settimeout(20)
        port = int(proxy.url.rpartition(":")[2])
        slow, quick = (stack.enter_context(secured(port)) for _ in range(2))
        slow.sendall(BEGUN.format(20_000).encode() + b"slow")
        quick.sendall(BEGUN.format(20_000).encode() + b"x" * 20_000)
        reached = stack.enter_context(gateway.accept()[0])
        head, _, body = reached.recv(65_536).partition(b"\r\n\r\n")
        assert head.startswith(b"POST /upstream/webhook ")
        assert body.startswith(b"x")


def ends(connection: ssl.SSLSocket) -> bool:
    """Whether the proxy closes a connection without a response before the socket's time-out."""
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def refusal(connection: ssl.SSLSocket) -> bytes:
    """The proxy's rejection of a request. Empty for an admitted request, because the server does not respond."""
    connection.settimeout(1.5)
    try:
        return connection.recv(4096)
    except TimeoutError:
        return b""


def test_what_one_address_holds_has_bounds(start: Callable[..., Proxy]) -> None:
    """The limits are smaller than in the file: 2 seconds for headers and bodies, 3 requests, 2 rejections a second and
    one worker.
    """
    smaller = {
        "_timeout 10s;": "_timeout 2s;",
        "limit_conn of_address 400;": "limit_conn of_address 3;",
        "rate=100r/s;": "rate=2r/s;",
        "worker_processes auto;": "worker_processes 1;",
    }
    with socket.create_server(("127.0.0.1", 0)) as gateway, contextlib.ExitStack() as stack:
        port = int(start(gateway.getsockname()[1], smaller).url.rpartition(":")[2])
        for _ in range(600):
            # Begin more handshakes than one nginx worker may have connections, and finish none.
            begun = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
            begun.sendall(b"\x16")
        probe = stack.enter_context(secured(port))
        probe.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert probe.recv(12) == b"HTTP/1.1 404"
        headers, body = (stack.enter_context(secured(port)) for _ in range(2))
        headers.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A:")
        body.sendall(BEGUN.format(100).encode() + b"slow")
        assert ends(headers)
        assert ends(body)
        asking = [stack.enter_context(secured(port)) for _ in range(6)]
        request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for connection in asking:
            connection.sendall(request)
        refused = {connection: said for connection in asking if (said := refusal(connection))}
        for said in refused.values():
            head, _, body = said.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 429 ")
            error = json.loads(body)
            assert (error["source"], error["error"]["code"]) == ("Acme Chat", "too_many_in_flight")
            assert {b"X-Service-Error-Source: Acme Chat", b"X-Content-Type-Options: nosniff"} <= set(
                head.split(b"\r\n")
            )
        assert len(refused) == 3
        began = time.monotonic()
        for connection in refused:
            connection.sendall(request)
        assert all(refusal(connection).startswith(b"HTTP/1.1 429 ") for connection in refused)
        # Waiting connections get at most two rejections a second.
        assert time.monotonic() - began >= 1.0


def test_few_connections_wait_for_a_refusal(start: Callable[..., Proxy]) -> None:
    """The proxy admits one request. Another waits a minute for its rejection, and the rest are rejected at once."""
    smaller = {
        "limit_conn of_address 400;": "limit_conn of_address 1;",
        "rate=100r/s;": "rate=1r/m;",
        "burst=2000;": "burst=1;",
        "worker_processes auto;": "worker_processes 1;",
    }
    with socket.create_server(("127.0.0.1", 0)) as gateway, contextlib.ExitStack() as stack:
        port = int(start(gateway.getsockname()[1], smaller).url.rpartition(":")[2])
        asking = [stack.enter_context(secured(port)) for _ in range(5)]
        for connection in asking:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert [bool(refusal(connection)) for connection in asking].count(True) == 3
