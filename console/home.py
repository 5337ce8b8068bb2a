"""The home page: what needs the person, the first steps, and the messages of the last days."""

from collections.abc import Callable
from typing import Any

import structlog
from django.apps import apps
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.safestring import SafeString

from console import analytics, warnings
from console.first_steps import WAY, WAYS, steps_of, way_of
from console.visit import ENVIRONMENT, LIVE, TEST, TIME_ZONE, TIME_ZONES, Visit, environment_key
from console.warnings import HomeWarning
from gateway.roles import Area, Role
from tenants.models import Tenant

log = structlog.get_logger(__name__)

Warns = Callable[[Tenant, str], list[HomeWarning]]
"""Returns the warnings of a part of the service to a business in an environment."""

WARNINGS: list[tuple[Area, Warns]] = [
    (Area.INTEGRATION, warnings.of_endpoints),
    (Area.INTEGRATION, warnings.of_numbers),
]
"""Each for those who may read its area."""

if apps.is_installed("billing"):
    from console import billing_warnings

    WARNINGS.append((Area.BILLING, billing_warnings.of_billing))


def home(request: HttpRequest, visit: Visit) -> HttpResponse:
    """The page that log-in leads to; agents have their work on another one."""
    if visit.user.role == Role.AGENT and not visit.is_support:
        return redirect("console_conversations")
    return render(
        request,
        "console/home.html",
        {
            "tenant": visit.tenant,
            "warnings": _warnings(visit),
            **_first_steps(request, visit),
            "last_days": _last_days(visit),
            "is_open": visit.is_open(visit.environment),
            "is_live": visit.may_read(Area.INTEGRATION),
        },
    )


def first_steps(request: HttpRequest, visit: Visit) -> HttpResponse:
    """The first steps alone: the home page reloads them at each event until all are done."""
    return render(request, "console/parts/first_steps.html", _first_steps(request, visit))


def preferences(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Switch the environment, the time zone or the way of the first steps, and return to the page."""
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
    """Return the warnings for this member, most urgent first."""
    found = [
        warning for area, warns in WARNINGS if visit.may_read(area) for warning in _isolated(warns, visit)
    ]
    return sorted(found, key=lambda warning: warning.level != "bad")


def _isolated(warns: Warns, visit: Visit) -> list[HomeWarning]:
    """Warnings of one kind. Those that fail leave the home page and the other kinds."""
    try:
        with transaction.atomic():
            return warns(visit.tenant, visit.environment)
    except Exception as error:  # noqa: BLE001 - the home page must open whatever one app's rows hold
        log.error("home_warnings_failed", kind=warns.__name__, error=type(error).__name__)
        text = "Something could not be checked just now. If this stays, write to our support."
        return [HomeWarning(text, "Try again", reverse("console"))]


def _last_days(visit: Visit) -> SafeString | None:
    """The plot of the last days, for those who may read messages. One that fails is left out."""
    if not visit.may_read(Area.INTEGRATION):
        return None
    try:
        with transaction.atomic():
            return analytics.last_days(visit)
    except Exception as error:  # noqa: BLE001 - the home page must open whatever the figures hold
        log.error("home_last_days_failed", error=type(error).__name__)
        return None
