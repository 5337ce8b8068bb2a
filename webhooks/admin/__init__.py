"""Staff admin of webhooks: endpoints, events without bodies, and deliveries, with what staff do in a tenant's name."""

from tenants.staff.navigation import NavigationLink, register_navigation
from webhooks.admin import endpoints, history

__all__ = ["endpoints", "history"]

register_navigation(
    "Webhooks",
    NavigationLink("Endpoints", "webhook", "admin:webhooks_endpoint_changelist"),
    NavigationLink("Deliveries", "local_shipping", "admin:webhooks_delivery_changelist"),
    NavigationLink("Events", "bolt", "admin:webhooks_event_changelist"),
)
