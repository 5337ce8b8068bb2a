"""Mailing of invoices and credit notes, each once, with its PDF. Called by `billing_run.py` after issuing."""

from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from billing.einvoices.documents import must_be_registered
from billing.invoices import pdf
from billing.isolation import each
from billing.mails import messages
from billing.mails.messages import mail_once
from billing.models import CreditNote, Invoice
from billing.payments import corrections
from gateway.api.errors import Conflict
from tenants.mail import Attachment

SINCE = timedelta(days=3)
"""How far back documents are looked for that were not mailed."""
SINCE_REGISTRABLE = timedelta(days=31)
"""The same while documents wait for their registration: the law allows 30 days for it."""


def send_invoices(at: datetime) -> int:
    """Mail every invoice that was issued lately and not mailed; returns how many were."""
    invoices = Invoice.objects.filter(issued_at__gt=at - _since()).select_related("tenant", "snapshot")

    def send(invoice: Invoice) -> bool:
        return not waits_for_registration(invoice) and mail_once(
            invoice.tenant_id,
            "invoice",
            invoice.number,
            at,
            lambda: messages.invoice_issued(invoice, _pdf(invoice)),
        )

    return each(invoices.order_by("id"), send, step="invoice_mails")


def send_credit_notes(at: datetime) -> int:
    """Mail every credit note that was issued lately and not mailed; returns how many were."""
    notes = CreditNote.objects.filter(issued_at__gt=at - _since()).select_related(
        "invoice__tenant", "invoice__snapshot"
    )

    def send(note: CreditNote) -> bool:
        return not waits_for_registration(note) and mail_once(
            note.invoice.tenant_id,
            "credit_note",
            note.number,
            at,
            lambda: messages.credit_note_issued(note, _pdf(note)),
        )

    return each(notes.order_by("id"), send, step="credit_note_mails")


def _since() -> timedelta:
    return SINCE_REGISTRABLE if settings.BILLING_EINVOICES else SINCE


def waits_for_registration(document: Invoice | CreditNote) -> bool:
    """Whether a document is no valid one yet: CGST rule 48(5). A credit note without tax is registered nowhere."""
    if isinstance(document, CreditNote) and document.is_commercial:
        return False
    invoice = document if isinstance(document, Invoice) else document.invoice
    return settings.BILLING_EINVOICES and document.irn is None and must_be_registered(invoice)


def send_again(invoice: Invoice, *, actor_user_id: int | None = None) -> None:
    """Mail an invoice once more, audited. Raises Conflict for one that waits for its registration."""
    if waits_for_registration(invoice):
        raise Conflict("It is no valid invoice before its registration.")
    attachment = _pdf(invoice)
    with transaction.atomic():
        messages.invoice_issued(invoice, attachment)
        corrections.record(invoice, "billing.sent_again", actor_user_id)


def _pdf(document: Invoice | CreditNote) -> Attachment:
    return Attachment(pdf.file_name(document.number), "application/pdf", pdf.issued(document))
