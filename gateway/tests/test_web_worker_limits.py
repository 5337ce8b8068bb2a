"""The web processes at their end and at their limits: a stop, a restart, and strangers that hold connections."""

import contextlib
import http.client
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.local_run import local_ports, processes
from gateway.local_run.process_group import ProcessGroup
from gateway.tests.test_web_worker import read

THREADS = 4
CONNECTIONS = 40
GRACEFUL_SECONDS = 20
LARGE = 900_000
APPLICATION = f"""
import os, pathlib

def application(environ, start_response):
    if environ["PATH_INFO"] == "/waits":
        (pathlib.Path(__file__).parent / "gate").read_bytes()
    large = environ["PATH_INFO"] == "/large"
    body = b"x" * {LARGE} if large else str(os.getpid()).encode()
    if environ["REQUEST_METHOD"] == "POST":
        body = environ["wsgi.input"].read()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""
LAST = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
# Loopback would take the whole answer.
CONFIGURATION = """
import socket

def when_ready(server):
    for listener in server.LISTENERS:
        listener.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32_768)
"""
REQUEST = b"GET /%b HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"


class Server:
    """A gunicorn with one worker of ours; `/waits` is answered when the gate was opened and closed."""

    def __init__(self, directory: Path, group: ProcessGroup, *options: str) -> None:
        (directory / "tiny.py").write_text(APPLICATION)
        (directory / "configuration.py").write_text(CONFIGURATION)
        self.gate = directory / "gate"
        os.mkfifo(self.gate)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address: tuple[str, int] = probe.getsockname()
        self.process = processes.start(
            "tiny",
            [
                *(sys.executable, "-m", "gunicorn", "tiny", f"--bind=127.0.0.1:{self.address[1]}"),
                *("--worker-class=gateway.web_worker.Worker", f"--threads={THREADS}", "--no-control-socket"),
                *(f"--worker-connections={CONNECTIONS}", f"--graceful-timeout={GRACEFUL_SECONDS}"),
                *(f"--pythonpath={directory}", f"--config={directory / 'configuration.py'}", *options),
            ],
            data_dir=directory,
            process_group=group.id,
            directory=Path(__file__).resolve().parents[2],
        )
        local_ports.wait_for_answer(self.address[1], "/", seconds=60, check_alive=lambda: None)

    def connect(self, sent: bytes = b"") -> socket.socket:
        connection = socket.create_connection(self.address, timeout=20)
        connection.sendall(sent)
        return connection

    def get(self, path: str = "/") -> bytes:
        connection = http.client.HTTPConnection(*self.address, timeout=20)
        with contextlib.closing(connection):
            connection.request("GET", path)
            return connection.getresponse().read()


@contextlib.contextmanager
def served(directory: Path, *options: str) -> Iterator[Server]:
    group = ProcessGroup()
    try:
        server = Server(directory, group, *options)
        try:
            yield server
        finally:
            processes.stop(server.process, seconds=GRACEFUL_SECONDS)
    finally:
        group.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("tiny")) as running:
        yield running


def test_a_stop_answers_what_runs_and_waits_for_nobody_else(tmp_path: Path) -> None:
    """A request ends with its answer, one on a kept connection is still taken, idle ones and a slow head are closed."""
    with served(tmp_path) as server, contextlib.ExitStack() as stack:
        idle, late = (stack.enter_context(server.connect(REQUEST % b"")) for _ in range(2))
        for kept in (idle, late):
            assert kept.recv(65_536).startswith(b"HTTP/1.1 200 ")
        slow = stack.enter_context(server.connect(b"GET / HTTP/1.1\r\nX-Slow: "))
        running = stack.enter_context(server.connect(REQUEST % b"waits"))
        with server.gate.open("w"):
            began = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            while b"Connection: close" not in (answer := asked_again(late)):
                assert time.monotonic() - began < GRACEFUL_SECONDS, "the process does not stop"
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert read(idle) == b""
            assert read(slow) == b""
        assert read(running).startswith(b"HTTP/1.1 200 ")
        assert server.process.wait(timeout=10) == 0
        assert time.monotonic() - began < GRACEFUL_SECONDS, "it waited for an idle connection or a slow head"


def asked_again(connection: socket.socket) -> bytes:
    """The answer on a connection that is kept."""
    connection.sendall(REQUEST % b"")
    return connection.recv(65_536)


def test_a_restart_after_many_requests_loses_none(tmp_path: Path) -> None:
    with served(tmp_path, "--max-requests=5") as server:
        assert len({server.get() for _ in range(20)}) > 1


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nX-Slow: "])
def test_a_stranger_who_holds_every_connection_keeps_nobody_out(server: Server, begun: bytes) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(3 * CONNECTIONS):
            stack.enter_context(server.connect(begun))
        began = time.monotonic()
        for _ in range(5):
            assert server.get()
        assert time.monotonic() - began < 5, "somebody waited until a stranger's connection was overdue"


def test_long_headers_of_strangers_leave_the_loop_its_time(tmp_path: Path) -> None:
    """Looked at in each round of the loop, those of a thousand connections kept a new one waiting for 19 seconds."""
    begun = b"GET / HTTP/1.1\r\nX-Long: " + b"x" * 31_000
    with served(tmp_path, "--worker-connections=2000") as server, contextlib.ExitStack() as stack:
        for _ in range(1000):
            stack.enter_context(server.connect(begun))
        began = time.monotonic()
        assert server.get()
        assert time.monotonic() - began < 5, "somebody waited until strangers' headers were overdue"


def test_clients_that_do_not_take_their_answers_hold_no_thread(server: Server) -> None:
    with contextlib.ExitStack() as stack:
        hanging = []
        for _ in range(2 * THREADS):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(20)
            client.connect(server.address)
            client.sendall(REQUEST % b"large" + LAST)
            hanging.append(client)
        for client in hanging:
            assert client.recv(13) == b"HTTP/1.1 200 "
        began = time.monotonic()
        for _ in range(2 * THREADS):
            assert server.get()
        assert time.monotonic() - began < 5, "somebody waited for a client that reads nothing"
        received = read(hanging[0])
        assert len(received) > LARGE
        assert received.count(b"HTTP/1.1 200 ") == 1, "the next answer on the same connection"


@pytest.mark.parametrize("size", [1, 60_000])
def test_a_small_body_holds_no_thread_until_it_is_there(server: Server, size: int) -> None:
    """Its head and its parts come one by one, of more clients than there are threads."""
    body = bytes(range(256)) * 300
    parts = [body[:size][place : place + 25_000] for place in range(0, size, 25_000)]
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(server.connect(POST % size)) for _ in range(3 * THREADS)]
        for part in parts:
            began = time.monotonic()
            assert server.get()
            assert time.monotonic() - began < 5, "somebody waited for a body"
            for client in slow:
                client.sendall(part)
        for client in slow:
            client.shutdown(socket.SHUT_WR)
            assert read(client).partition(b"\r\n\r\n")[2] == body[:size]


def test_a_connection_serves_on_after_a_body_that_was_awaited(server: Server) -> None:
    """What comes next is shorter than what was awaited."""
    body = b"x" * 5000
    with server.connect(POST % len(body)) as client:
        client.sendall(body[:1])
        assert server.get()
        client.sendall(body[1:])
        answer = b""
        while not answer.endswith(body):
            answer += client.recv(65_536)
        client.sendall(LAST)
        assert read(client).startswith(b"HTTP/1.1 200 ")


def test_headers_that_come_in_two_parts_behind_a_request_are_answered(server: Server) -> None:
    with server.connect(REQUEST % b"" + POST[:10]) as client:
        assert client.recv(65_536).startswith(b"HTTP/1.1 200 ")
        client.sendall(POST[10:] % 4 + b"body" + LAST)
        assert read(client).count(b"HTTP/1.1 200 ") == 2


def test_a_client_that_goes_before_its_body_is_there_is_let_go(server: Server) -> None:
    for _ in range(2 * CONNECTIONS):
        with server.connect(POST % 1000 + b"x"):
            pass
    assert server.get()


def test_a_stranger_whose_bodies_never_come_keeps_nobody_out(server: Server) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(3 * CONNECTIONS):
            stack.enter_context(server.connect(POST % 1000))
        began = time.monotonic()
        for _ in range(5):
            assert server.get()
        assert time.monotonic() - began < 5, "somebody waited until a stranger's body was overdue"


@pytest.mark.parametrize(
    "begun",
    [
        POST % 500_000,
        POST.replace(b"Content-Length: %d", b"Transfer-Encoding: chunked"),
        POST.replace(b"Content-Length: %d", b"Content-Length: 10\r\nExpect: 100-continue"),
    ],
    ids=["large", "in chunks", "asks first"],
)
def test_a_quarter_of_the_threads_waits_for_no_body(server: Server, begun: bytes) -> None:
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(server.connect(begun)) for _ in range(2 * THREADS)]
        began = time.monotonic()
        for _ in range(2 * THREADS):
            assert server.get()
        assert time.monotonic() - began < 5, "every thread waits for a body"
        at_once = [client for client in slow if select.select([client], [], [], 0.1)[0]]
        assert len(at_once) >= 2 * THREADS - 3, "they wait for their turn"
