"""Console pages of batches: the list, and one batch with its progress and failed messages."""

import csv
import re
from datetime import timedelta
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from console import lists
from console.error_codes import meanings_of
from console.number_forms import shown_numbers
from console.visit import Visit, flash_errors, or_404, require_open
from gateway.clock import now
from messaging import csv_batches
from messaging.batches import lifecycle
from messaging.batches.outcomes import outcomes_of
from messaging.models import Batch, BatchItem

FAILED_SHOWN = 100
SETTLED_AFTER = timedelta(days=1)
"""After the end of a batch: what was not delivered by then is looked for no more while the page is open."""
_FILE_ID = re.compile(r" \([0-9a-f-]{36}\)$")


def batch_list(request: HttpRequest, visit: Visit) -> HttpResponse:
    """The batches, newest first."""
    rows = Batch.objects.for_tenant(visit.tenant.id).filter(environment=visit.environment)
    page = lists.page_of(rows, request)
    numbers = shown_numbers(visit, [row.phone_number_id for row in page.rows])
    return render(
        request,
        "console/messaging/batches.html",
        {
            "page": page,
            "waiting": lifecycle.waiting(tenant_id=visit.tenant.id, environment=visit.environment),
            "most_waiting": lifecycle.MOST_WAITING_ITEMS,
            "most_waiting_bytes": lifecycle.MOST_WAITING_BYTES,
            "rows": [
                (row, _title(row), numbers.get(row.phone_number_id, row.phone_number_id)) for row in page.rows
            ],
        },
    )


def batch(request: HttpRequest, visit: Visit, batch_id: str) -> HttpResponse:
    """One batch: progress, why it waits, and its failed items."""
    found = _batch(visit, batch_id)
    rows = found.items.filter(status=BatchItem.Status.FAILED).order_by("idx")[:FAILED_SHOWN]
    counted_by, place_of = csv_batches.places_in(found.id)
    shown = [(place_of(item.idx), item, csv_batches.error_of(bytes(item.response or b""))) for item in rows]
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
            "opted_out": found.skip_opted_out and found.items.filter(skip_reason="opted_out").count(),
            "most": FAILED_SHOWN,
        },
    )


def _title(batch: Batch) -> str:
    """The caller's reference; of a batch from a file the file's name, without the id that makes it unique."""
    return _FILE_ID.sub("", batch.client_ref or "")


def progress(request: HttpRequest, visit: Visit, batch_id: str) -> HttpResponse:
    """The progress alone, polled by the page while something may change. At the batch's end the whole page reloads."""
    found = _batch(visit, batch_id)
    response = render(request, "console/messaging/batch_progress.html", _progress_of(found))
    if found.completed_at is not None and "open" in request.GET:
        response["HX-Refresh"] = "true"
    return response


def failed_csv(request: HttpRequest, visit: Visit, batch_id: str) -> HttpResponse:
    """The failed messages as a file that can be corrected and uploaded again."""
    found = _batch(visit, batch_id)
    response = HttpResponse(content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="failed-{found.public_id}.csv"'
    csv.writer(response).writerows(csv_batches.failed_rows(found))
    return response


def cancel(request: HttpRequest, visit: Visit, batch_id: str) -> HttpResponse:
    """Stop a batch."""
    require_open(visit)
    _batch(visit, batch_id)
    with flash_errors(request):
        lifecycle.cancel(tenant_id=visit.tenant.id, environment=visit.environment, batch_id=batch_id)
        messages.success(request, "Cancelled. What was under way may still arrive.")
    return redirect("console_batch", batch_id)


def retry(request: HttpRequest, visit: Visit, batch_id: str) -> HttpResponse:
    """Queue again what was certainly not sent."""
    require_open(visit)
    _batch(visit, batch_id)
    with flash_errors(request):
        lifecycle.retry(tenant_id=visit.tenant.id, environment=visit.environment, batch_id=batch_id)
        messages.success(request, "The items that were certainly not sent are queued again.")
    return redirect("console_batch", batch_id)


def _batch(visit: Visit, batch_id: str) -> Batch:
    with or_404():
        return lifecycle.find(tenant_id=visit.tenant.id, environment=visit.environment, batch_id=batch_id)


def _progress_of(found: Batch) -> dict[str, Any]:
    outcomes = outcomes_of(found)
    meanings = meanings_of(code for code, _ in outcomes.causes)
    settles = found.completed_at is not None and found.completed_at < now() - SETTLED_AFTER
    return {
        "batch": found,
        "done": found.accepted + found.failed,
        "outcomes": outcomes,
        "causes": [(count, code, meanings.get(str(code))) for code, count in outcomes.causes],
        "is_live": found.completed_at is None or (outcomes.may_change and not settles),
    }
