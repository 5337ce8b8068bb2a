"""Staff admin of mandates, payments, refunds and the provider's notices, with the action that pays money back."""

from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.text import capfirst
from unfold.enums import ActionVariant

from billing.admin import second_person
from billing.admin.fields import amount_in_rupees
from billing.admin.money_acts import ACTS, MoneyActsAdmin, carry_out, money_action
from billing.models import Mandate, PaymentAttempt, ProviderEvent, Refund, SettledItem, StaffAct
from gateway.clock import now
from tenants.audit_labels import said
from tenants.labels import readable
from tenants.staff.dialogs import DialogForm, action, change_url, dialog, done
from tenants.staff.read_only_admin import (
    ReadOnlyAdmin,
    TenantRowsAdmin,
    display,
    labelled,
    lines,
    person,
    row_name,
    status_label,
)

REFUND_LABELS = {"processed": "success", "failed": "danger", "unknown": "warning"}
ATTEMPT_LABELS = {"captured": "success", "failed": "danger", "unknown": "warning"}


def _said(error: dict[str, Any] | None) -> str:
    """The provider's error as one line."""
    return str(capfirst(", ".join(readable(str(value)) for value in (error or {}).values() if value)))


@admin.register(Mandate)
class MandateAdmin(TenantRowsAdmin):
    shown_id = row_name("Mandate")
    list_display = ("shown_id", "owner", "method", "status", "cap", "instrument", "created_at")
    list_filter = ("status", "method")
    fields = ("owner", "method", "status", "cap", "instrument", "replaces", "expires_at", "created_at")
    cap = amount_in_rupees("Limit", "max_amount_paise")


@admin.register(PaymentAttempt)
class PaymentAttemptAdmin(MoneyActsAdmin, ReadOnlyAdmin):
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
    shown_provider = labelled("provider")
    shown_status = status_label(ATTEMPT_LABELS)
    amount = amount_in_rupees("Amount", "amount_paise")
    refunded = amount_in_rupees("Paid back", "refunded_paise")

    refund, returned = money_action("refund"), money_action("returned")

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
    shown_provider = labelled("provider")


@admin.register(SettledItem)
class SettledItemAdmin(ReadOnlyAdmin):
    """Reconciliation: the items of each settlement with their fees, beside the service's invoices."""

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
    amount = amount_in_rupees("Amount", "amount_paise")
    fee = amount_in_rupees("Fee with GST", "fee_paise")
    tax = amount_in_rupees("GST of the fee", "tax_paise")
    net = amount_in_rupees("Reached the bank", "net_paise")

    @display(description="Invoice")
    def ours(self, item: SettledItem) -> str:
        """The number of the item's invoice. Empty for an item without an invoice, such as the one rupee that confirms a
        mandate.
        """
        attempts = PaymentAttempt.objects.select_related("invoice")
        own = Q(provider_payment_id=item.entity_id) | Q(refunds__provider_refund_id=item.entity_id)
        found = attempts.filter(own, kind__in=("autopay", "link")).first()
        return found.invoice.number if found else ""


ACT_LABELS = {"waiting": "warning", "done": "success", "declined": "danger"}


@admin.register(StaffAct)
class StaffActAdmin(MoneyActsAdmin, TenantRowsAdmin):
    """The acts of staff with money, both those carried out and those that wait for a second person."""

    list_display = ("what", "owner", "amount", "shown_status", "asker", "asked_at", "decider")
    list_filter = ("status",)
    fields = (
        "what",
        "row",
        "owner",
        "amount",
        "details",
        "shown_status",
        "asker",
        "asked_at",
        "decider",
        "decided_at",
    )
    actions_detail = ("approve", "decline")
    amount = amount_in_rupees("Amount", "amount_paise")
    shown_status = status_label(ACT_LABELS)
    asker, decider = person("asked_by"), person("decided_by")

    @display(description="Act")
    def what(self, act: StaffAct) -> str:
        return ACTS[act.act].title

    @display(description="Of")
    def row(self, act: StaffAct) -> str:
        model = ACTS[act.act].model
        row = model._default_manager.get(pk=act.target_id)
        return format_html('<a class="text-link" href="{}">{}</a>', change_url(model, row.pk), row)

    @display(description="Details")
    def details(self, act: StaffAct) -> str:
        return lines(said(act.values))

    @action(
        description="Approve",
        permissions=["decide"],
        icon="check",
        variant=ActionVariant.SUCCESS,
        dialog=dialog("Approve this as the second person?", "It is done at once.", "Approve"),
    )
    def approve(self, request: HttpRequest, form: DialogForm, object_id: str) -> HttpResponse:
        result = second_person.approve(UUID(object_id), carry_out, at=now(), actor_user_id=request.user.pk)
        return done(request, result, change_url(StaffAct, object_id))

    @action(
        description="Decline",
        permissions=["decide"],
        icon="close",
        dialog=dialog("Decline this?", "Nothing is done.", "Decline"),
    )
    def decline(self, request: HttpRequest, form: DialogForm, object_id: str) -> HttpResponse:
        second_person.decline(UUID(object_id), at=now(), actor_user_id=request.user.pk)
        return done(request, "Declined.", change_url(StaffAct, object_id))
