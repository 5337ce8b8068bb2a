"""Staff admin of billing profiles and monthly snapshots, with the switch of a special economic zone."""

from uuid import UUID

from django.contrib import admin
from django.http import HttpRequest, HttpResponse

from billing.buyers import profiles
from billing.models import BillingProfile, BillingSnapshot
from billing.pricing.money import rupees
from billing.templatetags.money import month_name
from tenants.staff.dialogs import DialogForm, action, change_url, dialog, done
from tenants.staff.read_only_admin import TenantRowsAdmin, display


@admin.register(BillingProfile)
class BillingProfileAdmin(TenantRowsAdmin):
    list_display = ("legal_name", "owner", "tax_id", "state_code", "is_sez")
    list_filter = ("is_sez", "state_code", "tax_id_type")
    search_fields = ("legal_name", "tax_id", "=tenant__id", "tenant__name")
    actions_detail = ("switch_sez",)
    fields = (
        "owner",
        "legal_name",
        "tax_id",
        "tax_id_type",
        "address",
        "city",
        "pin",
        "state_code",
        "phone",
        "country",
        "is_sez",
    )
    readonly_fields = ("owner",)

    def has_switch_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm("billing.change_billingprofile")

    @action(
        description="Switch special economic zone",
        permissions=["switch"],
        icon="swap_horiz",
        dialog=dialog(
            "Switch?", "A buyer in such a zone is charged IGST from its next invoice on.", "Switch"
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
    list_filter = ("period",)
    fields = ("month", "owner", "active_numbers", "numbers", "terms", "total", "taken_at")
    readonly_fields = ("month", "owner", "total")

    @display(description="Month", ordering="period")
    def month(self, snapshot: BillingSnapshot) -> str:
        return month_name(snapshot.period)

    @display(description="Total")
    def total(self, snapshot: BillingSnapshot) -> str:
        return rupees(snapshot.total_paise)
