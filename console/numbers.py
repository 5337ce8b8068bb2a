"""Console pages of numbers: the list, one number with its problem and the fix, connecting, the profile, the Flow
endpoint, and the release.
"""

from contextlib import nullcontext
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from console.error_codes import UNREACHABLE
from console.form_ids import acting_once
from console.number_forms import FlowEndpointForm, ProfileForm, RegisterForm, ReleaseForm, TwoStepForm
from console.page import LINKED_ENVIRONMENT
from console.visit import Visit, flash_errors, or_404, require_active, require_open
from gateway.api import limits
from gateway.api.errors import NotFound
from gateway.upstream.calls import UpstreamUnreachable
from messaging.flows import endpoints
from messaging.models import FlowEndpoint
from phone_numbers import app_data, health_and_profile, leaving, registration
from phone_numbers.connection.explanations import explained, explained_failure
from phone_numbers.hosted_connect import sessions
from phone_numbers.models import AppData, ConnectSession, PhoneNumber
from phone_numbers.onboarding import require_session_allowed, session_allowed
from phone_numbers.tokens import Refused
from tenants.audit import Actor

NUMBERS_PER_PAGE = 50


def number_list(request: HttpRequest, visit: Visit) -> HttpResponse:
    """List the numbers of the environment, and show the result of a connect session that returns here."""
    own = PhoneNumber.objects.for_environment(**visit.scope)
    rows = own.select_related("account").defer("pin", "meta_snapshot", "account__access_token")
    page = Paginator(rows.order_by("-id"), NUMBERS_PER_PAGE).get_page(request.GET.get("page"))
    session = _returned_session(request, visit)
    return render(
        request,
        "console/numbers/list.html",
        {
            "tenant": visit.tenant,
            "may_connect": session_allowed(**visit.scope),
            "page": page,
            "rows": [(number, explained(number.connection_detail)) for number in page],
            "session": session,
            "failure": explained_failure(session.error) if session else None,
            "open_links": sessions.open_sessions(**visit.scope).count(),
            "most_links": sessions.MOST_OPEN,
        },
    )


