"""Staff admin of invoices and credit notes, with the actions that correct or settle an invoice by hand."""

import csv
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.html import format_html_join
from django.utils.safestring import mark_safe
from unfold.enums import ActionVariant
from unfold.widgets import UnfoldAdminTextareaWidget, UnfoldAdminTextInputWidget

from billing import accounting
from billing.admin.amounts import AmountForm, amount_in_rupees, rupees_field
from billing.admin.filters import MonthFilter
from billing.buyers import countries
from billing.invoices import credit_notes, payment_state, replacing
from billing.models import CreditNote, Invoice
from billing.payments import bank_transfers
from billing.pricing.money import rupees
from billing.pricing.periods import Period
from billing.templatetags.money import month_name
from gateway.clock import now
from tenants.staff.dialogs import DialogForm, action, change_url, dialog, done
from tenants.staff.read_only_admin import (
    CodeFilter,
    ReadOnlyAdmin,
    StatusLabel,
    TenantRowsAdmin,
    display,
    person,
    worded,
)

INVOICE_LABELS = {
    "open": "info",
    payment_state.OVERDUE: "danger",
    "processing": "info",
    "failed": "danger",
    "paid": "success",
    "void": "warning",
}


MONTHS_SHOWN = 12
_PARTY = ("name", "gstin", "pan", "address", "state", "country")


def _party(party: dict[str, Any]) -> str:
    """A frozen buyer or seller, a line each."""
    named = party | {"country": countries.name_of(party.get("country", ""))}
    shown = [(name.upper() if name in {"gstin", "pan"} else "", named.get(name)) for name in _PARTY]
    return format_html_join(mark_safe("<br>"), "{} {}", [(title, value) for title, value in shown if value])


class ReasonForm(DialogForm):
    reason = forms.CharField(
        label="Reason (on the credit note)",
        max_length=500,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 2}),
    )


class CreditForm(ReasonForm, AmountForm):
    amount = rupees_field("Amount in rupees, with GST")


class TransferForm(AmountForm):
    reference = forms.CharField(
        label="The bank's reference (UTR)", max_length=64, widget=UnfoldAdminTextInputWidget
    )


class TdsForm(AmountForm):
    certificate = forms.CharField(
        label="Certificate number (Form 16A)", max_length=64, widget=UnfoldAdminTextInputWidget
    )


