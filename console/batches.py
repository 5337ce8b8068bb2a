"""Console pages of batches (the list, and one batch with its progress and failed messages) and of
scheduled messages.
"""

import csv
import re
from datetime import datetime, timedelta
from typing import Any

import orjson
from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from console import lists
from console.error_codes import meanings_of
from console.visit import Visit, flash_errors, or_404, require_open, shown_numbers
from gateway.api.errors import InvalidRequest
from gateway.clock import now
from messaging import csv_batches
from messaging.batches import lifecycle, scheduled_messages
from messaging.batches.outcomes import outcomes_of
from messaging.models import Batch, BatchItem, ScheduledMessage

FAILED_SHOWN = 100
SETTLED_AFTER = timedelta(days=1)
"""How long after a batch's end its open page still polls for delivery statuses."""
_FILE_ID = re.compile(r" \([0-9a-f-]{36}\)$")


def batch_list(request: HttpRequest, visit: Visit) -> HttpResponse:
    """List the batches, newest first."""
    page = lists.page_of(Batch.objects.for_environment(**visit.scope), request)
    numbers = shown_numbers(visit, [row.phone_number_id for row in page.rows])
    return render(
        request,
        "console/messaging/batches.html",
        {
            "page": page,
            "waiting": lifecycle.waiting(**visit.scope),
            "most_waiting": lifecycle.MOST_WAITING_ITEMS,
            "most_waiting_bytes": lifecycle.MOST_WAITING_BYTES,
            "rows": [
                (row, _title(row), numbers.get(row.phone_number_id, row.phone_number_id)) for row in page.rows
            ],
        },
    )


def batch(request: HttpRequest, visit: Visit, batch_id: str) -> HttpResponse:
    """Show one batch: its progress, the reason why it waits, and its failed items."""
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
            "time_form": TimeForm(visit=visit) if _waits_for_time(found) else None,
        },
    )


def _title(batch: Batch) -> str:
    """The caller's reference of a batch. For a batch from a file, only the file's name (without the unique id)."""
    return _FILE_ID.sub("", batch.client_ref or "")


def progress(request: HttpRequest, visit: Visit, batch_id: str) -> HttpResponse:
    """Show only the progress. The page polls it while the progress may change. When the batch has ended, the whole page
    reloads.
    """
    found = _batch(visit, batch_id)
    response = render(request, "console/messaging/batch_progress.html", _progress_of(found))
    if found.completed_at is not None and "open" in request.GET:
        response["HX-Refresh"] = "true"
    return response


