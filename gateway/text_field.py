"""A form field for a text of several lines."""

from typing import Any

from django import forms


class TextField(forms.CharField):
    """A text of several lines. Browsers submit each line end as two characters, but count it as one."""

    widget = forms.Textarea

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value)
        return text.replace("\r\n", "\n") if isinstance(text, str) else text
