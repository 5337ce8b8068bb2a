"""Staff admin of mandates, payments, refunds and the provider's notices, with the action that pays money back."""

from typing import Any
from uuid import UUID

from django import forms
from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.utils.text import capfirst
from unfold.enums import ActionVariant
from unfold.widgets import UnfoldAdminTextInputWidget

from billing.admin.amounts import AmountForm, amount_in_rupees
from billing.models import Mandate, PaymentAttempt, ProviderEvent, Refund, SettledItem
from billing.payments import bank_transfers, refunds
from billing.pricing.money import rupees
from gateway.clock import now
from tenants.labels import readable
from tenants.staff.dialogs import action, change_url, dialog, done
from tenants.staff.read_only_admin import (
    ReadOnlyAdmin,
    TenantRowsAdmin,
    display,
    person,
    row_name,
    status_label,
    worded,
)

REFUND_LABELS = {"processed": "success", "failed": "danger", "unknown": "warning"}
ATTEMPT_LABELS = {"captured": "success", "failed": "danger", "unknown": "warning"}


def _said(error: dict[str, Any] | None) -> str:
    """What the provider said, as one line."""
    return str(capfirst(", ".join(readable(str(value)) for value in (error or {}).values() if value)))


class ReturnForm(AmountForm):
    reference = forms.CharField(
        label="The bank's reference (UTR)", max_length=64, widget=UnfoldAdminTextInputWidget
    )


@admin.register(Mandate)
class MandateAdmin(TenantRowsAdmin):
    shown_id = row_name("Mandate")
    list_display = ("shown_id", "owner", "method", "status", "cap", "instrument", "created_at")
    list_filter = ("status", "method")
    fields = ("owner", "method", "status", "cap", "instrument", "replaces", "expires_at", "created_at")
    readonly_fields = ("owner", "cap", "created_at")
    cap = amount_in_rupees("Limit", "max_amount_paise")


@admin.register(PaymentAttempt)
class PaymentAttemptAdmin(ReadOnlyAdmin):
    shown_id = row_name("Payment attempt")
    list_display = ("shown_id", "invoice", "kind", "shown_status", "amount", "created_at", "completed_at")
    list_filter = ("status", "kind")
    list_select_related = ("invoice",)
    search_fields = ("invoice__number", "=provider_order_id", "=provider_payment_id", "=provider_link_id")
    search_help_text = "Invoice number, or the provider's order, payment or link ID"
    ordering = ("-id",)
    fields = (
        "invoice",
        "kind",
        "shown_status",
        "amount",
        "refunded",
        "shown_provider",
        "mandate",
        "receipt",
        "provider_order_id",
        "provider_link_id",
        "provider_payment_id",
        "scheduled_for",
        "next_check_at",
        "created_at",
        "completed_at",
        "refusal",
    )
    actions_detail = ("refund", "returned")
    readonly_fields = ("shown_status", "amount", "refunded", "shown_provider", "refusal")
    shown_provider = worded("provider")
    shown_status = status_label(ATTEMPT_LABELS)
    amount = amount_in_rupees("Amount", "amount_paise")
    refunded = amount_in_rupees("Paid back", "refunded_paise")

    def has_refund_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm("billing.add_refund")

    @action(
        description="Pay back",
        permissions=["refund"],
        icon="currency_rupee",
        variant=ActionVariant.WARNING,
        dialog=dialog(
            "Pay back?",
            "The provider returns the money to where it came from. At most the customer's balance can be paid back.",
            "Pay back",
            AmountForm,
        ),
    )
    def refund(self, request: HttpRequest, form: AmountForm, object_id: str) -> HttpResponse:
        refund = refunds.pay_back(
            attempt_id=UUID(object_id),
            amount_paise=form.amount_paise,
            at=now(),
            actor_user_id=request.user.pk,
        )
        said = f"The refund of {rupees(refund.amount_paise)} is {refund.get_status_display().lower()}."
        return done(request, said, change_url(PaymentAttempt, object_id))

    @action(
        description="Record return",
        permissions=["refund"],
        icon="account_balance",
        dialog=dialog(
            "Record that a transfer was paid back?",
            "Money of the customer's balance that was returned by bank, with the bank's reference of it.",
            "Record",
            ReturnForm,
        ),
    )
    def returned(self, request: HttpRequest, form: ReturnForm, object_id: str) -> HttpResponse:
        bank_transfers.give_back(
            attempt_id=UUID(object_id),
            amount_paise=form.amount_paise,
            reference=form.cleaned_data["reference"],
            at=now(),
            actor_user_id=request.user.pk,
        )
        said = f"A return of {rupees(form.amount_paise)} is recorded."
        return done(request, said, change_url(PaymentAttempt, object_id))

    @display(description="Error")
    def refusal(self, attempt: PaymentAttempt) -> str:
        return _said(attempt.error)


