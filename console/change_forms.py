"""Forms that change stored values."""

from typing import Any

from django import forms


class ChangeForm(forms.Form):
    """A form whose page submits the values that it showed, next to the values of its fields.

    Only fields with another value than the shown one are in `changed_data`. So a page that was opened before another
    change does not undo it. Without shown values, the fields are compared with `initial`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        has_shown = not self.is_bound or any(
            name.startswith(self.add_initial_prefix("")) for name in self.data
        )
        for field in self.fields.values():
            field.show_hidden_initial = has_shown

    def changed_values(self) -> dict[str, Any]:
        """The cleaned values of the changed fields."""
        return {name: value for name, value in self.cleaned_data.items() if name in self.changed_data}
