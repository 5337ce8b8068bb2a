"""Filters of billing's lists: the months and states that the rows have, by their names."""

from collections.abc import Iterator
from typing import Any

from django.contrib.admin import AllValuesFieldListFilter

from billing.templatetags.money import month_name
from tenants.signup.tax_ids import STATES


class MonthFilter(AllValuesFieldListFilter):
    """Months such as `2026-11`, as November 2026."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.title = "month"

    def choices(self, changelist: Any) -> Iterator[Any]:
        everything, *months = super().choices(changelist)
        yield everything
        for choice in months:
            yield {**choice, "display": month_name(str(choice["display"]))}


class StateFilter(AllValuesFieldListFilter):
    """Codes of states, as their names."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.title = "state"

    def choices(self, changelist: Any) -> Iterator[Any]:
        for choice in super().choices(changelist):
            code = str(choice["display"])
            yield {**choice, "display": STATES.get(code, code)}
