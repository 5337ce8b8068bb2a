"""Console pages that make a batch of a CSV file: upload, columns and preview, start.

Nothing is chosen for good before the start: the choices are in the page's address, and the file is read anew each time.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from gateway.api.limits import in_flight
from gateway.api.limits.body_size import limited_by
from gateway.csv_cells import as_text
from gateway.roles import Area
from messaging.console.csv_forms import ColumnsForm, TemplateForm, UploadForm
from messaging.csv_batches import uploads
from messaging.csv_batches.file import Table, UnreadableFileError
from messaging.message_templates import parameters
from messaging.models import BatchFile
from tenants.console.frame import Visit, console_page, or_404, require_open, told

MESSAGES_SHOWN = 3
ROWS_SHOWN = 50


@limited_by(uploads.MAX_FILE_BYTES)
@require_http_methods(["GET", "HEAD", "POST"])
@console_page(Area.INTEGRATION)
def upload(request: HttpRequest, visit: Visit) -> HttpResponse:
    """The form for the file; a good one leads to its columns."""
    form = UploadForm(request.POST or None, request.FILES or None)
    if request.method == "POST":
        require_open(visit)
        if form.is_valid():
            file = form.cleaned_data["file"]
            try:
                stored = uploads.store(
                    tenant_id=visit.tenant.id,
                    environment=visit.environment,
                    name=file.name or "file.csv",
                    content=file.read(),
                )
                return redirect("console_csv_columns", stored.pk)
            except UnreadableFileError as error:
                form.add_error("file", str(error))
    return render(
        request,
        "console/messaging/csv_upload.html",
        {"form": form},
        status=400 if form.errors else 200,
    )


@require_safe
@console_page(Area.INTEGRATION)
def columns(request: HttpRequest, visit: Visit, file_id: UUID) -> HttpResponse:
    """Number, template and columns, and what the messages become."""
    stored = _file(visit, file_id)
    if stored.batch_id is not None:
        return redirect("console_batch", stored.batch_public_id)
    table = uploads.table_of(stored)
    chosen = Chosen.of(visit, table, request.GET)
    context: dict[str, Any] = {"file": stored, "table": table, "chosen": chosen}
    if chosen.columns is not None and chosen.document is not None and chosen.is_complete:
        found = chosen.columns.filled(keep=ROWS_SHOWN)
        context |= {
            "found": found,
            "shown": [
                (row, to, parameters.as_read(chosen.document, values))
                for row, to, values in found.messages[:MESSAGES_SHOWN]
            ],
            "query": request.GET.urlencode(),
        }
    return render(request, "console/messaging/csv_columns.html", context)


@require_POST
@console_page(Area.INTEGRATION)
def start(request: HttpRequest, visit: Visit, file_id: UUID) -> HttpResponse:
    """Make the batch; a file that was started before leads to its batch."""
    require_open(visit)
    stored = _file(visit, file_id)
    if stored.batch_id is not None:
        return redirect("console_batch", stored.batch_public_id)
    chosen = Chosen.of(visit, uploads.table_of(stored), request.POST)
    if chosen.columns is not None and chosen.is_complete:
        with told(request), in_flight.large_batches.held(visit.tenant.id):
            batch = uploads.start(
                stored,
                from_=chosen.choice.cleaned_data["from_"],
                template=chosen.choice.chosen_template(),
                mapped=chosen.columns.mapped(),
            )
            if batch is not None:
                messages.success(request, f"{batch.total:,} messages are queued.")
                return redirect("console_batch", batch.public_id)
    return redirect("console_csv_columns", file_id)


@require_safe
@console_page(Area.INTEGRATION)
def problems_csv(request: HttpRequest, visit: Visit, file_id: UUID) -> HttpResponse:
    """The rows that cannot be sent, as they came, with the reason."""
    stored = _file(visit, file_id)
    if stored.batch_id is not None:
        return redirect("console_batch", stored.batch_public_id)
    table = uploads.table_of(stored)
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
    """What a person has chosen so far: number and template, then the columns."""

    choice: TemplateForm
    document: Mapping[str, Any] | None = None
    """The chosen template, as the upstream describes it."""
    columns: ColumnsForm | None = None
    refusal: str | None = None
    """Why no file can fill the template."""

    @property
    def is_complete(self) -> bool:
        return self.columns is not None and self.columns.is_valid()

    @classmethod
    def of(cls, visit: Visit, table: Table, given: Mapping[str, str]) -> "Chosen":
        choice = TemplateForm(given or None, visit=visit)
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
        return uploads.find(tenant_id=visit.tenant.id, environment=visit.environment, file_id=file_id)
