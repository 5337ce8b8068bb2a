"""Forms whose pages submit the values that they showed, so that a page that was opened before another change does not
undo it.
"""

from typing import Any

from django import forms


class ShownValues(forms.BaseForm):
    """A form whose page submits the values that it showed, next to the values of its fields.

    Only fields with another value than the shown one are in `changed_data`. Without shown values, the fields are
    compared with `initial`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        has_shown = not self.is_bound or any(
            name.startswith(self.add_initial_prefix("")) for name in self.data
        )
        for field in self.fields.values():
            field.show_hidden_initial = has_shown


class RowForm(ShownValues, forms.ModelForm):  # type: ignore[type-arg]
    """A form of a row. In `cleaned_data`, fields that were not changed have their stored values."""

    def clean(self) -> dict[str, Any]:
        given: dict[str, Any] = super().clean() or self.cleaned_data
        if self.instance._state.adding:
            return given
        stored: dict[str, Any] = {**self.initial} | {
            field.name: getattr(self.instance, field.name) for field in self.instance._meta.fields
        }
        return {name: value if name in self.changed_data else stored[name] for name, value in given.items()}
