"""How large a request body may be, a route at a time (decision "Every response": 413 `payload_too_large`)."""

import re
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

from django.conf import settings
from django.http import HttpRequest

from gateway.api.errors import PayloadTooLarge

SPOOL_BYTES = 1024 * 1024
"""A chunked body larger than this is spooled to a temporary file, never held in memory."""


_GRAPH_MEDIA = re.compile(r"(?:/v\d+\.\d+)?/\d+/media/?", re.ASCII)
"""An upload through the Cloud API front."""


def limit_for(path: str) -> int:
    """The largest body in bytes that a path takes."""
    if path == "/v1/messages/batch":
        return settings.MAX_BATCH_BODY_BYTES
    if path in {"/v1/media", "/v1/templates/media-handle"} or _GRAPH_MEDIA.fullmatch(path):
        return settings.MAX_MEDIA_BODY_BYTES + SPOOL_BYTES
    if path.startswith("/upstream/"):
        return settings.MAX_NOTIFICATION_BYTES
    return settings.MAX_BODY_BYTES


def refuse_too_large(request: HttpRequest) -> None:
    """Raise PayloadTooLarge for a declared length over the limit, before a byte is read."""
    limit = limit_for(request.path)
    try:
        length = int(request.META.get("CONTENT_LENGTH") or 0)
    except ValueError:
        length = 0
    if length > limit:
        raise PayloadTooLarge(f"The body may hold at most {limit} bytes.", details={"limit_bytes": limit})


Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def with_chunked_bodies(application: Application) -> Application:
    """WSGI wrapper: a body sent in chunks gets the length that Django needs to read it.

    Django reads as many bytes as `Content-Length` says, so a chunked body would look empty. It is spooled up to
    one byte more than the route's limit, and the limit then refuses it like any other.
    """

    def wrapped(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        chunked = "chunked" in environ.get("HTTP_TRANSFER_ENCODING", "").lower()
        if not chunked or not environ.get("wsgi.input_terminated"):
            return application(environ, start_response)
        limit = limit_for(environ.get("PATH_INFO", ""))
        with tempfile.SpooledTemporaryFile(SPOOL_BYTES) as spool:
            length = 0
            while length <= limit and (chunk := environ["wsgi.input"].read(65536)):
                length += spool.write(chunk)
            spool.seek(0)
            environ["wsgi.input"] = spool
            environ["CONTENT_LENGTH"] = str(length)
            return application(environ, start_response)

    return wrapped
