"""Pages of messages: the list, and one message with its explanation and its timeline."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from console import lists
from console.error_codes import meanings_of, upstream_meaning
from console.events import why_gone
from console.json_text import indented
from console.visit import Visit, or_404, shown_numbers
from gateway import ids
from gateway.database.bounded_walk import Page as BoundedPage
from gateway.meta_errors import THROUGHPUT
from gateway.upstream.notifications.change import STATUSES
from messaging import csv_batches
from messaging.conversations import list_and_search
from messaging.conversations.list_and_search import Gist
from messaging.message_log import detail, message_search
from messaging.message_log.detail import Detail, Error, MessageEvent
from tenants.labels import milliseconds
from webhooks.models import Delivery, Endpoint, Message

WORDS = {
    "accepted": "Accepted by Meta",
    "sent": "Sent to the phone",
    "delivered": "Delivered",
    "read": "Read",
    "failed": "Failed",
    "received": "Received",
}
"""The words for the statuses of a message."""
ANSWER_LOST = "WhatsApp's answer was lost"


class Explanation(NamedTuple):
    """A sentence about a message. `button` and `url_name` are the text and the route of a link to the page on which the
    problem can be fixed.
    """

    text: str
    level: str
    button: str | None = None
    url_name: str | None = None


def explained(found: Detail) -> Explanation:
    """Explain the status of a message."""
    row = found.row
    if row.direction == "inbound":
        return Explanation("A customer sent it.", "ok")
    if row.status in {"read", "delivered"}:
        return Explanation(f"It was {row.status}.", "ok")
    if row.status == "failed" or found.error is not None:
        code = found.error.code if found.error else row.error_code
        if row.batch_id is not None and code == THROUGHPUT:
            text = (
                "The number sent faster than its throughput allows. Its batch can send it again: see below."
            )
            return Explanation(f"{text} (code {code})", "bad")
        known = upstream_meaning(str(code))
        if known is not None:
            text = f"{known.cause} {known.fix} (code {code})"
            return Explanation(text, "bad", known.button, known.url_name)
        said = (found.error.details or found.error.message or found.error.title) if found.error else None
        return Explanation(f"It was not delivered: {said or 'Meta gave no reason'} (code {code})", "bad")
    if row.status == "sent":
        return Explanation(
            "Meta sent it. The phone has not confirmed it yet: it may be off or without a network.",
            "warn",
        )
    if row.status == "unknown":
        return Explanation(
            f"{ANSWER_LOST}: the message may have been sent. Wait for a status before you send it again.",
            "warn",
        )
    return Explanation("Meta accepted it. No status has come yet.", "warn")


class MessageFilter(lists.SpanForm):
    """The filter above the list of messages."""

    direction = forms.ChoiceField(
        label="Direction",
        required=False,
        choices=[("", "Both"), ("outbound", "Sent by you"), ("inbound", "From customers")],
    )
    status = forms.ChoiceField(
        label="Status",
        required=False,
        choices=[("", "Any"), *((status, WORDS.get(status, status.capitalize())) for status in STATUSES)],
    )
    wa_id = lists.CustomerNumberField()
    template = forms.CharField(label="Template", required=False, max_length=512)
    batch = forms.CharField(label="Batch id", required=False, max_length=40)
    referral = forms.CharField(label="Ad id", required=False, max_length=255)

    def clean_batch(self) -> UUID | None:
        typed = ids.typed(self.cleaned_data["batch"].strip())
        found = ids.decode(ids.BATCH, typed) if typed else None
        if typed and found is None:
            raise forms.ValidationError("A batch id begins with bat_.")
        return found


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """An entry of a message's timeline."""

    at: datetime
    title: str
    level: str
    text: str = ""
    url: str | None = None


def message_list(request: HttpRequest, visit: Visit) -> HttpResponse:
    """List messages, newest first, with a filter."""
    form = MessageFilter(request.GET)
    wanted = lists.filled_fields(form)
    page = search_page(visit, wanted, before=lists.before(request), limit=lists.ROWS_PER_PAGE)
    return render(
        request,
        "console/messaging/messages.html",
        {
            "form": form,
            "rows": _shown(visit, page.rows),
            "meanings": meanings_of(row.error_code for row in page.rows),
            "page": lists.KeysetPage(page.rows, page.before),
            "filtered": bool(wanted),
            "of_customer": "wa_id" in wanted,
        },
    )


def search_page(
    visit: Visit, wanted: Mapping[str, Any], *, before: UUID | None, limit: int
) -> BoundedPage[Message]:
    """A page of messages that match the filled fields of the filter, newest first."""
    columns = {"batch": "batch_id", "referral": "referral_source_id"}
    wanted, begin, end = lists.split_span(dict(wanted), visit.zone)
    return message_search.search(
        **visit.scope,
        equal={columns.get(name, name): value for name, value in wanted.items() if name != "status"},
        status=wanted.get("status"),
        begin=begin,
        end=end,
        before=before,
        limit=limit,
    )


