"""Amounts of money in dialogs of the staff admin: typed in rupees, kept as integer paise."""

from django import forms
from unfold.widgets import UnfoldAdminDecimalFieldWidget

from tenants.staff.dialogs import DialogForm


def rupees_field(label: str) -> forms.DecimalField:
    """An amount of at least one paisa."""
    return forms.DecimalField(
        label=label,
        min_value=0.01,
        max_digits=12,
        decimal_places=2,
        widget=UnfoldAdminDecimalFieldWidget,
    )


class AmountForm(DialogForm):
    amount = rupees_field("Amount in rupees")

    @property
    def amount_paise(self) -> int:
        return int(self.cleaned_data["amount"] * 100)
