"""The console page on which a person confirms a device log-in: a program gets a key, or is refused."""

import structlog
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from gateway.api.errors import NotFound, ServiceError
from gateway.roles import Area
from gateway.valkey import token_bucket
from gateway.valkey.connection import VALKEY_UNAVAILABLE
from tenants.console.forms import DeviceForm
from tenants.console.frame import Visit, console_page, require_active
from tenants.device_login import flow
from tenants.models import User

log = structlog.get_logger(__name__)

CODES_AT_ONCE = 20
SECONDS_A_CODE = 30.0
"""How many codes a person may look up at once, and how soon one more: guessing finds nothing."""


@require_http_methods(["GET", "HEAD", "POST"])
@console_page(Area.INTEGRATION)
def device(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Ask for the code, then show who asks; POST confirms or refuses."""
    if request.method == "POST":
        require_active(visit)
    typed = (request.POST if request.method == "POST" else request.GET).get("code", "")[:20]
    if not typed:
        return _page(request, visit)
    if not _may_look_up(visit.user):
        return render(request, "429.html", status=429)
    try:
        if request.method == "POST":
            return _decided(request, visit, typed)
        found = flow.waiting(typed)
    except NotFound as error:
        return _page(request, visit, typed=typed, problem=error.text, status=404)
    form = DeviceForm(initial={"code": flow.shown(found.user_code)}, sandbox=visit.tenant.sandbox)
    return _page(request, visit, found=found, code=flow.shown(found.user_code), form=form)


def _decided(request: HttpRequest, visit: Visit, typed: str) -> HttpResponse:
    if "deny" in request.POST:
        flow.deny(typed, user=visit.user)
        messages.success(request, "The program was refused.")
        return redirect("console_device")
    form = DeviceForm(request.POST, sandbox=visit.tenant.sandbox)
    if not form.is_valid():
        found = flow.waiting(typed)
        return _page(request, visit, found=found, code=flow.shown(found.user_code), form=form, status=400)
    try:
        flow.confirm(
            typed, user=visit.user, tenant=visit.tenant, environment=form.cleaned_data["environment"]
        )
    except NotFound:
        raise
    except ServiceError as error:
        messages.error(request, error.text)
        return redirect("console_device")
    return _page(request, visit, confirmed=True)


def _page(request: HttpRequest, visit: Visit, *, status: int = 200, **context: object) -> HttpResponse:
    return render(request, "console/device.html", {"tenant": visit.tenant, **context}, status=status)


def _may_look_up(user: User) -> bool:
    try:
        return token_bucket.take(
            f"device-codes:{user.pk}", rate=1 / SECONDS_A_CODE, burst=CODES_AT_ONCE
        ).allowed
    except VALKEY_UNAVAILABLE as error:
        log.warning("device_code_bound_unavailable", error=type(error).__name__)
        return True
