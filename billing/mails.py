"""Billing mails, such as an invoice, a reminder or a stopped mandate. Queued in the transaction of their cause.

Mails contain a pay link of the service, never a payment link of the provider. A link of the provider expires, and a
second one could collect the same invoice twice.
"""

import secrets
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction

from billing import buyers
from billing.models import BillingMail, CreditNote, Invoice, Mandate, PayLink, PaymentAttempt
from billing.pricing.money import rupees
from billing.pricing.periods import Period, ist_date
from tenants import mail
from tenants.models import Tenant


def invoice_issued(invoice: Invoice, pdf: mail.Attachment) -> None:
    """The month's invoice, and whether it will be debited or must be paid by hand."""
    mandate = Mandate.objects.for_tenant(invoice.tenant_id).filter(status=Mandate.Status.ACTIVE).first()
    debited = mandate is not None and invoice.amount_due_paise <= mandate.max_amount_paise
    _send(
        invoice.tenant,
        "invoice_issued",
        {**_facts(invoice), "debited": debited, "above_cap": mandate is not None and not debited},
        pdf,
    )


def credit_note_issued(note: CreditNote, pdf: mail.Attachment) -> None:
    """A credit note, with the amount still due."""
    _send(
        note.invoice.tenant,
        "credit_note",
        {**_facts(note.invoice), "note": note, "credited": rupees(note.total_paise)},
        pdf,
    )


def payment_reminder(invoice: Invoice, *, restricted_in_days: int) -> None:
    """A reminder, with the reason of a failed debit, and the days until new numbers are restricted (0: now)."""
    failed = invoice.attempts.filter(kind=PaymentAttempt.Kind.AUTOPAY).order_by("-id").first()
    reason = str((failed.error or {}).get("reason") or "") if failed else ""
    _send(
        invoice.tenant,
        "payment_reminder",
        {
            **_facts(invoice),
            "restricted_in_days": restricted_in_days,
            "debit_failed": failed is not None and failed.status == PaymentAttempt.Status.FAILED,
            "reason": REASONS.get(reason, ""),
        },
    )


REASONS = {
    "insufficient_funds": "the account has too little money",
    "payment_timed_out": "the bank did not answer in time",
    "notification_failed": "the bank could not announce the debit",
    "token_paused": "the mandate is paused",
    "token_cancelled": "the mandate was cancelled",
    "token_not_confirmed": "the mandate is not active",
    "amount_exceeds_maximum": "the amount is above the limit of the mandate",
    "payment_declined": "the bank declined",
}
"""The provider's reasons that a payer can understand, in words."""


def receipt(invoice: Invoice) -> None:
    """A receipt for a paid invoice."""
    _send(
        invoice.tenant,
        "receipt",
        {**_facts(invoice), "paid": rupees(invoice.amount_paid_paise - invoice.tds_paise)},
    )


def trial_ends(tenant: Tenant, ends_at: datetime) -> None:
    """The trial ends soon. The first invoice is for the month that begins then."""
    _send(tenant, "trial_ends", {"last_day": ist_date(ends_at - timedelta(seconds=1))})


def mandate_expires(mandate: Mandate, expires_at: datetime) -> None:
    """The card or the mandate expires soon."""
    _send(mandate.tenant, "mandate_expires", {"mandate": mandate, "expires_on": ist_date(expires_at)})


def above_limit(tenant: Tenant, *, total: str, limit: str) -> None:
    """The next invoice will not be debited, because it exceeds the mandate's limit."""
    _send(tenant, "above_limit", {"total": total, "limit": limit})


def profile_incomplete(tenant: Tenant, missing: list[str], waits: bool) -> None:
    """The next invoice would lack facts about its buyer. Without the State it waits."""
    names = ", ".join(_FIELDS.get(name, name) for name in missing)
    _send(tenant, "profile_incomplete", {"missing": names, "waits": waits})


_FIELDS = {
    "legal_name": "legal name",
    "pin": "PIN code",
    "state_code": "State",
    "tax_id": "GSTIN or PAN",
    "phone": "phone number",
}


def mandate_stopped(mandate: Mandate) -> None:
    """The bank or the provider paused or ended autopay."""
    _send(mandate.tenant, "mandate_stopped", {"mandate": mandate})


def pay_url(invoice: Invoice) -> str:
    """The secret address of an invoice's pay page. It never changes."""
    link, _ = PayLink.objects.get_or_create(invoice=invoice, defaults={"token": secrets.token_urlsafe(32)})
    return f"{settings.APP_URL}/pay/{link.token}"


def _facts(invoice: Invoice) -> dict[str, Any]:
    return {
        "invoice": invoice,
        "total": rupees(invoice.total_paise),
        "due": rupees(invoice.amount_due_paise),
        "month": ist_date(Period.parse(invoice.period).start),
        "due_on": ist_date(invoice.due_at),
        "pay_url": pay_url(invoice),
        "invoice_url": f"{pay_url(invoice)}/invoice",
        "tds": rupees(tds) if (tds := invoice.tds_paise) else "",
    }


def _send(tenant: Tenant, template: str, context: dict[str, Any], *attachments: mail.Attachment) -> None:
    if to := buyers.email_of(tenant):
        mail.send(to=to, template=template, context={"tenant": tenant, **context}, attachments=attachments)


def mail_once(tenant_id: UUID, kind: str, key: str, at: datetime, queue: Callable[[], object]) -> bool:
    """Queue a mail unless one of this kind and key was queued before. Of two simultaneous runs, one waits and then
    queues none.
    """
    if BillingMail.objects.filter(tenant_id=tenant_id, kind=kind, key=key).exists():
        return False
    with transaction.atomic():
        row = BillingMail(tenant_id=tenant_id, kind=kind, key=key, sent_at=at)
        BillingMail.objects.bulk_create([row], ignore_conflicts=True)
        if not BillingMail.objects.filter(tenant_id=tenant_id, kind=kind, key=key, sent_at=at).exists():
            return False
        queue()
    return True
