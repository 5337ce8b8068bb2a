"""A page's rows are rendered like those of REST framework's serializers, although the fields are created only once."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rest_framework import serializers

from gateway.api.pagination import represent


@dataclass
class Owner:
    name: str | None


@dataclass
class Row:
    text: str | None
    count: int | None
    at: datetime | None
    state: str | None
    owner: Owner
    tags: list[Owner]


class OwnerOut(serializers.Serializer[Any]):
    name = serializers.CharField(allow_null=True)


class RowOut(serializers.Serializer[Any]):
    text = serializers.CharField(allow_null=True)
    count = serializers.IntegerField(allow_null=True)
    at = serializers.DateTimeField(allow_null=True)
    state = serializers.ChoiceField(choices=["on", "off"], allow_null=True)
    owner_name = serializers.CharField(source="owner.name", allow_null=True)
    made = serializers.SerializerMethodField()
    secret = serializers.CharField(write_only=True)
    owner = OwnerOut()
    tags = OwnerOut(many=True)

    def get_made(self, row: Row) -> str:
        return f"made of {row.text}"


MOMENT = datetime(2026, 11, 22, 7, 6, 41, 120_000, tzinfo=UTC)
ROWS = [
    Row("a", 1, MOMENT, "on", Owner("Asha"), [Owner("x"), Owner(None)]),
    Row(None, None, None, None, Owner(None), []),
]


def test_rows_are_shown_as_their_serializer_shows_them() -> None:
    expected = [dict(row) for row in RowOut(ROWS, many=True).data]

    assert represent(RowOut, ROWS) == expected
    assert [list(row) for row in represent(RowOut, ROWS)] == [list(row) for row in expected]


def test_no_row_shows_what_an_earlier_one_held() -> None:
    first, second = represent(RowOut, ROWS)

    assert (first["text"], second["text"]) == ("a", None)
    assert represent(RowOut, [ROWS[1]])[0] == second
    assert represent(RowOut, []) == []
