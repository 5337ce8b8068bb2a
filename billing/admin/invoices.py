"""Staff admin of invoices and credit notes, with the actions of staff that correct or settle an invoice."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.core.files.uploadedfile import UploadedFile
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import mark_safe

from billing import accounting, buyers, einvoices, gstr1, ledger, mails
from billing.admin.fields import MonthFilter, amount_in_rupees, shown_month
from billing.admin.money_acts import MoneyActsAdmin, money_action
from billing.invoices import documents
from billing.models import CreditNote, Invoice, LedgerEntry, LedgerPosting
from billing.pricing.money import rupees
from billing.pricing.periods import Period
from billing.pricing.periods import indian_date as day
from gateway.api.errors import Conflict
from gateway.clock import now
from tenants.staff.dialogs import DialogForm, action, change_url, dialog, done
from tenants.staff.read_only_admin import (
    CodeFilter,
    ReadOnlyAdmin,
    StatusLabel,
    TenantRowsAdmin,
    display,
    labelled,
    lines,
    person,
)

INVOICE_LABELS = {
    "open": "info",
    documents.OVERDUE: "danger",
    "processing": "info",
    "failed": "danger",
    "paid": "success",
    "void": "warning",
    documents.WRITTEN_OFF: "warning",
}
MONTHS_SHOWN = 12
_PARTY = ("name", "gstin", "pan", "address", "state", "country")


def _period(month: str) -> Period:
    try:
        return Period.parse(month)
    except ValueError:
        raise Http404("Write the month as 2026-12.") from None


def _file(content: bytes, content_type: str, name: str) -> HttpResponse:
    response = HttpResponse(content, content_type=content_type)
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def _party(party: dict[str, Any]) -> str:
    """The buyer or seller stored with an invoice as HTML, one field per line."""
    named = party | {"country": buyers.country_name(party.get("country", ""))}
    shown = [(name.upper() if name in {"gstin", "pan"} else "", named.get(name)) for name in _PARTY]
    return format_html_join(mark_safe("<br>"), "{} {}", [(title, value) for title, value in shown if value])


@admin.register(Invoice)
class InvoiceAdmin(MoneyActsAdmin, TenantRowsAdmin):
    list_display = ("number", "owner", "month", "shown_status", "total", "due", "issued_at", "due_at")
    list_filter = ("status", ("period", MonthFilter), ("supply_type", CodeFilter))
    search_fields = ("number", "=tenant__id", "tenant__name")
    search_help_text = "Invoice number, tenant ID or name"
    actions_detail = (
        "payment",
        "tds",
        "credit",
        {"title": "More", "items": ["replace", "cancel", "write_off", "send_again"]},
    )
    fields = (
        "number",
        "paper_link",
        "owner",
        "month",
        "shown_status",
        "shown_lines",
        "payments",
        "notes",
        "booked",
        "issued_at",
        "due_at",
        "paid_at",
        "overdue_since",
        "active_numbers",
        "total",
        "paid",
        "deducted",
        "credited",
        "due",
        "balance",
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
        "irn_cancelled_at",
    )
    month, supply = shown_month, labelled("supply_type", "Supply")
    total = amount_in_rupees("Total", "total_paise", ordering="total_paise")
    paid = amount_in_rupees("Paid", "amount_paid_paise")
    deducted = amount_in_rupees("Of that TDS", "tds_paise")
    credited = amount_in_rupees("Credited", "credited_paise")
    due = amount_in_rupees("Due", "amount_due_paise")

    def get_urls(self) -> list[URLPattern]:
        pages: tuple[tuple[str, Callable[..., HttpResponse], str], ...] = (
            ("accounting/", self.accounting_page, "accounting"),
            ("accounting/<str:month>-ledger.csv", self.ledger_csv, "ledger"),
            ("accounting/<str:month>-gstr1.json", self.month_return, "month"),
            ("accounting/<str:month>-close/", self.close_month, "close"),
            ("einvoices/", self.einvoices, "einvoices"),
            ("<uuid:key>/pdf/", self.paper, "pdf"),
        )
        own = [path(route, self._page(view), name=f"billing_invoice_{name}") for route, view, name in pages]
        return [*own, *super().get_urls()]

    def _page(self, view: Callable[..., HttpResponse]) -> Any:
        """Restrict a view to staff who may see invoices."""

        def permitted(request: HttpRequest, **parts: Any) -> HttpResponse:
            if not self.has_view_permission(request):
                raise PermissionDenied
            return view(request, **parts)

        return self.admin_site.admin_view(permitted)

    def accounting_page(self, request: HttpRequest) -> HttpResponse:
        """Revenue by month, unpaid amounts by age, and the export for accounting."""
        at = now()
        context = {
            **self.admin_site.each_context(request),
            "title": "Accounting",
            "months": accounting.months(Period.of(at), MONTHS_SHOWN),
            "closed_until": str(Period.of(ledger.closed_until()).previous),
            "may_close": request.user.has_perm("billing.add_closedmonth"),
            "accounts": [
                (LedgerPosting.Account(name).label, paise)
                for name, paise in accounting.trial_balance(at).items()
            ],
            "ages": accounting.unpaid_by_age(at),
            "debtors": accounting.debtors(at),
        }
        return TemplateResponse(request, "admin/billing/accounting.html", context)

    def close_month(self, request: HttpRequest, month: str) -> HttpResponse:
        """Close a month, from its button on the accounting page."""
        if not request.user.has_perm("billing.add_closedmonth"):
            raise PermissionDenied
        page, period = redirect("admin:billing_invoice_accounting"), _period(month)
        if request.method != "POST":
            return page
        try:
            ledger.close_month(period, at=now(), actor_user_id=request.user.pk)
        except Conflict as error:
            messages.error(request, error.text)
        else:
            messages.success(request, f"{period.name} is closed.")
        return page

    def month_return(self, request: HttpRequest, month: str) -> HttpResponse:
        """The GSTR-1 file of a month, the same file that `manage.py billing_export` writes."""
        period = _period(month)
        return _file(gstr1.file_of(period), "application/json", f"gstr1-{period}.json")

    def ledger_csv(self, request: HttpRequest, month: str) -> HttpResponse:
        """All postings of a month as CSV, the same file that `manage.py billing_export --ledger` writes."""
        content = accounting.ledger_csv(_period(month)).encode()
        return _file(content, "text/csv; charset=utf-8", f"ledger-{month}.csv")

    def einvoices(self, request: HttpRequest) -> HttpResponse:
        """The page of documents that wait for registration. `?as=file` returns the file for the portal. A POST uploads
        the portal's answers.
        """
        if request.GET.get("as") == "file":
            return _file(einvoices.file_for_portal(), "application/json", "documents.json")
        if request.method == "POST":
            if not self.has_credit_permission(request):
                raise PermissionDenied
            self._take_answers(request)
            return redirect("admin:billing_invoice_einvoices")
        context = {
            **self.admin_site.each_context(request),
            "title": "E-invoices",
            "waiting": [document["DocDtls"] for document in einvoices.unregistered()],
            "may_upload": self.has_credit_permission(request),
        }
        return TemplateResponse(request, "admin/billing/einvoices.html", context)

    def _take_answers(self, request: HttpRequest) -> None:
        sent = request.FILES.get("answers")
        try:
            content = sent.read() if isinstance(sent, UploadedFile) else b""
            written, problems = einvoices.record_file(content, actor_user_id=request.user.pk)
        except einvoices.UnreadableAnswer as error:
            messages.error(request, str(error))
            return
        messages.success(request, f"Documents registered: {written}.")
        for problem in problems:
            messages.error(request, problem)

    def paper(self, request: HttpRequest, key: UUID) -> HttpResponse:
        """The PDF of an invoice."""
        return documents.pdf_response(get_object_or_404(Invoice, pk=key))

    @display(description="Status", label=INVOICE_LABELS, ordering="status")
    def shown_status(self, invoice: Invoice) -> StatusLabel:
        return StatusLabel(*documents.payment_state(invoice, now()))

    @display(description="Document")
    def paper_link(self, invoice: Invoice) -> str:
        url = reverse("admin:billing_invoice_pdf", args=[invoice.pk])
        return format_html('<a class="text-link" href="{}">PDF</a>', url)

    @display(description="Lines")
    def shown_lines(self, invoice: Invoice) -> str:
        return lines(
            f"{row.description}: {row.quantity} × {rupees(row.unit_paise)} = {rupees(row.amount_paise)},"
            f" GST {row.gst_percent} %"
            for row in invoice.lines.all()
        )

    @display(description="Payments")
    def payments(self, invoice: Invoice) -> str:
        return lines(
            f"{day(row.created_at)} {row.get_kind_display()}: {rupees(row.amount_paise)},"
            f" {row.get_status_display()}, kept {rupees(row.kept_paise)}"
            for row in invoice.attempts_newest_first
        )

    @display(description="Credit notes")
    def notes(self, invoice: Invoice) -> str:
        return lines(
            f"{note.number} of {rupees(note.total_paise)}: {note.reason}"
            for note in invoice.credit_notes.all()
        )

    @display(description="Ledger")
    def booked(self, invoice: Invoice) -> str:
        notes = [f"credit {note.number}" for note in invoice.credit_notes.all()]
        own = LedgerEntry.objects.filter(Q(postings__invoice=invoice) | Q(key__in=notes))
        postings = LedgerPosting.objects.filter(entry__in=own).select_related("entry")
        return lines(
            f"{day(row.entry.at)} {row.entry.get_act_display()}: {row.get_account_display()}"
            f" {rupees(row.amount_paise)}"
            for row in postings.order_by("entry__at", "entry_id", "id")
        )

    @display(description="Balance of the business")
    def balance(self, invoice: Invoice) -> str:
        return rupees(ledger.balance_paise(invoice.tenant_id))

    @display(description="Buyer")
    def billed_to(self, invoice: Invoice) -> str:
        return _party(invoice.buyer)

    @display(description="Seller")
    def sold_by(self, invoice: Invoice) -> str:
        return _party(invoice.seller)

    credit, replace, cancel = money_action("credit"), money_action("replace"), money_action("cancel")
    payment, tds, write_off = money_action("payment"), money_action("tds"), money_action("write_off")

    @action(
        description="Send again",
        permissions=["payment"],
        icon="mail",
        dialog=dialog("Send the invoice again?", "The same mail, with the PDF as it was issued.", "Send"),
    )
    def send_again(self, request: HttpRequest, form: DialogForm, object_id: str) -> HttpResponse:
        invoice = Invoice.objects.select_related("tenant", "snapshot").get(pk=UUID(object_id))
        mails.send_again(invoice, actor_user_id=request.user.pk)
        return done(request, "The mail is on its way.", change_url(Invoice, object_id))


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
    issuer = person("issued_by")
    total = amount_in_rupees("Total", "total_paise")
    taxable = amount_in_rupees("Taxable value", "taxable_paise")
    tax = amount_in_rupees("Tax", "tax_paise")
