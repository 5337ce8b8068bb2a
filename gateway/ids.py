"""Identifiers: UUIDv7 everywhere. The API shows some as a public id: a prefix and 26 characters of Crockford base32.

A UUIDv7 begins with its timestamp in milliseconds, so ids sort by creation, and tables can be partitioned by time by
their primary key (docs/architecture.md).
"""

import re
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any, ClassVar
from uuid import UUID

import uuid_utils.compat

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Crockford base32: no I, L, O, U."""
_PAIRS = [first + second for first in ALPHABET for second in ALPHABET]
_VALUES = {character: value for value, character in enumerate(ALPHABET)}
_EPOCH = datetime.fromtimestamp(0, UTC)
_BODY = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
_END = (datetime(9000, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1) << 80
"""Later ids are invalid. Python's moments end with the year 9999, and code adds time to the moments of some ids."""

EVENT = "evt_"
DELIVERY = "dlv_"
BATCH = "bat_"
SCHEDULED = "sch_"
CONNECT_SESSION = "cs_"
REQUEST = "req_"


def uuid7() -> UUID:
    """A new UUIDv7, time-ordered and unique across processes."""
    return uuid_utils.compat.uuid7()


def uuid7_at(millisecond: int) -> UUID:
    """A new UUIDv7 whose time is `millisecond`, counted since 1970."""
    return UUID(int=millisecond << 80 | uuid7().int & ((1 << 80) - 1))


def encode(prefix: str, value: UUID) -> str:
    """The public form of an id, such as `evt_01JD…`."""
    number = value.int
    return prefix + "".join([_PAIRS[(number >> shift) & 1023] for shift in range(120, -1, -10)])


def decode(prefix: str, text: str) -> UUID | None:
    """The id that a public id names. None for any other text (callers answer 404, or 400 in a query)."""
    if not text.startswith(prefix) or not _BODY.fullmatch(body := text[len(prefix) :]):
        return None
    number = 0
    for character in body:
        number = number << 5 | _VALUES[character]
    return UUID(int=number) if number < _END else None


def typed(text: str) -> str:
    """A public id in its canonical letter case."""
    prefix, mark, rest = text.partition("_")
    return f"{prefix.lower()}{mark}{rest.upper()}"


def milliseconds(value: UUID) -> int:
    """The time of a UUIDv7 in milliseconds since 1970."""
    return value.int >> 80


def created_at(value: UUID) -> datetime:
    """The time of a UUIDv7, UTC, exact to the millisecond."""
    return _EPOCH + timedelta(milliseconds=milliseconds(value))


class MadeById:
    """A row whose id contains its creation time."""

    id: Any

    @property
    def created_at(self) -> datetime:
        """The creation time that the id contains, exact to the millisecond."""
        return created_at(self.id)


class PublicId:
    """A row that callers name by a public id."""

    id: Any
    id_prefix: ClassVar[str]

    @property
    def public_id(self) -> str:
        return encode(self.id_prefix, self.id)


def month_of(value: UUID) -> date:
    """The first day of the month in which a UUIDv7 was created."""
    return _month_of_day(milliseconds(value) // 86_400_000)


@lru_cache(maxsize=64)
def _month_of_day(day: int) -> date:
    return (date(1970, 1, 1) + timedelta(days=day)).replace(day=1)


def first_at(moment: datetime) -> UUID:
    """The smallest UUIDv7 of a moment, for `id >= …` and the bounds of partitions. No id is older than 1970."""
    return UUID(int=max(0, (moment - _EPOCH) // timedelta(milliseconds=1)) << 80)
