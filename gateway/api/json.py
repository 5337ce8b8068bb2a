"""JSON in and out with orjson: REST framework's renderer, parser and negotiation.

The API supports only JSON, so an `Accept` header never causes an error. Bodies must be JSON objects.
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
    """JSON bytes. Times are written by `isoformat`, UUIDs as text."""
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
"""The attribute of Django's request with the parsed body, set by the view that has read it."""


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
        # An empty chunked body counts like a Content-Length of 0.
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
"""Maximum number of values in a body. A mebibyte can hold 100,000 members, which take long to hash."""
MOST_NESTED = 200
"""Maximum depth of nested arrays and objects. Lower than orjson's limit, because responses nest the body deeper."""
_GZIP = b"\x1f\x8b"
_ENCODER_NESTS = 254
"""Maximum depth that orjson writes. It raises an error for deeper values."""


def parse_object(body: bytes) -> dict[str, Any]:
    """Parse a request body as a JSON object. Raises ParseError (400 `invalid_request`) for anything else."""
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
    """An upper bound of the values in a JSON text: its commas and opening brackets, even those within strings."""
    return body.count(b",") + body.count(b"[") + body.count(b"{")


def _is_nested_too_deep(data: dict[str, Any]) -> bool:
    """Whether the data is nested more deeply than MOST_NESTED. Most bodies have too few brackets to need this check.

    orjson rejects deep data itself. The extra lists around the data lower its limit to MOST_NESTED.
    """
    value: Any = data
    for _ in range(_ENCODER_NESTS - MOST_NESTED):
        value = [value]
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError:
        return True
    return False


def object_of(request: Request) -> dict[str, Any]:
    """The parsed body of a request: always a JSON object, and empty without a body."""
    return dict(request.data)


class AlwaysJSON(DefaultContentNegotiation):
    """Uses the only renderer for any `Accept`, so that an unusual header is not an error."""

    def select_renderer(
        self, request: Request, renderers: Any, format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        renderer = renderers[0]
        return renderer, renderer.media_type
