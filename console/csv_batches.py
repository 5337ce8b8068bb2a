"""Pages that create a batch from a CSV file: the upload, the choice of columns with a preview, and the start.

Only the file is stored before the start. The choices are in the page's URL, and the file is parsed again at each
request.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode
from uuid import UUID, uuid4

import orjson
from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from console.page import FOR_ENVIRONMENT
from console.send import refusal_of, send_once
from console.template_forms import approved_templates, offer_templates
from console.visit import Visit, flash_errors, or_404, require_open, sending_numbers
from gateway.api import limits
from gateway.api.limits import limited_by
from gateway.csv_cells import as_text
from messaging import csv_batches, opt_outs
from messaging.batches.body import MAX_MESSAGES
from messaging.csv_batches import TO, Filled, Table, UnreadableFileError
from messaging.message_templates import parameters
from messaging.message_templates.parameters import Parameter
from messaging.models import BatchFile, MessageTemplate
from messaging.sending.outbound import international, lacks_country_code, typed_number, wa_ids_of
from phone_numbers.models import PhoneNumber

MESSAGES_SHOWN = 3
ROWS_SHOWN = 50


class UploadForm(forms.Form):
    """The file to upload."""

    file = forms.FileField(
        label="CSV file",
        help_text="The first row names the columns. At most 10,000 rows and 4 MB.",
        widget=forms.ClearableFileInput(attrs={"accept": ".csv,text/csv,.tsv,.txt"}),
        error_messages={"empty": "The file is empty."},
    )


class TemplateForm(forms.Form):
    """The number and the template for the messages."""

    from_ = forms.ChoiceField(label="From")
    template = forms.ChoiceField(label="Template")
    skip_opted_out = forms.BooleanField(
        label="Leave out customers who opted out of marketing", required=False
    )

    def __init__(self, *args: Any, visit: Visit, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._visit = visit
        self.fields["from_"].choices = sending_numbers(visit)  # type: ignore[attr-defined]
        offer_templates(self, approved_templates(visit))

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
    """Assigns columns of the file to the recipient and to each parameter of the template."""

    def __init__(self, *args: Any, table: Table, wanted: Sequence[Parameter], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._table, self._wanted = table, wanted
        places = [(str(place), name or f"Column {place + 1}") for place, name in enumerate(table.columns)]
        labels = {TO: "Recipient's number", **{parameter.key: parameter.label for parameter in wanted}}
        for key, label in labels.items():
            self.fields[key] = forms.ChoiceField(label=label, choices=[("", "Choose a column"), *places])

    @classmethod
    def of(cls, table: Table, wanted: Sequence[Parameter], given: Mapping[str, str]) -> "ColumnsForm":
        """The form with the given choices. The other choices are guessed from the columns' names.

        Before the first choice, the form shows no error for a parameter without a guess.
        """
        guessed = csv_batches.guessed(table, wanted)
        keys = [TO, *(parameter.key for parameter in wanted)]
        chosen = {key: given.get(key, guessed.get(key, "")) for key in keys}
        if "" in chosen.values() and not any(key in given for key in keys):
            return cls(initial=chosen, table=table, wanted=wanted)
        return cls(chosen, table=table, wanted=wanted)

    def mapped(self) -> dict[str, int]:
        """The index of the chosen column, by the recipient's or the parameter's key."""
        return {key: int(place) for key, place in self.cleaned_data.items()}

    def filled(self, *, keep: int = MAX_MESSAGES) -> Filled:
        """Fill the template from the rows. Keeps at most `keep` messages, and at most `keep` problems."""
        return csv_batches.filled(self._table, self._wanted, self.mapped(), keep=keep)


@limited_by(csv_batches.MAX_FILE_BYTES)
def upload(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Show the upload form. A readable file leads to the choice of columns, with the template of the query chosen."""
    form = UploadForm(request.POST or None, request.FILES or None)
    if request.method == "POST":
        require_open(visit)
        if form.is_valid():
            file = form.cleaned_data["file"]
            try:
                stored = csv_batches.store_file(
                    **visit.scope, name=file.name or "file.csv", content=file.read()
                )
                columns_page = reverse("console_csv_columns", args=[stored.pk])
                chosen = {"template": request.GET["template"]} if "template" in request.GET else {}
                return redirect(f"{columns_page}?{urlencode(chosen)}" if chosen else columns_page)
            except UnreadableFileError as error:
                form.add_error("file", str(error))
    return render(
        request,
        "console/messaging/csv_upload.html",
        {"form": form},
        status=400 if form.errors else 200,
    )


def columns(request: HttpRequest, visit: Visit, file_id: UUID) -> HttpResponse:
    """Show the choice of number, template and columns, with a preview of the messages."""
    stored = _file(visit, file_id)
    if stored.batch_id is not None:
        return redirect("console_batch", stored.batch_public_id)
    table = csv_batches.table_of(stored)
    chosen = Chosen.of(visit, table, request.GET)
    context: dict[str, Any] = {"file": stored, "table": table, "chosen": chosen}
    if chosen.columns is not None and chosen.document is not None and chosen.is_complete:
        found = chosen.columns.filled()
        stopped = opt_outs.among(
            **visit.scope,
            phone_number_ids=[chosen.choice.cleaned_data["from_"]],
            customers=set().union(*(wa_ids_of(to) for _, to, _ in found.messages)),
        )
        customers = {customer for _, customer in stopped}
        opted_out = [(row, to) for row, to, _ in found.messages if not customers.isdisjoint(wa_ids_of(to))]
        context |= {
            "found": found,
            "opted_out": opted_out[:ROWS_SHOWN],
            "opted_out_count": len(opted_out),
            "problems": found.problems[:ROWS_SHOWN],
            "form_id": uuid4(),
            "shown": [
                (row, to, parameters.as_read(chosen.document, values))
                for row, to, values in found.messages[:MESSAGES_SHOWN]
            ],
            "query": request.GET.urlencode(),
        }
    return render(request, "console/messaging/csv_columns.html", context)


