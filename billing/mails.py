"""Billing mails: an invoice, a reminder, a mandate that stopped. Written in the transaction of their cause.

Mails carry a pay link of the service, never a payment link of the provider: provider links expire, and a second one
could collect the same invoice twice.
"""

from typing import Any

from billing import pay_links, profiles
from billing.models import CreditNote, Invoice, Mandate
from billing.money import rupees
from billing.periods import Period, ist_date
from tenants import mail
from tenants.models import Tenant


def invoice_issued(invoice: Invoice, pdf: mail.Attachment) -> None:
    """The month's invoice, and whether it will be debited or has to be paid."""
    mandate = Mandate.objects.for_tenant(invoice.tenant_id).filter(status=Mandate.Status.ACTIVE).first()
    debited = mandate is not None and invoice.total_paise <= mandate.max_amount_paise
    _send(
        invoice.tenant,
        "invoice_issued",
        {**_facts(invoice), "debited": debited, "above_cap": mandate is not None and not debited},
        pdf,
    )


def credit_note_issued(note: CreditNote, pdf: mail.Attachment) -> None:
    """A credit note, with what is still due."""
    _send(
        note.invoice.tenant,
        "credit_note",
        {**_facts(note.invoice), "note": note, "credited": rupees(note.total_paise)},
        pdf,
    )


def payment_due(invoice: Invoice, *, last: bool) -> None:
    """A reminder; the last one says that new numbers are closed now."""
    _send(invoice.tenant, "payment_due", {**_facts(invoice), "last": last})


def mandate_stopped(mandate: Mandate) -> None:
    """Autopay was paused or ended at the bank's or the provider's side."""
    _send(mandate.tenant, "mandate_stopped", {"mandate": mandate})


def _facts(invoice: Invoice) -> dict[str, Any]:
    return {
        "invoice": invoice,
        "total": rupees(invoice.total_paise),
        "due": rupees(invoice.amount_due_paise),
        "month": ist_date(Period.parse(invoice.period).start),
        "due_on": ist_date(invoice.due_at),
        "pay_url": pay_links.url_of(invoice),
    }


def _send(tenant: Tenant, template: str, context: dict[str, Any], *attachments: mail.Attachment) -> None:
    if to := profiles.email_of(tenant):
        mail.send(to=to, template=template, context={"tenant": tenant, **context}, attachments=attachments)
