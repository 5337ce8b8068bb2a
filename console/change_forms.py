"""Forms that change stored values."""

from typing import Any

from django import forms

from tenants.shown_values import ShownValues


class ChangeForm(ShownValues, forms.Form):
    """A form whose page submits the values that it showed, next to the values of its fields."""

    def changed_values(self) -> dict[str, Any]:
        """The cleaned values of the changed fields."""
        return {name: value for name, value in self.cleaned_data.items() if name in self.changed_data}