def failed_csv(request: HttpRequest, visit: Visit, batch_id: str) -> HttpResponse:
    """Download the failed messages that were not sent, as a file that can be corrected and uploaded again."""
    found = _batch(visit, batch_id)
    response = HttpResponse(content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="failed-{found.public_id}.csv"'
    csv.writer(response).writerows(csv_batches.failed_rows(found))
    return response


class TimeForm(forms.Form):
    """The new time of a scheduled message or batch, in the member's time zone."""

    send_at = forms.DateTimeField(
        label="Send it at", widget=forms.DateTimeInput({"type": "datetime-local"}, format="%Y-%m-%dT%H:%M")
    )

    def __init__(self, *args: Any, visit: Visit, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._zone = visit.zone
        self.fields[
            "send_at"
        ].help_text = f"In {visit.zone.key}, at most {scheduled_messages.MOST_AHEAD.days} days ahead."

    def full_clean(self) -> None:
        with timezone.override(self._zone):
            super().full_clean()

    def clean_send_at(self) -> datetime:
        try:
            return scheduled_messages.moment_of(self.cleaned_data["send_at"].isoformat())
        except InvalidRequest as error:
            raise ValidationError((error.details or {})["fields"][scheduled_messages.MEMBER]) from None


def scheduled_list(request: HttpRequest, visit: Visit) -> HttpResponse:
    """List scheduled messages and batches. With `all`, also list messages that were sent or cancelled."""
    rows = ScheduledMessage.objects.for_environment(**visit.scope).defer("body")
    wants_all = "all" in request.GET
    if not wants_all:
        rows = rows.filter(status__in=[ScheduledMessage.Status.SCHEDULED, ScheduledMessage.Status.SENDING])
    page = lists.page_of(rows, request)
    batches = (
        Batch.objects.for_environment(**visit.scope)
        .filter(waiting_for=Batch.WaitingFor.SCHEDULED)
        .order_by("send_at")
    )
    waiting = list(batches[: lists.ROWS_PER_PAGE])
    senders = {row.phone_number_id for row in page.rows} | {row.phone_number_id for row in waiting}
    numbers = shown_numbers(visit, senders)
    return render(
        request,
        "console/messaging/scheduled.html",
        {
            "page": page,
            "wants_all": wants_all,
            "rows": [(row, numbers.get(row.phone_number_id, row.phone_number_id)) for row in page.rows],
            "batches": [
                (row, _title(row) or row.public_id, numbers.get(row.phone_number_id, row.phone_number_id))
                for row in waiting
            ],
        },
    )


def scheduled(request: HttpRequest, visit: Visit, scheduled_id: str) -> HttpResponse:
    """Show a scheduled message. POST changes its time, or cancels it with `cancel`."""
    with or_404():
        found = scheduled_messages.find(**visit.scope, scheduled_id=scheduled_id)
    form = TimeForm(request.POST if "send_at" in request.POST else None, visit=visit)
    if request.method == "POST":
        require_open(visit)
        with flash_errors(request):
            if "cancel" in request.POST:
                scheduled_messages.cancel(found)
                messages.success(request, "Cancelled: it will not be sent.")
            elif form.is_valid():
                scheduled_messages.change(found, form.cleaned_data["send_at"])
                messages.success(request, "The time was changed.")
        if not form.errors:
            return redirect("console_scheduled_message", scheduled_id)
    body = orjson.loads(bytes(found.body) or b"{}")
    return render(
        request,
        "console/messaging/scheduled_message.html",
        {
            "message": found,
            "to": str(body.get("to") or body.get("recipient") or ""),
            "text": orjson.dumps(body, option=orjson.OPT_INDENT_2).decode() if body else "",
            "error": csv_batches.error_of(bytes(found.response or b"")),
            "number": shown_numbers(visit, [found.phone_number_id]).get(found.phone_number_id),
            "form": form,
        },
        status=400 if form.errors else 200,
    )


def set_time(request: HttpRequest, visit: Visit, batch_id: str) -> HttpResponse:
    """Change the time of a scheduled batch. With `now`, the batch begins at once, or when the hours of its
    customers do.
    """
    require_open(visit)
    found = _batch(visit, batch_id)
    form = TimeForm(request.POST, visit=visit)
    is_now = "now" in request.POST
    if not is_now and not form.is_valid():
        messages.error(request, str(form.errors["send_at"][0]))
        return redirect("console_batch", batch_id)
    with flash_errors(request):
        batch = lifecycle.reschedule(found, None if is_now else form.cleaned_data["send_at"])
        is_late = is_now and batch.send_at is not None
        said = "The batch begins when the hours of its customers do." if is_late else "The time was changed."
        messages.success(request, said)
    return redirect("console_batch", batch_id)


def cancel(request: HttpRequest, visit: Visit, batch_id: str) -> HttpResponse:
    """Stop a batch."""
    require_open(visit)
    found = _batch(visit, batch_id)
    with flash_errors(request):
        lifecycle.cancel(found)
        messages.success(request, "Cancelled. Messages that were already being sent may still arrive.")
    return redirect("console_batch", batch_id)


def retry(request: HttpRequest, visit: Visit, batch_id: str) -> HttpResponse:
    """Queue again the failed items that were certainly not sent."""
    require_open(visit)
    found = _batch(visit, batch_id)
    with flash_errors(request):
        lifecycle.retry(found)
        messages.success(request, "The items that were certainly not sent are queued again.")
    return redirect("console_batch", batch_id)


def _batch(visit: Visit, batch_id: str) -> Batch:
    with or_404():
        return lifecycle.find(**visit.scope, batch_id=batch_id)


def _waits_for_time(found: Batch) -> bool:
    """Whether the time of a batch can still be changed."""
    return found.waiting_for == Batch.WaitingFor.SCHEDULED and found.started_at is None


def _progress_of(found: Batch) -> dict[str, Any]:
    outcomes = outcomes_of(found)
    meanings = meanings_of(code for code, _ in outcomes.causes)
    not_sent = found.total - found.accepted - found.failed if found.completed_at is not None else 0
    settles = found.completed_at is not None and found.completed_at < now() - SETTLED_AFTER
    return {
        "batch": found,
        "done": found.accepted + found.failed + not_sent,
        "not_sent": not_sent,
        "outcomes": outcomes,
        "causes": [(count, code, meanings.get(str(code))) for code, count in outcomes.causes],
        "is_live": found.completed_at is None or (outcomes.may_change and not settles),
    }
