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


class JSONParser(BaseParser):
    media_type = "application/json"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        return parse_object(stream.read())


def parse_object(body: bytes) -> dict[str, Any]:
    """A request body as a JSON object; anything else is 400 `invalid_request`."""
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise ParseError("The body is not valid JSON.") from None
    if not isinstance(data, dict):
        raise ParseError("The body must be a JSON object.")
    return data


def object_of(request: Request) -> dict[str, Any]:
    """The parsed body of a request: a JSON object, as the parser promises; empty when there is no body."""
    return dict(request.data)


class AlwaysJSON(DefaultContentNegotiation):
    """The one renderer serves whatever `Accept` says: a client's odd header is no reason to refuse."""

    def select_renderer(
        self, request: Request, renderers: Any, format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        renderer = renderers[0]
        return renderer, renderer.media_type