def connect(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Create a connect session that returns to the list of numbers, and redirect to the session's page."""
    require_active(visit)
    with flash_errors(request):
        require_session_allowed(**visit.scope)
        back = f"{reverse('console_numbers')}?{LINKED_ENVIRONMENT}={visit.environment}"
        session = sessions.create(**visit.scope, return_url=settings.APP_URL + back)
        return redirect(sessions.url_of(session))
    return redirect("console_numbers")


def number(request: HttpRequest, visit: Visit, phone_number_id: str) -> HttpResponse:
    """Show one number: its connection state with cause and fix, Meta's data, and the forms."""
    return _number_page(request, visit, _find(visit, phone_number_id))


def _app_data(found: PhoneNumber) -> list[tuple[str, AppData | None]]:
    """The syncs of a coexistence number's contacts and chats, each with its label."""
    progress = app_data.progress_of(found)
    return [("Contacts", progress["contacts"]), ("Chats of the last six months", progress["history"])]


def refresh(request: HttpRequest, visit: Visit, phone_number_id: str) -> HttpResponse:
    """Read the number and its health from the Graph API again."""
    require_open(visit)
    found = _find(visit, phone_number_id)
    with flash_errors(request), _asking_platform(request, found):
        found = health_and_profile.refresh(found)
        return _number_page(request, visit, found, seen=health_and_profile.read_health(found))
    return redirect("console_number", phone_number_id)


def subscribe(request: HttpRequest, visit: Visit, phone_number_id: str) -> HttpResponse:
    """Repair the account's subscription."""
    require_open(visit)
    found = _find(visit, phone_number_id)
    with flash_errors(request), _asking_platform(request, found):
        health_and_profile.subscribe(found)
        messages.success(request, "The account sends its events to the gateway again.")
    return redirect("console_number", phone_number_id)


def register(request: HttpRequest, visit: Visit, phone_number_id: str) -> HttpResponse:
    """Register the number for sending."""
    require_open(visit)
    found = _find(visit, phone_number_id)
    form = RegisterForm(request.POST)
    if not form.is_valid():
        return _number_page(request, visit, found, register_form=form, status=400)
    with flash_errors(request), _asking_platform(request, found):
        actor = Actor(user_id=visit.user.pk)
        registration.register(found, actor=actor, pin=form.cleaned_data["pin"] or None)
        messages.success(request, "The number is registered.")
    return redirect("console_number", phone_number_id)


def two_step(request: HttpRequest, visit: Visit, phone_number_id: str) -> HttpResponse:
    """Set the number's two-step PIN. The owner does not know a PIN that the service generated."""
    require_open(visit)
    found = _find(visit, phone_number_id)
    form = TwoStepForm(request.POST)
    if not form.is_valid():
        return _number_page(request, visit, found, two_step_form=form, status=400)
    with flash_errors(request), _asking_platform(request, found):
        registration.set_two_step_pin(found, actor=Actor(user_id=visit.user.pk), pin=form.cleaned_data["pin"])
        messages.success(request, "The PIN is set.")
    return redirect("console_number", phone_number_id)


def profile(request: HttpRequest, visit: Visit, phone_number_id: str) -> HttpResponse:
    """Show the business profile as Meta has it. POST sends the changed members."""
    if request.method == "POST":
        require_open(visit)
    found = _find(visit, phone_number_id)
    form: ProfileForm | None = None
    with flash_errors(request), _asking_platform(request, found):
        answer = health_and_profile.business_profile(found).json() or {}
        stored: dict[str, Any] = next(iter(answer.get("data") or []), {})
        form = ProfileForm.of(stored, request.POST or None)
        if form.is_valid():
            if form.has_changed():
                health_and_profile.set_business_profile(found, body=form.body())
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


_FLOWS_CHANGED = {
    "set": "The address of your server is saved.",
    "key": "A new key pair is created, and its public key is uploaded to WhatsApp.",
    "delete": "Flows are turned off for this number.",
}


def flows(request: HttpRequest, visit: Visit, phone_number_id: str) -> HttpResponse:
    """Show the number's Flow endpoint with URL and keys. POST sets the URL, rotates a key, or deletes it."""
    if request.method == "POST":
        require_open(visit)
    found = _find(visit, phone_number_id)
    endpoint = FlowEndpoint.objects.filter(number=found).select_related("number").first()
    do = request.POST.get("do")
    form = FlowEndpointForm(
        request.POST if do == "set" else None, initial={"url": endpoint.url} if endpoint else None
    )
    if request.method == "POST":
        once = acting_once(request) if do in {"key", "secret"} else nullcontext(True)
        with flash_errors(request), _asking_platform(request, found), once as may_act:
            if not may_act:
                return redirect("console_number_flows", phone_number_id)
            actor = Actor(user_id=visit.user.pk)
            match do:
                case "set" if form.is_valid():
                    endpoint = endpoints.set_url(found, **form.cleaned_data, actor=actor)
                case "key":
                    endpoint = endpoints.upload_new_key(found, actor=actor)
                case "secret":
                    endpoint = endpoints.rotate_secret(found, actor=actor)
                case "delete":
                    endpoints.delete(found, actor=actor)
            if not hasattr(endpoint, "new_secret") and not form.errors:
                messages.success(request, _FLOWS_CHANGED.get(do or "", "Nothing was changed."))
                return redirect("console_number_flows", phone_number_id)
    return render(
        request,
        "console/numbers/flows.html",
        {"number": found, "form": form, "endpoint": endpoint},
        status=400 if form.errors else 200,
    )


def release(request: HttpRequest, visit: Visit, phone_number_id: str) -> HttpResponse:
    """Explain the effect of a release and ask for the number's id. POST with the id releases the number."""
    found = _find(visit, phone_number_id)
    form = ReleaseForm(request.POST or None, phone_number_id=phone_number_id)
    if request.method == "POST" and form.is_valid():
        require_open(visit)
        with flash_errors(request), _asking_platform(request, found):
            leaving.release_number(found, actor=Actor(user_id=visit.user.pk))
            messages.success(request, "The number is released. Its events stay until your retention ends.")
            return redirect("console_numbers")
    return render(
        request,
        "console/numbers/release.html",
        {"number": found, "form": form},
        status=400 if form.errors else 200,
    )


def _find(visit: Visit, phone_number_id: str) -> PhoneNumber:
    """The number of the visit's tenant and environment. Any other id is a 404."""
    with or_404():
        return health_and_profile.find(**visit.scope, phone_number_id=phone_number_id)


class _asking_platform(flash_errors):  # noqa: N801
    """Hold a slot of the bulkhead during a call to Meta, and show the call's errors as messages."""

    def __init__(self, request: HttpRequest, found: PhoneNumber) -> None:
        super().__init__(request)
        self.held = limits.upstream.held(found.tenant_id, found.phone_number_id)

    def __enter__(self) -> None:
        self.held.__enter__()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self.held.__exit__(None, None, None)
        if isinstance(error, Refused):
            said = (error.answer.json() or {}).get("error", {})
            reason = said.get("error_user_msg") or said.get("message") or "no reason given"
            messages.error(self.request, f"Meta refused: {reason} (code {error.verdict.code})")
            return True
        if isinstance(error, UpstreamUnreachable):
            messages.error(self.request, UNREACHABLE)
            return True
        return super().__exit__(kind, error, trace)


def _returned_session(request: HttpRequest, visit: Visit) -> ConnectSession | None:
    session_id = request.GET.get("session_id")
    if not session_id:
        return None
    try:
        return sessions.find(**visit.scope, session_id=session_id)
    except NotFound:
        return None


def _number_page(
    request: HttpRequest,
    visit: Visit,
    found: PhoneNumber,
    *,
    register_form: RegisterForm | None = None,
    two_step_form: TwoStepForm | None = None,
    seen: dict[str, Any] | None = None,
    status: int = 200,
) -> HttpResponse:
    return render(
        request,
        "console/numbers/number.html",
        {
            "tenant": visit.tenant,
            "may_connect": session_allowed(**visit.scope),
            "number": found,
            "explained": explained(found.connection_detail),
            "register_form": register_form or RegisterForm(),
            "two_step_form": two_step_form or TwoStepForm(),
            "health": seen,
            "app_data": _app_data(found) if found.coexistence else None,
        },
        status=status,
    )
