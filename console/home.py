"""The home page: warnings, the first steps, and the state of conversations, numbers, messages and bills."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import structlog
from django.apps import apps
from django.db import transaction
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.safestring import SafeString

from console import analytics, navigation, warnings
from console.conversations import CONVERSATIONS_PER_PAGE
from console.first_steps import WAY, WAYS, steps_of, way_of
from console.personal_settings import TIME_ZONES
from console.visit import ENVIRONMENT, LIVE, TEST, TIME_ZONE, Visit, environment_key
from console.warnings import HomeWarning
from gateway.roles import Area, Role
from messaging.conversations import list_and_search
from phone_numbers.models import PhoneNumber
from tenants.models import Tenant
from webhooks.endpoints import lifecycle

log = structlog.get_logger(__name__)
T = TypeVar("T")

Warns = Callable[[Tenant, str], list[HomeWarning]]
"""A function that returns the warnings of one part of the service, for a business in an environment."""

WARNINGS: list[tuple[Area, Warns]] = [
    (Area.INTEGRATION, warnings.of_endpoints),
    (Area.INTEGRATION, warnings.of_numbers),
]
"""The functions that return warnings, each with the area that a member must be able to read."""

if apps.is_installed("billing"):
    from console import billing_warnings

    WARNINGS.append((Area.BILLING, billing_warnings.of_billing))

MOST_OF_A_CARD = 3
"""The maximum number of conversations, and of phone numbers, that a card names."""


def home(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Show the page that follows log-in. Agents are redirected to the conversations."""
    if visit.user.role == Role.AGENT and not visit.is_support:
        return redirect("console_conversations")
    return render(
        request,
        "console/home.html",
        {
            "tenant": visit.tenant,
            "warnings": _warnings(visit),
            **_first_steps(request, visit),
            "cards": list(_cards(visit)),
            "last_days": _unless_it_fails(analytics.last_days, visit, Area.INTEGRATION),
            "is_open": visit.is_open(visit.environment),
            "is_live": visit.may_read(Area.INTEGRATION),
        },
    )


def first_steps(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Show only the first steps. The home page reloads them at each event until all steps are done."""
    return render(request, "console/parts/first_steps.html", _first_steps(request, visit))


def preferences(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Change the environment, the time zone, or the way of the first steps (with or without a developer).

    Redirects to `next`, a path of this site, else to the home page.
    """
    back = request.POST.get("next", "")
    if not (back.startswith("/") and url_has_allowed_host_and_scheme(back, allowed_hosts=None)):
        back = "/console"
    response = redirect(back)
    if (environment := request.POST.get(ENVIRONMENT)) in {LIVE, TEST} and visit.switchable:
        request.session[environment_key(visit.tenant)] = environment
    if (way := request.POST.get(WAY)) in WAYS:
        request.session[WAY] = way
    if (zone := request.POST.get(TIME_ZONE)) in TIME_ZONES:
        visit.user.time_zone = zone
        visit.user.save(update_fields=["time_zone"])
    return response


def _first_steps(request: HttpRequest, visit: Visit) -> dict[str, Any]:
    way = way_of(request.session)
    return {"steps": steps_of(visit, way), "way": way}


def _warnings(visit: Visit) -> list[HomeWarning]:
    """The warnings for this visit, most urgent first. In a support view, some have no link."""
    found = [
        warning if navigation.opens(visit, warning.url) else replace(warning, url="")
        for area, warns in WARNINGS
        if visit.may_read(area)
        for warning in _isolated(warns, visit)
    ]
    return sorted(found, key=lambda warning: warning.level != "bad")


def _isolated(warns: Warns, visit: Visit) -> list[HomeWarning]:
    """The warnings of one kind. An error is logged and replaced by a warning, so the other kinds are still shown."""
    try:
        with transaction.atomic():
            return warns(visit.tenant, visit.environment)
    except Exception as error:  # noqa: BLE001 - the home page must open even if one app fails
        log.error("home_warnings_failed", kind=warns.__name__, error=type(error).__name__)
        text = "Something could not be checked just now. If this keeps happening, contact our support."
        return [HomeWarning(text, "Try again", reverse("console"))]


def _cards(visit: Visit) -> Iterator[SafeString]:
    """The cards that the member's role may see: unread conversations, numbers, the next invoice."""
    for area, name, read in (
        (Area.CONVERSATIONS, "conversations", _waiting_conversations),
        (Area.INTEGRATION, "numbers", _numbers),
        (Area.BILLING, "billing", _next_invoice),
    ):
        if found := _unless_it_fails(read, visit, area):
            yield render_to_string(f"console/home/{name}.html", {**found, "console": visit})


def _waiting_conversations(visit: Visit) -> dict[str, Any] | None:
    """The conversations with unread messages, among the most recent conversations. None while conversations are off."""
    inbox = lifecycle.find_inbox(**visit.scope)
    if inbox is None:
        return None
    page = list_and_search.newest(
        list_and_search.Scope(visit.tenant.id, visit.environment),
        since=inbox.created_at,
        limit=CONVERSATIONS_PER_PAGE,
    )
    unread = [row for row in page.rows if row.unread]
    return {"count": len(unread), "more": page.before is not None, "rows": unread[:MOST_OF_A_CARD]}


def _numbers(visit: Visit) -> dict[str, Any] | None:
    """The counts of connected numbers and of all numbers, and some of the numbers, connected ones last. None without
    numbers.
    """
    own = PhoneNumber.objects.for_environment(**visit.scope)
    connected = Q(connection_state=PhoneNumber.State.CONNECTED)
    counts = own.aggregate(total=Count("id"), connected=Count("id", filter=connected))
    if not counts["total"]:
        return None
    rows = own.defer("pin", "meta_snapshot").order_by("-connection_state", "-id")[:MOST_OF_A_CARD]
    return {**counts, "rows": list(rows)}


def _next_invoice(visit: Visit) -> dict[str, Any] | None:
    """The amounts due now and with the next invoice. None when billing is off, and in the sandbox."""
    if not apps.is_installed("billing") or visit.environment != LIVE:
        return None
    return billing_warnings.next_invoice(visit.tenant)


def _unless_it_fails(read: Callable[[Visit], T], visit: Visit, area: Area) -> T | None:
    """A part of the page. None for members who may not read its area, and after an error."""
    if not visit.may_read(area):
        return None
    try:
        with transaction.atomic():
            return read(visit)
    except Exception as error:  # noqa: BLE001 - the home page must open even if one part fails
        log.error("home_part_failed", part=read.__name__, error=type(error).__name__)
        return None
