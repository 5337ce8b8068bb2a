"""Connected apps: the page on which a member lets an AI assistant act for the business, and the list of these
assistants.
"""

from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render

from console.account_settings import people_by_id
from console.keys import ENVIRONMENTS, SCOPES
from console.visit import Visit, flash_errors, require_active
from gateway.api.errors import ServiceError
from gateway.roles import KeyScope, known_scopes
from tenants.connected_apps import connections
from tenants.connected_apps.views import AuthorizationRequest, Redirected, UnknownClient
from tenants.models import ApiKey, AppConnection

PARAMETERS = (
    "client_id",
    "redirect_uri",
    "response_type",
    "code_challenge",
    "code_challenge_method",
    "scope",
    "state",
    "resource",
)
"""The parameters of a client's request. The form submits them again, and each submission is validated again."""


class _ToClient(HttpResponseRedirect):
    """A redirect to a client's redirect URI. The URI was validated at the registration, and may have an app's own
    scheme.
    """

    def __init__(self, address: str) -> None:
        self.allowed_schemes = [urlsplit(address).scheme]
        super().__init__(address)


class ConnectForm(forms.Form):
    """The permissions that a member gives to an app."""

    environment = forms.ChoiceField(
        label="Environment", choices=ENVIRONMENTS, initial=ApiKey.Environment.TEST
    )
    only_reads = forms.BooleanField(label="It may only read: nothing is sent or changed", required=False)
    scopes = forms.MultipleChoiceField(
        label="It may use",
        choices=SCOPES,
        widget=forms.CheckboxSelectMultiple,
        error_messages={"required": "Choose at least one."},
    )

    def __init__(self, *args: Any, asked: frozenset[KeyScope], sandbox: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        scopes, environment = self.fields["scopes"], self.fields["environment"]
        scopes.choices = [each for each in SCOPES if each[0] in asked]  # type: ignore[attr-defined]
        scopes.initial = sorted(asked)
        if sandbox:
            environment.choices = ENVIRONMENTS[:1]  # type: ignore[attr-defined]


def connect(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Show the app that requests access, its redirect URI's host, and the requested permissions. POST connects or
    rejects the app.
    """
    if request.method == "POST":
        require_active(visit)
    given = request.POST if request.method == "POST" else request.GET
    try:
        asked = AuthorizationRequest.read(given)
    except UnknownClient:
        return render(request, "console/connect_app.html", {"tenant": visit.tenant}, status=400)
    except Redirected as refused:
        return _ToClient(refused.address)
    form = ConnectForm(
        request.POST if request.method == "POST" else None,
        asked=asked.scopes,
        sandbox=visit.tenant.sandbox,
    )
    if request.method == "POST":
        if "refuse" in request.POST:
            return _ToClient(asked.reply(error="access_denied"))
        if form.is_valid():
            try:
                return _ToClient(asked.reply(code=_allow(visit, asked, form)))
            except ServiceError as error:
                form.add_error(None, error.text)
    return _page(request, visit, asked, form)


def _allow(visit: Visit, asked: AuthorizationRequest, form: ConnectForm) -> str:
    chosen = form.cleaned_data
    return connections.allow(
        asked.client,
        user=visit.user,
        tenant=visit.tenant,
        redirect_uri=asked.redirect_uri,
        code_challenge=asked.code_challenge,
        environment=chosen["environment"],
        scopes=known_scopes(chosen["scopes"]),
        only_reads=chosen["only_reads"],
    )


def _page(request: HttpRequest, visit: Visit, asked: AuthorizationRequest, form: ConnectForm) -> HttpResponse:
    given = request.POST if request.method == "POST" else request.GET
    context = {
        "tenant": visit.tenant,
        "client": asked.client,
        "host": connections.destination(asked.redirect_uri),
        "days": connections.LIFETIME.days,
        "parameters": [(name, given[name]) for name in PARAMETERS if name in given],
        "form": form,
    }
    response = render(request, "console/connect_app.html", context, status=400 if form.errors else 200)
    # Browsers follow a form's redirect only to targets in the content security policy. Here the target is the app.
    target = urlsplit(asked.redirect_uri)
    source = f"https://{target.netloc}" if target.scheme == "https" else f"{target.scheme}:"
    response._csp_update = {"form-action": [source]}  # type: ignore[attr-defined]
    return response


def app_list(request: HttpRequest, visit: Visit) -> HttpResponse:
    """List the apps that members connected."""
    rows = (
        AppConnection.objects.for_tenant(visit.tenant.id).working().select_related("client").order_by("-id")
    )
    people = people_by_id(visit, [row.user_id for row in rows])
    labels = dict(SCOPES)
    context = {
        "tenant": visit.tenant,
        "rows": [
            {
                "connection": row,
                "host": connections.destination(row.redirect_uri),
                "member": people.get(row.user_id, ""),
                "scopes": ", ".join(labels[scope].partition(":")[0].lower() for scope in row.scopes),
            }
            for row in rows
        ],
        "most": connections.MOST_CONNECTIONS,
    }
    return render(request, "console/connected_apps.html", context)


def disconnect(request: HttpRequest, visit: Visit, connection_id: UUID) -> HttpResponse:
    """End a connection."""
    with flash_errors(request):
        ended = connections.revoke(
            tenant_id=visit.tenant.id, connection_id=connection_id, actor_user_id=visit.user.pk
        )
        messages.success(request, f"{ended.client.name} is disconnected. Its tokens no longer work.")
    return redirect("console_connected_apps")
