"""Events, deliveries and endpoints in the console's search."""

from collections.abc import Iterator

from django.urls import reverse

from gateway import ids
from gateway.roles import Area
from tenants.console.frame import Visit
from tenants.console.search import Hit, finds
from webhooks.models import Delivery, Endpoint, Event


@finds(Area.INTEGRATION)
def _events(visit: Visit, text: str) -> Iterator[Hit]:
    key = ids.decode(ids.EVENT, ids.typed(text))
    rows = Event.objects.for_environment(visit.tenant.id, visit.environment)
    for event in rows.filter(pk=key) if key else ():
        yield Hit(
            "Event", f"{event.type} {event.public_id}", reverse("console_event", args=[event.public_id])
        )


@finds(Area.INTEGRATION)
def _deliveries(visit: Visit, text: str) -> Iterator[Hit]:
    key = ids.decode(ids.DELIVERY, ids.typed(text))
    rows = Delivery.objects.for_environment(visit.tenant.id, visit.environment)
    for delivery in rows.filter(pk=key) if key else ():
        title = f"{delivery.event_type}, {delivery.status}"
        yield Hit("Delivery", title, reverse("console_delivery", args=[delivery.public_id]))


@finds(Area.INTEGRATION)
def _endpoints(visit: Visit, text: str) -> Iterator[Hit]:
    # A tenant has few endpoints: they are looked through.
    for endpoint in Endpoint.objects.for_environment(visit.tenant.id, visit.environment).order_by("-id"):
        if text.lower() in endpoint.url.lower() or text in {str(endpoint.pk), endpoint.uid}:
            yield Hit("Endpoint", endpoint.url, reverse("console_endpoint", args=[endpoint.pk]))
