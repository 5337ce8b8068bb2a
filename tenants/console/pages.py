"""Console pages of the tenant itself: sign-up, application, home, preferences (log-in pages are allauth's views).

Thin: parse, one call of the flow that the API uses too, render. Works without JavaScript.
"""

from typing import cast

from allauth.account.adapter import get_adapter
from allauth.core import ratelimit
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from gateway.api.errors import Conflict
from gateway.roles import Area
from tenants.console.first_steps import steps_of
from tenants.console.forms import SIGNED_UP_AS, ApplicationForm, SignUpForm
from tenants.console.frame import (
    ENVIRONMENT,
    LIVE,
    TEST,
    TIME_ZONE,
    TIME_ZONES,
    Visit,
    console_page,
    panels_of,
    visit_of,
    warnings_of,
)
from tenants.models import SignUp, Tenant, User
from tenants.signup import registration


@sensitive_post_parameters("password")
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def sign_up(request: HttpRequest) -> HttpResponse:
    """The sign-up form; a valid one is answered the same, whether or not its address has an account."""
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
    except registration.ConfirmationLinkError:
        return render(request, "console/link_error.html", status=410)


@require_safe
@never_cache
@login_required
def home(request: HttpRequest) -> HttpResponse:
    """The page that log-in leads to: a business's home; staff without a business belong in the admin."""
    if cast("User", request.user).is_staff and visit_of(request) is None:
        return redirect("admin:index")
    return _home(request)


@console_page(Area.OWN)
def _home(request: HttpRequest, visit: Visit) -> HttpResponse:
    """The tenant's status, what needs the customer, the first steps, and what the apps show of the last days."""
    return render(
        request,
        "console/home.html",
        {
            "tenant": visit.tenant,
            "warnings": warnings_of(visit),
            "steps": steps_of(visit),
            "panels": panels_of(visit),
            "is_open": visit.is_open(visit.environment),
            "is_live": visit.may_read(Area.INTEGRATION),
        },
    )


@require_safe
@console_page(Area.OWN)
def first_steps(request: HttpRequest, visit: Visit) -> HttpResponse:
    """The list of first steps alone: the home page asks for it anew with each event, until all are done."""
    return render(request, "console/parts/first_steps.html", {"steps": steps_of(visit)})


@require_http_methods(["GET", "HEAD", "POST"])
@console_page(Area.SETTINGS)
def application(request: HttpRequest, visit: Visit) -> HttpResponse:
    """The form of a business that waits or was rejected: correct it and apply again. Decided, it leads home."""
    tenant = visit.tenant
    sign_up = SignUp.objects.filter(tenant=tenant).first()
    is_open = tenant.status in {Tenant.Status.PENDING_APPROVAL, Tenant.Status.REJECTED}
    if sign_up is not None and not is_open and request.method == "GET":
        # The link of an older mail: home says what the account is now.
        messages.info(request, "Your application is decided: there is nothing to correct any more.")
        return redirect("console")
    if sign_up is None or not is_open:
        raise Http404("There is no application to correct.")
    form = ApplicationForm(
        request.POST or None, initial={name: getattr(sign_up, name) for name in ApplicationForm.base_fields}
    )
    if request.method == "POST" and form.is_valid():
        try:
            registration.apply_again(form.application(), tenant_id=tenant.id, actor_user_id=visit.user.pk)
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


@require_POST
@console_page(Area.OWN)
def preferences(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Switch the environment or the time zone, and go back to the page that asked."""
    back = request.POST.get("next", "")
    if not (back.startswith("/") and url_has_allowed_host_and_scheme(back, allowed_hosts=None)):
        back = "/console"
    response = redirect(back)
    if (environment := request.POST.get(ENVIRONMENT)) in {LIVE, TEST} and visit.switchable:
        request.session[ENVIRONMENT] = environment
    if (zone := request.POST.get(TIME_ZONE)) in TIME_ZONES:
        response.set_cookie(
            TIME_ZONE, zone, max_age=365 * 86_400, samesite="Lax", httponly=True, secure=request.is_secure()
        )
    return response


def root(request: HttpRequest) -> HttpResponseRedirect:
    """The bare address."""
    return HttpResponseRedirect("/console")
