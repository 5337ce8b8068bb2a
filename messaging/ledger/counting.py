"""Bounds of counting: what a day's figures may take of the database, for one caller and for all.

The figures are counted from the tables themselves, hour by hour, each by an index range of one tenant. A day with
millions of events takes too long for one call: then the caller asks hour by hour.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import OperationalError, connection, transaction
from psycopg.errors import QueryCanceled

from gateway import ids
from gateway.api.errors import InvalidRequest, TooManyInFlight
from gateway.clock import now

SECONDS = 10.0
"""Of the database, for one call."""
FIRST_YEAR = 2000
_one_at_a_time = threading.Lock()


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A span of time as the ids in it: `first` inclusive, `end` exclusive."""

    begin: datetime
    end: datetime

    @property
    def ids(self) -> dict[str, UUID]:
        """The parameters `first` and `end` of `id >= %(first)s AND id < %(end)s`."""
        return {"first": ids.first_at(self.begin), "end": ids.first_at(self.end)}

    def hours(self) -> Iterator["TimeSpan"]:
        """Its hours, in their order."""
        begin = self.begin
        while begin < self.end:
            end = min(begin + timedelta(hours=1), self.end)
            yield TimeSpan(begin, end)
            begin = end


def refusal_of(first: date) -> str | None:
    """Why a day, or the month that begins with it, is not counted. None if it is: from 2000 on, and begun in UTC."""
    if first.year < FIRST_YEAR:
        return f"Must be from {FIRST_YEAR} on."
    if first > now().date():
        return "Must not be in the future."
    return None


def day_of(day: date, hour: int | None = None) -> TimeSpan:
    """A day in UTC, or an hour of it."""
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
    if hour is None:
        return TimeSpan(begin, begin + timedelta(days=1))
    return TimeSpan(begin + timedelta(hours=hour), begin + timedelta(hours=hour + 1))


def month_of(first: date) -> TimeSpan:
    """A month in UTC, by its first day."""
    following = (first + timedelta(days=32)).replace(day=1)
    return TimeSpan(day_of(first).begin, day_of(following).begin)


class Counting:
    """Runs the statements of one call while there is time left for them."""

    def __init__(self, narrower: InvalidRequest) -> None:
        self._narrower = narrower
        self._ends = time.monotonic() + SECONDS

    def rows(self, statement: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        """The rows of a statement. Raises the error that asks for a narrower question when the time is over."""
        left = int((self._ends - time.monotonic()) * 1000)
        if left <= 0:
            raise self._narrower
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("SELECT set_config('statement_timeout', %s, true)", [str(left)])
                cursor.execute(statement, parameters)
                found: list[tuple[Any, ...]] = cursor.fetchall()
                # A test's transaction goes on after this one.
                cursor.execute("SELECT set_config('statement_timeout', '0', true)")
                return found
        except OperationalError as error:
            if isinstance(error.__cause__, QueryCanceled):
                raise self._narrower from None
            raise


@contextmanager
def counting(*, instead: str) -> Iterator[Counting]:
    """Count, one call at a time in a process. `instead` says what to ask when the time is not enough.

    Raises TooManyInFlight while another call counts: figures may wait, the few connections of a process may not.
    """
    if not _one_at_a_time.acquire(blocking=False):
        raise TooManyInFlight("Other figures are being counted. Try again.")
    try:
        yield Counting(InvalidRequest(f"There are too many events to count in one call. {instead}"))
    finally:
        _one_at_a_time.release()
