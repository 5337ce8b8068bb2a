"""A request for a route: its headers at once, its body on demand, within limits."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any

from django.http import QueryDict

from gateway.api.access_log import waiting_for_client
from gateway.api.authentication import Caller
from gateway.api.errors import PayloadTooLarge, Reply, RequestTimeout
from gateway.api.limits import SMALL_BODY_BYTES, large_bodies

BODY_GRACE_SECONDS = 10.0
SLOWEST_BYTES_PER_SECOND = 16 * 1024
"""The slowest rate of a body. It must arrive within a grace period plus the time that its size takes at this rate."""
IS_WHOLE = "gateway.body_is_whole"
"""The key that marks the scope of a request whose whole body has arrived. Reading such a body needs no timer."""
DRAIN_SECONDS = 2.0
MOST_DRAINED_BYTES = 1024 * 1024

AsgiScope = MutableMapping[str, Any]
AsgiMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]


class ClientGone(Exception):
    """The caller closed the connection before its request was complete."""


def _joined(lines: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Header lines by name. Lines of the same name are joined (RFC 9110, 5.3)."""
    headers = dict(lines)
    if len(headers) < len(lines):
        values: dict[bytes, list[bytes]] = {}
        for name, value in lines:
            values.setdefault(name, []).append(value)
        headers = {name: b",".join(all_of_name) for name, all_of_name in values.items()}
    return headers


class Request:
    """One HTTP request. Its body is read when a route asks for it, after the check of the headers."""

    __slots__ = (
        "_arrived",
        "_begun_at",
        "_large",
        "_receive",
        "admission_headers",
        "body_is_read",
        "caller",
        "convert",
        "declared_length",
        "headers",
        "is_chunked",
        "method",
        "path",
        "query_string",
        "request_id",
        "route",
        "scope",
    )

    def __init__(self, scope: AsgiScope, receive: Receive, request_id: str = "") -> None:
        self.scope = scope
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.route = self.path
        """The pattern of the path, for metrics and logs."""
        self.query_string: bytes = scope["query_string"]
        self.headers: dict[bytes, bytes] = _joined(scope["headers"])
        self.request_id = request_id
        self.caller: Caller | None = None
        """The caller. None before the check of the headers. A request that is rejected later has a caller too."""
        self.admission_headers: Mapping[str, str] = {}
        self.convert: Callable[[Reply], Reply] | None = None
        """Converts the answer, also an error, to the form that the caller expects. None: leave it as it is."""
        self.is_chunked = b"transfer-encoding" in self.headers
        self.declared_length: int | None = (
            None if self.is_chunked else int(self.headers.get(b"content-length", b"0"))
        )
        """The Content-Length. The parser accepts only digits. None for a chunked body."""
        self.body_is_read = self.declared_length == 0
        self._receive = receive
        self._large = self._arrived = 0
        self._begun_at: float | None = None

    def header(self, name: bytes) -> str | None:
        """The value of a header. None without the header. `name` is in lower case."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    @property
    def parameters(self) -> Mapping[str, str]:
        """The parameters of the query. A repeated parameter has its last value."""
        return QueryDict(self.query_string).dict()

    def check_length(self, limit: int) -> None:
        """Raise PayloadTooLarge for a declared length over a limit."""
        if self.declared_length is not None and self.declared_length > limit:
            raise _too_large(limit)

    async def body(self, *, limit: int) -> bytes:
        """The whole body. Raises PayloadTooLarge, RequestTimeout, ServiceUnavailable or ClientGone."""
        self.check_length(limit)
        parts: list[bytes] = []
        size = 0
        while not self.body_is_read:
            part = await self.part()
            size += len(part)
            if size > limit:
                raise _too_large(limit)
            if size > SMALL_BODY_BYTES:
                self._reserve(size - SMALL_BODY_BYTES)
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def part(self) -> bytes:
        """The bytes of the body that have arrived since the last part. `body_is_read` is true after the last part.

        Nothing more is read from the connection before this call. Raises RequestTimeout for a body that arrives too
        slowly, and ClientGone.
        """
        if self.body_is_read:
            return b""
        message = await (self._receive() if IS_WHOLE in self.scope else self._receive_in_time())
        if message["type"] == "http.disconnect":
            raise ClientGone
        part: bytes = message["body"]
        self._arrived += len(part)
        self.body_is_read = not message["more_body"]
        return part

    async def _receive_in_time(self) -> AsgiMessage:
        loop = asyncio.get_running_loop()
        if self._begun_at is None:
            self._begun_at = loop.time()
        ends = self._begun_at + BODY_GRACE_SECONDS + self._arrived / SLOWEST_BYTES_PER_SECOND
        try:
            with waiting_for_client():
                async with asyncio.timeout_at(ends):
                    return await self._receive()
        except TimeoutError:
            raise RequestTimeout from None

    async def drain(self) -> None:
        """Read and drop the rest of an unwanted body, for a short time.

        Closing a connection with unread bytes resets it, and the client may lose the response.
        """
        drained = 0
        with contextlib.suppress(TimeoutError, RequestTimeout, ClientGone):
            async with asyncio.timeout(DRAIN_SECONDS):
                while not self.body_is_read and drained < MOST_DRAINED_BYTES:
                    drained += len(await self.part())

    async def disconnected(self) -> None:
        """Wait until the caller has closed the connection. Read the body before this call, if there is one."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def close(self) -> None:
        """Release the shared memory that the body holds."""
        if self._large:
            large_bodies.release(self._large)
            self._large = 0

    def _reserve(self, size: int) -> None:
        large_bodies.take(size - self._large)
        self._large = size


def _too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"The body may hold at most {limit} bytes.", details={"limit_bytes": limit})


async def send_head(
    status: int,
    headers: Iterable[tuple[str, str]],
    request: Request,
    send: Send,
    *,
    length: int | None = None,
) -> None:
    """Send status and headers. If the body has not been read, the connection is closed after the response.

    `length` is the Content-Length of a complete response. A length in the headers takes precedence.
    """
    lines = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    if length is not None and b"content-length" not in dict(lines):
        lines.append((b"content-length", b"%d" % length))
    if not request.body_is_read:
        lines.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": lines})


async def send_whole(
    status: int, headers: Iterable[tuple[str, str]], body: bytes, request: Request, send: Send
) -> None:
    """Send a complete response."""
    await send_head(status, headers, request, send, length=len(body))
    is_unread = not request.body_is_read
    await send({"type": "http.response.body", "body": body, "more_body": is_unread})
    if is_unread:
        await end_answer(request, send)


async def end_answer(request: Request, send: Send) -> None:
    """End a sent response. First drain the rest of an unwanted body."""
    if not request.body_is_read:
        await request.drain()
    await send({"type": "http.response.body", "body": b""})
