"""Console pages of batches: the list, and one batch with its progress and failed messages."""

import csv
import re
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from gateway.roles import Area
from messaging.batches import lifecycle
from messaging.console.choices import shown_numbers
from messaging.csv_batches import failed
from messaging.models import Batch, BatchItem
from tenants.console import keyset
from tenants.console.error_meanings import meanings_of
from tenants.console.frame import Visit, console_page, or_404, require_open, told

FAILED_SHOWN = 100
_FILE_ID = re.compile(r" \([0-9a-f-]{36}\)$")


@require_safe
@console_page(Area.INTEGRATION)
def batch_list(request: HttpRequest, visit: Visit) -> HttpResponse:
    """The batches, newest first."""
    rows = Batch.objects.for_tenant(visit.tenant.id).filter(environment=visit.environment)
    page = keyset.page_of(rows, request)
    numbers = shown_numbers(visit, [row.phone_number_id for row in page.rows])
    return render(
        request,
        "console/messaging/batches.html",
        {
            "page": page,
            "rows": [
                (row, _title(row), numbers.get(row.phone_number_id, row.phone_number_id)) for row in page.rows
            ],
        },
    )


@require_safe
@console_page(Area.INTEGRATION)
def batch(request: HttpRequest, visit: Visit, batch_id: str) -> HttpResponse:
    """One batch: progress, why it waits, and its failed items."""
    found = _batch(visit, batch_id)
    rows = found.items.filter(status=BatchItem.Status.FAILED).order_by("idx")[:FAILED_SHOWN]
    counted_by, place_of = failed.places_in(found.id)
    shown = [(place_of(item.idx), item, failed.error_of(bytes(item.response or b""))) for item in rows]
    return render(
        request,
        "console/messaging/batch.html",
        {
            **_progress_of(found),
            "title": _title(found) or found.public_id,
            "number": shown_numbers(visit, [found.phone_number_id]).get(found.phone_number_id),
            "failed": shown,
            "counted_by": counted_by,
            "meanings": meanings_of(error.get("code") for _, _, error in shown),
            "most": FAILED_SHOWN,
        },
    )


def _title(batch: Batch) -> str:
    """The caller's reference; of a batch from a file the file's name, without the id that makes it unique."""
    return _FILE_ID.sub("", batch.client_ref or "")


@require_safe
@console_page(Area.INTEGRATION)
def progress(request: HttpRequest, visit: Visit, batch_id: str) -> HttpResponse:
    """The progress alone: the page asks for it while the batch is open. Its end loads the whole page anew."""
    found = _batch(visit, batch_id)
    response = render(request, "console/messaging/batch_progress.html", _progress_of(found))
    if found.completed_at is not None:
        response["HX-Refresh"] = "true"
    return response


@require_safe
@console_page(Area.INTEGRATION)
def failed_csv(request: HttpRequest, visit: Visit, batch_id: str) -> HttpResponse:
    """The failed messages as a file that can be corrected and uploaded again."""
    found = _batch(visit, batch_id)
    response = HttpResponse(content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="failed-{found.public_id}.csv"'
    csv.writer(response).writerows(failed.rows(found))
    return response


@require_POST
@console_page(Area.INTEGRATION)
def cancel(request: HttpRequest, visit: Visit, batch_id: str) -> HttpResponse:
    """Stop a batch."""
    require_open(visit)
    _batch(visit, batch_id)
    with told(request):
        lifecycle.cancel(tenant_id=visit.tenant.id, environment=visit.environment, batch_id=batch_id)
        messages.success(request, "Cancelled. What was under way may still arrive.")
    return redirect("console_batch", batch_id)


@require_POST
@console_page(Area.INTEGRATION)
def retry(request: HttpRequest, visit: Visit, batch_id: str) -> HttpResponse:
    """Queue again what was certainly not sent."""
    require_open(visit)
    _batch(visit, batch_id)
    with told(request):
        lifecycle.retry(tenant_id=visit.tenant.id, environment=visit.environment, batch_id=batch_id)
        messages.success(request, "The items that were certainly not sent are queued again.")
    return redirect("console_batch", batch_id)


def _batch(visit: Visit, batch_id: str) -> Batch:
    with or_404():
        return lifecycle.find(tenant_id=visit.tenant.id, environment=visit.environment, batch_id=batch_id)


def _progress_of(found: Batch) -> dict[str, Any]:
    return {"batch": found, "done": found.accepted + found.failed}
