"""Body limits: 64 KiB of a page, 1 MiB of an operation of the API, or what the view declares.

A body of declared length is refused by its headers before a byte is read, in the API after the caller has been judged.
One sent in chunks is read when the view asks for it, and refused as soon as it is too large. How slowly a body may come
is the server's part (`gateway/web_server/`).

Flows with larger bodies keep their own limits: notifications `messaging/notifications/incoming.py`, batches
`messaging/batches/body.py`, files `messaging/form_files.py`.
"""

import io
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest

from gateway.api.errors import PayloadTooLarge, ServiceUnavailable

CHUNKED = "gateway.chunked_body"
"""The key of a chunked body in the WSGI environment."""

View = TypeVar("View")


DEFAULT_BODY_BYTES = 64 * 1024
"""The largest body of a view that declares none: of a page."""
API_BODY_BYTES = 1024 * 1024
"""The largest body of an operation of the API, and the largest message, template or profile that the upstream reads."""


def limited_by(limit: int) -> Callable[[View], View]:
    """Decorates a view, class or function, with the largest body in bytes that it takes."""

    def decorate(view: View) -> View:
        view.body_limit = limit  # type: ignore[attr-defined]
        return view

    return decorate


def limit_of(view: Callable[..., Any]) -> int:
    """The largest body in bytes that a view takes."""
    declaring = getattr(view, "cls", None) or getattr(view, "view_class", None) or view
    return int(getattr(declaring, "body_limit", DEFAULT_BODY_BYTES))


def bound(request: HttpRequest, view: Callable[..., Any]) -> None:
    """Raise PayloadTooLarge for a declared length over the view's limit; bound the reading of a chunked body."""
    limit = limit_of(view)
    chunked: _Chunked | None = request.META.get(CHUNKED)
    if chunked is not None:
        chunked.limit = limit
        # Some readers check whether there is a body at all.
        request.META["CONTENT_LENGTH"] = str(limit)
        request._stream = chunked  # type: ignore[assignment]
        return
    try:
        length = int(request.META.get("CONTENT_LENGTH") or 0)
    except ValueError:
        length, request.META["CONTENT_LENGTH"] = 0, "0"
    if length > limit:
        raise PayloadTooLarge(f"The body may hold at most {limit} bytes.", details={"limit_bytes": limit})


class _Chunked(io.IOBase):
    """A chunked body; reading more than its limit raises RequestDataTooBig."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._read = stream, 0
        self.limit = 0

    def read(self, size: int = -1, /) -> bytes:
        most = self.limit + 1 - self._read
        data: bytes = self._stream.read(most if size < 0 else min(size, most))
        self._read += len(data)
        if self._read > self.limit:
            # Django's own: what reads the body of a page knows it.
            raise RequestDataTooBig(f"The body may hold at most {self.limit} bytes.")
        return data


SMALL_BODY_BYTES = 64 * 1024
LARGE_BODIES_BYTES = 128 * 1024 * 1024
"""What the parts of bodies beyond `SMALL_BODY_BYTES` may take of a process at once. Small bodies never wait."""


class LargeBodyMemory:
    """The memory that large bodies share, from any thread: a stranger's megabytes must not exhaust the process."""

    def __init__(self, most: int) -> None:
        self._most, self._taken = most, 0
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        """Take bytes for a large body. Raises ServiceUnavailable when they are not there."""
        with self._lock:
            if self._taken + size > self._most:
                raise ServiceUnavailable("Too many large requests are arriving at once. Try again.")
            self._taken += size

    def give_back(self, size: int) -> None:
        """Give bytes back that were taken."""
        with self._lock:
            self._taken -= size

    @contextmanager
    def held_for(self, request: HttpRequest) -> Iterator[None]:
        """Hold what the body of a request may take, for the time of the block. Raises ServiceUnavailable."""
        # `bound` has checked that this is a number within the view's limit.
        size = max(0, int(request.META.get("CONTENT_LENGTH") or 0) - SMALL_BODY_BYTES)
        self.take(size)
        try:
            yield
        finally:
            self.give_back(size)


large_bodies = LargeBodyMemory(LARGE_BODIES_BYTES)


WsgiApplication = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def with_chunked_bodies(application: WsgiApplication) -> WsgiApplication:
    """WSGI wrapper: hands a body that was sent in chunks to `bound`, which knows the view."""

    def wrapped(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if "chunked" in environ.get("HTTP_TRANSFER_ENCODING", "").lower() and environ.get(
            "wsgi.input_terminated"
        ):
            environ[CHUNKED] = _Chunked(environ["wsgi.input"])
        return application(environ, start_response)

    return wrapped