def _shown(visit: Visit, rows: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages, each with its text in one line. Customers' names come from received messages among `rows`. A message in
    a group has only its own writer's name.
    """
    if visit.is_support:
        gists = [Gist("", "", "")] * len(rows)
    else:
        gists = list_and_search.gists(list_and_search.Scope(visit.tenant.id, visit.environment), rows)
    customers = [row.wa_id or row.user_id or row.id for row in rows]
    names = {customer: gist.name for customer, gist in zip(customers, gists, strict=True) if gist.name}
    return [
        {
            "row": row,
            "key": row.wamid or ids.encode(ids.EVENT, row.id),
            "name": names.get(customer),
            "gist": gist.text,
            "customer": row.wa_id or row.user_id or gist.to,
        }
        for row, customer, gist in zip(rows, customers, gists, strict=True)
    ]


def message(request: HttpRequest, visit: Visit, message_id: str) -> HttpResponse:
    """Show one message: why it was or was not delivered, and its timeline."""
    with or_404():
        row = message_search.find(**visit.scope, key=message_id)
    found = detail.load(row)
    return render(
        request,
        "console/messaging/message.html",
        {
            "message": found,
            "row": row,
            "explained": explained(found),
            "timeline": _in_order(found, list(_timeline(visit, found))),
            "parts": [
                (title, indented(body))
                for title, body in (
                    ("The request", found.request),
                    ("Meta's answer", found.response),
                    ("The message", found.message),
                )
                if body is not None and not visit.is_support
            ],
            "gone": why_gone(visit, row.event_id) if row.event_id and not found.payload_available else None,
            "batch": ids.encode(ids.BATCH, row.batch_id) if row.batch_id else None,
            "place": _place(row),
            "number": shown_numbers(visit, [row.phone_number_id]).get(row.phone_number_id or ""),
        },
    )


def _place(row: Message) -> str:
    """A message's place in its batch, e.g. `row 3`. Empty for a message that was not sent by a batch."""
    if row.batch_id is None or row.idx is None:
        return ""
    name, place_of = csv_batches.places_in(row.batch_id)
    return f"{name.lower()} {place_of(row.idx)}"


def _own_event(found: Detail) -> MessageEvent | None:
    """The event about the message itself, not about one of its statuses. None when there is no such event."""
    return next((event for event in found.events if event.type != "message.status"), None)


def _in_order(found: Detail, entries: list[TimelineEntry]) -> list[TimelineEntry]:
    """The entries in the order of their times, but never before the message's own event. Meta's times are whole
    seconds, so a status can appear to precede its message.
    """
    own = _own_event(found)
    return sorted(entries, key=lambda each: max(each.at, own.created_at) if own else each.at)


def _timeline(visit: Visit, found: Detail) -> Iterator[TimelineEntry]:
    row = found.row
    own = _own_event(found)
    if own is not None:
        if row.direction == "inbound":
            yield TimelineEntry(own.created_at, "Received", "ok", url=_event_page(visit, own.id))
        else:
            title, level = _beginning(found, own)
            yield TimelineEntry(
                own.created_at,
                title,
                level,
                _times(row.service_ms, row.upstream_ms),
                _event_page(visit, own.id),
            )
    for report in found.statuses:
        said = _reason(report.error) if report.error else ""
        yield TimelineEntry(
            report.at,
            WORDS.get(report.status or "", report.status or "A status"),
            "bad" if report.status == "failed" else "ok",
            said,
            _event_page(visit, report.event_id),
        )
    yield from _attempts(visit, found)


def _beginning(found: Detail, own: MessageEvent) -> tuple[str, str]:
    """How a message of the business came into being: the title and the level of its timeline's first entry."""
    if own.type != "message.outbound":
        return "Written in the WhatsApp Business app", "ok"
    if found.row.accepted_at is not None:
        return "Accepted by Meta", "ok"
    if found.row.failed_at is not None or found.error is not None:
        return "Refused by Meta", "bad"
    return ANSWER_LOST, "warn"


def _event_page(visit: Visit, event_id: str) -> str | None:
    """The page of an event. None in a support view, because the page shows texts."""
    return None if visit.is_support else reverse("console_event", args=[event_id])


def _reason(error: Error) -> str:
    """Meta's reason for a failure: the title and the details. If both have the same text, only the details."""
    said = [text for text in (error.title, error.details) if text]
    if len(said) == 2 and said[0].strip(" .").lower() == said[1].strip(" .").lower():
        said = said[1:]
    return ": ".join(said)


def _times(service_ms: int | None, upstream_ms: int | None) -> str:
    """The parts of a send's duration, in words. Parts that are None are left out."""
    parts = [(service_ms, "in the gateway"), (upstream_ms, "at Meta")]
    return ", ".join(f"{milliseconds(ms)} {where}" for ms, where in parts if ms is not None)


def _attempts(visit: Visit, found: Detail) -> Iterator[TimelineEntry]:
    """The timeline's entries for every delivery attempt of the message's events."""
    deliveries = {row.id: row for event in found.events for row in event.deliveries}
    if not deliveries:
        return
    urls: dict[UUID, str] = dict(Endpoint.objects.for_environment(**visit.scope).values_list("id", "url"))
    logs: Any = Delivery.objects.filter(
        pk__in=list(deliveries), id__gte=min(deliveries), id__lte=max(deliveries)
    ).values_list("id", "attempt_log")
    for delivery_id, log in logs:
        row = deliveries[delivery_id]
        for attempt in log:
            worked = attempt["error"] is None and 200 <= (attempt["http_status"] or 0) < 300
            answered = f"HTTP {attempt['http_status']}" if attempt["http_status"] else attempt["error"]
            yield TimelineEntry(
                datetime.fromisoformat(attempt["at"]),
                f"{row.event_type} to your server: {answered}",
                "ok" if worked else "bad",
                f"{urls.get(row.endpoint_id, 'a deleted endpoint')}, {milliseconds(attempt['ms'])}",
                reverse("console_delivery", args=[row.public_id]),
            )
