"""Console pages of numbers: the list, one number with its reason and repair, connecting, its profile, releasing."""

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from gateway.api.errors import NotFound
from gateway.api.limits import in_flight
from gateway.roles import Area
from gateway.upstream.calls import UpstreamUnreachable
from phone_numbers import health, operations
from phone_numbers.billing_bounds import require_session_allowed, session_allowed
from phone_numbers.connection.details import explained
from phone_numbers.connection.sign_up_failures import explained_failure
from phone_numbers.console.forms import ProfileForm, RegisterForm, ReleaseForm
from phone_numbers.graph_calls import Refused
from phone_numbers.hosted_connect import sessions
from phone_numbers.leaving import releasing
from phone_numbers.models import ConnectSession, PhoneNumber
from tenants.actors import Actor
from tenants.console.frame import Visit, console_page, or_404, require_active, require_open, told

NUMBERS_PER_PAGE = 50


@require_safe
@console_page(Area.INTEGRATION)
def number_list(request: HttpRequest, visit: Visit) -> HttpResponse:
    """The numbers of an environment, and what came of a connect session that returns here."""
    own = PhoneNumber.objects.for_tenant(visit.tenant.id).filter(environment=visit.environment)
    rows = own.select_related("account").defer("pin", "meta_snapshot", "account__access_token")
    page = Paginator(rows.order_by("-id"), NUMBERS_PER_PAGE).get_page(request.GET.get("page"))
    session = _returned_session(request, visit)
    return render(
        request,
        "console/numbers/list.html",
        {
            "tenant": visit.tenant,
            "may_connect": session_allowed(tenant_id=visit.tenant.id, environment=visit.environment),
            "page": page,
            "rows": [(number, explained(number.connection_detail)) for number in page],
            "session": session,
            "failure": explained_failure(session.error) if session else None,
        },
    )


