"""The web processes among slow, broken and hostile clients: nobody holds a thread with what is not a request."""

import contextlib
import http.client
import json
import os
import select
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import pytest
import requests
from django.db import connection

from gateway import web_worker
from gateway.api.limits.body_size import API_BODY_BYTES
from gateway.local_run import local_ports, processes
from gateway.local_run.process_group import ProcessGroup
from tenants.credentials import api_keys
from tests.fixtures import assert_error_body

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.e2e]

ROOT = Path(__file__).resolve().parents[2]
THREADS = 4
SHORT = """
from gateway.web_server import connection, paced_socket
connection.HEADER_SECONDS = connection.BODY_GRACE_SECONDS = paced_socket.BODY_GRACE_SECONDS = 1.0
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, django_db_setup: None) -> Iterator[tuple[str, int]]:
    """One web process with four threads; headers are due after a second, bodies in their pace after one."""
    tmp_path = tmp_path_factory.mktemp("web")
    (tmp_path / "short.py").write_text(SHORT)
    group = ProcessGroup()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    parts = urlsplit(os.environ["DATABASE_URL"])
    process = processes.start(
        "web",
        [
            *(sys.executable, "-m", "gunicorn", "gateway.wsgi", f"--bind=127.0.0.1:{port}"),
            *("--worker-class=gateway.web_worker.Worker", f"--threads={THREADS}", "--no-control-socket"),
            f"--config={tmp_path / 'short.py'}",
        ],
        data_dir=tmp_path,
        process_group=group.id,
        environment={
            **os.environ,
            "DATABASE_URL": urlunsplit(
                parts._replace(path="/" + quote(str(connection.settings_dict["NAME"])))
            ),
            "LOG_LEVEL": "WARNING",
        },
        directory=ROOT,
    )
    try:
        local_ports.wait_for_answer(port, "/v1/health/live", seconds=60, check_alive=lambda: None)
        yield "127.0.0.1", port
    finally:
        processes.stop(process, seconds=15)
        group.close()


def read(connection: socket.socket) -> bytes:
    """What comes until the connection is closed."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(65_536):
            received += part
    return received


def assert_refused(received: bytes, status: int, code: str) -> None:
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), head
    headers = {
        name.lower(): value
        for name, _, value in (line.partition(": ") for line in head.decode().split("\r\n"))
    }
    assert headers["x-service-request-id"] == json.loads(body)["request_id"]
    assert headers["content-type"] == "application/json"
    assert_error_body(json.loads(body), code)


@pytest.mark.parametrize(
    ("text", "status", "code"),
    [
        (b"EHLO mail\r\n\r\n", 400, "invalid_request"),
        (
            b"GET /v1/health/live?q=" + b"x" * 5_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
            414,
            "uri_too_long",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * 9_000 + b"\r\n\r\n",
            431,
            "headers_too_large",
        ),
        (b"GET / HTTP/1.1\r\nX-Endless: " + b"x" * 40_000, 431, "headers_too_large"),
        (b"GET / HTTP/1.1\r\nX-Slow: ", 408, "request_timeout"),
        (b"", 408, "request_timeout"),
        (
            b"GET /v1/tenants?external_ref=%00 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            400,
            "invalid_request",
        ),
    ],
)
def test_what_is_refused_before_django_has_the_services_form(
    address: tuple[str, int], text: bytes, status: int, code: str
) -> None:
    with socket.create_connection(address, timeout=10) as client:
        client.sendall(text)
        assert_refused(read(client), status, code)


def test_others_are_served_while_connections_drip(address: tuple[str, int], key: api_keys.NewKey) -> None:
    """More connections of each kind than there are threads: each would have held one for seconds."""
    url = f"http://{address[0]}:{address[1]}"
    media = b"POST /v1/media HTTP/1.1\r\nHost: localhost\r\n"
    bearer = b"Authorization: Bearer %s\r\n" % key.key.encode()
    whole = b"GET /v1/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    dripping = {
        "nothing": b"",
        "headers behind a request": whole + b"GET /v1/health HTTP/1.1\r\nX-Slow: ",
        "headers": b"GET /v1/health HTTP/1.1\r\nX-Slow: ",
        "a stranger's chunks": media + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n",
        "a stranger's body": media + b"Content-Length: 5000\r\n\r\nx",
    }
    with contextlib.ExitStack() as stack:
        for begun in dripping.values():
            for _ in range(2 * THREADS):
                client = stack.enter_context(socket.create_connection(address, timeout=10))
                client.sendall(begun)
        slowest = 0.0
        for _ in range(10):
            began = time.monotonic()
            assert requests.get(f"{url}/v1/health/live", timeout=10).status_code == 200
            slowest = max(slowest, time.monotonic() - began)
        assert slowest < 0.9, "somebody waited for a connection that drips"
    slow = media + bearer + b"Content-Type: application/json\r\nContent-Length: 5000\r\n\r\n{"
    slow = slow.replace(b"/v1/media", b"/v1/api-keys")
    with socket.create_connection(address, timeout=10) as client:
        client.sendall(slow)
        assert_refused(read(client), 408, "request_timeout")


