"""Staff admin of accounts and numbers. Staff can release them; everything else is read only. No page shows tokens or
PINs.

Also contains cards for the admin's first page, finders for the staff search, and lines for a tenant's page.
"""

import re
from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from unfold.enums import ActionVariant

from phone_numbers import leaving
from phone_numbers.models import BusinessAccount, PhoneNumber
from phone_numbers.templatetags.messaging_limit import limit_in_words
from tenants.audit import Actor
from tenants.models import Tenant
from tenants.staff.dashboard import Card, register_cards
from tenants.staff.dialogs import DialogForm, action, change_url, dialog, done
from tenants.staff.read_only_admin import CodeFilter, TenantRowsAdmin, display, labelled, status_label
from tenants.staff.search import Hit, Line, register_finder, register_lines, register_target
from tenants.staff.site import NavigationLink, register_navigation


# --- Cards about business tokens, for the first page of the staff admin.
@register_cards
def _cards(report: dict[str, Any]) -> list[Card]:
    tokens = report["tokens"]
    accounts = reverse("admin:numbers_businessaccount_changelist")
    return [
        Card("Tokens expiring", tokens["expiring"], "within 7 days", accounts, True),
        Card("Tokens invalid", tokens["invalid"], "must be connected again", accounts, True),
    ]


# --- Accounts and numbers in the staff search, and their lines on a tenant's page.
_NUMBER = re.compile(r"\+?[0-9][0-9\s().-]{3,30}")


@register_finder("numbers.view_phonenumber")
def _numbers(text: str) -> Iterator[Hit]:
    if not _NUMBER.fullmatch(text):
        return
    digits = "".join(filter(str.isdecimal, text))
    named = Q(digits=digits) | Q(phone_number_id=digits) | Q(account__waba_id=digits)
    for number in PhoneNumber.objects.filter(named).select_related("tenant").order_by("-id")[:10]:
        title = number.display_phone_number or number.phone_number_id
        note = f"{number.tenant.name}, {number.environment}, {number.connection_state}"
        yield Hit("Number", title, note, change_url(PhoneNumber, number.pk))


@register_finder("numbers.view_businessaccount")
def _accounts(text: str) -> Iterator[Hit]:
    for account in BusinessAccount.objects.filter(waba_id=text).select_related("tenant"):
        note = f"{account.tenant.name}, {account.environment}"
        yield Hit(
            "Business account", account.name or account.waba_id, note, change_url(BusinessAccount, account.pk)
        )


@register_lines("numbers.view_phonenumber")
def _lines(tenant: Tenant) -> Iterator[Line]:
    for number in PhoneNumber.objects.for_tenant(tenant.id).order_by("-id")[:20]:
        reason = f": {number.connection_detail}" if number.connection_detail else ""
        shown = number.display_phone_number or number.phone_number_id
        text = f"{shown} ({number.environment}, {number.connection_state}{reason})"
        yield Line("Number", text, change_url(PhoneNumber, number.pk))


register_target("number", PhoneNumber, "phone_number_id")
register_target("account", BusinessAccount, "waba_id")


register_navigation(
    "Messaging",
    NavigationLink("Accounts", "business", "admin:numbers_businessaccount_changelist"),
    NavigationLink("Numbers", "call", "admin:numbers_phonenumber_changelist"),
)

STATE_LABELS = {"connected": "success", "pending": "warning", "disconnected": "danger"}


@admin.register(BusinessAccount)
class BusinessAccountAdmin(TenantRowsAdmin):
    list_display = (
        "waba_id",
        "name",
        "owner",
        "environment",
        "subscribed",
        "token_expires_at",
        "token_invalid_at",
        "synced_at",
    )
    list_filter = ("environment", "subscribed")
    search_fields = ("=waba_id", "name", "=tenant__id", "tenant__name")
    search_help_text = "WABA ID, name, tenant ID or name"
    fields = (
        "id",
        "waba_id",
        "name",
        "owner",
        "environment",
        "subscribed",
        "token_expires_at",
        "data_access_expires_at",
        "token_invalid_at",
        "synced_at",
        "created_at",
    )

    actions_detail = ["release"]

    def has_release_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return bool(request.user.has_perm("numbers.delete_businessaccount"))

    @action(
        description="Release",
        permissions=["release"],
        icon="logout",
        variant=ActionVariant.DANGER,
        dialog=dialog(
            "Release this account?",
            "Its token and all its numbers are deleted; the tenant keeps its events. After that, another tenant with "
            "a valid token can connect it.",
            "Release",
        ),
    )
    def release(self, request: HttpRequest, form: DialogForm, object_id: str) -> HttpResponse:
        account = get_object_or_404(BusinessAccount, pk=object_id)
        leaving.release_account(account, actor=Actor(user_id=request.user.pk))
        said = f"Account {account.waba_id} is released."
        return done(request, said, reverse("admin:numbers_businessaccount_changelist"))


@admin.register(PhoneNumber)
class PhoneNumberAdmin(TenantRowsAdmin):
    list_display = (
        "display_phone_number",
        "phone_number_id",
        "owner",
        "state",
        "reason",
        "quality",
        "limit",
        "last_event_at",
    )
    list_filter = (
        "connection_state",
        ("connection_detail", CodeFilter),
        "environment",
        ("quality_rating", CodeFilter),
    )
    search_fields = ("=phone_number_id", "digits", "=tenant__id", "tenant__name", "=account__waba_id")
    search_help_text = "Number, phone number ID, WABA ID, tenant ID or name"
    fields = (
        "id",
        "phone_number_id",
        "display_phone_number",
        "verified_name",
        "owner",
        "account",
        "environment",
        "state",
        "reason",
        "registered",
        "registered_at",
        "coexistence",
        "quality",
        "limit",
        "throughput",
        "name_approval",
        "last_event_at",
        "refreshed_at",
        "created_at",
    )
    reason = labelled("connection_detail", "Reason")
    quality = labelled("quality_rating")
    throughput = labelled("throughput_level")
    name_approval = labelled("name_status")

    actions_detail = ["release"]
    state = status_label(STATE_LABELS, "connection_state", "State")

    def has_release_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return bool(request.user.has_perm("numbers.delete_phonenumber"))

    @action(
        description="Release",
        permissions=["release"],
        icon="logout",
        variant=ActionVariant.DANGER,
        dialog=dialog(
            "Release this number?",
            "The tenant can no longer send from it and keeps its events. After that, another tenant with a valid "
            "token can connect it.",
            "Release",
        ),
    )
    def release(self, request: HttpRequest, form: DialogForm, object_id: str) -> HttpResponse:
        number = get_object_or_404(PhoneNumber.objects.select_related("account"), pk=object_id)
        leaving.release_number(number, actor=Actor(user_id=request.user.pk))
        said = f"Number {number.phone_number_id} is released."
        return done(request, said, reverse("admin:numbers_phonenumber_changelist"))

    @display(description="Messaging limit", ordering="messaging_limit_tier")
    def limit(self, number: PhoneNumber) -> str:
        return limit_in_words(number.messaging_limit_tier)