@admin.register(Invoice)
class InvoiceAdmin(TenantRowsAdmin):
    list_display = ("number", "owner", "month", "shown_status", "total", "due", "issued_at", "due_at")
    list_filter = ("status", ("period", MonthFilter), ("supply_type", CodeFilter))
    search_fields = ("number", "=tenant__id", "tenant__name")
    search_help_text = "Invoice number, tenant ID or name"
    actions_detail = ("credit", "replace", "payment", "tds")
    fields = (
        "number",
        "owner",
        "month",
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
        "supply",
        "endorsement",
        "replaces",
        "billed_to",
        "sold_by",
        "reminders_sent",
        "retries_started",
        "irn",
        "ack_no",
        "ack_at",
    )
    readonly_fields = (
        "owner",
        "month",
        "supply",
        "shown_status",
        "total",
        "paid",
        "credited",
        "due",
        "surplus",
        "billed_to",
        "sold_by",
    )
    supply = worded("supply_type", "Supply")
    paid = amount_in_rupees("Paid", "amount_paid_paise")
    credited = amount_in_rupees("Credited", "credited_paise")
    due = amount_in_rupees("Due", "amount_due_paise")
    surplus = amount_in_rupees("To be paid back", "surplus_paise")

    def get_urls(self) -> list[URLPattern]:
        return [
            path(
                "accounting/",
                self.admin_site.admin_view(self.accounting_page),
                name="billing_invoice_accounting",
            ),
            path(
                "accounting/<str:month>.csv",
                self.admin_site.admin_view(self.month_csv),
                name="billing_invoice_month",
            ),
            *super().get_urls(),
        ]

    def accounting_page(self, request: HttpRequest) -> HttpResponse:
        """Revenue by month, what is unpaid by age, and the export for accounting."""
        self._require_view(request)
        at = now()
        context = {
            **self.admin_site.each_context(request),
            "title": "Accounting",
            "months": accounting.months(Period.of(at), MONTHS_SHOWN),
            "ages": accounting.unpaid_by_age(at),
        }
        return TemplateResponse(request, "admin/billing/accounting.html", context)

    def month_csv(self, request: HttpRequest, month: str) -> HttpResponse:
        """The documents of a month, as `manage.py billing_export` writes them."""
        self._require_view(request)
        try:
            period = Period.parse(month)
        except ValueError:
            raise Http404("The month is written 2026-12.") from None
        response = HttpResponse(content_type="text/csv; charset=utf-8")
        response["Content-Disposition"] = f'attachment; filename="documents-{period}.csv"'
        writer = csv.writer(response)
        writer.writerow(accounting.COLUMNS)
        writer.writerows(accounting.rows(period))
        return response

    def _require_view(self, request: HttpRequest) -> None:
        if not self.has_view_permission(request):
            raise PermissionDenied

    @display(description="Status", label=INVOICE_LABELS, ordering="status")
    def shown_status(self, invoice: Invoice) -> StatusLabel:
        return StatusLabel(*payment_state.of(invoice, now()))

    @display(description="Month", ordering="period")
    def month(self, invoice: Invoice) -> str:
        return month_name(invoice.period)

    @display(description="Buyer")
    def billed_to(self, invoice: Invoice) -> str:
        return _party(invoice.buyer)

    @display(description="Seller")
    def sold_by(self, invoice: Invoice) -> str:
        return _party(invoice.seller)

    @display(description="Total", ordering="total_paise")
    def total(self, invoice: Invoice) -> str:
        return rupees(invoice.total_paise)

    def has_credit_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm("billing.add_creditnote")

    @action(
        description="Issue credit note",
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
    def credit(self, request: HttpRequest, form: CreditForm, object_id: str) -> HttpResponse:
        note = credit_notes.issue(
            invoice_id=UUID(object_id),
            total_paise=form.amount_paise,
            reason=form.cleaned_data["reason"],
            at=now(),
            actor_user_id=request.user.pk,
        )
        return done(request, f"Credit note {note.number} is issued.", change_url(Invoice, object_id))

    def has_replace_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm("billing.add_creditnote")

    @action(
        description="Replace",
        permissions=["replace"],
        icon="find_replace",
        variant=ActionVariant.WARNING,
        dialog=dialog(
            "Replace this invoice?",
            "For a wrong buyer: correct the billing profile first. A credit note of everything that is left is issued,"
            " and a new invoice for the same month. What was paid counts for the new one.",
            "Replace",
            ReasonForm,
        ),
    )
    def replace(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        new = replacing.replace(
            invoice_id=UUID(object_id),
            reason=form.cleaned_data["reason"],
            at=now(),
            actor_user_id=request.user.pk,
        )
        return done(request, f"Invoice {new.number} replaces it.", change_url(Invoice, new.pk))

    def has_payment_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm("billing.add_paymentattempt")

    @action(
        description="Record transfer",
        permissions=["payment"],
        icon="account_balance",
        variant=ActionVariant.SUCCESS,
        dialog=dialog(
            "Record a bank transfer?", "Money that reached the bank account directly.", "Record", TransferForm
        ),
    )
    def payment(self, request: HttpRequest, form: TransferForm, object_id: str) -> HttpResponse:
        recorded = bank_transfers.record(
            invoice_id=UUID(object_id),
            amount_paise=form.amount_paise,
            reference=form.cleaned_data["reference"],
            at=now(),
            actor_user_id=request.user.pk,
        )
        said = f"A bank transfer of {rupees(recorded.amount_paise)} is recorded."
        return done(request, said, change_url(Invoice, object_id))

    @action(
        description="Record TDS",
        permissions=["payment"],
        icon="receipt",
        dialog=dialog(
            "Record tax deducted at source?",
            "What the buyer kept for the tax office (section 194J), with the number of its certificate (Form 16A).",
            "Record",
            TdsForm,
        ),
    )
    def tds(self, request: HttpRequest, form: TdsForm, object_id: str) -> HttpResponse:
        recorded = bank_transfers.record_tds(
            invoice_id=UUID(object_id),
            amount_paise=form.amount_paise,
            certificate=form.cleaned_data["certificate"],
            at=now(),
            actor_user_id=request.user.pk,
        )
        said = f"{rupees(recorded.amount_paise)} of tax deducted at source is recorded."
        return done(request, said, change_url(Invoice, object_id))


@admin.register(CreditNote)
class CreditNoteAdmin(ReadOnlyAdmin):
    list_display = ("number", "invoice", "total", "reason", "issued_at")
    list_select_related = ("invoice",)
    search_fields = ("number", "invoice__number")
    search_help_text = "Number of the credit note or of its invoice"
    ordering = ("-id",)
    fields = (
        "number",
        "invoice",
        "total",
        "taxable",
        "tax",
        "reason",
        "issued_at",
        "issuer",
        "irn",
        "ack_no",
        "ack_at",
    )
    readonly_fields = ("total", "taxable", "tax", "issuer")
    issuer = person("issued_by")
    total = amount_in_rupees("Total", "total_paise")
    taxable = amount_in_rupees("Taxable value", "taxable_paise")
    tax = amount_in_rupees("Tax", "tax_paise")
