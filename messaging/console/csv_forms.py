"""Forms of the pages that make a batch of a CSV file: the file, number and template, columns."""

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from messaging.batches.body import MAX_MESSAGES
from messaging.console.choices import approved_templates, sending_numbers, template_choices
from messaging.csv_batches import rows
from messaging.csv_batches.file import Table
from messaging.csv_batches.rows import TO, Filled
from messaging.message_templates.models import MessageTemplate
from messaging.message_templates.parameters import Parameter
from phone_numbers.models import PhoneNumber
from tenants.console.frame import Visit


class UploadForm(forms.Form):
    """The file."""

    file = forms.FileField(
        label="CSV file",
        help_text="The first row names the columns. At most 10,000 rows and 4 MB.",
        widget=forms.ClearableFileInput(attrs={"accept": ".csv,text/csv,.tsv,.txt"}),
        error_messages={"empty": "The file is empty."},
    )


class TemplateForm(forms.Form):
    """The number and the template that the messages are sent with."""

    from_ = forms.ChoiceField(label="From")
    template = forms.ChoiceField(label="Template")

    def __init__(self, *args: Any, visit: Visit, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._visit = visit
        self.fields["from_"].choices = sending_numbers(visit)  # type: ignore[attr-defined]
        self.fields["template"].choices = template_choices(visit)  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if {"from_", "template"} <= cleaned.keys():
            numbers = PhoneNumber.objects.for_tenant(self._visit.tenant.id)
            if not numbers.filter(
                phone_number_id=cleaned["from_"], account_id=self.chosen_template().account_id
            ).exists():
                raise ValidationError(
                    "This template belongs to another business account than the number. Choose another number."
                )
        return cleaned

    def chosen_template(self) -> MessageTemplate:
        """The chosen template."""
        return approved_templates(self._visit).get(pk=self.cleaned_data["template"])


class ColumnsForm(forms.Form):
    """Which column fills what: a choice for the recipient and for each parameter of the template."""

    def __init__(self, *args: Any, table: Table, wanted: Sequence[Parameter], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._table, self._wanted = table, wanted
        places = [(str(place), name or f"Column {place + 1}") for place, name in enumerate(table.columns)]
        labels = {TO: "Recipient's number", **{parameter.key: parameter.label for parameter in wanted}}
        for key, label in labels.items():
            self.fields[key] = forms.ChoiceField(label=label, choices=[("", "Choose a column"), *places])

    @classmethod
    def of(cls, table: Table, wanted: Sequence[Parameter], given: Mapping[str, str]) -> "ColumnsForm":
        """The given choices; what is not given is guessed by the columns' names.

        A first guess that lacks a column is proposed without complaint: nobody has chosen anything yet.
        """
        guessed = rows.guessed(table, wanted)
        keys = [TO, *(parameter.key for parameter in wanted)]
        chosen = {key: given.get(key, guessed.get(key, "")) for key in keys}
        if "" in chosen.values() and not any(key in given for key in keys):
            return cls(initial=chosen, table=table, wanted=wanted)
        return cls(chosen, table=table, wanted=wanted)

    def mapped(self) -> dict[str, int]:
        """The places of the columns."""
        return {key: int(place) for key, place in self.cleaned_data.items()}

    def filled(self, *, keep: int = MAX_MESSAGES) -> Filled:
        """The rows with these columns, of which at most `keep` messages and problems are kept."""
        return rows.filled(self._table, self._wanted, self.mapped(), keep=keep)
