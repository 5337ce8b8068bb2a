"""Filters of billing's lists: the months and states that the rows have, by their names."""

from collections.abc import Callable, Iterator
from typing import Any

from django.contrib.admin import AllValuesFieldListFilter

from billing.templatetags.money import month_name
from tenants.signup.tax_ids import STATES


def named(title: str, name_of: Callable[[str], str]) -> type[AllValuesFieldListFilter]:
    """A filter over the values of a column, each by its name."""

    class Named(AllValuesFieldListFilter):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.title = title

        def choices(self, changelist: Any) -> Iterator[Any]:
            everything, *values = super().choices(changelist)
            yield everything
            for choice in values:
                yield {**choice, "display": name_of(str(choice["display"]))}

    return Named


MonthFilter = named("month", month_name)
StateFilter = named("state", lambda code: STATES.get(code, code))
