"""Staff admin of webhooks: endpoints with the actions of staff, events without bodies, and deliveries."""

from tenants.staff.site import NavigationLink, register_navigation
from webhooks.admin import (
    cards_and_charts,  # noqa: F401 - registers its part of the staff's dashboard
    endpoints,
    events,
    finders,  # noqa: F401 - registers its part of the staff's search
)

__all__ = ["endpoints", "events"]

register_navigation(
    "Webhooks",
    NavigationLink("Endpoints", "webhook", "admin:webhooks_endpoint_changelist"),
    NavigationLink("Deliveries", "local_shipping", "admin:webhooks_delivery_changelist"),
    NavigationLink("Events", "bolt", "admin:webhooks_event_changelist"),
)
