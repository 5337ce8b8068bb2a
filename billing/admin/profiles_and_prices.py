"""Staff admin of billing profiles, monthly snapshots and terms. Staff also set a buyer's special economic zone here."""

from typing import Any
from uuid import UUID

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextareaWidget

from billing import buyers, plan
from billing.admin.fields import MonthFilter, RupeesField, StateFilter, amount_in_rupees, shown_month
from billing.admin.money_acts import allowed
from billing.models import BillingProfile, BillingSnapshot, PlanVersion
from billing.pricing.periods import Period
from billing.templatetags.money import month_name
from gateway.api.errors import InvalidRequest
from gateway.clock import now
from gateway.text_field import TextField
from tenants.audit_labels import said
from tenants.signup.tax_ids import STATES
from tenants.staff.dialogs import DialogForm, action, change_url, dialog, done
from tenants.staff.read_only_admin import CodeFilter, TenantRowsAdmin, display, labelled, lines, person


class EvidenceForm(DialogForm):
    evidence = TextField(
        label="Evidence (what it is, and where it is kept)",
        max_length=500,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 2}),
    )


class CountryForm(EvidenceForm):
    country = forms.ChoiceField(
        label="Country", choices=list(buyers.COUNTRIES.items()), widget=UnfoldAdminSelectWidget
    )


class ZoneForm(EvidenceForm):
    """The form names the wanted state. So a repeated submission changes nothing."""

    is_sez = forms.TypedChoiceField(
        label="Special economic zone",
        choices=[("", "Choose one"), ("yes", "In a zone"), ("no", "Not in a zone")],
        coerce=lambda chosen: chosen == "yes",
        widget=UnfoldAdminSelectWidget,
    )


@admin.register(BillingProfile)
class BillingProfileAdmin(TenantRowsAdmin):
    list_display = ("legal_name", "owner", "tax_id", "state", "is_sez")
    list_filter = ("is_sez", ("state_code", StateFilter), ("tax_id_type", CodeFilter))
    search_fields = ("legal_name", "tax_id", "=tenant__id", "tenant__name")
    search_help_text = "Legal name, tax ID, tenant ID or name"
    actions_detail = ("switch_sez", "set_country")
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
    kind_of_tax_id = labelled("tax_id_type")

    @display(description="State", ordering="state_code")
    def state(self, profile: BillingProfile) -> str:
        return STATES.get(profile.state_code, profile.state_code)

    @display(description="Country", ordering="country")
    def shown_country(self, profile: BillingProfile) -> str:
        return buyers.country_name(profile.country)

    has_switch_permission = allowed("change_billingprofile")

    @action(
        description="Set special economic zone",
        permissions=["switch"],
        icon="swap_horiz",
        dialog=dialog(
            "Set the special economic zone of the buyer?",
            "A buyer in such a zone needs a GSTIN, and is charged IGST from the next invoice on.",
            "Set",
            ZoneForm,
        ),
    )
    def switch_sez(self, request: HttpRequest, form: ZoneForm, object_id: str) -> HttpResponse:
        is_sez = form.cleaned_data["is_sez"]
        said = "In a special economic zone." if is_sez else "Not in a special economic zone."
        return self._decided(request, form, object_id, {"is_sez": is_sez}, said)

    @action(
        description="Set country",
        permissions=["switch"],
        icon="public",
        dialog=dialog(
            "Set the country of the buyer?",
            "Invoices abroad are exports from the next one on: with IGST, or without it under a letter of undertaking.",
            "Set",
            CountryForm,
        ),
    )
    def set_country(self, request: HttpRequest, form: CountryForm, object_id: str) -> HttpResponse:
        country = form.cleaned_data["country"]
        said = f"The country is {buyers.country_name(country)}."
        return self._decided(request, form, object_id, {"country": country}, said)

    def _decided(
        self, request: HttpRequest, form: EvidenceForm, key: str, changes: dict[str, Any], said: str
    ) -> HttpResponse:
        person, evidence = request.user.pk, form.cleaned_data["evidence"]
        buyers.change(tenant_id=UUID(key), changes=changes, actor_user_id=person, evidence=evidence)
        return done(request, said, change_url(BillingProfile, key))


