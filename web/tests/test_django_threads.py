"""Hand-over to Django's threads: complete requests, limited bodies and responses, and slow clients."""

import contextlib
import hashlib
import http.client
import json
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote_to_bytes
from uuid import uuid4

import pytest
from django.conf import settings
from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

from gateway.api import authentication, limits
from gateway.api.errors import ServiceError, TooManyInFlight
from gateway.api.limits import API_BODY_BYTES, CHUNKED
from tenants.credentials import api_keys
from tests.fixtures import assert_error_body, wait_until
from tests.front import Front
from web import django_threads, request
from web.django_threads import DjangoThreads
from web.tests.client import FrontClient

THREADS = 4
PAGES_AT_ONCE = 2
PIECE = b"x" * 64 * 1024
CLOSE = b"\r\nConnection: close"
SESSION = f"Cookie: {settings.SESSION_COOKIE_NAME}=any"
View = Callable[[dict[str, Any]], HttpResponseBase]


class Views:
    """Replaces Django's application. Calls the view that a test registered for the path."""

    def __init__(self) -> None:
        self.at: dict[str, View] = {"/": lambda environ: HttpResponse(b"here")}
        self.at["/echo"] = self.echo

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> HttpResponseBase:
        try:
            response = self.at[environ["PATH_INFO"]](environ)
        except (ServiceError, OSError) as error:
            response = HttpResponse(status=getattr(error, "status", 500))
        start_response(f"{response.status_code} {response.reason_phrase}", list(response.items()))
        return response

    def echo(self, environ: dict[str, Any]) -> HttpResponseBase:
        if CHUNKED in environ:
            environ[CHUNKED].limit = 10_000_000
        body = environ["wsgi.input"].read()
        return HttpResponse(f"{len(body)} {hashlib.sha256(body).hexdigest()}".encode())


class OnlyThreads:
    """An application that passes every path to Django's threads."""

    def __init__(self) -> None:
        self.threads = DjangoThreads()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await self.threads.answer(scope, receive, send)
            return
        for moment in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{moment}.complete"})
        self.threads.close()


@pytest.fixture
def views() -> Views:
    """Views whose callers have a known session."""
    authentication.remember_credential(authentication.credential_digest("any"))
    return Views()


def remember_session(session: str, *, owner: str) -> str:
    """Make a session of a business known. Returns the header that sends it."""
    authentication.remember_credential(authentication.credential_digest(session), owner=owner)
    return f"Cookie: {settings.SESSION_COOKIE_NAME}={session}"


@pytest.fixture
def served(views: Views, monkeypatch: pytest.MonkeyPatch) -> Iterator[Front]:
    """A server with four threads, of which three may wait for clients."""
    monkeypatch.setattr("gateway.wsgi.application", views)
    monkeypatch.setattr(django_threads, "THREADS", THREADS)
    monkeypatch.setattr(django_threads, "THREADS_FOR_SLOW_CLIENTS", THREADS - 1)
    monkeypatch.setattr(django_threads, "PAGES_AT_ONCE", PAGES_AT_ONCE)
    server = Front(OnlyThreads)
    server.start()
    yield server
    server.close()


@pytest.fixture
def address(served: Front) -> tuple[str, int]:
    return served.start()


def connect(address: tuple[str, int], sent: bytes = b"", *, takes: int | None = None) -> socket.socket:
    """A connection over which `sent` was sent. `takes` is the size of the kernel's receive buffer."""
    connection = socket.socket()
    if takes is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, takes)
    connection.settimeout(30)
    connection.connect(address)
    connection.sendall(sent)
    return connection


def read(connection: socket.socket) -> bytes:
    """All bytes that arrive until the connection is closed."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(65_536):
            received += part
    return received


def talk(address: tuple[str, int], sent: bytes) -> bytes:
    """The response to a request with `Connection: close`."""
    with connect(
        address, sent.replace(b"Host: localhost", b"Host: localhost\r\nConnection: close", 1)
    ) as connection:
        return read(connection)


def assert_refused(received: bytes, status: int, code: str) -> None:
    """Check that the bytes are one response in the service's form, which closes the connection."""
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), head
    assert b"\r\nconnection: close" in head.lower()
    assert_error_body(json.loads(body), code)


