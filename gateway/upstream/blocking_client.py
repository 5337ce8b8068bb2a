"""Graph API calls from threads, with urllib3: kept connections, streamed files, and no call sent twice.

From top to bottom: bodies that are read from a file while they are sent, the transport, a call with a JSON body, and
reads of nodes and lists (upstream fact 1.0). Event loops use `calls.AsyncPool`. Sends of messages never use this
module.
"""

import http.client
import io
import re
import secrets
import socket
from collections.abc import Iterator, Mapping
from functools import cache
from ssl import SSLCertVerificationError
from time import monotonic, perf_counter
from typing import IO, Any

import orjson
import urllib3
from django.conf import settings
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, ReadTimeoutError, SSLError

from gateway.api import access_log
from gateway.database.transactions import leave_database
from gateway.http1 import headers_of, tls_context
from gateway.upstream.calls import (
    CONNECT_SECONDS,
    MOST_BODY_BYTES,
    GraphAnswer,
    GraphCall,
    UpstreamUnreachable,
    prepare,
    span_of,
    upstream_unreachable,
)

_READ_BYTES = 64 * 1024


class FileBody:
    """A request body: the next `length` bytes of a file, read while they are sent."""

    def __init__(self, file: IO[bytes], *, length: int) -> None:
        self._file, self._length = file, length

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[bytes]:
        left = self._length
        while left and (piece := self._file.read(min(left, _READ_BYTES))):
            yield piece
            left -= len(piece)


class MultipartFile:
    """A multipart form with one file, as a body of known length. The file is read while the form is sent.

    aiohttp and urllib3 build forms in memory, but a file of 100 MB is too large for that. requests-toolbelt's encoder
    streams, but its last release was in May 2023.
    """

    def __init__(
        self,
        values: Mapping[str, str],
        file: IO[bytes],
        *,
        length: int,
        name: str,
        mime_type: str,
        field: str = "file",
    ) -> None:
        boundary = secrets.token_hex(16)
        self.content_type = f"multipart/form-data; boundary={boundary}"
        fields = "".join(
            f'--{boundary}\r\nContent-Disposition: form-data; name="{_quoted(key)}"\r\n\r\n{_line(value)}\r\n'
            for key, value in values.items()
        )
        self._head = (
            f"{fields}--{boundary}\r\n"
            f'Content-Disposition: form-data; name="{_quoted(field)}"; filename="{_quoted(name)}"\r\n'
            f"Content-Type: {_line(mime_type)}\r\n\r\n"
        ).encode()
        self._file = FileBody(file, length=length)
        self._tail = f"\r\n--{boundary}--\r\n".encode()

    def __len__(self) -> int:
        return len(self._head) + len(self._file) + len(self._tail)

    def __iter__(self) -> Iterator[bytes]:
        yield self._head
        yield from self._file
        yield self._tail


def _line(text: str) -> str:
    """A text as the value of a header, with spaces for line breaks and NUL."""
    return re.sub(r"[\r\n\0]", " ", text)


def _quoted(name: str) -> str:
    """A file name in quotes, escaped as browsers escape it."""
    return _line(name).replace("\\", "_").replace('"', "%22")


KEPT_CONNECTIONS = 40
"""Connections kept to one host, as many as a web process has threads."""
PIECE_BYTES = 64 * 1024


