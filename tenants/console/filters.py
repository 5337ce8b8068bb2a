"""Filters above the lists of the console: what a person asked for, without what could not be read."""

from typing import Any

from django.forms import Form


def asked(form: Form) -> dict[str, Any]:
    """The filled fields of a bound form. A field with an error is left out; the page shows its error beside it."""
    form.is_valid()
    return {name: value for name, value in form.cleaned_data.items() if value}
