"""Console pages of message templates: list, one template, its deletion."""

from typing import Any

import orjson
from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from gateway.api.limits import in_flight
from gateway.roles import Area
from gateway.upstream.calls import UpstreamUnreachable
from messaging.console.refusals import UNREACHABLE, words_of
from messaging.console.template_forms import TemplateFilter
from messaging.message_templates import operations, parameters
from messaging.message_templates.operations import AccountChoice
from messaging.models import MessageTemplate
from phone_numbers.graph_calls import Refused
from tenants.console import filters
from tenants.console.frame import Visit, console_page, or_404, require_open, told
from tenants.console.json_text import indented

TEMPLATES_PER_PAGE = 50


@require_safe
@console_page(Area.INTEGRATION)
def template_list(request: HttpRequest, visit: Visit) -> HttpResponse:
    """The templates of all accounts of the environment, by name, with a filter."""
    form = TemplateFilter(request.GET)
    wanted = filters.asked(form)
    rows = MessageTemplate.objects.for_tenant(visit.tenant.id).filter(environment=visit.environment)
    if wanted.get("status"):
        rows = rows.filter(status=wanted["status"])
    if wanted.get("name"):
        rows = rows.filter(name__icontains=wanted["name"])
    page = Paginator(rows.order_by("name", "language", "id"), TEMPLATES_PER_PAGE).get_page(
        request.GET.get("page")
    )
    return render(
        request,
        "console/messaging/templates.html",
        {
            "form": form,
            "filtered": bool(wanted),
            "page": page,
            "rows": [(row, _text(row)) for row in page],
        },
    )


@require_safe
@console_page(Area.INTEGRATION)
def template(request: HttpRequest, visit: Visit, template_id: str) -> HttpResponse:
    """One language of a template: what the customer reads, its variables, why it is refused."""
    found = _template(visit, template_id)
    document = orjson.loads(found.document)
    languages = MessageTemplate.objects.for_tenant(visit.tenant.id).filter(
        account_id=found.account_id, name=found.name
    )
    return render(
        request,
        "console/messaging/template.html",
        {
            "template": found,
            "editable": found.status in operations.EDITABLE_STATUSES,
            "parts": parameters.as_read(document),
            "parameters": _parameters(document),
            "rejected_reason": _reason(document),
            "languages": languages.order_by("language"),
            "json": indented(found.document.encode()),
        },
    )


@require_http_methods(["GET", "HEAD", "POST"])
@console_page(Area.INTEGRATION)
def delete(request: HttpRequest, visit: Visit, template_id: str) -> HttpResponse:
    """A page that says what deleting does; POST deletes this language, or with `all` the whole name."""
    found = _template(visit, template_id)
    if request.method == "POST":
        require_open(visit)
        with told(request), in_flight.upstream.held(visit.tenant.id):
            try:
                operations.delete(found, all_languages=request.POST.get("all") == "yes")
                messages.success(request, "Deleted. Its name stays reserved for 30 days.")
                return redirect("console_templates")
            except Refused as error:
                messages.error(request, words_of(error))
            except UpstreamUnreachable:
                messages.error(request, UNREACHABLE)
        return redirect("console_template", template_id)
    return render(request, "console/messaging/template_delete.html", {"template": found})


@require_POST
@console_page(Area.INTEGRATION)
def sync_templates(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Read every template from the platform now."""
    require_open(visit)
    choice = AccountChoice(tenant_id=visit.tenant.id, environment=visit.environment)
    with told(request), in_flight.upstream.held(visit.tenant.id):
        try:
            read = operations.sync_now(choice)
        except (Refused, UpstreamUnreachable):
            messages.error(request, "The platform did not give the templates. Try again in a minute.")
        else:
            messages.success(request, f"{read['synced']} templates read.")
    return redirect("console_templates")


def _template(visit: Visit, template_id: str) -> MessageTemplate:
    with or_404():
        return operations.find(
            tenant_id=visit.tenant.id, environment=visit.environment, template_id=template_id
        )


def _parameters(document: dict[str, Any]) -> list[parameters.Parameter]:
    try:
        return parameters.parameters_of(document)
    except parameters.CannotBeFilled:
        return []


def _reason(document: dict[str, Any]) -> str | None:
    reason = document.get("rejected_reason")
    return reason.replace("_", " ").capitalize() if isinstance(reason, str) and reason != "NONE" else None


def _text(row: MessageTemplate) -> str:
    """The text of a template's body, to recognise it by."""
    return next((text for part, text in parameters.as_read(orjson.loads(row.document)) if part == "body"), "")