class Stream:
    """An answer whose body has not been read. The caller must close it."""

    def __init__(self, response: urllib3.BaseHTTPResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers: Mapping[str, str] = _headers(response)

    def __iter__(self) -> Iterator[bytes]:
        """The body as it arrives, in bounded pieces. Raises UpstreamUnreachable when the body stalls or breaks off."""
        started = perf_counter()
        try:
            yield from _pieces(self._response)
        except (HTTPError, OSError) as error:
            raise _unreachable(error, started) from None
        finally:
            self.close()

    def close(self) -> None:
        """Release the connection. Close it unless the answer was read to its end."""
        if not self._response.closed:
            self._response.close()
        self._response.release_conn()


def send(call: GraphCall) -> GraphAnswer:
    """Send a call and read the whole answer. Each wait for Meta is at most UPSTREAM_TIMEOUT_MS.

    Raises UpstreamUnreachable. Never call it inside a transaction.
    """
    started = perf_counter()
    with span_of(call) as span:
        response = _begin(call, started)
        try:
            body = _read(response, monotonic() + settings.UPSTREAM_TIMEOUT_MS / 1000)
        except (HTTPError, OSError) as error:
            response.close()
            raise _unreachable(error, started) from None
        response.release_conn()
        span.answered(response.status)
    ms = (perf_counter() - started) * 1000
    access_log.add_upstream_ms(ms)
    return GraphAnswer(response.status, body, _headers(response), ms)


def stream(call: GraphCall) -> Stream:
    """Send a call whose answer may be large. Reads only the head.

    Raises UpstreamUnreachable. Never call it inside a transaction.
    """
    started = perf_counter()
    with span_of(call) as span:
        response = _begin(call, started)
        span.answered(response.status)
    access_log.add_upstream_ms((perf_counter() - started) * 1000)
    return Stream(response)


def close() -> None:
    """Close idle connections."""
    _pool().clear()


def _begin(call: GraphCall, started: float) -> urllib3.BaseHTTPResponse:
    """Send a call and return its answer's head. Raises UpstreamUnreachable."""
    leave_database()
    if any("\0" in value for value in call.headers.values()):
        raise ValueError("A header has a NUL in it.")
    headers = {**call.headers, "Accept-Encoding": "identity"}
    if call.body_bytes is not None:
        headers["Content-Length"] = str(call.body_bytes)
    try:
        return _pool().request(
            call.method,
            call.url,
            body=call.body if call.body is None or isinstance(call.body, bytes) else iter(call.body),
            headers=headers,
            preload_content=False,
            redirect=False,
            retries=False,
            timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=settings.UPSTREAM_TIMEOUT_MS / 1000),
        )
    except (HTTPError, OSError) as error:
        raise _unreachable(error, started) from None


def _read(response: urllib3.BaseHTTPResponse, deadline: float) -> bytes:
    """The body of an answer. Raises OSError when the body is too large, or incomplete at the deadline."""
    parts: list[bytes] = []
    size = 0
    for part in _pieces(response):
        parts.append(part)
        size += len(part)
        if size > MOST_BODY_BYTES:
            raise OSError("The answer is too large.")
        if monotonic() > deadline:
            raise TimeoutError
    return b"".join(parts)


