"""The hosted console's pages: sign-up, the waiting tenant, home, API keys (log-in pages are allauth's views).

Thin: parse, one call of the flow that the API uses too, render. Works without JavaScript.
"""

from typing import Any, cast
from uuid import UUID

from allauth.account.adapter import get_adapter
from allauth.core import ratelimit
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_safe

from gateway.api.errors import Conflict
from gateway.clock import now
from tenants import api_keys
from tenants.console.forms import ApiKeyForm, ApplicationForm, RevokeForm, SignUpForm
from tenants.models import ApiKey, SignUp, Tenant, User
from tenants.signup import registration


def console_context(request: HttpRequest) -> dict[str, Any]:
    """Context processor: what every page may name."""
    return {
        "service": settings.SERVICE_NAME.capitalize(),
        "base_url": settings.BASE_URL,
        "support_email": settings.SUPPORT_EMAIL,
    }


SIGNED_UP_AS = "signed_up_as"
"""The session's note of the address that the confirmation went to."""


@sensitive_post_parameters("password")
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def sign_up(request: HttpRequest) -> HttpResponse:
    """The sign-up form; a good one is answered the same, whoever's address it names."""
    form = SignUpForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        email = form.cleaned_data["email"]
        if not ratelimit.consume(request, action="signup", key=email):
            return cast("HttpResponse", ratelimit.respond_429(request))
        registration.start(
            form.application(),
            email=email,
            password=form.cleaned_data["password"],
            ip=get_adapter().get_client_ip(request),
        )
        request.session[SIGNED_UP_AS] = email
        return redirect("sign_up_sent")
    return render(request, "console/sign_up.html", {"form": form}, status=400 if form.errors else 200)


@require_safe
def sign_up_sent(request: HttpRequest) -> HttpResponse:
    """After the sign-up: check your email."""
    return render(request, "console/sign_up_sent.html", {"address": request.session.get(SIGNED_UP_AS)})


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def confirm(request: HttpRequest, token: str) -> HttpResponse:
    """The mailed link: a page with a button, because mail scanners open links; only POST confirms."""
    try:
        if request.method == "POST":
            tenant = registration.confirm(token)
            return render(request, "console/confirmed.html", {"tenant": tenant})
        return render(request, "console/confirm.html", {"sign_up": registration.find(token)})
    except registration.LinkError:
        return render(request, "console/link_error.html", status=410)


