"""Pages of the event log: events with their bodies, deliveries with their attempts, and the poll for new events."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from console import lists
from console.endpoints import endpoint_called
from console.json_text import indented, tree
from console.lists import CustomerNumberField
from console.visit import TEST, Visit, or_404, require_open
from gateway import ids
from gateway.api.errors import ServiceError
from gateway.api.query import by_public_id
from gateway.clock import now
from gateway.database.statements import run
from tenants.labels import milliseconds
from webhooks import replay, stream
from webhooks.delivery import retries_and_attempt_log
from webhooks.endpoints.health import with_holds
from webhooks.events import envelope, search
from webhooks.events.envelope import EVENT_TYPES
from webhooks.models import Delivery, Endpoint, Event
from webhooks.stream import Wanted, present

_TYPES = [(name, name) for name in EVENT_TYPES]
RETRY_MILLISECONDS = 2_000


class DeliveryFilter(lists.SpanForm):
    """The filter above the list of deliveries."""

    status = forms.ChoiceField(
        label="Status",
        required=False,
        choices=[
            ("", "Any"),
            (Delivery.Status.DELIVERED, "Delivered"),
            (Delivery.Status.PENDING, "Waiting"),
            (Delivery.Status.FAILED, "Failed, retried"),
            (Delivery.Status.DEAD, "Given up"),
        ],
    )
    event_type = forms.ChoiceField(label="Event", required=False, choices=[("", "Any"), *_TYPES])
    endpoint = forms.UUIDField(required=False, widget=forms.HiddenInput)


class EventFilter(lists.SpanForm):
    """The filter above the list of events."""

    type = forms.ChoiceField(label="Event", required=False, choices=[("", "Any"), *_TYPES])
    wa_id = CustomerNumberField()
    wamid = forms.CharField(label="Message id", required=False, max_length=512)


def delivery_list(request: HttpRequest, visit: Visit) -> HttpResponse:
    """List deliveries, newest first, with a filter."""
    form = DeliveryFilter(request.GET)
    wanted = lists.filled_fields(form)
    _, begin, end = lists.split_span(wanted, visit.zone)
    equal = {"status": wanted.get("status"), "endpoint_id": wanted.get("endpoint")}
    found = search.search_deliveries(
        **visit.scope,
        equal={name: value for name, value in equal.items() if value},
        event_types=[wanted["event_type"]] if wanted.get("event_type") else (),
        begin=begin,
        end=end,
        before=lists.before(request),
        limit=lists.ROWS_PER_PAGE,
    )
    page = lists.KeysetPage(found.rows, found.before)
    return render(
        request,
        "console/webhooks/deliveries.html",
        {"form": form, "page": page, "rows": _shown(visit, page.rows), "filtered": bool(wanted)},
    )


def delivery(request: HttpRequest, visit: Visit, delivery_id: str) -> HttpResponse:
    """Show one delivery with every attempt and its response."""
    found = _delivery(visit, delivery_id)
    [shown] = _shown(visit, [found])
    attempts = retries_and_attempt_log.shown_attempts(found)[::-1]
    has_body = envelope.load([found.event_id], tenant_id=found.tenant_id).get(found.event_id) is not None
    context = {"shown": shown, "attempts": attempts, "has_body": has_body}
    return render(request, "console/webhooks/delivery.html", context)


def send_again(request: HttpRequest, visit: Visit, delivery_id: str) -> HttpResponse:
    """Attempt the delivery once more now, and show the result."""
    require_open(visit)
    found = _delivery(visit, delivery_id)
    try:
        with endpoint_called(request, visit):
            again = replay.replay_delivery(**visit.scope, delivery_id=found.id)
    except ServiceError as error:
        # The delivery exists, so a NotFound is about its endpoint or the body of its event.
        messages.error(request, error.text)
        return redirect("console_delivery", delivery_id)
    if again.status == Delivery.Status.DELIVERED:
        took = milliseconds(again.last_response_ms or 0)
        messages.success(request, f"Delivered: HTTP {again.last_http_status}, {took}.")
    else:
        messages.error(request, "The endpoint did not accept it. See the attempt below.")
    return redirect("console_delivery", again.public_id)


def event_list(request: HttpRequest, visit: Visit) -> HttpResponse:
    """List events, newest first, with a filter."""
    form = EventFilter(request.GET)
    wanted = lists.filled_fields(form)
    _, begin, end = lists.split_span(wanted, visit.zone)
    found = search.search(
        **visit.scope,
        types=[wanted["type"]] if wanted.get("type") else (),
        begin=begin,
        end=end,
        equal={name: wanted[name] for name in ("wa_id", "wamid") if wanted.get(name)},
        before=lists.before(request),
        limit=lists.ROWS_PER_PAGE,
    )
    page = lists.KeysetPage(found.rows, found.before)
    counts = search.delivery_counts(page.rows, tenant_id=visit.tenant.id)
    return render(
        request,
        "console/webhooks/events.html",
        {
            "form": form,
            "page": page,
            "rows": [(event, counts[event.id]) for event in page.rows],
            "filtered": bool(wanted),
        },
    )


def event(request: HttpRequest, visit: Visit, event_id: str) -> HttpResponse:
    """Show one event: its body as delivered, and its deliveries."""
    with or_404():
        found = search.find(**visit.scope, event_id=event_id)
    stored = envelope.load([found.id], tenant_id=found.tenant_id)[found.id]
    return render(
        request,
        "console/webhooks/event.html",
        {
            "event": found,
            "parts": _parts(stored) if stored else [],
            "gone": why_gone(visit, found.id),
            "rows": _shown(visit, search.deliveries(found)),
        },
    )


def why_gone(visit: Visit, event_id: UUID) -> str:
    """The end of the sentence that says why an event's body is missing. It can be missing before the retention ends."""
    days = visit.tenant.retention_days
    if not envelope.within_retention(event_id, days, now()):
        return f"is past your retention of {days} days."
    return (
        "was deleted: it was erased on request, or its retention had ended before you lengthened the retention"
        f" to {days} days."
    )


