"""Pages of API keys: list, create, rotate, revoke. Only one response ever shows the full key."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render

from console.account_settings import people_by_id
from console.form_ids import acting_once
from console.lists import IdsField
from console.visit import Visit, require_active
from gateway.api.errors import Forbidden, ServiceError
from gateway.clock import now
from gateway.request_log import views as request_log
from gateway.roles import KeyScope, known_scopes, scopes_of_role
from tenants.credentials import api_keys
from tenants.credentials.api_keys import LONGEST_NUMBER_ID, MOST_NUMBERS, Grant, possible_scopes
from tenants.models import ApiKey, Tenant

ENVIRONMENTS = [
    (ApiKey.Environment.TEST, "Test: no real phone"),
    (ApiKey.Environment.LIVE, "Live: your customers"),
]


SCOPES = [
    (KeyScope.MESSAGES.value, "Messages: send, media, batches, message log"),
    (KeyScope.NUMBERS.value, "Numbers: connect, register, profile"),
    (KeyScope.TEMPLATES.value, "Templates"),
    (KeyScope.WEBHOOKS.value, "Webhooks: endpoints, deliveries, replays"),
    (KeyScope.EVENTS.value, "Events: log, stream, analytics, requests, exports of all data"),
    (KeyScope.BILLING.value, "Billing: invoices, autopay (live keys)"),
    (KeyScope.SETTINGS.value, "Settings: retention, billing email, erasing customers for good (live keys)"),
    (KeyScope.KEYS.value, "Keys: create, rotate and revoke keys"),
]
KEYS_PER_PAGE = 50


class ApiKeyForm(forms.Form):
    """Creates an API key with the chosen permissions. The member's role limits the choice (`grant`)."""

    name = forms.CharField(
        label="Name", max_length=200, help_text="What will use it, e.g. web shop.", widget=forms.TextInput()
    )
    environment = forms.ChoiceField(
        label="Environment",
        choices=ENVIRONMENTS,
        initial=ApiKey.Environment.TEST,
    )
    limits = forms.BooleanField(required=False, widget=forms.HiddenInput(), initial=True)
    """Whether the submitted form contained the permission fields. If it did, an empty choice means no permission."""
    scopes = forms.MultipleChoiceField(
        label="It may", required=False, choices=SCOPES, widget=forms.CheckboxSelectMultiple
    )
    phone_number_ids = IdsField(
        label="Only these numbers",
        required=False,
        help_text="Ids of numbers, separated by spaces; empty for all. A key that is limited to numbers gets "
        "only the scopes messages, numbers and events.",
    )
    days = forms.TypedChoiceField(
        label="Expires",
        required=False,
        coerce=int,
        empty_value=None,
        choices=[("", "Never"), (7, "In 7 days"), (30, "In 30 days"), (90, "In 90 days"), (365, "In a year")],
    )

    def __init__(self, *args: Any, grant: Grant, shares: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._shares = shares
        scopes = self.fields["scopes"]
        scopes.choices = [each for each in SCOPES if each[0] in grant.scopes]  # type: ignore[attr-defined]
        scopes.initial = sorted(grant.scopes)

    def clean_phone_number_ids(self) -> list[str]:
        ids: list[str] = self.cleaned_data["phone_number_ids"]
        if len(ids) > MOST_NUMBERS or any(len(each) > LONGEST_NUMBER_ID for each in ids):
            raise ValidationError(f"At most {MOST_NUMBERS} ids of numbers.")
        return ids

    def chosen(self) -> dict[str, Any]:
        """The arguments of `api_keys.create`. Scopes that the chosen kind of key cannot have are left out."""
        values = self.cleaned_data
        possible = possible_scopes(
            environment=values["environment"],
            shares=self._shares,
            is_limited=bool(values["phone_number_ids"]),
        )
        return {
            "name": values["name"],
            "environment": values["environment"],
            "scopes": sorted(possible & known_scopes(values["scopes"])) if values["limits"] else None,
            "phone_number_ids": values["phone_number_ids"] or None,
            "expires_at": now() + timedelta(days=values["days"]) if values["days"] else None,
        }


class RevokeForm(forms.Form):
    """Revokes a key. The member types the key's name, because a revocation cannot be undone."""

    name = forms.CharField(
        label="Type the name of the key to confirm", widget=forms.TextInput(attrs={"autocomplete": "off"})
    )

    def __init__(self, *args: Any, key_name: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.key_name = key_name

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        if name.strip() != self.key_name.strip():
            raise ValidationError("This is not the name of the key.")
        return name


def key_list(request: HttpRequest, visit: Visit) -> HttpResponse:
    """List the keys, with a form for a new key. Only the response to the form shows the full key."""
    form = _form(visit, request.POST or None)
    if request.method == "POST":
        require_active(visit)
        if form.is_valid():
            try:
                with acting_once(request) as may_act:
                    if not may_act:
                        return redirect("console_api_keys")
                    new = api_keys.create(
                        tenant=visit.tenant,
                        within=_grant(visit),
                        actor_user_id=visit.user.pk,
                        **form.chosen(),
                    )
            except ServiceError as error:
                form.add_error(None, error.text.removeprefix("scopes: "))
            else:
                return _list_page(request, visit, new=new)
    return _list_page(request, visit, form=form)


def _grant(visit: Visit) -> Grant:
    """The permissions that the member may grant to a key."""
    return Grant(scopes_of_role(visit.user.role))


def _form(visit: Visit, data: QueryDict | None = None) -> ApiKeyForm:
    return ApiKeyForm(data, grant=_grant(visit), shares=not visit.tenant.sandbox)


def rotate_key(request: HttpRequest, visit: Visit, key_id: UUID) -> HttpResponse:
    """Explain the effect of rotating the key. POST rotates it."""
    key = _key(visit.tenant, key_id)
    if request.method != "POST":
        if api_keys.has_ended(key):
            messages.error(request, "A revoked or expired key cannot be rotated.")
            return redirect("console_api_keys")
        ends_at = api_keys.end_after_rotation(key)
        context = {
            "tenant": visit.tenant,
            "key": key,
            "ends_at": ends_at,
            "ends": api_keys.own_end(key),
        }
        return render(request, "console/rotate_key.html", context)
    require_active(visit)
    try:
        with acting_once(request) as may_act:
            if not may_act:
                return redirect("console_api_keys")
            keys = ApiKey.objects.for_tenant(visit.tenant.id)
            new = api_keys.rotate(keys=keys, key_id=key_id, within=_grant(visit), actor_user_id=visit.user.pk)
    except Forbidden:
        messages.error(
            request,
            "This key has scopes that your role cannot give to a key. An owner of the account can rotate it.",
        )
        return redirect("console_api_keys")
    except ServiceError as error:
        messages.error(request, error.text)
        return redirect("console_api_keys")
    return _list_page(request, visit, new=new)


def revoke_key(request: HttpRequest, visit: Visit, key_id: UUID) -> HttpResponse:
    """Ask for the key's name. POST with the name revokes the key, whatever the account's status, for it may have
    leaked.
    """
    key = _key(visit.tenant, key_id)
    form = RevokeForm(request.POST or None, key_name=key.name)
    if request.method == "POST" and form.is_valid():
        keys = ApiKey.objects.for_tenant(visit.tenant.id)
        api_keys.revoke(keys=keys, key_id=key_id, actor_user_id=visit.user.pk)
        messages.success(
            request, f"The key {key.prefix}… is revoked. It stops working everywhere within 10 seconds."
        )
        return redirect("console_api_keys")
    return render(
        request,
        "console/revoke_key.html",
        {"tenant": visit.tenant, "key": key, "form": form},
        status=400 if form.errors else 200,
    )


def _makers(visit: Visit, keys: Iterable[ApiKey]) -> list[str]:
    """The creator of each key, in words for the business."""
    keys = list(keys)
    people = people_by_id(visit, [key.created_by_user_id for key in keys if key.created_by_user_id])
    makers = ApiKey.objects.filter(pk__in=[key.created_by_key_id for key in keys if key.created_by_key_id])
    prefixes = dict(makers.values_list("pk", "prefix"))
    return [
        f"key {prefixes[key.created_by_key_id]}…"
        if key.created_by_key_id in prefixes
        else people.get(key.created_by_user_id, "our team")
        if key.created_by_user_id
        else ""
        for key in keys
    ]


def _key(tenant: Tenant, key_id: UUID) -> ApiKey:
    key = ApiKey.objects.for_tenant(tenant.id).filter(pk=key_id).first()
    if key is None:
        raise Http404("There is no such key.")
    return key


def _list_page(
    request: HttpRequest, visit: Visit, *, form: ApiKeyForm | None = None, new: api_keys.NewKey | None = None
) -> HttpResponse:
    """The page with the list of keys. A new key is shown in a dialog above the list."""
    rows = ApiKey.objects.for_tenant(visit.tenant.id).select_related("replaces").order_by("-id")
    ended = Q(revoked_at__isnull=False) | Q(expires_at__lte=now())
    show_ended = request.GET.get("ended") == "yes"
    page = Paginator(rows if show_ended else rows.exclude(ended), KEYS_PER_PAGE).get_page(
        request.GET.get("page")
    )
    calls = {
        environment: request_log.counts_by_key(tenant_id=visit.tenant.id, environment=environment)
        for environment in {key.environment for key in page}
    }
    context = {
        "tenant": visit.tenant,
        "new": new,
        "form": form or _form(visit),
        "most": api_keys.MOST_KEYS,
        "page": page,
        "rows": [
            (key, calls[key.environment].get(key.prefix, 0), maker)
            for key, maker in zip(page, _makers(visit, page), strict=True)
        ],
        "days": settings.REQUEST_LOG_DAYS,
        "show_ended": show_ended,
        "any_ended": show_ended or rows.filter(ended).exists(),
        "now": now(),
    }
    status = 400 if form is not None and form.errors else 200
    return render(request, "console/api_keys.html", context, status=status)