def test_a_small_body_that_is_overdue_is_408(address: tuple[str, int]) -> None:
    with socket.create_connection(address, timeout=10) as client:
        client.sendall(b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\nx")
        assert_refused(read(client), 408, "request_timeout")


def test_large_bodies_beyond_those_that_are_waited_for_are_503(
    address: tuple[str, int], key: api_keys.NewKey
) -> None:
    begun = (
        b"POST /v1/api-keys HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n" % key.key.encode()
    )
    begun += b"Content-Type: application/json\r\nContent-Length: 900000\r\nConnection: close\r\n\r\n"
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection(address, timeout=30)) for _ in range(THREADS)]
        for client in clients:
            client.sendall(begun)
        answers = [read(client) for client in clients]
    assert sorted(answer[9:12] for answer in answers) == [b"408"] * 3 + [b"503"]
    assert_refused(next(each for each in answers if each[9:12] == b"503"), 503, "service_unavailable")


def test_a_connection_is_kept_and_serves_the_next_request(address: tuple[str, int]) -> None:
    with requests.Session() as session:
        url = f"http://{address[0]}:{address[1]}"
        for _ in range(3):
            assert session.get(f"{url}/v1/health/live", timeout=10).status_code == 200
            assert session.post(f"{url}/v1/api-keys", json={"name": "x"}, timeout=10).status_code == 401


UNREAD = b"POST /v1/api-keys HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"


@pytest.mark.parametrize("sent", [b"", b"x" * 1_000, b"x" * 200_000], ids=["nothing", "little", "all"])
def test_an_answer_that_leaves_a_body_says_that_its_connection_ends(
    address: tuple[str, int], sent: bytes
) -> None:
    with socket.create_connection(address, timeout=10) as client:
        client.sendall(UNREAD % 200_000 + sent)
        head, _, _ = read(client).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 401 "), head
    assert b"\r\nConnection: close\r\n" in head


def test_a_small_body_that_was_not_read_keeps_its_connection(address: tuple[str, int]) -> None:
    with socket.create_connection(address, timeout=10) as client:
        client.sendall(UNREAD % 60_000 + b"x" * 60_000)
        answer = http.client.HTTPResponse(client)
        answer.begin()
        answer.read()
        assert (answer.status, answer.headers["Connection"]) == (401, "keep-alive")
        client.sendall(b"GET /v1/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        following = http.client.HTTPResponse(client)
        following.begin()
        assert following.status == 200


def test_requests_that_arrive_together_are_answered_in_their_order(address: tuple[str, int]) -> None:
    paths = ["/v1/health/live", "/nothing", "/v1/health/live"] * 2 * THREADS
    texts = [f"GET {path} HTTP/1.1\r\nHost: localhost\r\n".encode() for path in paths]
    texts[-1] += b"Connection: close\r\n"
    with socket.create_connection(address, timeout=10) as client:
        client.sendall(b"\r\n".join(texts) + b"\r\n")
        heads = read(client).split(b"HTTP/1.1 ")[1:]
    assert [head[:3] for head in heads] == [b"404" if "nothing" in path else b"200" for path in paths]


def test_an_answer_arrives_whole_at_a_client_that_takes_it_slowly(address: tuple[str, int]) -> None:
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(20)
        client.connect(address)
        client.sendall(b"GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        head, _, body = read(client).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert json.loads(body)["openapi"]


def test_an_idle_connection_is_kept_longer_than_a_proxy_keeps_it(address: tuple[str, int]) -> None:
    client = http.client.HTTPConnection(*address, timeout=30)
    with contextlib.closing(client):
        client.request("GET", "/v1/health/live")
        client.getresponse().read()
        # Readable would mean closed: gunicorn's own time-out is two seconds, looked at every second.
        assert select.select([client.sock], [], [], 4)[0] == []
    assert web_worker.KEEP_ALIVE_SECONDS > 60, "nginx's own"


def test_a_body_that_is_cut_into_dust_is_refused_early(address: tuple[str, int]) -> None:
    """A stranger's megabyte in chunks of one byte would hold the interpreter for two seconds."""
    head = b"POST /upstream/webhook HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection(address, timeout=20) as connection:
        # It has its end, so nothing else is wrong with it before its signature is judged.
        connection.sendall(head + b"1\r\nx\r\n" * 1100 + b"0\r\n\r\n")
        assert connection.recv(64).startswith(b"HTTP/1.1 400 ")
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(head + (b"1\r\nx\r\n" * 900 + b"40\r\n%b\r\n" % (b"x" * 64) * 2000) + b"0\r\n\r\n")
        assert connection.recv(64).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize(
    "chunks", [b"a message\r\n", b"1;\nx\r\n0\r\n\r\n", b"1\r\nx\r\n0\r\nContent-Length: 9\r\n\r\n"]
)
def test_a_body_whose_chunks_are_broken_is_400(address: tuple[str, int], chunks: bytes) -> None:
    """A failure of ours would be 500, and what the client sent would stand in the log."""
    head = b"POST /upstream/webhook HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(head + chunks + b"GET /v1/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = read(connection)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1, "what follows a broken body is no request"


def test_a_body_in_chunks_arrives(address: tuple[str, int], key: api_keys.NewKey) -> None:
    url = f"http://{address[0]}:{address[1]}/v1/api-keys"
    headers = {"Authorization": f"Bearer {key.key}", "Content-Type": "application/json"}

    def chunks(size: int) -> Iterator[bytes]:
        yield b'{"name": "in chunks", "environment": "test", "pad": "'
        yield b"x" * size
        yield b'"}'

    assert requests.post(url, data=chunks(70_000), headers=headers, timeout=10).status_code in (201, 400)
    assert requests.post(url, data=chunks(API_BODY_BYTES), headers=headers, timeout=10).status_code == 413
