"""Amounts of money in the staff admin: shown and typed in rupees, kept as integer paise."""

from collections.abc import Callable
from typing import Any

from django import forms
from unfold.widgets import UnfoldAdminDecimalFieldWidget

from billing.pricing.money import rupees
from tenants.staff.dialogs import DialogForm
from tenants.staff.read_only_admin import display


def amount_in_rupees(description: str, column: str) -> Callable[[Any, Any], str]:
    """A column of paise, shown in rupees."""

    @display(description=description)
    def shown(model_admin: Any, row: Any) -> str:
        return rupees(getattr(row, column))

    return shown


def rupees_field(label: str, least: float = 0.01) -> forms.DecimalField:
    """An amount in rupees, typed."""
    return forms.DecimalField(
        label=label,
        min_value=least,
        max_digits=12,
        decimal_places=2,
        widget=UnfoldAdminDecimalFieldWidget,
    )


class AmountForm(DialogForm):
    amount = rupees_field("Amount in rupees")

    @property
    def amount_paise(self) -> int:
        return int(self.cleaned_data["amount"] * 100)
