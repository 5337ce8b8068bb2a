"""Forms of the billing pages: the profile that invoices are made out to, and autopay."""

from typing import Any, cast

from django import forms
from django.core.exceptions import ValidationError

from billing.buyers import countries
from billing.models import INDIA, BillingProfile, Mandate
from billing.payments.mandates import DEFAULT_CAP_PAISE, LARGEST_CAP_PAISE
from tenants.names import check_name
from tenants.signup.tax_ids import ADDRESS_STATES


class ProfileForm(forms.Form):
    """The buyer on the invoices."""

    legal_name = forms.CharField(label="Legal name", max_length=200, validators=[check_name])
    tax_id = forms.CharField(
        label="GSTIN or PAN",
        max_length=20,
        required=False,
        help_text="A GSTIN gives you the tax as input credit.",
    )
    address = forms.CharField(label="Address", max_length=500, validators=[check_name])
    city = forms.CharField(label="City", max_length=100, validators=[check_name])
    state_code = forms.ChoiceField(
        label="State or union territory",
        required=False,
        choices=[("", "Choose one"), *sorted(ADDRESS_STATES.items(), key=lambda state: state[1])],
        help_text="It decides whether IGST, or CGST and SGST, are charged.",
    )
    pin = forms.RegexField(
        r"^[1-9][0-9]{5}\Z",
        label="PIN code",
        required=False,
        error_messages={"invalid": "A PIN code has six digits."},
    )
    country = forms.ChoiceField(
        label="Country",
        initial=INDIA,
        choices=list(countries.NAMES.items()),
    )
    phone = forms.RegexField(
        r"^\+[1-9][0-9]{7,14}\Z",
        label="Phone",
        help_text="With country code, e.g. +919800000001. The payment provider asks for it.",
        error_messages={"invalid": "Give it with its country code, e.g. +919800000001."},
    )

    def __init__(self, data: Any = None, *, stored: BillingProfile) -> None:
        """The form over a stored profile. A code that is none of ISO's stays a choice, so that saving keeps it."""
        super().__init__(data, initial={name: getattr(stored, name) for name in self.base_fields})
        if stored.country not in countries.NAMES:
            field = cast("forms.ChoiceField", self.fields["country"])
            field.choices = [(stored.country, stored.country), *countries.NAMES.items()]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if cleaned.get("country") == INDIA:
            for name in ("tax_id", "state_code", "pin"):
                if name not in self.errors and not cleaned.get(name):
                    self.add_error(name, "Needed for an address in India.")
        return cleaned

    def changes(self) -> dict[str, Any]:
        """The fields for `profiles.change`; an empty tax id is left as it was."""
        return {name: value for name, value in self.cleaned_data.items() if name != "tax_id" or value}


class MandateForm(forms.Form):
    """Autopay: how, and up to how much a month."""

    method = forms.ChoiceField(
        label="Pay with",
        choices=[
            (Mandate.Method.UPI, "UPI"),
            (Mandate.Method.CARD, "Card"),
            (Mandate.Method.EMANDATE, "Bank account (e-mandate)"),
        ],
    )
    max_rupees = forms.IntegerField(
        label="At most, in rupees a month",
        min_value=590,
        initial=DEFAULT_CAP_PAISE // 100,
        help_text="Up to ₹15,000 with UPI and cards; more needs an e-mandate.",
    )

    @property
    def max_amount_paise(self) -> int:
        """The limit of the mandate."""
        return int(self.cleaned_data["max_rupees"]) * 100

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if "method" in cleaned and "max_rupees" in cleaned:
            largest = LARGEST_CAP_PAISE[Mandate.Method(cleaned["method"])]
            if self.max_amount_paise > largest:
                raise ValidationError(f"With this way to pay the limit is at most ₹{largest // 100:,}.")
        return cleaned
