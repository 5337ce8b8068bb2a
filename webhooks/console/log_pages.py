"""Console pages of the event log: deliveries with their attempts, events with their bodies, and sending again."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from gateway import ids
from gateway.roles import Area
from tenants.console import filters, keyset
from tenants.console.frame import Visit, console_page, or_404, require_open, told
from tenants.console.json_text import indented, tree
from tenants.wording.values import milliseconds
from webhooks import replay
from webhooks.console.calls import endpoint_called
from webhooks.console.forms import DeliveryFilter, EventFilter
from webhooks.delivery.outcomes import attempt_log
from webhooks.endpoints.holds import with_holds
from webhooks.events import delivery_search, envelope, search
from webhooks.models import Delivery, Endpoint


@require_safe
@console_page(Area.INTEGRATION)
def delivery_list(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Deliveries, newest first, with a filter."""
    form = DeliveryFilter(request.GET)
    wanted = filters.asked(form)
    equal = {"status": wanted.get("status"), "endpoint_id": wanted.get("endpoint")}
    found = delivery_search.search(
        tenant_id=visit.tenant.id,
        environment=visit.environment,
        equal={name: value for name, value in equal.items() if value},
        event_types=[wanted["event_type"]] if wanted.get("event_type") else (),
        before=keyset.before(request),
        limit=keyset.ROWS_PER_PAGE,
    )
    page = keyset.KeysetPage(found.rows, found.before)
    return render(
        request,
        "console/webhooks/deliveries.html",
        {"form": form, "page": page, "rows": _shown(visit, page.rows), "filtered": bool(wanted)},
    )


@require_safe
@console_page(Area.INTEGRATION)
def delivery(request: HttpRequest, visit: Visit, delivery_id: str) -> HttpResponse:
    """One delivery with every attempt, and what the receiver said."""
    found = _delivery(visit, delivery_id)
    [shown] = _shown(visit, [found])
    return render(
        request,
        "console/webhooks/delivery.html",
        {"shown": shown, "attempts": attempt_log.attempts(found)[::-1]},
    )


@require_POST
@console_page(Area.INTEGRATION)
def send_again(request: HttpRequest, visit: Visit, delivery_id: str) -> HttpResponse:
    """One more attempt at once; its page says what came of it."""
    require_open(visit)
    found = _delivery(visit, delivery_id)
    with told(request), endpoint_called(request, visit):
        again = replay.replay_delivery(
            tenant_id=visit.tenant.id, environment=visit.environment, delivery_id=found.id
        )
        if again.status == Delivery.Status.DELIVERED:
            messages.success(
                request,
                f"Delivered: HTTP {again.last_http_status}, {milliseconds(again.last_response_ms or 0)}.",
            )
        else:
            messages.error(request, "The endpoint did not take it. See the attempt below.")
        return redirect("console_delivery", again.public_id)
    return redirect("console_delivery", delivery_id)


@require_safe
@console_page(Area.INTEGRATION)
def event_list(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Events, newest first, with a filter."""
    form = EventFilter(request.GET)
    wanted = filters.asked(form)
    found = search.search(
        tenant_id=visit.tenant.id,
        environment=visit.environment,
        types=[wanted["type"]] if wanted.get("type") else (),
        equal={name: wanted[name] for name in ("wa_id", "wamid") if wanted.get(name)},
        before=keyset.before(request),
        limit=keyset.ROWS_PER_PAGE,
    )
    page = keyset.KeysetPage(found.rows, found.before)
    counts = search.delivery_counts(page.rows)
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


@require_safe
@console_page(Area.INTEGRATION)
def event(request: HttpRequest, visit: Visit, event_id: str) -> HttpResponse:
    """One event: its body as delivered, and its deliveries."""
    with or_404():
        found = search.find(tenant_id=visit.tenant.id, environment=visit.environment, event_id=event_id)
    stored = envelope.load([found.id])[found.id]
    return render(
        request,
        "console/webhooks/event.html",
        {
            "event": found,
            "parts": _parts(stored) if stored else [],
            "rows": _shown(visit, search.deliveries(found)),
        },
    )


def _parts(stored: envelope.Envelope) -> list[dict[str, Any]]:
    """The two halves of an event's body, as text and as lists that fold."""
    by_us = "This event was made here: the platform sent nothing."
    titles = {"data": "What you get.", "raw": by_us if stored.raw == b"null" else "As the platform sent it."}
    return [
        {"name": name, "title": title, "text": indented(body), "tree": tree(body)}
        for (name, title), body in zip(titles.items(), (stored.data, stored.raw), strict=True)
    ]


def _delivery(visit: Visit, delivery_id: str) -> Delivery:
    key = ids.decode(ids.DELIVERY, delivery_id)
    rows = Delivery.objects.for_environment(visit.tenant.id, visit.environment)
    found = rows.filter(pk=key).first() if key else None
    if found is None:
        raise Http404("There is no such delivery.")
    return found


def _shown(visit: Visit, rows: Sequence[Delivery]) -> list[dict[str, Any]]:
    """Deliveries with their endpoint's URL and, for those that wait, when and why."""
    urls: dict[UUID, str] = dict(
        Endpoint.objects.for_environment(visit.tenant.id, visit.environment).values_list("id", "url")
    )
    return [
        {
            "delivery": row,
            "url": urls.get(row.endpoint_id),
            "event_id": ids.encode(ids.EVENT, row.event_id),
            "replay_of": ids.encode(ids.DELIVERY, row.replay_of) if row.replay_of else None,
            "next": row.next_attempt_at if row.status in Delivery.OPEN else None,
            "error": row.last_error,
        }
        for row in with_holds(rows, tenant_id=visit.tenant.id, environment=visit.environment)
    ]