@require_POST
@console_page(Area.INTEGRATION)
def connect(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Open a connect session that returns to the list, and go to its page."""
    require_active(visit)
    with told(request):
        require_session_allowed(tenant_id=visit.tenant.id, environment=visit.environment)
        session = sessions.create(
            tenant_id=visit.tenant.id,
            environment=visit.environment,
            return_url=settings.APP_URL + reverse("console_numbers"),
        )
        return redirect(sessions.url_of(session))
    return redirect("console_numbers")


@require_safe
@console_page(Area.INTEGRATION)
def number(request: HttpRequest, visit: Visit, phone_number_id: str) -> HttpResponse:
    """One number: state with reason and repair, what the platform says of it, and its forms."""
    return _number_page(request, visit, _find(visit, phone_number_id))


@require_POST
@console_page(Area.INTEGRATION)
def refresh(request: HttpRequest, visit: Visit, phone_number_id: str) -> HttpResponse:
    """Read the number from the upstream again, with its health."""
    require_open(visit)
    found = _find(visit, phone_number_id)
    with told(request), _asking(request, found):
        found = operations.refresh(found)
        return _number_page(request, visit, found, seen=health.read(found))
    return redirect("console_number", phone_number_id)


@require_POST
@console_page(Area.INTEGRATION)
def subscribe(request: HttpRequest, visit: Visit, phone_number_id: str) -> HttpResponse:
    """Repair the account's subscription."""
    require_open(visit)
    found = _find(visit, phone_number_id)
    with told(request), _asking(request, found):
        operations.subscribe(found)
        messages.success(request, "The account sends its events to the gateway again.")
    return redirect("console_number", phone_number_id)


@require_POST
@console_page(Area.INTEGRATION)
def register(request: HttpRequest, visit: Visit, phone_number_id: str) -> HttpResponse:
    """Register the number for sending."""
    require_open(visit)
    found = _find(visit, phone_number_id)
    form = RegisterForm(request.POST)
    if not form.is_valid():
        return _number_page(request, visit, found, register_form=form, status=400)
    with told(request), _asking(request, found):
        actor = Actor(user_id=visit.user.pk)
        operations.register(found, actor=actor, pin=form.cleaned_data["pin"] or None)
        messages.success(request, "The number is registered.")
    return redirect("console_number", phone_number_id)


@require_http_methods(["GET", "HEAD", "POST"])
@console_page(Area.INTEGRATION)
def profile(request: HttpRequest, visit: Visit, phone_number_id: str) -> HttpResponse:
    """What customers see of the business, as the platform has it now; POST changes what differs from that."""
    if request.method == "POST":
        require_open(visit)
    found = _find(visit, phone_number_id)
    form: ProfileForm | None = None
    with told(request), _asking(request, found):
        answer = operations.business_profile(found).json() or {}
        stored: dict[str, Any] = next(iter(answer.get("data") or []), {})
        form = ProfileForm.of(stored, request.POST or None)
        if form.is_valid():
            if form.has_changed():
                operations.set_business_profile(found, body=form.body())
            messages.success(request, "Saved.")
            return redirect("console_number", phone_number_id)
    if form is None:
        return redirect("console_number", phone_number_id)
    return render(
        request,
        "console/numbers/profile.html",
        {"number": found, "form": form},
        status=400 if form.errors else 200,
    )


@require_http_methods(["GET", "HEAD", "POST"])
@console_page(Area.INTEGRATION)
def release(request: HttpRequest, visit: Visit, phone_number_id: str) -> HttpResponse:
    """A page that says what releasing does and asks for the number; POST with it releases."""
    found = _find(visit, phone_number_id)
    form = ReleaseForm(request.POST or None, phone_number_id=phone_number_id)
    if request.method == "POST" and form.is_valid():
        require_open(visit)
        with told(request), _asking(request, found):
            releasing.release_number(found, actor=Actor(user_id=visit.user.pk))
            messages.success(request, "The number is released. Its events stay until your retention ends.")
            return redirect("console_numbers")
    return render(
        request,
        "console/numbers/release.html",
        {"number": found, "form": form},
        status=400 if form.errors else 200,
    )


def _find(visit: Visit, phone_number_id: str) -> PhoneNumber:
    """The number in the visit's environment; a page 404 for another tenant's."""
    with or_404():
        return operations.find(
            tenant_id=visit.tenant.id, environment=visit.environment, phone_number_id=phone_number_id
        )


class _asking(told):  # noqa: N801
    """Hold a place of the bulkhead while the upstream is asked, and show what it refuses as a sentence."""

    def __init__(self, request: HttpRequest, found: PhoneNumber) -> None:
        super().__init__(request)
        self.held = in_flight.upstream.held(found.tenant_id, found.phone_number_id)

    def __enter__(self) -> None:
        self.held.__enter__()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self.held.__exit__(None, None, None)
        if isinstance(error, Refused):
            said = (error.answer.json() or {}).get("error", {})
            reason = said.get("error_user_msg") or said.get("message") or "no reason given"
            messages.error(self.request, f"The platform refused: {reason} (code {error.verdict.code})")
            return True
        if isinstance(error, UpstreamUnreachable):
            messages.error(self.request, "The platform did not answer. Try again in a minute.")
            return True
        return super().__exit__(kind, error, trace)


def _returned_session(request: HttpRequest, visit: Visit) -> ConnectSession | None:
    session_id = request.GET.get("session_id")
    if not session_id:
        return None
    try:
        return sessions.find(tenant_id=visit.tenant.id, environment=visit.environment, session_id=session_id)
    except NotFound:
        return None


def _number_page(
    request: HttpRequest,
    visit: Visit,
    found: PhoneNumber,
    *,
    register_form: RegisterForm | None = None,
    seen: dict[str, Any] | None = None,
    status: int = 200,
) -> HttpResponse:
    return render(
        request,
        "console/numbers/number.html",
        {
            "tenant": visit.tenant,
            "may_connect": session_allowed(tenant_id=visit.tenant.id, environment=visit.environment),
            "number": found,
            "explained": explained(found.connection_detail),
            "register_form": register_form or RegisterForm(),
            "health": seen,
        },
        status=status,
    )
