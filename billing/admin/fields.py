"""Columns, filters and form fields of billing's staff pages: amounts in rupees, names of months and States."""

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

from django import forms
from django.contrib.admin import AllValuesFieldListFilter
from unfold.widgets import UnfoldAdminDecimalFieldWidget

from billing.pricing.money import rupees
from billing.templatetags.money import month_name
from tenants.signup.tax_ids import STATES
from tenants.staff.read_only_admin import display


def amount_in_rupees(description: str, column: str, **options: Any) -> Callable[[Any, Any], str]:
    """A column of paise, shown in rupees. `options` are the options of `display`."""

    @display(description=description, **options)
    def shown(model_admin: Any, row: Any) -> str:
        return rupees(getattr(row, column))

    return shown


@display(description="Month", ordering="period")
def shown_month(model_admin: Any, row: Any) -> str:
    """A column with the name of a row's month."""
    return month_name(row.period)


class RupeesField(forms.DecimalField):
    """An amount entered in rupees. Its value is paise."""

    def __init__(self, label: str, least: Decimal | int = Decimal("0.01")) -> None:
        widget = UnfoldAdminDecimalFieldWidget
        super().__init__(label=label, min_value=least, max_digits=12, decimal_places=2, widget=widget)

    def clean(self, value: Any) -> int:
        return int(super().clean(value) * 100)


def named(title: str, name_of: Callable[[str], str]) -> type[AllValuesFieldListFilter]:
    """A filter by the values of a column. The filter shows `name_of(value)` for each value."""

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
