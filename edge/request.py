"""A request as the routes of the edge see it: its headers at once, its body when they ask for it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any
from uuid import UUID

from django.http import QueryDict

from gateway import ids
from gateway.api.authentication import Caller
from gateway.api.errors import PayloadTooLarge, RequestTimeout
from gateway.api.limits.body_pace import BODY_GRACE_SECONDS, SLOWEST_BYTES_PER_SECOND
from gateway.api.limits.body_size import SMALL_BODY_BYTES, large_bodies

AsgiScope = MutableMapping[str, Any]
AsgiMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]


class ClientGone(Exception):
    """The caller closed the connection before its request was complete."""


def _joined(lines: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Header lines by name, those of one name joined as WSGI joins them: both doors judge the same value."""
    headers = dict(lines)
    if len(headers) < len(lines):
        values: dict[bytes, list[bytes]] = {}
        for name, value in lines:
            values.setdefault(name, []).append(value)
        headers = {name: b",".join(all_of_name) for name, all_of_name in values.items()}
    return headers


class Request:
    """One HTTP request. The body is read when a route asks for it, after the headers have been judged."""

    __slots__ = (
        "_large",
        "_receive",
        "admission_headers",
        "body_is_read",
        "caller",
        "headers",
        "method",
        "path",
        "query_string",
        "request_id",
        "request_uuid",
    )

    def __init__(self, scope: AsgiScope, receive: Receive, request_uuid: UUID) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query_string: bytes = scope["query_string"]
        self.headers: dict[bytes, bytes] = _joined(scope["headers"])
        self.request_uuid = request_uuid
        self.request_id = ids.encode(ids.REQUEST, request_uuid)
        self.caller: Caller | None = None
        """Who calls, once the headers were judged; also of a request that is then refused."""
        self.admission_headers: Mapping[str, str] = {}
        self.body_is_read = not (
            self.headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in self.headers
        )
        self._receive = receive
        self._large = 0

    def header(self, name: bytes) -> str | None:
        """A header's value; `name` in lower case."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    @property
    def parameters(self) -> Mapping[str, str]:
        """The query's parameters; of a repeated one the last."""
        return QueryDict(self.query_string).dict()

    async def body(self, *, limit: int) -> bytes:
        """The whole body. Raises PayloadTooLarge, RequestTimeout, ServiceUnavailable or ClientGone."""
        too_large = PayloadTooLarge(
            f"The body may hold at most {limit} bytes.", details={"limit_bytes": limit}
        )
        declared = self.headers.get(b"content-length", b"0")
        if not declared.isdigit() or int(declared) > limit:
            raise too_large
        parts: list[bytes] = []
        size = 0
        loop = asyncio.get_running_loop()
        ends = loop.time() + BODY_GRACE_SECONDS
        try:
            async with asyncio.timeout_at(ends) as deadline:
                while True:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGone
                    part = message["body"]
                    size += len(part)
                    if size > limit:
                        raise too_large
                    if size > SMALL_BODY_BYTES:
                        self._reserve(size - SMALL_BODY_BYTES)
                    parts.append(part)
                    if not message["more_body"]:
                        break
                    deadline.reschedule(ends + size / SLOWEST_BYTES_PER_SECOND)
        except TimeoutError:
            raise RequestTimeout from None
        self.body_is_read = True
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def disconnected(self) -> None:
        """Wait until the caller has closed the connection; after the body, if there is one."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def close(self) -> None:
        """Give back what the body took of the shared memory."""
        large_bodies.give_back(self._large)
        self._large = 0

    def _reserve(self, size: int) -> None:
        large_bodies.take(size - self._large)
        self._large = size
