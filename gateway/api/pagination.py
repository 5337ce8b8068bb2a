"""Keyset pagination of every list: newest first, never by OFFSET. Opaque cursors stay valid while rows are added."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from operator import attrgetter
from typing import Any, ClassVar
from uuid import UUID
from zlib import crc32

from django.core.exceptions import ValidationError
from django.db.models import Field, Model
from rest_framework.fields import Field as SerializerField
from rest_framework.pagination import BasePagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer

from gateway.api.errors import InvalidRequest
from gateway.clock import now

DEFAULT_LIMIT = 50
MAX_LIMIT = 200
UNBOUND_UNTIL = datetime(2027, 4, 1, tzinfo=UTC)
"""Before this time, every list accepts a cursor that names no list. The first release made such cursors."""
_PASS = "Pass the next_cursor of an earlier answer of this list. After the last page it is null: leave cursor out."
_Member = tuple[str, Callable[[Any], Any], Callable[[Any], Any]]


class NewestFirst(BasePagination):
    """`limit` 1 to 200 (default 50) and `cursor`. The rows' ids are time-ordered, so the key is the id."""

    field: ClassVar[str] = "id"
    descending: ClassVar[bool] = True

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> list[Any]:
        limit = limit_of(request)
        order = f"-{self.field}" if self.descending else self.field
        queryset = queryset.order_by(order)
        if cursor := request.query_params.get("cursor"):
            bound = "lt" if self.descending else "gt"
            queryset = queryset.filter(
                **{f"{self.field}__{bound}": decode_cursor(request, cursor, queryset.model, self.field)}
            )
        rows = list(queryset[: limit + 1])
        is_last = len(rows) <= limit
        self.next_cursor = None if is_last else encode_cursor(request, getattr(rows[limit - 1], self.field))
        return rows[:limit]

    def get_paginated_response(self, data: Any) -> Response:
        return Response({"data": data, "next_cursor": self.next_cursor})

    def get_paginated_response_schema(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "type": "object",
            "required": ["data", "next_cursor"],
            "properties": {
                "data": schema,
                "next_cursor": {"type": ["string", "null"]},
            },
        }

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        return [
            {
                "name": "limit",
                "in": "query",
                "schema": {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
            },
            {
                "name": "cursor",
                "in": "query",
                "description": "`next_cursor` of the previous result.",
                "schema": {"type": "string"},
            },
        ]


def limit_of(request: Request) -> int:
    """The `limit` of a list request. 400 when it is out of range or not a number."""
    text = request.query_params.get("limit", str(DEFAULT_LIMIT))
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= MAX_LIMIT):
        raise InvalidRequest.of(limit=f"Must be a whole number from 1 to {MAX_LIMIT}.")
    return int(text)


def before_of(request: Request, model: type[Model]) -> UUID | None:
    """The id in the `cursor` of a request for a bounded list. None on the first page. Raises InvalidRequest."""
    cursor = request.query_params.get("cursor")
    return decode_cursor(request, cursor, model, "id") if cursor else None


def represent(serializer: type[Serializer[Any]], rows: Iterable[Any]) -> list[dict[str, Any]]:
    """Render rows like `serializer(rows, many=True).data`.

    REST framework creates a serializer's fields again for each object, which costs more than reading a page's rows.
    This function creates them once per process. So the serializer has no context, and every row must have every
    rendered attribute.
    """
    members = _members(serializer)
    shown = []
    for row in rows:
        values = ((name, read(row), show) for name, read, show in members)
        shown.append({name: None if value is None else show(value) for name, value, show in values})
    return shown


@cache
def _members(serializer: Any) -> Sequence[_Member]:
    """The members of the response, each with its name, a function that reads it from a row, and one that renders it."""
    fields: Mapping[str, Any] = serializer().fields
    return [
        (name, _reader(field), field.to_representation)
        for name, field in fields.items()
        if not field.write_only
    ]


def _reader(field: SerializerField[Any, Any, Any, Any]) -> Callable[[Any], Any]:
    is_attribute = type(field).get_attribute is SerializerField.get_attribute and field.source != "*"
    return attrgetter(str(field.source)) if is_attribute else field.get_attribute


def whole_list(data: Any) -> Response:
    """The response for a list without pages."""
    return Response({"data": data, "next_cursor": None})


def bounded_page(request: Request, data: list[dict[str, Any]], before: UUID | None) -> Response:
    """The response for a bounded list: the rows, and the cursor of the page before this id."""
    return Response({"data": data, "next_cursor": encode_cursor(request, before) if before else None})


def encode_cursor(request: Request, key: object) -> str:
    """The opaque cursor for the rows of the requested list that follow the row with this key."""
    return urlsafe_b64encode(f"{_list_of(request)}.{key}".encode()).decode().rstrip("=")


def decode_cursor(request: Request, cursor: str, model: type[Model], field: str) -> Any:
    """The key in a cursor. Raises InvalidRequest when the cursor is unreadable or belongs to another list."""
    column = model._meta.get_field(field)
    assert isinstance(column, Field)  # noqa: S101 - lists are ordered by a column of their own
    try:
        text = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4)).decode("ascii")
        of_list, _, key = text.rpartition(".")
        if of_list not in ("", _list_of(request)):
            raise InvalidRequest.of(cursor=f"Belongs to another list. {_PASS}")
        value = column.to_python(key)
        is_too_large = isinstance(value, int) and not -(2**63) <= value < 2**63
        if is_too_large or (not of_list and now() >= UNBOUND_UNTIL):
            raise ValueError
    except (ValueError, ValidationError):
        raise InvalidRequest.of(cursor=f"Cannot be read. {_PASS}") from None
    else:
        return value


def _list_of(request: Request) -> str:
    """The name of a list in its cursors: a checksum of its path, because each batch has its own list."""
    return f"{crc32(request.path.encode()):08x}"
