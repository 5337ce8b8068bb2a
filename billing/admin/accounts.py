"""Staff admin of billing profiles and monthly snapshots, with the switch of a special economic zone."""

from uuid import UUID

from django.contrib import admin
from django.http import HttpRequest, HttpResponse

from billing.admin.amounts import amount_in_rupees
from billing.admin.filters import MonthFilter, StateFilter
from billing.buyers import countries, profiles
from billing.models import BillingProfile, BillingSnapshot
from billing.templatetags.money import month_name
from tenants.signup.tax_ids import STATES
from tenants.staff.dialogs import DialogForm, action, change_url, dialog, done
from tenants.staff.read_only_admin import CodeFilter, TenantRowsAdmin, display, lines, worded
from tenants.wording.audit_words import said


@admin.register(BillingProfile)
class BillingProfileAdmin(TenantRowsAdmin):
    list_display = ("legal_name", "owner", "tax_id", "state", "is_sez")
    list_filter = ("is_sez", ("state_code", StateFilter), ("tax_id_type", CodeFilter))
    search_fields = ("legal_name", "tax_id", "=tenant__id", "tenant__name")
    search_help_text = "Legal name, tax ID, tenant ID or name"
    actions_detail = ("switch_sez",)
    fields = (
        "owner",
        "legal_name",
        "tax_id",
        "kind_of_tax_id",
        "address",
        "city",
        "pin",
        "state",
        "phone",
        "shown_country",
        "is_sez",
    )
    readonly_fields = ("owner", "kind_of_tax_id", "state", "shown_country")
    kind_of_tax_id = worded("tax_id_type")

    @display(description="State", ordering="state_code")
    def state(self, profile: BillingProfile) -> str:
        return STATES.get(profile.state_code, profile.state_code)

    @display(description="Country", ordering="country")
    def shown_country(self, profile: BillingProfile) -> str:
        return countries.name_of(profile.country)

    def has_switch_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm("billing.change_billingprofile")

    @action(
        description="Switch special economic zone",
        permissions=["switch"],
        icon="swap_horiz",
        dialog=dialog(
            "Switch special economic zone?",
            "A buyer in such a zone is charged IGST from its next invoice on.",
            "Switch",
        ),
    )
    def switch_sez(self, request: HttpRequest, form: DialogForm, object_id: str) -> HttpResponse:
        profile = BillingProfile.objects.get(pk=UUID(object_id))
        changed = profiles.change(
            tenant_id=profile.pk, changes={"is_sez": not profile.is_sez}, actor_user_id=request.user.pk
        )
        said = "In a special economic zone." if changed.is_sez else "In no special economic zone."
        return done(request, said, change_url(BillingProfile, object_id))


@admin.register(BillingSnapshot)
class BillingSnapshotAdmin(TenantRowsAdmin):
    list_display = ("month", "owner", "active_numbers", "total", "taken_at")
    list_filter = (("period", MonthFilter),)
    fields = ("month", "owner", "active_numbers", "shown_numbers", "shown_terms", "total", "taken_at")
    readonly_fields = ("month", "owner", "shown_numbers", "shown_terms", "total")
    total = amount_in_rupees("Total", "total_paise")

    @display(description="Month", ordering="period")
    def month(self, snapshot: BillingSnapshot) -> str:
        return month_name(snapshot.period)

    @display(description="Numbers")
    def shown_numbers(self, snapshot: BillingSnapshot) -> str:
        return lines(
            f"{number['display_phone_number']}: connected for {number['connected_seconds'] // 3600:,} hours"
            for number in snapshot.numbers
        )

    @display(description="Terms")
    def shown_terms(self, snapshot: BillingSnapshot) -> str:
        return lines(said(snapshot.terms))