@admin.register(BillingSnapshot)
class BillingSnapshotAdmin(TenantRowsAdmin):
    list_display = ("month", "owner", "active_numbers", "total", "taken_at")
    list_filter = (("period", MonthFilter),)
    fields = ("month", "owner", "active_numbers", "shown_numbers", "shown_terms", "total", "taken_at")
    total = amount_in_rupees("Total", "total_paise")
    month = shown_month

    @display(description="Numbers")
    def shown_numbers(self, snapshot: BillingSnapshot) -> str:
        return lines(
            f"{number['display_phone_number']}: connected for {number['connected_seconds'] // 3600:,} hours"
            for number in snapshot.numbers
        )

    @display(description="Terms")
    def shown_terms(self, snapshot: BillingSnapshot) -> str:
        return lines(said(snapshot.terms))


MONTHS_AHEAD = 36


def months_to_come() -> list[tuple[str, str]]:
    """The months in which terms may begin or end: the current month and later months."""
    months = [Period.of(now())]
    while len(months) < MONTHS_AHEAD:
        months.append(months[-1].next)
    return [(str(month), month.name) for month in months]


class TermsForm(forms.ModelForm):  # type: ignore[type-arg]
    """New terms. Amounts are entered in rupees."""

    first_number_paise = RupeesField("First price in rupees", least=0)
    additional_number_paise = RupeesField("Each further number in rupees", least=0)
    starts = forms.ChoiceField(label="First month", choices=months_to_come, widget=UnfoldAdminSelectWidget)
    ends = forms.ChoiceField(
        label="Last month",
        choices=lambda: [("", "none"), *months_to_come()],
        required=False,
        widget=UnfoldAdminSelectWidget,
    )

    class Meta:
        model = PlanVersion
        fields = (
            "tenant",
            "starts",
            "ends",
            "first_number_paise",
            "included_numbers",
            "additional_number_paise",
            "gst_percent",
            "due_days",
            "reason",
        )
        field_classes = {"reason": TextField}
        widgets = {"reason": UnfoldAdminTextareaWidget(attrs={"rows": 2})}

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if not self.errors:
            try:
                plan.require_valid(PlanVersion(**cleaned), now())
            except InvalidRequest as error:
                raise ValidationError((error.details or {})["fields"]) from None
        return cleaned


@admin.register(PlanVersion)
class PlanVersionAdmin(TenantRowsAdmin):
    list_display = ("since", "whose", "first", "included_numbers", "further", "gst_percent", "due_days")
    form, autocomplete_fields = TermsForm, ("tenant",)
    fields = (
        "whose",
        "since",
        "until",
        "first",
        "included_numbers",
        "further",
        "gst_percent",
        "due_days",
        "reason",
        "created_at",
        "creator",
    )
    first = amount_in_rupees("First price", "first_number_paise")
    further = amount_in_rupees("Each further number", "additional_number_paise")
    creator = person("created_by")

    @display(description="First month", ordering="starts")
    def since(self, version: PlanVersion) -> str:
        return month_name(version.starts)

    @display(description="Last month")
    def until(self, version: PlanVersion) -> str:
        return month_name(version.ends) if version.ends else ""

    @display(description="For")
    def whose(self, version: PlanVersion) -> str:
        return self.owner(version) if version.tenant else "Everybody"

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **options: Any
    ) -> HttpResponse:
        answer: HttpResponse = super(TenantRowsAdmin, self).render_change_form(
            request, context, *args, **options
        )
        return answer

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.has_perm("billing.add_planversion"))

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return super().get_fields(request, obj) if obj else TermsForm.Meta.fields

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        return {"starts": str(Period.of(now()).next), "gst_percent": 18}

    def save_model(self, request: HttpRequest, obj: PlanVersion, form: Any, change: bool) -> None:
        plan.add_version(obj, at=now(), actor_user_id=request.user.pk)
