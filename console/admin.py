"""Pages of the staff admin for support: one message, and the end of a support view.

The page of a message shows its status, error code, explanation and deliveries, never its content.
"""

from collections.abc import Iterator
from typing import cast
from uuid import UUID

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.urls import reverse

from console.lists import numbers_meant
from console.messages import WORDS, explained
from console.visit import or_404
from gateway import ids
from messaging.message_log import detail, message_search, staff_message_search
from tenants.labels import phone_number
from tenants.models import Tenant, User
from tenants.staff import support_view
from tenants.staff.dialogs import change_url
from tenants.staff.read_only_admin import shown_moment
from tenants.staff.search import Hit, register_finder
from tenants.staff.site import register_page
from webhooks.models import Delivery, Endpoint, Message


@register_finder("webhooks.view_event")
def _messages(text: str) -> Iterator[Hit]:
    """Find a message by its wamid, or a customer's newest messages by phone number. A ten-digit number is also searched
    with India's country code.
    """
    if text.startswith("wamid."):
        found = staff_message_search.find(text)
    elif (digits := _digits(text)) is not None:
        found = staff_message_search.find_of_customer(numbers_meant(digits))
    else:
        return
    tenants = Tenant.objects.in_bulk([message.tenant_id for message in found])
    for message in found:
        way = "from" if message.direction == "inbound" else "to"
        status = WORDS.get(message.status, message.status)
        code = f" ({message.error_code})" if message.error_code else ""
        title = f"{status}{code}: {message.type or 'message'} {way} {_customer(message)}"
        note = f"{tenants[message.tenant_id].name}, {message.environment}, {shown_moment(message.created_at)}"
        path = [message.tenant_id, message.environment, message.wamid or ids.encode(ids.EVENT, message.id)]
        yield Hit("Message", title, note, reverse("admin:staff_message", args=path))


def _customer(message: Message) -> str:
    return phone_number(message.wa_id or message.user_id or "") or "a customer"


def _digits(text: str) -> str | None:
    """The digits of a typed phone number. None for any other text."""
    digits = "".join(filter(str.isdecimal, text))
    return digits if 8 <= len(digits) <= 15 and not text.strip("+0123456789 -().") else None


@register_page("messages/<uuid:tenant_id>/<str:environment>/<path:message_id>/", "staff_message")
def staff_message(request: HttpRequest, tenant_id: UUID, environment: str, message_id: str) -> HttpResponse:
    """One message: its status, the reason of a failure with its fix, and the deliveries of its events."""
    if not request.user.has_perm("webhooks.view_event"):
        raise PermissionDenied
    tenant = get_object_or_404(Tenant, pk=tenant_id)
    with or_404():
        row = message_search.find(tenant_id=tenant_id, environment=environment, key=message_id)
    found = detail.load(row)
    urls = dict(Endpoint.objects.for_environment(tenant_id, environment).values_list("id", "url"))
    context = {
        **admin.site.each_context(request),
        "title": f"Message {'from' if row.direction == 'inbound' else 'to'} {_customer(row)}",
        "tenant": tenant,
        "tenant_url": change_url(Tenant, tenant.pk),
        "row": row,
        "status": WORDS.get(row.status, row.status),
        "explained": explained(found),
        "steps": [
            (WORDS[name], shown_moment(at))
            for name in ("accepted", "sent", "delivered", "read", "failed")
            if (at := getattr(row, f"{name}_at")) is not None
        ],
        "deliveries": [
            (
                delivery,
                urls.get(delivery.endpoint_id, "a deleted endpoint"),
                change_url(Delivery, delivery.pk),
            )
            for event in found.events
            for delivery in event.deliveries
        ],
    }
    return TemplateResponse(request, "admin/message.html", context)


@register_page("see/end/", "support_end")
def end_support_view(request: HttpRequest) -> HttpResponse:
    """End the support view, and redirect to the business's page in the admin."""
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    tenant = support_view.end(request, cast("User", request.user))
    return redirect(change_url(Tenant, tenant.pk) if tenant else "admin:index")