def start(request: HttpRequest, visit: Visit, file_id: UUID) -> HttpResponse:
    """Create the batch and redirect to it. For a file that was started before, redirect to its existing batch. If
    nothing was started, redirect to the same choices.
    """
    require_open(visit)
    stored = _file(visit, file_id)
    if stored.batch_id is not None:
        return redirect("console_batch", stored.batch_public_id)
    chosen = Chosen.of(visit, csv_batches.table_of(stored), request.POST)
    if "try_to" in request.POST and chosen.is_complete:
        _send_to_me(request, visit, chosen)
    elif chosen.columns is not None and chosen.is_complete:
        with flash_errors(request), limits.large_batches.held(visit.tenant.id):
            batch = csv_batches.start_batch(
                stored,
                from_=chosen.choice.cleaned_data["from_"],
                template=chosen.choice.chosen_template(),
                mapped=chosen.columns.mapped(),
                skip_opted_out=chosen.choice.cleaned_data["skip_opted_out"],
            )
            if batch is not None:
                messages.success(request, f"{batch.total:,} messages are queued.")
                return redirect("console_batch", batch.public_id)
    query = request.POST.copy()
    for name in ("csrfmiddlewaretoken", FOR_ENVIRONMENT, "form_id", "try_to"):
        query.pop(name, None)
    return redirect(f"{reverse('console_csv_columns', args=[file_id])}?{query.urlencode()}")


def _send_to_me(request: HttpRequest, visit: Visit, chosen: "Chosen") -> None:
    """Send the first message of the file to the member's own number, and show the result."""
    typed = request.POST["try_to"]
    to = typed_number(typed)
    first = chosen.first_message()
    if to is None or lacks_country_code(typed):
        messages.error(request, "Give your number with its country code, e.g. +91 98000 00001.")
    elif first is not None:
        head = {"from": chosen.choice.cleaned_data["from_"], "messaging_product": "whatsapp"}
        reply = send_once(request, visit, {**head, **first, "to": international(to)})
        if reply.status < 300:
            messages.success(request, f"The first message is on its way to +{to}. The batch waits for you.")
        else:
            messages.error(request, refusal_of(reply.body))


def problems_csv(request: HttpRequest, visit: Visit, file_id: UUID) -> HttpResponse:
    """Download the rows that cannot be sent, unchanged, with the reason for each."""
    stored = _file(visit, file_id)
    if stored.batch_id is not None:
        return redirect("console_batch", stored.batch_public_id)
    table = csv_batches.table_of(stored)
    chosen = Chosen.of(visit, table, request.GET)
    problems = chosen.columns.filled().problems if chosen.columns and chosen.is_complete else []
    response = HttpResponse(content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = 'attachment; filename="rows-to-correct.csv"'
    writer = csv.writer(response)
    writer.writerow([*map(as_text, table.columns), "row", "problem"])
    for row, problem in problems:
        cells = [*row.cells, *[""] * len(table.columns)][: len(table.columns)]
        writer.writerow([as_text(cell) for cell in (*cells, str(row.number), problem)])
    return response


@dataclass(frozen=True, slots=True)
class Chosen:
    """The choices so far: the number and the template, then the columns."""

    choice: TemplateForm
    document: Mapping[str, Any] | None = None
    """The chosen template, as WhatsApp describes it."""
    columns: ColumnsForm | None = None
    refusal: str | None = None
    """The reason why the chosen template cannot be filled from a file, if any."""

    @property
    def is_complete(self) -> bool:
        return self.columns is not None and self.columns.is_valid()

    def first_message(self) -> dict[str, Any] | None:
        """The message of the first valid row. None without a valid row, or when the choices are incomplete."""
        if self.columns is None or self.document is None or not self.is_complete:
            return None
        return next(csv_batches.bodies(self.document, self.columns.filled(keep=1)), None)

    @classmethod
    def of(cls, visit: Visit, table: Table, given: Mapping[str, str]) -> "Chosen":
        # A template alone comes from its page. Nothing is wrong yet.
        is_asked = bool(given.keys() - {"template"})
        choice = TemplateForm(given if is_asked else None, visit=visit, initial=dict(given.items()))
        if not choice.is_valid():
            return cls(choice)
        document = orjson.loads(choice.chosen_template().document)
        try:
            wanted = parameters.parameters_of(document)
        except parameters.CannotBeFilled as error:
            return cls(choice, document, refusal=str(error))
        return cls(choice, document, ColumnsForm.of(table, wanted, given))


def _file(visit: Visit, file_id: UUID) -> BatchFile:
    with or_404():
        return csv_batches.find_file(**visit.scope, file_id=file_id)