def _pieces(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """The body of an answer in bounded pieces. Raises HTTPError or OSError when it is interrupted.

    urllib3 accepts an interrupted head as complete. The body is then empty, without a length. No answer of the Graph
    API is like that.
    """
    is_empty = True
    # urllib3's `read` and `stream` would wait until a piece is full.
    while piece := response.read1(PIECE_BYTES):
        is_empty = False
        yield piece
    if is_empty and response.length_remaining is None and not response.chunked:
        raise ConnectionError("The answer broke off in its head.")


def _unreachable(error: Exception, started: float) -> Exception:
    # TLS verifies the certificate before anything is sent.
    is_unsent = isinstance(error, ConnectTimeoutError | NewConnectionError) or (
        isinstance(error, SSLError) and isinstance(error.args[0], SSLCertVerificationError)
    )
    cause: Exception = TimeoutError() if isinstance(error, ConnectTimeoutError | ReadTimeoutError) else error
    return upstream_unreachable(cause, started, is_unsent=is_unsent)


def _headers(response: urllib3.BaseHTTPResponse) -> Mapping[str, str]:
    return headers_of(
        [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers.items()]
    )


class _HeadReader(io.RawIOBase):
    """The bytes of a socket. While a deadline is set, no read waits beyond it."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._seconds = sock, sock.gettimeout()
        self._bytes = sock.makefile("rb", buffering=0)
        self.deadline: float | None = monotonic() + self._seconds if self._seconds else None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        if self.deadline is not None:
            self._sock.settimeout(max(self.deadline - monotonic(), 0.001))
        return self._bytes.readinto(buffer)

    def end_head(self) -> None:
        """End the deadline of the head. From now on each read may take the whole time-out."""
        self.deadline = None
        self._sock.settimeout(self._seconds)

    def close(self) -> None:
        self._bytes.close()
        super().close()


class _Response(http.client.HTTPResponse):
    """A response whose head must arrive within the time-out, even if its bytes come slowly. A socket's time-out
    applies only to each read.
    """

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp.close()
        self._reader = _HeadReader(sock)
        self.fp = io.BufferedReader(self._reader)

    def begin(self) -> None:
        super().begin()
        if not self._reader.closed:
            self._reader.end_head()


class _HTTPConnection(HTTPConnection):
    response_class = _Response


class _HTTPSConnection(HTTPSConnection):
    response_class = _Response


class _HTTPPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _HTTPConnection


class _HTTPSPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _HTTPSConnection


@cache
def _pool() -> urllib3.PoolManager:
    """The pool of this process."""
    pool = urllib3.PoolManager(maxsize=KEPT_CONNECTIONS, ssl_context=tls_context())
    pool.pool_classes_by_scheme = {"http": _HTTPPool, "https": _HTTPSPool}
    return pool


# --- One blocking Graph API call with a JSON body, prepared by `calls.py`.
def request(
    *,
    environment: str,
    method: str,
    path: str,
    token: str | None,
    params: Mapping[str, str] | None = None,
    json: Any = None,
    body: bytes | None = None,
) -> GraphAnswer:
    """Prepare and send a call. `json` is serialised, `body` is sent unchanged. Raises UpstreamUnreachable."""
    payload = orjson.dumps(json) if json is not None else body
    return send(
        prepare(environment=environment, method=method, path=path, token=token, params=params, body=payload)
    )


# --- Reads of the Graph API: nodes by field names, lists page by page (upstream fact 1.0).
#
# Used by the modules of the nodes (`numbers.py`, `templates.py`). Reads name every field, because by default Meta
# returns only a few. A read leaves out a field that Meta has retired, and so does not fail.
PAGE_SIZE = 100
MAX_PAGES = 100

_UNKNOWN_FIELD = re.compile(r"nonexisting field \((\w+)\)")


def read(
    *,
    environment: str,
    token: str,
    path: str,
    fields: tuple[str, ...],
    params: Mapping[str, str] | None = None,
) -> GraphAnswer:
    """Read a node by field names. Leave out a field that Meta has retired (error 100 names it)."""
    wanted = list(fields)
    while True:
        answer = request(
            environment=environment,
            method="GET",
            path=path,
            token=token,
            params={"fields": ",".join(wanted), **(params or {})},
        )
        error = answer.json().get("error")
        message = str(error.get("message", "")) if not answer.ok and isinstance(error, dict) else ""
        retired = _UNKNOWN_FIELD.search(message)
        if retired is None or retired[1] not in wanted or len(wanted) == 1:
            return answer
        wanted.remove(retired[1])


def pages(*, environment: str, token: str, path: str, fields: tuple[str, ...]) -> Iterator[GraphAnswer]:
    """Read a list page by page. Ends after the last page or the first error. Raises UpstreamUnreachable for a list of
    more than MAX_PAGES, so that no caller treats the rest of its rows as deleted.

    Never follows the `next` link. Only its cursor goes into the next request.
    """
    after: str | None = None
    for _ in range(MAX_PAGES):
        paging = {"limit": str(PAGE_SIZE)} | ({"after": after} if after else {})
        answer = read(environment=environment, token=token, path=path, fields=fields, params=paging)
        yield answer
        position = answer.json().get("paging")
        position = position if isinstance(position, dict) else {}
        cursors = position.get("cursors")
        after = cursors.get("after") if isinstance(cursors, dict) else None
        if not answer.ok or not position.get("next") or not isinstance(after, str):
            return
    raise UpstreamUnreachable("endless_list", answer.ms, is_unsent=False)


def rows(answer: GraphAnswer) -> list[dict[str, Any]]:
    """The objects of a list answer. Raises UpstreamUnreachable for any other answer, so that no caller treats its
    rows as deleted.
    """
    data = answer.json().get("data")
    if not isinstance(data, list):
        raise UpstreamUnreachable("unreadable_answer", answer.ms, is_unsent=False)
    return [row for row in data if isinstance(row, dict)]
