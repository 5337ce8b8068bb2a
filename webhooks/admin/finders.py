"""Endpoints, events and deliveries in the staff's search, and links to them on a tenant's page."""

from collections.abc import Iterator
from datetime import timedelta

from django.db.models import Q
from django.urls import reverse
from django.utils.text import Truncator

from gateway import ids
from gateway.clock import now
from tenants.models import ApiKey, Tenant
from tenants.staff.dialogs import change_url
from tenants.staff.search import Hit, Line, register_finder, register_lines, register_target, uuid_of
from webhooks.analytics import statistics
from webhooks.models import Delivery, Endpoint, Event

DAYS = 30


@register_finder("webhooks.view_event")
def _events(text: str) -> Iterator[Hit]:
    key = ids.decode(ids.EVENT, ids.typed(text))
    for event in Event.objects.filter(pk=key) if key else ():
        yield Hit("Event", event.public_id, event.type, change_url(Event, event.pk))


@register_finder("webhooks.view_delivery")
def _deliveries(text: str) -> Iterator[Hit]:
    key = ids.decode(ids.DELIVERY, ids.typed(text))
    for delivery in Delivery.objects.filter(pk=key) if key else ():
        note = f"{delivery.event_type}, {delivery.get_status_display().lower()}"
        yield Hit("Delivery", delivery.public_id, note, change_url(Delivery, delivery.pk))


@register_finder("webhooks.view_endpoint")
def _endpoints(text: str) -> Iterator[Hit]:
    named = Q(url__icontains=text) | Q(uid=text)
    if key := uuid_of(text):
        named |= Q(pk=key)
    for endpoint in Endpoint.objects.filter(named).select_related("tenant").order_by("-id")[:10]:
        note = f"{endpoint.tenant.name}, {endpoint.environment}, {endpoint.status}"
        yield Hit("Endpoint", endpoint.url, note, change_url(Endpoint, endpoint.pk))


@register_lines("webhooks.view_endpoint")
def _endpoint_lines(tenant: Tenant) -> Iterator[Line]:
    for endpoint in Endpoint.objects.for_tenant(tenant.id).order_by("-id")[:20]:
        failing = ", fails" if endpoint.failing_since else ""
        url = Truncator(endpoint.url).chars(80)
        text = f"{url} ({endpoint.environment}, {endpoint.status}{failing})"
        yield Line("Endpoint", text, change_url(Endpoint, endpoint.pk))


@register_lines("webhooks.view_delivery")
def _history_lines(tenant: Tenant) -> Iterator[Line]:
    for title, name in (("Deliveries", "delivery"), ("Events", "event")):
        yield Line(title, "newest first", f"{reverse(f'admin:webhooks_{name}_changelist')}?q={tenant.id}")
    yield from _figures(tenant)


def _figures(tenant: Tenant) -> Iterator[Line]:
    """Counts of messages and deliveries in the last days."""
    end = now()
    for environment in ApiKey.Environment.values:
        found = statistics.read(
            tenant_id=tenant.id,
            environment=environment,
            begin=end - timedelta(days=DAYS - 1),
            end=end,
            interval="day",
            groups=(),
            equal={},
        )
        messages = {
            name: sum(day.counts.get(name, 0) for day in found.messages)
            for name in ("sent", "delivered", "failed", "received")
        }
        hooked = {
            name: sum(day.counts.get(name, 0) for day in found.webhooks) for name in ("delivered", "failed")
        }
        if any(messages.values()) or any(hooked.values()):
            text = (
                f"{messages['sent']:,} sent, {messages['delivered']:,} delivered, {messages['failed']:,} failed, "
                f"{messages['received']:,} received; webhooks {hooked['delivered']:,} delivered, "
                f"{hooked['failed']:,} dead"
            )
            yield Line(f"Last {DAYS} days, {environment}", text)


register_target("webhook_endpoint", Endpoint)
register_target("webhook_delivery", Delivery)
