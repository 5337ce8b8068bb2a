"""Console pages of batches and message templates."""

from typing import Any

import orjson
from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from gateway.api import in_flight
from gateway.roles import Area
from gateway.upstream.calls import UpstreamUnreachable
from messaging.batches import lifecycle
from messaging.message_templates import operations
from messaging.models import Batch, BatchItem, MessageTemplate
from phone_numbers.graph_calls import Refused
from tenants.console import keyset
from tenants.console.frame import Visit, console_page, or_404, require_active, told

TEMPLATES_PER_PAGE = 50
FAILED_SHOWN = 100


@require_safe
@console_page(Area.INTEGRATION)
def batch_list(request: HttpRequest, visit: Visit) -> HttpResponse:
    """The batches, newest first."""
    rows = Batch.objects.for_tenant(visit.tenant.id).filter(environment=visit.environment)
    return render(request, "console/messaging/batches.html", {"page": keyset.page_of(rows, request)})


@require_safe
@console_page(Area.INTEGRATION)
def batch(request: HttpRequest, visit: Visit, batch_id: str) -> HttpResponse:
    """One batch: progress, why it waits, and its failed items."""
    found = _batch(visit, batch_id)
    failed = found.items.filter(status=BatchItem.Status.FAILED).order_by("idx")[:FAILED_SHOWN]
    done = found.accepted + found.failed
    return render(
        request,
        "console/messaging/batch.html",
        {
            "batch": found,
            "done": done,
            "failed": [(item, _error(item)) for item in failed],
            "most": FAILED_SHOWN,
        },
    )


@require_POST
@console_page(Area.INTEGRATION)
def cancel(request: HttpRequest, visit: Visit, batch_id: str) -> HttpResponse:
    """Stop a batch."""
    require_active(visit)
    _batch(visit, batch_id)
    with told(request):
        lifecycle.cancel(tenant_id=visit.tenant.id, environment=visit.environment, batch_id=batch_id)
        messages.success(request, "Cancelled. What was under way may still arrive.")
    return redirect("console_batch", batch_id)


@require_POST
@console_page(Area.INTEGRATION)
def retry(request: HttpRequest, visit: Visit, batch_id: str) -> HttpResponse:
    """Queue again what was certainly not sent."""
    require_active(visit)
    _batch(visit, batch_id)
    with told(request):
        lifecycle.retry(tenant_id=visit.tenant.id, environment=visit.environment, batch_id=batch_id)
        messages.success(request, "The items that were certainly not sent are queued again.")
    return redirect("console_batch", batch_id)


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


def _batch(visit: Visit, batch_id: str) -> Batch:
    with or_404():
        return lifecycle.find(tenant_id=visit.tenant.id, environment=visit.environment, batch_id=batch_id)


def _error(item: BatchItem) -> dict[str, Any]:
    """The `error` of a failed item's answer."""
    try:
        answer = orjson.loads(bytes(item.response or b"{}"))
    except orjson.JSONDecodeError:
        return {}
    error = answer.get("error") if isinstance(answer, dict) else None
    return error if isinstance(error, dict) else {}


def _text(template: MessageTemplate) -> str:
    """The text of a template's body, to recognise it by."""
    components = orjson.loads(template.document).get("components")
    for component in components if isinstance(components, list) else []:
        if isinstance(component, dict) and component.get("type") == "BODY":
            return str(component.get("text", ""))
    return ""
