"""Staff admin of billing: read-only lists, and the actions credit note, bank transfer and SEZ switch."""

from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from unfold.enums import ActionVariant
from unfold.forms import BaseDialogForm
from unfold.widgets import (
    UnfoldAdminDecimalFieldWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
)

from billing import profiles
from billing.invoices import credit_notes, replacing
from billing.models import (
    BillingProfile,
    BillingSnapshot,
    CreditNote,
    Invoice,
    Mandate,
    PaymentAttempt,
    ProviderEvent,
    Refund,
)
from billing.payments import bank_transfers, refunds
from billing.payments.provider import ProviderUnreachable
from billing.pricing.money import rupees
from gateway.api.errors import Conflict, InvalidRequest
from gateway.clock import now
from tenants.staff.read_only_admin import ReadOnlyAdmin, action, dialog, display, tenant_link

Made = TypeVar("Made")

INVOICE_LABELS = {
    "open": "info",
    "processing": "info",
    "failed": "danger",
    "paid": "success",
    "void": "warning",
}
REFUND_LABELS = {"processed": "success", "failed": "danger", "unknown": "warning"}
ATTEMPT_LABELS = {"captured": "success", "failed": "danger", "unknown": "warning"}


class CreditForm(BaseDialogForm):  # type: ignore[misc]
    amount = forms.DecimalField(
        label="Amount in rupees, with GST",
        min_value=0.01,
        max_digits=12,
        decimal_places=2,
        widget=UnfoldAdminDecimalFieldWidget,
    )
    reason = forms.CharField(
        label="Reason (on the credit note)",
        max_length=500,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 2}),
    )


class ReplaceForm(BaseDialogForm):  # type: ignore[misc]
    reason = forms.CharField(
        label="Reason (on the credit note)",
        max_length=500,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 2}),
    )


class PaymentForm(BaseDialogForm):  # type: ignore[misc]
    amount = forms.DecimalField(
        label="Amount in rupees",
        min_value=0.01,
        max_digits=12,
        decimal_places=2,
        widget=UnfoldAdminDecimalFieldWidget,
    )
    reference = forms.CharField(
        label="The bank's reference (UTR)", max_length=64, widget=UnfoldAdminTextInputWidget
    )


class TdsForm(BaseDialogForm):  # type: ignore[misc]
    amount = forms.DecimalField(
        label="Amount in rupees",
        min_value=0.01,
        max_digits=12,
        decimal_places=2,
        widget=UnfoldAdminDecimalFieldWidget,
    )
    certificate = forms.CharField(
        label="Certificate number (Form 16A)", max_length=64, widget=UnfoldAdminTextInputWidget
    )


class RefundForm(BaseDialogForm):  # type: ignore[misc]
    amount = forms.DecimalField(
        label="Amount in rupees",
        min_value=0.01,
        max_digits=12,
        decimal_places=2,
        widget=UnfoldAdminDecimalFieldWidget,
    )


class OfTenant(ReadOnlyAdmin):
    """A table whose rows belong to a tenant."""

    list_select_related = ("tenant",)
    ordering = ("-pk",)
    search_fields: tuple[str, ...] = ("=tenant__id", "tenant__name")
    search_help_text = "Tenant id or name"

    @display(description="Tenant")
    def owner(self, row: Invoice) -> str:
        return tenant_link(row.tenant_id, row.tenant.name)


