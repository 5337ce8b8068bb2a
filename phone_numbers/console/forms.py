"""Forms of the number pages: register with a PIN, release by typing the number's id."""

from typing import Any

from django import forms
from django.core.exceptions import ValidationError


class RegisterForm(forms.Form):
    """Registering a number for sending."""

    pin = forms.RegexField(
        r"^\d{6}\Z",
        label="Two-step PIN",
        required=False,
        help_text="The number's own six digits, if it has a PIN already. Left empty, the gateway makes and keeps one.",
        error_messages={"invalid": "A PIN has six digits."},
        widget=forms.TextInput(attrs={"autocomplete": "off", "inputmode": "numeric"}),
    )


class ReleaseForm(forms.Form):
    """Releasing cannot be undone by a click: the number's id is typed in."""

    phone_number_id = forms.CharField(
        label="Type the id of the number to confirm", widget=forms.TextInput(attrs={"autocomplete": "off"})
    )

    def __init__(self, *args: Any, phone_number_id: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.expected = phone_number_id

    def clean_phone_number_id(self) -> str:
        given: str = self.cleaned_data["phone_number_id"]
        if given.strip() != self.expected:
            raise ValidationError("This is not the id of the number.")
        return given
