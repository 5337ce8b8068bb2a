"""The staff admin of accounts and numbers: to look at, and to release. Tokens and PINs are on no page."""

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from unfold.enums import ActionVariant

from phone_numbers.leaving import releasing
from phone_numbers.messaging_limit import limit_in_words
from phone_numbers.models import BusinessAccount, PhoneNumber
from tenants.actors import Actor
from tenants.staff.dialogs import DialogForm, action, dialog, done
from tenants.staff.navigation import NavigationLink, register_navigation
from tenants.staff.read_only_admin import CodeFilter, TenantRowsAdmin, display, status_label, worded

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
    readonly_fields = ("owner",)

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
            "Its token and all its numbers are forgotten; the tenant keeps the events. Another tenant with a valid "
            "token can connect it then.",
            "Release",
        ),
    )
    def release(self, request: HttpRequest, form: DialogForm, object_id: str) -> HttpResponse:
        account = get_object_or_404(BusinessAccount, pk=object_id)
        releasing.release_account(account, actor=Actor(user_id=request.user.pk))
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
    readonly_fields = ("owner", "state", "reason", "quality", "limit", "throughput", "name_approval")
    reason = worded("connection_detail", "Reason")
    quality = worded("quality_rating")
    throughput = worded("throughput_level")
    name_approval = worded("name_status")

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
            "The tenant cannot send from it any more and keeps its events. Another tenant with a valid token can "
            "connect it then.",
            "Release",
        ),
    )
    def release(self, request: HttpRequest, form: DialogForm, object_id: str) -> HttpResponse:
        number = get_object_or_404(PhoneNumber.objects.select_related("account"), pk=object_id)
        releasing.release_number(number, actor=Actor(user_id=request.user.pk))
        said = f"Number {number.phone_number_id} is released."
        return done(request, said, reverse("admin:numbers_phonenumber_changelist"))

    @display(description="Messaging limit", ordering="messaging_limit_tier")
    def limit(self, number: PhoneNumber) -> str:
        return limit_in_words(number.messaging_limit_tier)
