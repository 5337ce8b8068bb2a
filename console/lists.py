"""Lists of the console: pages of rows, newest first by id, and the filters above them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any, Generic, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db.models import Model, QuerySet
from django.forms import CharField, DateField, DateInput, Form, RegexField, Textarea
from django.http import HttpRequest

ROWS_PER_PAGE = 50
BEFORE, AFTER = "before", "after"
"""The query parameters with an id: the page begins after `before`; rows from `after` on are new."""

Row = TypeVar("Row", bound=Model)
_SEPARATORS = re.compile(r"[\s,;]+")


@dataclass(frozen=True, slots=True)
class KeysetPage(Generic[Row]):
    """The rows of one page, and the id after which the next page begins. The id is None on the last page."""

    rows: Sequence[Row]
    next: UUID | None


def before(request: HttpRequest) -> UUID | None:
    """The id after which the requested page begins. None for the first page and for an invalid id."""
    return _id(request, BEFORE)


def after(request: HttpRequest) -> UUID | None:
    """The id from which on rows are new. None without an id and for an invalid id."""
    return _id(request, AFTER)


def _id(request: HttpRequest, name: str) -> UUID | None:
    try:
        return UUID(request.GET.get(name, ""))
    except ValueError:
        return None


def page_of(rows: QuerySet[Row], request: HttpRequest) -> KeysetPage[Row]:
    """The requested page of rows with time-ordered ids."""
    if begin := before(request):
        rows = rows.filter(id__lt=begin)
    return cut_page(list(rows.order_by("-id")[: ROWS_PER_PAGE + 1]))


def cut_page(rows: Sequence[Any]) -> KeysetPage[Any]:
    """The page of rows that were queried with a limit of `ROWS_PER_PAGE + 1`."""
    more = len(rows) > ROWS_PER_PAGE
    return KeysetPage(rows[:ROWS_PER_PAGE], rows[ROWS_PER_PAGE - 1].id if more else None)


INDIA = "91"
"""The country code assumed for a number without one."""


def numbers_meant(typed: str) -> list[str]:
    """The phone numbers that a typed one may mean, in digits. Ten digits without `+` are a full number of a small
    country, or one of India.
    """
    digits = "".join(filter(str.isdecimal, typed))
    return [digits, f"{INDIA}{digits}"] if len(digits) == 10 and "+" not in typed else [digits]


class CustomerNumberField(RegexField):
    """A customer's typed phone number. The field's value is the list of numbers that it may mean, in digits like the
    numbers stored in events and messages.
    """

    default_error_messages = {"invalid": "Type the number with its country code, e.g. +91 98123 45678."}

    def __init__(self) -> None:
        super().__init__(r"^\+?[\d\s().-]{5,24}$", label="Customer's number", required=False, max_length=24)

    def clean(self, value: Any) -> Any:
        typed = super().clean(value)
        return numbers_meant(typed) if typed else []


class IdsField(CharField):
    """Ids separated by spaces, commas or line ends."""

    widget = Textarea(attrs={"rows": 2, "spellcheck": "false", "inputmode": "numeric"})
    PROBLEM = "An id has digits only."

    def to_python(self, value: Any) -> Any:
        found = [each for each in _SEPARATORS.split(super().to_python(value) or "") if each]
        if not all(each.isascii() and each.isdecimal() for each in found):
            raise ValidationError(self.PROBLEM)
        return found

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list) else value


class DayField(DateField):
    """A day in the visit's zone."""

    default_error_messages = {"invalid": "Enter a date such as 2026-11-21."}

    def __init__(self, label: str) -> None:
        super().__init__(
            label=label,
            required=False,
            widget=DateInput({"type": "date"}, format="%Y-%m-%d"),
            validators=[MinValueValidator(date(2000, 1, 1)), MaxValueValidator(date(2199, 12, 31))],
        )


class SpanForm(Form):
    """A filter with a range of days."""

    since = DayField("From")
    until = DayField("To")


def split_span(
    wanted: dict[str, Any], zone: ZoneInfo
) -> tuple[dict[str, Any], datetime | None, datetime | None]:
    """The filled fields without the two days, and the start and end of the range of days. None for a missing day."""
    rest = dict(wanted)
    first, last = rest.pop("since", None), rest.pop("until", None)
    return rest, _midnight(first, zone), _midnight(last and last + timedelta(days=1), zone)


def _midnight(day: date | None, zone: ZoneInfo) -> datetime | None:
    return datetime.combine(day, time(), zone) if day else None


def filled_fields(form: Form) -> dict[str, Any]:
    """The filled and valid fields of a bound form. The page shows the errors of invalid fields."""
    form.is_valid()
    return {name: value for name, value in form.cleaned_data.items() if value}