def get(path: str = "/", session: str = SESSION) -> bytes:
    """A request of a known caller. Strangers have other threads (`test_strangers.py`)."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{session}\r\n\r\n".encode()


def post(path: str, framing: bytes, body: bytes = b"") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{SESSION}\r\n".encode()
    return head + framing + b"\r\n\r\n" + body


def length(size: int) -> bytes:
    return b"Content-Length: %d" % size


def assert_served_at_once(address: tuple[str, int]) -> None:
    """Check that twice as many requests as there are threads are served without waiting."""
    began = time.monotonic()
    for _ in range(2 * THREADS):
        assert talk(address, get()).endswith(b"here")
    assert time.monotonic() - began < 5, "somebody waited for a slow client"


class TestRequest:
    @pytest.fixture
    def environ(self, views: Views, address: tuple[str, int]) -> Callable[[bytes], dict[str, Any]]:
        def respond(environ: dict[str, Any]) -> HttpResponseBase:
            values = {name: value for name, value in environ.items() if isinstance(value, str)}
            return HttpResponse(json.dumps(values).encode())

        def ask(sent: bytes) -> dict[str, Any]:
            path = sent.split(b" ")[1].partition(b"?")[0]
            views.at[unquote_to_bytes(path).decode("latin-1")] = respond
            values: dict[str, Any] = json.loads(talk(address, sent).partition(b"\r\n\r\n")[2])
            return values

        return ask

    def test_the_request_is_described_as_wsgi_requires(
        self, environ: Callable[[bytes], dict[str, Any]]
    ) -> None:
        values = environ(
            b"PATCH /a%2Fb/caf%C3%A9/%ff?q=%20%C3%A9&q=2 HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
            b"Content-Length: 2\r\nX-Name: caf\xc3\xa9\r\nX-Twice: a\r\nX-Twice: b\r\n\r\nhi"
        )
        assert values["REQUEST_METHOD"] == "PATCH"
        assert values["PATH_INFO"] == "/a/b/caf\xc3\xa9/\xff"
        assert (values["SCRIPT_NAME"], values["QUERY_STRING"]) == ("", "q=%20%C3%A9&q=2")
        assert (values["CONTENT_TYPE"], values["CONTENT_LENGTH"]) == ("text/plain", "2")
        assert (values["HTTP_X_NAME"], values["HTTP_X_TWICE"], values["HTTP_HOST"]) == (
            "caf\xc3\xa9",
            "a,b",
            "localhost",
        )
        assert (values["REMOTE_ADDR"], values["wsgi.url_scheme"]) == ("127.0.0.1", "http")
        assert values["SERVER_PROTOCOL"] == "HTTP/1.1"
        assert not {"HTTP_CONTENT_TYPE", "HTTP_CONTENT_LENGTH"} & set(values)

    def test_a_name_with_an_underscore_passes_for_no_other(
        self, environ: Callable[[bytes], dict[str, Any]]
    ) -> None:
        values = environ(
            b"GET / HTTP/1.1\r\nHost: localhost\r\nX_Forwarded_For: 1.2.3.4\r\nX_Other: 1\r\n\r\n"
        )
        assert not [name for name in values if "FORWARDED" in name or "OTHER" in name]


class TestBodies:
    @pytest.mark.parametrize("size", [0, 1, 60_000, 70_000, 5_000_000])
    @pytest.mark.parametrize("is_chunked", [False, True])
    def test_a_body_of_every_size_arrives(
        self, address: tuple[str, int], size: int, is_chunked: bool
    ) -> None:
        body = bytes(range(251)) * (size // 251 + 1)
        body = body[:size]
        if is_chunked:
            pieces = [body[at : at + 50_000] for at in range(0, size, 50_000)]
            framed = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
            answer = talk(address, post("/echo", b"Transfer-Encoding: chunked", framed))
        else:
            answer = talk(address, post("/echo", length(size), body))
        assert answer.partition(b"\r\n\r\n")[2].decode() == f"{size} {hashlib.sha256(body).hexdigest()}"

    @pytest.mark.parametrize("size", [10, 500_000])
    def test_a_client_that_expects_100_continue_gets_it(self, address: tuple[str, int], size: int) -> None:
        with connect(address, post("/echo", length(size) + CLOSE + b"\r\nExpect: 100-continue")) as client:
            assert client.recv(65_536) == b"HTTP/1.1 100 Continue\r\n\r\n"
            client.sendall(b"x" * size)
            assert read(client).partition(b"\r\n\r\n")[2].startswith(b"%d " % size)

    def test_a_client_that_asks_first_is_refused_before_it_sends(
        self, views: Views, address: tuple[str, int]
    ) -> None:
        views.at["/no"] = lambda environ: HttpResponse(b"no", status=401)
        answer = talk(address, post("/no", length(500_000) + b"\r\nExpect: 100-continue"))
        assert answer.startswith(b"HTTP/1.1 401 ")

    def test_a_refusal_reaches_a_client_that_still_sends(
        self, views: Views, address: tuple[str, int]
    ) -> None:
        """Closing a connection with unread bytes resets it, and the client may lose the response."""
        views.at["/no"] = lambda environ: HttpResponse(b"no", status=401)
        answer = talk(address, post("/no", length(600_000), b"x" * 600_000))
        assert answer.startswith(b"HTTP/1.1 401 ")
        assert b"connection: close" in answer.lower()
        with connect(address, post("/no", length(200_000_000))) as client:
            sent = 0
            with contextlib.suppress(ConnectionError):
                while not select.select([client], [], [], 0)[0]:
                    assert sent < 200_000_000, "all of it was read"
                    sent += client.send(PIECE)
            assert client.recv(65_536).startswith(b"HTTP/1.1 401 ")

    def test_a_refused_body_may_be_sent_to_its_end(self, views: Views, address: tuple[str, int]) -> None:
        views.at["/no"] = lambda environ: HttpResponse(b"no", status=401)
        with connect(address, post("/no", length(600_000), b"x" * 100_000)) as client:
            received = client.recv(13)
            for _ in range(5):
                client.sendall(b"x" * 100_000)
            while part := client.recv(65_536):
                received += part
        assert received.startswith(b"HTTP/1.1 401 ")
        assert received.endswith(b"no")

    def test_a_small_body_that_was_not_read_keeps_its_connection(
        self, views: Views, address: tuple[str, int]
    ) -> None:
        views.at["/no"] = lambda environ: HttpResponse(b"no", status=401)
        with connect(address, post("/no", length(60_000), b"x" * 60_000)) as client:
            answer = http.client.HTTPResponse(client)
            answer.begin()
            assert (answer.status, answer.read(), answer.headers["Connection"]) == (401, b"no", None)
            client.sendall(get())
            following = http.client.HTTPResponse(client)
            following.begin()
            assert following.status == 200

    @pytest.mark.parametrize("size", [1, 60_000])
    def test_a_small_body_holds_no_thread_until_it_is_there(
        self, address: tuple[str, int], size: int
    ) -> None:
        body = b"x" * size
        parts = [body[at : at + 25_000] for at in range(0, size, 25_000)]
        with contextlib.ExitStack() as stack:
            sent = post("/echo", length(size) + CLOSE)
            slow = [stack.enter_context(connect(address, sent)) for _ in range(3 * THREADS)]
            for part in parts:
                assert_served_at_once(address)
                for client in slow:
                    client.sendall(part)
            for client in slow:
                assert read(client).partition(b"\r\n\r\n")[2].startswith(b"%d " % size)

    @pytest.mark.parametrize("framing", [length(500_000), b"Transfer-Encoding: chunked"])
    def test_a_quarter_of_the_threads_waits_for_no_body(
        self, address: tuple[str, int], framing: bytes
    ) -> None:
        """The part of a chunked body beyond 64 KiB makes a thread wait."""
        begun = b"%x\r\n%b\r\n" % (70_000, b"x" * 70_000) if b"chunked" in framing else b""
        with contextlib.ExitStack() as stack:
            slow = [
                stack.enter_context(connect(address, post("/echo", framing, begun)))
                for _ in range(2 * THREADS)
            ]
            assert_served_at_once(address)
            refused = [client for client in slow if select.select([client], [], [], 0.1)[0]]
            assert len(refused) == THREADS + 1, "they wait for their turn"

    @pytest.mark.django_db(transaction=True)
    @pytest.mark.parametrize("size", [5_000, 900_000])
    def test_a_body_that_is_overdue_is_408(
        self, front: FrontClient, key: api_keys.NewKey, monkeypatch: pytest.MonkeyPatch, size: int
    ) -> None:
        monkeypatch.setattr(request, "BODY_GRACE_SECONDS", 0.3)
        framing = b"Authorization: Bearer %b\r\nContent-Type: application/json\r\n" % key.key.encode()
        received = talk(front.address, post("/v1/api-keys", framing + length(size), b"{"))
        assert_refused(received, 408, "request_timeout")

    @pytest.mark.django_db(transaction=True)
    def test_a_strangers_large_body_is_refused_before_it_comes(self, front: FrontClient) -> None:
        with connect(front.address, post("/v1/media", length(100_000_000))) as client:
            assert client.recv(65_536).startswith(b"HTTP/1.1 401 ")

    @pytest.mark.django_db(transaction=True)
    @pytest.mark.parametrize(
        ("size", "status"), [(100, 400), (70_000, 400), (1024 * 1024 - 100, 400), (1024 * 1024 + 100, 413)]
    )
    @pytest.mark.parametrize("path", ["/v1/api-keys", "/v1/messages"], ids=["a view", "the listener"])
    def test_a_chunked_body_is_limited_like_any_other(
        self, front: FrontClient, key: api_keys.NewKey, path: str, size: int, status: int
    ) -> None:
        body = b'{"name":"","pad":"' + b"x" * size + b'"}'
        pieces = [body[at : at + 50_000] for at in range(0, len(body), 50_000)]
        framed = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        framing = b"Authorization: Bearer %b\r\nContent-Type: application/json\r\n" % key.key.encode()
        answer = talk(front.address, post(path, framing + b"Transfer-Encoding: chunked", framed))
        assert answer.startswith(b"HTTP/1.1 %d " % status)

    @pytest.mark.django_db(transaction=True)
    def test_all_bytes_of_a_chunked_body_count(
        self, front: FrontClient, key: api_keys.NewKey, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "BYTES_PER_SECOND", 1024)
        monkeypatch.setattr(limits, "BYTES_AT_ONCE", 4 * API_BODY_BYTES)
        monkeypatch.setattr(limits, "MOST_DEBT_SECONDS", 1_000_000.0)
        batch, after = [b" " * API_BODY_BYTES] * 6, [b" " * 100_000]
        for body, status in ((batch, 400), (after, 429)):
            answer = front.ask("POST", "/v1/messages/batch", body, Authorization=f"Bearer {key.key}")
            assert answer.status_code == status

    def test_a_client_that_goes_before_its_body_is_there_is_let_go(
        self, views: Views, address: tuple[str, int]
    ) -> None:
        failed: list[OSError] = []

        def reads(environ: dict[str, Any]) -> HttpResponseBase:
            try:
                environ["wsgi.input"].read()
            except OSError as error:
                failed.append(error)
                raise
            raise AssertionError("the body was there")

        views.at["/reads"] = reads
        for size in (1_000, 500_000):
            for _ in range(2 * THREADS):
                with connect(address, post("/reads", length(size), b"x")):
                    pass
        assert_served_at_once(address)
        assert all(isinstance(error, OSError) for error in failed)

    def test_what_a_view_does_not_read_yet_stays_with_the_client(
        self, views: Views, address: tuple[str, int]
    ) -> None:
        """100 MB must not be read into memory while the view reads the first bytes."""
        goes_on = threading.Event()
        taken: list[int] = []

        def slowly(environ: dict[str, Any]) -> HttpResponseBase:
            size = len(environ["wsgi.input"].read(10))
            assert goes_on.wait(30)
            while part := environ["wsgi.input"].read(64 * 1024):
                size += len(part)
            taken.append(size)
            return HttpResponse(b"taken")

        views.at["/slowly"] = slowly
        with connect(address, post("/slowly", length(100_000_000) + CLOSE)) as client:
            client.setblocking(False)
            sent = 0
            while select.select([], [client], [], 0.5)[1]:
                sent += client.send(PIECE)
            assert sent < 15_000_000, "more than the kernel's buffers hold was taken"
            goes_on.set()
            client.setblocking(True)
            while sent < 100_000_000:
                sent += client.send(PIECE[: 100_000_000 - sent])
            assert read(client).endswith(b"taken")
        assert taken == [100_000_000]


class TestAnswers:
    def test_an_answer_that_is_there_holds_no_thread(self, views: Views, address: tuple[str, int]) -> None:
        views.at["/large"] = lambda environ: HttpResponse(b"x" * 900_000)
        views.at["/streamed"] = lambda environ: StreamingHttpResponse(
            iter([b"x" * 90_000] * 10), headers={"Content-Length": "900000"}
        )
        with contextlib.ExitStack() as stack:
            slow = [
                stack.enter_context(connect(address, get(path) + get(), takes=4096))
                for path in ("/large", "/streamed") * THREADS
            ]
            for client in slow:
                assert client.recv(13) == b"HTTP/1.1 200 "
            assert_served_at_once(address)
            for client in slow[:2]:
                client.shutdown(socket.SHUT_WR)
                received = read(client)
                assert len(received) > 900_000
                assert received.count(b"HTTP/1.1 200 ") == 1, "the next answer on the same connection"
                assert received.endswith(b"here")

    def test_an_answer_of_several_megabytes_arrives_whole(
        self, views: Views, address: tuple[str, int]
    ) -> None:
        body = bytes(range(256)) * 40_000
        pieces = [body[at : at + 65_536] for at in range(0, len(body), 65_536)]
        views.at["/length"] = lambda environ: StreamingHttpResponse(
            iter(pieces), headers={"Content-Length": str(len(body))}
        )
        views.at["/chunks"] = lambda environ: StreamingHttpResponse(iter(pieces))
        for path in ("/length", "/chunks"):
            with contextlib.closing(http.client.HTTPConnection(*address, timeout=30)) as connection:
                for _ in range(2):
                    connection.request("GET", path)
                    assert connection.getresponse().read() == body

    def test_no_more_of_an_answer_is_made_than_its_client_takes(
        self, views: Views, address: tuple[str, int]
    ) -> None:
        made: list[int] = []

        def pieces() -> Iterator[bytes]:
            for place in range(1_600):
                made.append(place)
                yield PIECE

        views.at["/large"] = lambda environ: StreamingHttpResponse(pieces())
        with connect(address, get("/large"), takes=4096) as client:
            wait_until(lambda: bool(made), "it does not begin")
            before = -1
            while before != len(made):
                before = len(made)
                time.sleep(0.3)
            assert len(made) * len(PIECE) < 15_000_000, "100 MB were made for a client that takes nothing"
            received = 0
            while received < 1_600 * len(PIECE):
                received += len(client.recv(1_000_000))
        assert len(made) == 1_600

    def test_clients_that_take_long_answers_slowly_leave_a_thread_and_are_cut_off(
        self, views: Views, address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(django_threads, "TAKE_GRACE_SECONDS", 1.0)
        monkeypatch.setattr("web.listener.TAKE_SECONDS", 0.5)
        closed: list[bool] = []

        def pieces() -> Iterator[bytes]:
            try:
                for _ in range(1_600):
                    yield PIECE
            finally:
                closed.append(True)

        views.at["/large"] = lambda environ: StreamingHttpResponse(pieces())
        with contextlib.ExitStack() as stack:
            slow = [
                stack.enter_context(connect(address, get("/large"), takes=4096)) for _ in range(2 * THREADS)
            ]
            assert_served_at_once(address)
            statuses = sorted(client.recv(13)[9:12] for client in slow)
            assert statuses == [b"200"] * (THREADS - 1) + [b"503"] * (THREADS + 1)
            wait_until(lambda: len(closed) == THREADS - 1, "a client that takes nothing is not cut off")
        assert_served_at_once(address)

    def test_a_client_that_takes_less_than_the_slowest_rate_is_cut_off(
        self, views: Views, address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The limit ends the connection long before the listener's limit for clients that read nothing."""
        monkeypatch.setattr(django_threads, "TAKE_GRACE_SECONDS", 0.2)
        monkeypatch.setattr(django_threads, "SLOWEST_TAKEN_BYTES_PER_SECOND", 1e9)
        closed = threading.Event()

        def pieces() -> Iterator[bytes]:
            try:
                for _ in range(1_600):
                    yield PIECE
            finally:
                closed.set()

        views.at["/large"] = lambda environ: StreamingHttpResponse(pieces())
        with connect(address, get("/large"), takes=4096) as client:
            assert client.recv(13) == b"HTTP/1.1 200 "
            assert closed.wait(10), "it holds its thread"
            assert len(read(client)) < 1_600 * len(PIECE)

    def test_a_client_of_ordinary_speed_may_take_longer_than_the_grace(
        self, views: Views, address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(django_threads, "TAKE_GRACE_SECONDS", 0.3)
        views.at["/large"] = lambda environ: StreamingHttpResponse(PIECE for _ in range(1_600))
        with connect(address, get("/large"), takes=4096) as client:
            received, begun = len(client.recv(1_000_000)), time.monotonic()
            wait_until(lambda: time.monotonic() > begun + 0.6, "no time passes")
            while received < 1_600 * len(PIECE) and (part := client.recv(1_000_000)):
                received += len(part)
        assert received >= 1_600 * len(PIECE)

    def test_a_client_that_goes_ends_its_answer(self, views: Views, address: tuple[str, int]) -> None:
        closed = threading.Event()

        def pieces() -> Iterator[bytes]:
            try:
                while True:
                    yield PIECE
            finally:
                closed.set()

        views.at["/endless"] = lambda environ: StreamingHttpResponse(pieces())
        with connect(address, get("/endless")) as client:
            assert client.recv(13) == b"HTTP/1.1 200 "
        assert closed.wait(10), "an answer goes on without its client"

    @pytest.mark.django_db(transaction=True)
    def test_a_view_that_crashes_is_500_in_the_services_form(
        self, front: FrontClient, key: api_keys.NewKey, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tenants.views.TenantView.retrieve", lambda *_: 1 / 0)
        answer = front.ask("GET", "/v1/tenant", Authorization=f"Bearer {key.key}")
        assert answer.status_code == 500
        assert_error_body(json.loads(answer.content), "internal_error")


class TestCrowd:
    def test_beyond_what_may_wait_for_a_thread_it_is_503(
        self, views: Views, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("gateway.wsgi.application", views)
        monkeypatch.setattr(django_threads, "THREADS", 1)
        monkeypatch.setattr(django_threads, "MOST_WAITING", 1)
        begun, goes_on = threading.Semaphore(0), threading.Event()
        views.at["/waits"] = waiting(begun, goes_on)
        server = Front(OnlyThreads)
        address = server.start()
        try:
            with contextlib.ExitStack() as stack:
                clients = [stack.enter_context(connect(address, get("/waits"))) for _ in range(3)]
                ready, _, _ = select.select(clients, [], [], 10)
                assert ready[0].recv(65_536).startswith(b"HTTP/1.1 503 ")
                goes_on.set()
                for client in set(clients) - set(ready):
                    assert client.recv(65_536).startswith(b"HTTP/1.1 200 ")
        finally:
            goes_on.set()
            server.close()

    def test_the_pages_of_one_business_leave_threads_for_all_others(
        self, views: Views, address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(django_threads, "MOST_WAITING_PAGES", 8)
        begun, goes_on = threading.Semaphore(0), threading.Event()
        views.at["/waits"] = waiting(begun, goes_on)
        crowd = [remember_session(f"session {person}", owner="a business") for person in range(10)]
        other = remember_session("other session", owner="another business")
        with contextlib.ExitStack() as stack:
            pages = [stack.enter_context(connect(address, get("/waits", session))) for session in crowd]
            stack.callback(goes_on.set)
            for _ in range(PAGES_AT_ONCE):
                assert begun.acquire(timeout=10)
            for each in (other, SESSION):
                assert talk(address, get("/", each)).endswith(b"here")
            assert not begun.acquire(blocking=False), "a business holds more threads than its share"
            assert_refused(talk(address, get("/", crowd[0])), 429, "rate_limited")
            goes_on.set()
            for page in pages:
                assert page.recv(65_536).startswith(b"HTTP/1.1 200 ")
        assert talk(address, get("/", crowd[0])).endswith(b"here")

    def test_pages_that_wait_for_whatsapp_or_an_endpoint_leave_turns_for_the_others_of_their_business(
        self,
    ) -> None:
        waiting_pages, business = 0, uuid4()
        for bulkhead in (limits.upstream, limits.endpoints):
            with contextlib.ExitStack() as stack, contextlib.suppress(TooManyInFlight):
                while True:
                    stack.enter_context(bulkhead.held(business))
                    waiting_pages += 1
        assert 0 < waiting_pages < django_threads.PAGES_AT_ONCE < django_threads.THREADS

    def test_a_stop_finishes_what_runs_and_waits_for_nobody_else(self, views: Views, served: Front) -> None:
        begun, goes_on = threading.Semaphore(0), threading.Event()
        views.at["/waits"] = waiting(begun, goes_on)
        address = served.start()
        with contextlib.ExitStack() as stack:
            idle = stack.enter_context(connect(address, get()))
            assert idle.recv(65_536).startswith(b"HTTP/1.1 200 ")
            slow = stack.enter_context(connect(address, b"GET / HTTP/1.1\r\nX-Slow: "))
            running = stack.enter_context(connect(address, get("/waits")))
            assert begun.acquire(timeout=10)
            stopping = threading.Thread(target=served.close)
            stopping.start()
            assert read(idle) == b""
            assert read(slow) == b""
            goes_on.set()
            assert read(running).startswith(b"HTTP/1.1 200 ")
            stopping.join(10)
            assert not stopping.is_alive(), "it waited for an idle connection or a slow head"


def waiting(begun: threading.Semaphore, goes_on: threading.Event) -> View:
    def view(environ: dict[str, Any]) -> HttpResponseBase:
        begun.release()
        assert goes_on.wait(30)
        return HttpResponse(b"at last")

    return view