@require_safe
@login_required
@never_cache
def home(request: HttpRequest) -> HttpResponse:
    """The tenant's status and first steps; staff without a tenant belong in the admin."""
    user = cast("User", request.user)
    if user.tenant is None and user.is_staff:
        return redirect("admin:index")
    return render(
        request, "console/home.html", {"tenant": _tenant(request), "steps": _steps(_tenant(request))}
    )


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
@never_cache
def application(request: HttpRequest) -> HttpResponse:
    """The form of a business that waits or was rejected: correct it and apply again."""
    tenant = _tenant(request)
    sign_up = SignUp.objects.filter(tenant=tenant).first()
    if sign_up is None or tenant.status not in {Tenant.Status.PENDING_APPROVAL, Tenant.Status.REJECTED}:
        raise Http404("There is no application to correct.")
    form = ApplicationForm(
        request.POST or None, initial={name: getattr(sign_up, name) for name in ApplicationForm.base_fields}
    )
    if request.method == "POST" and form.is_valid():
        try:
            registration.apply_again(form.application(), tenant_id=tenant.id, actor_user_id=request.user.pk)
        except Conflict as error:
            messages.error(request, error.text)
        else:
            messages.success(request, "Your application is with our team.")
        return redirect("console")
    return render(
        request,
        "console/application.html",
        {"tenant": tenant, "form": form},
        status=400 if form.errors else 200,
    )


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
@never_cache
def key_list(request: HttpRequest) -> HttpResponse:
    """The keys, and a form for a new one. The answer to the form is the only page that ever shows the full key."""
    tenant = _tenant(request)
    form = ApiKeyForm(request.POST or None)
    if request.method == "POST":
        _require_active(tenant)
        if form.is_valid():
            new = api_keys.create(tenant=tenant, actor_user_id=request.user.pk, **form.cleaned_data)
            return _shown_once(request, new)
    rows = ApiKey.objects.for_tenant(tenant.id).order_by("-id")
    return render(
        request,
        "console/api_keys.html",
        {"tenant": tenant, "form": form, "keys": rows, "now": now()},
        status=400 if form.errors else 200,
    )


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
@never_cache
def rotate_key(request: HttpRequest, key_id: UUID) -> HttpResponse:
    """A page that says what rotating does; POST does it."""
    tenant = _tenant(request)
    key = _key(tenant, key_id)
    if request.method != "POST":
        return render(request, "console/rotate_key.html", {"tenant": tenant, "key": key})
    _require_active(tenant)
    try:
        return _shown_once(
            request,
            api_keys.rotate(
                keys=ApiKey.objects.for_tenant(tenant.id), key_id=key_id, actor_user_id=request.user.pk
            ),
        )
    except Conflict as error:
        messages.error(request, error.text)
        return redirect("console_api_keys")


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
@never_cache
def revoke_key(request: HttpRequest, key_id: UUID) -> HttpResponse:
    """A page that asks for the key's name; POST with it revokes."""
    tenant = _tenant(request)
    key = _key(tenant, key_id)
    form = RevokeForm(request.POST or None, key_name=key.name)
    if request.method == "POST" and form.is_valid():
        _require_active(tenant)
        api_keys.revoke(
            keys=ApiKey.objects.for_tenant(tenant.id), key_id=key_id, actor_user_id=request.user.pk
        )
        messages.success(
            request, f"The key {key.prefix}… is revoked. It stops working everywhere within 30 seconds."
        )
        return redirect("console_api_keys")
    return render(
        request,
        "console/revoke_key.html",
        {"tenant": tenant, "key": key, "form": form},
        status=400 if form.errors else 200,
    )


def root(request: HttpRequest) -> HttpResponseRedirect:
    """The bare address."""
    return HttpResponseRedirect("/console")


def _tenant(request: HttpRequest) -> Tenant:
    tenant = cast("User", request.user).tenant
    if tenant is None:
        raise PermissionDenied("This account belongs to no business.")
    return tenant


def _require_active(tenant: Tenant) -> None:
    if tenant.status != Tenant.Status.ACTIVE:
        raise PermissionDenied("This account is not active.")


def _key(tenant: Tenant, key_id: UUID) -> ApiKey:
    key = ApiKey.objects.for_tenant(tenant.id).filter(pk=key_id).first()
    if key is None:
        raise Http404("There is no such key.")
    return key


def _shown_once(request: HttpRequest, new: api_keys.NewKey) -> HttpResponse:
    response = render(request, "console/key_created.html", {"tenant": new.row.tenant, "new": new})
    response["Cache-Control"] = "no-store"
    return response


def _steps(tenant: Tenant) -> list[dict[str, Any]]:
    """The four first steps with what to do about each."""
    return [
        {
            "done": tenant.api_key_created,
            "title": "Create an API key",
            "text": "Your server identifies itself with it.",
            "url": "console_api_keys",
        },
        {
            "done": tenant.number_connected,
            "title": "Connect a number",
            "text": "POST /v1/connect-sessions gives a link that leads through Meta's sign-up.",
        },
        {
            "done": tenant.webhook_verified,
            "title": "Add a webhook endpoint",
            "text": "POST /v1/webhooks with your server's URL: it gets every event.",
        },
        {
            "done": tenant.test_message_sent,
            "title": "Send a message",
            "text": "POST /v1/messages from the connected number.",
        },
    ]