def _parts(stored: envelope.Envelope) -> list[dict[str, Any]]:
    """The members `data` and `raw` of an event's body, each as text and as collapsible lists."""
    if stored.has_raw:
        raw = "As Meta sent it."
    elif stored.raw_path is None:
        raw = "The gateway created this event itself: Meta sent no notification."
    else:
        raw = "Deleted, because another customer in Meta's notification was erased."
    titles = {"data": "What you get.", "raw": raw}
    return [
        {"name": name, "title": title, "text": indented(body), "tree": tree(body)}
        for (name, title), body in zip(titles.items(), (stored.data, stored.raw), strict=True)
    ]


def _delivery(visit: Visit, delivery_id: str) -> Delivery:
    rows = Delivery.objects.for_environment(**visit.scope)
    with or_404():
        return by_public_id(rows, ids.DELIVERY, delivery_id, "delivery")


def _shown(visit: Visit, rows: Sequence[Delivery]) -> list[dict[str, Any]]:
    """Deliveries, each with its event, its endpoint's URL and, if it waits, the reason and the time of the next
    attempt.
    """
    urls: dict[UUID, str] = dict(Endpoint.objects.for_environment(**visit.scope).values_list("id", "url"))
    event_ids = {row.event_id for row in rows}
    own = Event.objects.for_environment(**visit.scope)
    events = own.filter(pk__in=event_ids, id__gte=min(event_ids), id__lte=max(event_ids)) if event_ids else []
    by_id = {each.id: each for each in events}
    return [
        {
            "delivery": row,
            "event": by_id.get(row.event_id),
            "url": urls.get(row.endpoint_id),
            "event_id": ids.encode(ids.EVENT, row.event_id),
            "replay_of": ids.encode(ids.DELIVERY, row.replay_of) if row.replay_of else None,
            "next": row.next_attempt_at if row.status in Delivery.OPEN else None,
            "error": row.last_error,
        }
        for row in with_holds(rows, **visit.scope)
    ]


def live(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Report whether the environment has events after `Last-Event-ID`, and the current position. The first request of a
    page has no such header, but the id from which on events may be missing in the page (`after`).

    With `environment=test` the sandbox is checked, whatever the visit's environment, because the test phone is on every
    page.
    """
    tenant_id = visit.tenant.id
    environment = TEST if request.GET.get("environment") == TEST else visit.environment
    here = run(present())
    if last := request.headers.get("Last-Event-ID"):
        seen = run(stream.resumed(last, tenant_id=tenant_id, environment=environment)) or here
        has_news = bool(run(stream.with_news([Wanted(tenant_id, environment, after=seen)])))
    else:
        first = lists.after(request)
        has_news = first is not None and search.may_have_since(
            tenant_id=tenant_id, environment=environment, first=first
        )
    news = b"event: news\ndata: 1\n" if has_news else b": nothing\n"
    body = b"retry: %d\nid: %b\n%b\n" % (RETRY_MILLISECONDS, str(here).encode(), news)
    return HttpResponse(body, headers=stream.HEADERS)
