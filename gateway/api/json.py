"""JSON in and out by orjson: REST framework's renderer, parser and negotiation.

The API speaks JSON alone, so an `Accept` header never refuses; bodies must be JSON objects.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import IO, Any

import orjson
from rest_framework.exceptions import ParseError
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

from gateway.clock import isoformat


def _default(value: Any) -> str:
    if isinstance(value, datetime):
        return isoformat(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def dumps(value: Any) -> bytes:
    """JSON bytes: moments as `isoformat`, UUIDs as text."""
    return orjson.dumps(value, default=_default, option=orjson.OPT_PASSTHROUGH_DATETIME)


class JSONRenderer(BaseRenderer):
    media_type = "application/json"
    format = "json"
    charset = None

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,
        renderer_context: Mapping[str, Any] | None = None,
    ) -> bytes:
        return b"" if data is None else dumps(data)


PARSED = "parsed_body"
"""The attribute of Django's request that has its body as an object, where a view before this one has read it."""


class JSONParser(BaseParser):
    media_type = "application/json"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        parsed: dict[str, Any] | None = None
        if parser_context is not None:
            parsed = getattr(parser_context["request"]._request, PARSED, None)
        if parsed is not None:
            return parsed
        body = stream.read()
        # Nothing, sent in chunks: as with a Content-Length of 0.
        return parse_object(body) if body else {}


class UnreadJSON(BaseParser):
    """For a view that reads its large bodies itself: `request.data` is the bytes."""

    media_type = "application/json"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        return stream.read()


MOST_VALUES = 20_000
"""Values in all. A mebibyte can hold 100,000 members, which take long to hash."""
MOST_NESTED = 200
"""Arrays and objects inside each other: more are refused, since what holds a body nests it deeper still."""
_GZIP = b"\x1f\x8b"
_ENCODER_NESTS = 254
"""How deep orjson writes: beyond, it raises."""


def parse_object(body: bytes) -> dict[str, Any]:
    """A request body as a JSON object; anything else is 400 `invalid_request`."""
    if values_in(body) > MOST_VALUES:
        raise ParseError(f"The body must not hold more than {MOST_VALUES:,} values.")
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if body.startswith(_GZIP):
            raise ParseError("The body is compressed: send it as it is, without Content-Encoding.") from None
        raise ParseError(f"The body is not valid JSON in UTF-8: {error}.") from None
    if not isinstance(data, dict):
        raise ParseError("The body must be a JSON object.")
    if body.count(b"[") + body.count(b"{") > MOST_NESTED and _is_nested_too_deep(data):
        raise ParseError(f"The body must not be nested deeper than {MOST_NESTED} levels.")
    return data


def values_in(body: bytes) -> int:
    """The most values that a JSON text can hold: its commas and opening brackets, also those inside of texts."""
    return body.count(b",") + body.count(b"[") + body.count(b"{")


def _is_nested_too_deep(data: dict[str, Any]) -> bool:
    """Asks orjson's own limit, lowered to MOST_NESTED. Nearly every body has too few brackets to be asked about."""
    value: Any = data
    for _ in range(_ENCODER_NESTS - MOST_NESTED):
        value = [value]
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError:
        return True
    return False


def object_of(request: Request) -> dict[str, Any]:
    """The parsed body of a request: a JSON object, as the parser promises; empty when there is no body."""
    return dict(request.data)


class AlwaysJSON(DefaultContentNegotiation):
    """The one renderer serves whatever `Accept` says: a client's odd header is not refused."""

    def select_renderer(
        self, request: Request, renderers: Any, format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        renderer = renderers[0]
        return renderer, renderer.media_type
