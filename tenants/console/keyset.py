"""Pages of long lists in the console: newest first by id, each page begins after the last row of the one before."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from uuid import UUID

from django.db.models import Model, QuerySet
from django.http import HttpRequest

ROWS_PER_PAGE = 50
BEFORE = "before"
"""The query parameter with the id after which the page begins."""

Row = TypeVar("Row", bound=Model)


@dataclass(frozen=True, slots=True)
class KeysetPage(Generic[Row]):
    """The rows of one page, and the id after which the next begins; None on the last page."""

    rows: Sequence[Row]
    next: UUID | None


def before(request: HttpRequest) -> UUID | None:
    """The id after which the asked page begins; None for the first page and for what is no id."""
    try:
        return UUID(request.GET.get(BEFORE, ""))
    except ValueError:
        return None


def page_of(rows: QuerySet[Row], request: HttpRequest) -> KeysetPage[Row]:
    """The asked page of rows whose ids are time-ordered."""
    if begin := before(request):
        rows = rows.filter(id__lt=begin)
    return cut(list(rows.order_by("-id")[: ROWS_PER_PAGE + 1]))


def cut(rows: Sequence[Any]) -> KeysetPage[Any]:
    """A page of `ROWS_PER_PAGE + 1` rows that were asked for."""
    more = len(rows) > ROWS_PER_PAGE
    return KeysetPage(rows[:ROWS_PER_PAGE], rows[ROWS_PER_PAGE - 1].id if more else None)