@admin.register(Invoice)
class InvoiceAdmin(OfTenant):
    list_display = ("number", "owner", "period", "shown_status", "total", "due", "issued_at", "due_at")
    list_filter = ("status", "period", "supply_type")
    search_fields = ("number", "=tenant__id", "tenant__name")
    search_help_text = "Invoice number, tenant id or name"
    actions_detail = ("credit", "replace", "payment", "tds")
    fields = (
        "number",
        "owner",
        "period",
        "shown_status",
        "issued_at",
        "due_at",
        "paid_at",
        "overdue_since",
        "active_numbers",
        "total",
        "paid",
        "credited",
        "due",
        "surplus",
        "place_of_supply",
        "supply_type",
        "endorsement",
        "replaces",
        "buyer",
        "seller",
        "reminders_sent",
        "retries_started",
        "irn",
        "ack_no",
        "ack_at",
    )
    readonly_fields = ("owner", "shown_status", "total", "paid", "credited", "due", "surplus")

    @display(description="Status", label=INVOICE_LABELS, ordering="status")
    def shown_status(self, invoice: Invoice) -> tuple[str, str]:
        return invoice.status, invoice.get_status_display()

    @display(description="Total", ordering="total_paise")
    def total(self, invoice: Invoice) -> str:
        return rupees(invoice.total_paise)

    @display(description="Paid")
    def paid(self, invoice: Invoice) -> str:
        return rupees(invoice.amount_paid_paise)

    @display(description="Credited")
    def credited(self, invoice: Invoice) -> str:
        return rupees(invoice.credited_paise)

    @display(description="Due")
    def due(self, invoice: Invoice) -> str:
        return rupees(invoice.amount_due_paise)

    @display(description="To be paid back")
    def surplus(self, invoice: Invoice) -> str:
        return rupees(invoice.surplus_paise)

    def has_credit_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm("billing.add_creditnote")

    @action(
        description="Issue a credit note",
        permissions=["credit"],
        icon="undo",
        variant=ActionVariant.WARNING,
        dialog=dialog(
            "Issue a credit note?",
            "It corrects this invoice and cannot be taken back. A live payment link is ended first.",
            "Issue",
            CreditForm,
        ),
    )
    def credit(self, request: HttpRequest, form: BaseDialogForm, object_id: str) -> HttpResponse:
        note = _attempted(
            request,
            lambda: credit_notes.issue(
                invoice_id=UUID(object_id),
                total_paise=int(form.cleaned_data["amount"] * 100),
                reason=form.cleaned_data["reason"],
                at=now(),
                actor_user_id=request.user.pk,
            ),
        )
        if note is not None:
            messages.success(request, f"Credit note {note.number} is issued.")
        return _to(reverse("admin:billing_invoice_change", args=[object_id]))

    def has_replace_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm("billing.add_creditnote")

    @action(
        description="Replace this invoice",
        permissions=["replace"],
        icon="find_replace",
        variant=ActionVariant.WARNING,
        dialog=dialog(
            "Replace this invoice?",
            "For a wrong buyer: correct the billing profile first. A credit note of everything that is left is issued,"
            " and a new invoice for the same month. What was paid counts for the new one.",
            "Replace",
            ReplaceForm,
        ),
    )
    def replace(self, request: HttpRequest, form: BaseDialogForm, object_id: str) -> HttpResponse:
        new = _attempted(
            request,
            lambda: replacing.replace(
                invoice_id=UUID(object_id),
                reason=form.cleaned_data["reason"],
                at=now(),
                actor_user_id=request.user.pk,
            ),
        )
        if new is not None:
            messages.success(request, f"Invoice {new.number} replaces it.")
        return _to(reverse("admin:billing_invoice_change", args=[new.pk if new else object_id]))

    def has_payment_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm("billing.add_paymentattempt")

    @action(
        description="Record a bank transfer",
        permissions=["payment"],
        icon="account_balance",
        variant=ActionVariant.SUCCESS,
        dialog=dialog(
            "Record a bank transfer?", "Money that reached the bank account directly.", "Record", PaymentForm
        ),
    )
    def payment(self, request: HttpRequest, form: BaseDialogForm, object_id: str) -> HttpResponse:
        recorded = _attempted(
            request,
            lambda: bank_transfers.record(
                invoice_id=UUID(object_id),
                amount_paise=int(form.cleaned_data["amount"] * 100),
                reference=form.cleaned_data["reference"],
                at=now(),
                actor_user_id=request.user.pk,
            ),
        )
        if recorded is not None:
            messages.success(request, "The bank transfer is recorded.")
        return _to(reverse("admin:billing_invoice_change", args=[object_id]))

    @action(
        description="Record tax deducted at source",
        permissions=["payment"],
        icon="receipt",
        dialog=dialog(
            "Record tax deducted at source?",
            "What the buyer kept for the tax office (section 194J), with the number of its certificate (Form 16A).",
            "Record",
            TdsForm,
        ),
    )
    def tds(self, request: HttpRequest, form: BaseDialogForm, object_id: str) -> HttpResponse:
        recorded = _attempted(
            request,
            lambda: bank_transfers.record_tds(
                invoice_id=UUID(object_id),
                amount_paise=int(form.cleaned_data["amount"] * 100),
                certificate=form.cleaned_data["certificate"],
                at=now(),
                actor_user_id=request.user.pk,
            ),
        )
        if recorded is not None:
            messages.success(
                request, f"{rupees(recorded.amount_paise)} of tax deducted at source is recorded."
            )
        return _to(reverse("admin:billing_invoice_change", args=[object_id]))


@admin.register(BillingProfile)
class BillingProfileAdmin(OfTenant):
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
    def switch_sez(self, request: HttpRequest, form: BaseDialogForm, object_id: str) -> HttpResponse:
        profile = BillingProfile.objects.get(pk=UUID(object_id))
        changed = profiles.change(
            tenant_id=profile.pk, changes={"is_sez": not profile.is_sez}, actor_user_id=request.user.pk
        )
        messages.success(request, "In a special economic zone." if changed.is_sez else "In no such zone.")
        return _to(reverse("admin:billing_billingprofile_change", args=[object_id]))


@admin.register(BillingSnapshot)
class BillingSnapshotAdmin(OfTenant):
    list_display = ("period", "owner", "active_numbers", "total", "taken_at")
    list_filter = ("period",)
    fields = ("period", "owner", "active_numbers", "numbers", "terms", "total", "taken_at")
    readonly_fields = ("owner", "total")

    @display(description="Total")
    def total(self, snapshot: BillingSnapshot) -> str:
        return rupees(snapshot.total_paise)


