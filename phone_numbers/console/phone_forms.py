"""Forms of the phone page: who the customer is, and what the customer writes."""

import re
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

KINDS = (
    ("text", "Text"),
    ("image", "Picture"),
    ("video", "Video"),
    ("audio", "Voice message"),
    ("document", "Document"),
    ("sticker", "Sticker"),
    ("location", "Location"),
    ("contacts", "Contact card"),
    ("order", "Order"),
)


class CustomerForm(forms.Form):
    """A customer who has not written yet."""

    customer = forms.CharField(
        label="Phone number",
        max_length=24,
        initial="+91 98123 45678",
        help_text="With country code. Any number: nothing reaches a real phone.",
        widget=forms.TextInput(attrs={"inputmode": "tel", "autocomplete": "off"}),
    )
    name = forms.CharField(label="Name", max_length=100, required=False)
    identity = forms.ChoiceField(
        label="What you learn of them",
        choices=(
            ("both", "Phone number and user id"),
            ("phone", "Phone number"),
            ("user_id", "User id alone: a customer with a user name"),
        ),
    )

    def clean_customer(self) -> str:
        digits = re.sub(r"[\s().+-]", "", self.cleaned_data["customer"])
        if not re.fullmatch(r"[1-9]\d{6,14}", digits):
            raise ValidationError("Give the number with its country code, e.g. +91 98123 45678.")
        return digits


class WriteForm(forms.Form):
    """What the customer writes."""

    kind = forms.ChoiceField(label="Kind", choices=KINDS)
    text = forms.CharField(
        label="Message",
        required=False,
        max_length=4_096,
        widget=forms.TextInput(attrs={"autocomplete": "off", "placeholder": "Message"}),
    )

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if cleaned.get("kind") == "text" and not cleaned.get("text"):
            self.add_error("text", "Type a message.")
        return cleaned

    def message(self) -> dict[str, Any]:
        """The members of the message; a text beside a file is its caption."""
        kind, text = self.cleaned_data["kind"], self.cleaned_data.get("text", "")
        if kind == "text":
            return {"type": "text", "text": text}
        if text and kind in {"image", "video", "document"}:
            return {"type": kind, kind: {"caption": text}}
        return {"type": kind}
