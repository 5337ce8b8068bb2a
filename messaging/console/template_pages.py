"""Console pages of message templates."""

import orjson
from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from gateway.api import in_flight
from gateway.roles import Area
from gateway.upstream.calls import UpstreamUnreachable
from messaging.message_templates import operations
from messaging.models import MessageTemplate
from phone_numbers.graph_calls import Refused
from tenants.console.frame import Visit, console_page, require_active, told

TEMPLATES_PER_PAGE = 50


@require_safe
@console_page(Area.INTEGRATION)
def template_list(request: HttpRequest, visit: Visit) -> HttpResponse:
    """The templates of all accounts of the environment, by name."""
    rows = MessageTemplate.objects.for_tenant(visit.tenant.id).filter(environment=visit.environment)
    page = Paginator(rows.order_by("name", "language", "id"), TEMPLATES_PER_PAGE).get_page(
        request.GET.get("page")
    )
    return render(
        request,
        "console/messaging/templates.html",
        {"tenant": visit.tenant, "page": page, "rows": [(row, _text(row)) for row in page]},
    )


@require_POST
@console_page(Area.INTEGRATION)
def sync_templates(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Read every template from the platform now."""
    require_active(visit)
    choice = operations.Choice(tenant_id=visit.tenant.id, environment=visit.environment)
    with told(request), in_flight.upstream.held(visit.tenant.id):
        try:
            read = operations.sync_now(choice)
        except (Refused, UpstreamUnreachable):
            messages.error(request, "The platform did not give the templates. Try again in a minute.")
        else:
            messages.success(request, f"{read['synced']} templates read.")
    return redirect("console_templates")


def _text(template: MessageTemplate) -> str:
    """The text of a template's body, to recognise it by."""
    components = orjson.loads(template.document).get("components")
    for component in components if isinstance(components, list) else []:
        if isinstance(component, dict) and component.get("type") == "BODY":
            return str(component.get("text", ""))
    return ""