@admin.register(CreditNote)
class CreditNoteAdmin(ReadOnlyAdmin):
    list_display = ("number", "invoice", "total", "reason", "issued_at")
    list_select_related = ("invoice",)
    search_fields = ("number", "invoice__number")
    ordering = ("-id",)
    fields = ("number", "invoice", "total", "taxable_paise", "tax_paise", "reason", "issued_at", "issued_by")
    readonly_fields = ("total",)

    @display(description="Total")
    def total(self, note: CreditNote) -> str:
        return rupees(note.total_paise)


@admin.register(Mandate)
class MandateAdmin(OfTenant):
    list_display = ("__str__", "owner", "method", "status", "cap", "instrument", "created_at")
    list_filter = ("status", "method")
    fields = ("owner", "method", "status", "cap", "instrument", "replaces", "expires_at", "created_at")
    readonly_fields = ("owner", "cap", "created_at")

    @display(description="Limit")
    def cap(self, mandate: Mandate) -> str:
        return rupees(mandate.max_amount_paise)


@admin.register(PaymentAttempt)
class PaymentAttemptAdmin(ReadOnlyAdmin):
    list_display = ("__str__", "invoice", "kind", "shown_status", "amount", "created_at", "completed_at")
    list_filter = ("status", "kind")
    list_select_related = ("invoice",)
    search_fields = ("invoice__number", "=provider_order_id", "=provider_payment_id", "=provider_link_id")
    ordering = ("-id",)
    fields = (
        "invoice",
        "kind",
        "shown_status",
        "amount",
        "refunded",
        "provider",
        "mandate",
        "receipt",
        "provider_order_id",
        "provider_link_id",
        "provider_payment_id",
        "scheduled_for",
        "next_check_at",
        "created_at",
        "completed_at",
        "error",
    )
    actions_detail = ("refund",)
    readonly_fields = ("shown_status", "amount", "refunded")

    def has_refund_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm("billing.add_refund")

    @action(
        description="Pay back",
        permissions=["refund"],
        icon="currency_rupee",
        variant=ActionVariant.WARNING,
        dialog=dialog(
            "Pay back?",
            "The provider returns the money to where it came from. At most the invoice's surplus can be paid back.",
            "Pay back",
            RefundForm,
        ),
    )
    def refund(self, request: HttpRequest, form: BaseDialogForm, object_id: str) -> HttpResponse:
        refund = _attempted(
            request,
            lambda: refunds.pay_back(
                attempt_id=UUID(object_id),
                amount_paise=int(form.cleaned_data["amount"] * 100),
                at=now(),
                actor_user_id=request.user.pk,
            ),
        )
        if refund is not None:
            messages.success(
                request,
                f"The refund of {rupees(refund.amount_paise)} is {refund.get_status_display().lower()}.",
            )
        return _to(reverse("admin:billing_paymentattempt_change", args=[object_id]))

    @display(description="Paid back")
    def refunded(self, attempt: PaymentAttempt) -> str:
        return rupees(attempt.refunded_paise)

    @display(description="Status", label=ATTEMPT_LABELS, ordering="status")
    def shown_status(self, attempt: PaymentAttempt) -> tuple[str, str]:
        return attempt.status, attempt.get_status_display()

    @display(description="Amount")
    def amount(self, attempt: PaymentAttempt) -> str:
        return rupees(attempt.amount_paise)


@admin.register(Refund)
class RefundAdmin(ReadOnlyAdmin):
    list_display = ("__str__", "attempt", "amount", "shown_status", "created_at", "completed_at")
    list_filter = ("status",)
    list_select_related = ("attempt",)
    search_fields = ("attempt__invoice__number", "=provider_refund_id")
    ordering = ("-id",)
    fields = (
        "attempt",
        "amount",
        "shown_status",
        "receipt",
        "provider_refund_id",
        "created_at",
        "completed_at",
        "requested_by",
        "error",
    )
    readonly_fields = ("amount", "shown_status")

    @display(description="Amount")
    def amount(self, refund: Refund) -> str:
        return rupees(refund.amount_paise)

    @display(description="Status", label=REFUND_LABELS, ordering="status")
    def shown_status(self, refund: Refund) -> tuple[str, str]:
        return refund.status, refund.get_status_display()


@admin.register(ProviderEvent)
class ProviderEventAdmin(ReadOnlyAdmin):
    list_display = ("type", "event_id", "provider", "received_at", "processed_at")
    list_filter = ("type",)
    search_fields = ("=event_id",)
    ordering = ("-id",)
    fields = ("provider", "event_id", "type", "received_at", "processed_at")


def _attempted(request: HttpRequest, act: Callable[[], Made]) -> Made | None:
    """What an action made, or None after telling why it did not."""
    try:
        return act()
    except InvalidRequest as error:
        fields = (error.details or {}).get("fields", {})
        problems = [problem for found in fields.values() for problem in found]
        messages.error(request, " ".join(problems) or error.text)
    except (Conflict, ProviderUnreachable) as error:
        messages.error(request, error.text)
    return None


def _to(url: str) -> HttpResponse:
    """Where a dialog leads: its answer is read by the page's script."""
    return HttpResponse(headers={"HX-Redirect": url})