@admin.register(Refund)
class RefundAdmin(ReadOnlyAdmin):
    shown_id = row_name("Refund")
    list_display = ("shown_id", "attempt", "amount", "shown_status", "created_at", "completed_at")
    list_filter = ("status",)
    list_select_related = ("attempt",)
    search_fields = ("attempt__invoice__number", "=provider_refund_id")
    search_help_text = "Invoice number or the provider's refund ID"
    ordering = ("-id",)
    fields = (
        "attempt",
        "amount",
        "shown_status",
        "receipt",
        "provider_refund_id",
        "created_at",
        "completed_at",
        "requester",
        "refusal",
    )
    readonly_fields = ("amount", "shown_status", "requester", "refusal")
    requester = person("requested_by")
    shown_status = status_label(REFUND_LABELS)
    amount = amount_in_rupees("Amount", "amount_paise")

    @display(description="Error")
    def refusal(self, refund: Refund) -> str:
        return _said(refund.error)


@admin.register(ProviderEvent)
class ProviderEventAdmin(ReadOnlyAdmin):
    list_display = ("type", "event_id", "shown_provider", "received_at", "processed_at")
    list_filter = ("type",)
    search_fields = ("=event_id",)
    search_help_text = "The provider's event ID"
    ordering = ("-id",)
    fields = ("shown_provider", "event_id", "type", "received_at", "processed_at")
    readonly_fields = ("shown_provider",)
    shown_provider = worded("provider")


@admin.register(SettledItem)
class SettledItemAdmin(ReadOnlyAdmin):
    """Reconciliation: what each settlement is made of, with its fees, beside what it is here."""

    list_display = ("entity_id", "ours", "type", "amount", "fee", "net", "utr", "settled_at")
    search_fields = ("=entity_id", "=settlement_id", "=utr")
    search_help_text = "The provider's payment, refund or settlement ID, or the bank's reference"
    ordering = ("-settled_at", "entity_id")
    fields = (
        "entity_id",
        "ours",
        "type",
        "amount",
        "fee",
        "tax",
        "net",
        "settlement_id",
        "utr",
        "settled_at",
    )
    readonly_fields = ("ours", "amount", "fee", "tax", "net")
    amount = amount_in_rupees("Amount", "amount_paise")
    fee = amount_in_rupees("Fee with GST", "fee_paise")
    tax = amount_in_rupees("GST of the fee", "tax_paise")
    net = amount_in_rupees("Reached the bank", "net_paise")

    @display(description="Invoice")
    def ours(self, item: SettledItem) -> str:
        """The invoice that it is of; a dash where it is of none: a mandate's rupee, or money to be explained."""
        attempts = PaymentAttempt.objects.select_related("invoice")
        own = Q(provider_payment_id=item.entity_id) | Q(refunds__provider_refund_id=item.entity_id)
        found = attempts.filter(own, kind__in=("autopay", "link")).first()
        return found.invoice.number if found else ""
