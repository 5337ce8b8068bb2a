"""Webhooks in the console: entries in the navigation, the first step, and what the home page warns of."""

from django.urls import reverse

from gateway.roles import Area
from tenants.console import first_steps
from tenants.console.first_steps import FirstStep
from tenants.console.frame import TEST, HomeWarning, Page, Section, register, warns
from tenants.models import Tenant
from webhooks.endpoints import lifecycle
from webhooks.models import Endpoint

register(
    Page("Webhooks", "console_endpoints", "/console/webhooks", Section.WEBHOOKS, 10),
    Page("Deliveries", "console_deliveries", "/console/deliveries", Section.WEBHOOKS, 20),
    Page("Events", "console_events", "/console/events", Section.WEBHOOKS, 30),
    Page("Figures", "console_figures", "/console/figures", Section.OVERVIEW, 20),
)
first_steps.register(
    FirstStep(
        step="webhook_verified",
        title="Add a webhook endpoint",
        text="Your server's URL. It gets every event, signed.",
        button="Add an endpoint",
        url_name="console_endpoints",
        order=10,
        tested=lambda tenant_id: lifecycle.has_verified(tenant_id=tenant_id, environment=TEST),
    )
)


@warns(Area.INTEGRATION)
def warnings(tenant: Tenant, environment: str) -> list[HomeWarning]:
    """Endpoints that fail or were disabled; a tenant has at most 20."""
    found = []
    for endpoint in Endpoint.objects.for_environment(tenant.id, environment).order_by("-id"):
        page = reverse("console_endpoint", args=[endpoint.id])
        if endpoint.status == Endpoint.Status.DISABLED:
            text = f"{endpoint.url} was disabled: it gets no events."
            found.append(HomeWarning(text, "Repair it", page, "bad"))
        elif endpoint.status == Endpoint.Status.ACTIVE and endpoint.circuit_open_until is not None:
            text = f"{endpoint.url} fails. Its deliveries wait and are tried again."
            found.append(HomeWarning(text, "See why", page, "bad"))
    return found
