"""Forms of the messaging pages: a test message."""

from collections.abc import Mapping
from typing import Any

import orjson
from django import forms
from django.core.exceptions import ValidationError

from messaging.console.choices import approved_templates, sending_numbers, template_choices
from messaging.message_templates import parameters
from messaging.message_templates.models import MessageTemplate
from messaging.recipient import lacks_country_code, typed_number
from phone_numbers.models import PhoneNumber
from tenants.console.frame import Visit


class SendForm(forms.Form):
    """A message to try sending with: a text, or a template with a field for each of its variables."""

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
        help_text="Needed unless the customer wrote within the last 24 hours.",
    )
    text = forms.CharField(
        label="Text", max_length=4096, required=False, widget=forms.Textarea(attrs={"rows": 3, "dir": "auto"})
    )

    def __init__(self, *args: Any, visit: Visit, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._visit = visit
        self.refusal: str | None = None
        """Why the chosen template cannot be filled in here."""
        self.document: Mapping[str, Any] | None = None
        """The chosen template, as the upstream describes it."""
        self.fields["from_"].choices = sending_numbers(visit)  # type: ignore[attr-defined]
        self.fields["template"].choices = [  # type: ignore[attr-defined]
            ("", "None: send the text"),
            *template_choices(visit),
        ]
        self._template = self._chosen()
        if self._template is not None:
            self._add_parameters(orjson.loads(self._template.document))

    def clean_to(self) -> str:
        to = typed_number(self.cleaned_data["to"])
        if to is None or lacks_country_code(self.cleaned_data["to"]):
            raise ValidationError("Give the number with its country code, e.g. +91 98000 00001.")
        return to

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if self.refusal is not None:
            raise ValidationError(self.refusal)
        if self._template is not None:
            self._check_account(cleaned)
        elif not cleaned.get("text") and "template" not in self.errors:
            raise ValidationError("Type a text, or choose a template.")
        return cleaned

    def head_fields(self) -> list[forms.BoundField]:
        """The fields above those of the template's variables."""
        return [self[name] for name in ("from_", "to")]

    def parameter_fields(self) -> list[forms.BoundField]:
        """A field for each variable of the chosen template."""
        return [field for field in self if field.name not in self.base_fields]

    def as_read(self) -> list[tuple[str, str]]:
        """The chosen template as customers read it, with its variables."""
        return parameters.as_read(self.document) if self.document else []

    def message(self) -> dict[str, Any]:
        """The body for `POST /v1/messages`."""
        values = self.cleaned_data
        head = {"from": values["from_"], "messaging_product": "whatsapp", "to": values["to"]}
        if self.document is not None:
            return {**head, "type": "template", "template": parameters.message(self.document, values)}
        return {**head, "type": "text", "text": {"body": values["text"]}}

    def _chosen(self) -> MessageTemplate | None:
        given = self["template"].value()
        try:
            return approved_templates(self._visit).filter(pk=given).first() if given else None
        except ValidationError:  # no id of a template
            return None

    def _add_parameters(self, document: Mapping[str, Any]) -> None:
        try:
            wanted = parameters.parameters_of(document)
        except parameters.CannotBeFilled as error:
            self.refusal = str(error)
            return
        self.document = document
        for parameter in wanted:
            self.fields[parameter.key] = forms.CharField(label=parameter.label, max_length=1024)

    def _check_account(self, cleaned: Mapping[str, Any]) -> None:
        numbers = PhoneNumber.objects.for_tenant(self._visit.tenant.id)
        number = numbers.filter(phone_number_id=cleaned.get("from_")).first()
        if number is not None and self._template and number.account_id != self._template.account_id:
            raise ValidationError(
                "This template belongs to another business account than the number. Choose another number."
            )
