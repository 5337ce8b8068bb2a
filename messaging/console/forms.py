"""Forms of the messaging pages: a test message."""

import re
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from messaging.recipient import typed_number

_TEMPLATE = re.compile(r"(?P<name>[^|]+)\|(?P<language>[^|]+)")


class SendForm(forms.Form):
    """A message to try sending with: a text, or a template without variables."""

    from_ = forms.ChoiceField(label="From")
    to = forms.CharField(
        label="To",
        max_length=24,
        help_text="With country code, e.g. +91 98000 00001.",
        widget=forms.TextInput(attrs={"autocomplete": "tel", "inputmode": "tel", "type": "tel"}),
    )
    template = forms.ChoiceField(
        label="Template",
        required=False,
        help_text="Needed unless the customer wrote within the last 24 hours. One without variables.",
    )
    text = forms.CharField(
        label="Text", max_length=4096, required=False, widget=forms.Textarea(attrs={"rows": 3})
    )

    def __init__(
        self, *args: Any, numbers: list[tuple[str, str]], templates: list[tuple[str, str]], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.fields["from_"].choices = numbers  # type: ignore[attr-defined]
        self.fields["template"].choices = [("", "None: send the text"), *templates]  # type: ignore[attr-defined]

    def clean_to(self) -> str:
        to = typed_number(self.cleaned_data["to"])
        if to is None:
            raise ValidationError("Give the number with its country code, e.g. +91 98000 00001.")
        return to

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if not cleaned.get("template") and not cleaned.get("text"):
            raise ValidationError("Type a text, or choose a template.")
        return cleaned

    def message(self) -> dict[str, Any]:
        """The body for `POST /v1/messages`."""
        values = self.cleaned_data
        head = {"from": values["from_"], "messaging_product": "whatsapp", "to": values["to"]}
        if found := _TEMPLATE.fullmatch(values.get("template") or ""):
            template = {"name": found["name"], "language": {"code": found["language"]}}
            return {**head, "type": "template", "template": template}
        return {**head, "type": "text", "text": {"body": values["text"]}}
