"""Filters above the lists of the console: what a person asked for, without what could not be read."""

from typing import Any

from django.forms import Form, RegexField


class CustomerNumberField(RegexField):
    """A customer's phone number as people type it; its value is the digits alone, as events and messages keep it."""

    default_error_messages = {"invalid": "Type the number with its country code, e.g. +91 98123 45678."}

    def __init__(self) -> None:
        super().__init__(r"^\+?[\d\s().-]{5,24}$", label="Customer's number", required=False, max_length=24)

    def clean(self, value: Any) -> str:
        return "".join(filter(str.isdecimal, super().clean(value)))


def asked(form: Form) -> dict[str, Any]:
    """The filled fields of a bound form. A field with an error is left out; the page shows its error beside it."""
    form.is_valid()
    return {name: value for name, value in form.cleaned_data.items() if value}
