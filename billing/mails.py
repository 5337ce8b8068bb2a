"""Billing mails that are due at a moment, each sent once: documents with their PDF, reminders of overdue invoices,
receipts, early warnings. Called by `billing_run.py`.

Reminders are sent 0, 3, 7, 14 and 21 days after an invoice became overdue. Warnings are sent before a trial ends,
before a mandate expires, when a mandate is too small for the next invoice, and when a profile is incomplete at the end
of the month. An error with one tenant does not stop the others.

Mails contain a pay link of the service, never a payment link of the provider. A link of the provider expires, and a
second link could collect the same invoice twice.
"""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from billing import buyers, ledger, next_invoice, restriction
from billing.einvoices import must_be_registered
from billing.error_isolation import each
from billing.invoices import documents
from billing.models import BillingMail, CreditNote, Invoice, Mandate, PayLink, PaymentAttempt
from billing.payments import corrections, debits
from billing.payments.provider import REASONS
from billing.pricing.money import rupees
from billing.pricing.periods import Period, ist_date
from billing.usage import BILLED
from gateway.api.errors import Conflict
from tenants import mail
from tenants.mail import Attachment
from tenants.models import Tenant

# --- Documents with their PDF.

SINCE = timedelta(days=3)
"""Age up to which unmailed documents are mailed."""
SINCE_REGISTRABLE = timedelta(days=31)
"""While registration is required, documents older than this are not mailed. The law allows 30 days for the
registration.
"""


def send_invoices(at: datetime) -> int:
    """Mail every recently issued invoice that was not mailed, and those that waited for an address. Returns how many
    were mailed.
    """
    invoices = Invoice.objects.filter(_to_mail("invoice", at)).select_related("tenant", "snapshot")

    def send(invoice: Invoice) -> bool:
        return not waits_for_registration(invoice) and mail_once(
            invoice.tenant_id,
            "invoice",
            invoice.number,
            at,
            lambda: _invoice_issued(invoice, lambda: _pdf(invoice)),
            waits=True,
        )

    return each(invoices.order_by("id"), send, step="invoice_mails")


def send_credit_notes(at: datetime) -> int:
    """Mail every recently issued credit note that was not mailed, and those that waited for an address. Returns how
    many were mailed.
    """
    notes = CreditNote.objects.filter(_to_mail("credit_note", at)).select_related(
        "invoice__tenant", "invoice__snapshot"
    )

    def send(note: CreditNote) -> bool:
        return not waits_for_registration(note) and mail_once(
            note.invoice.tenant_id,
            "credit_note",
            note.number,
            at,
            lambda: _credit_note_issued(note, lambda: _pdf(note)),
            waits=True,
        )

    return each(notes.order_by("id"), send, step="credit_note_mails")


def _to_mail(kind: str, at: datetime) -> Q:
    """The documents that may have to be mailed: recent ones, and those that wait for an address, whatever their age."""
    since = SINCE_REGISTRABLE if settings.BILLING_EINVOICES else SINCE
    waiting = BillingMail.objects.filter(kind=f"{kind}{_WAITS}").values("key")
    return Q(issued_at__gt=at - since) | Q(number__in=waiting)


def waits_for_registration(document: Invoice | CreditNote) -> bool:
    """Whether a document is not valid yet, because it is not registered (CGST rule 48(5)).

    A credit note without tax, or of an invoice whose registration was cancelled, is never registered. An invoice that
    was mailed without a registration is older than the duty to register, and so are its credit notes.
    """
    if isinstance(document, CreditNote) and (document.is_commercial or document.invoice.irn_cancelled_at):
        return False
    invoice = document if isinstance(document, Invoice) else document.invoice
    if not settings.BILLING_EINVOICES or document.irn is not None or not must_be_registered(invoice):
        return False
    mailed = BillingMail.objects.filter(tenant_id=invoice.tenant_id, kind="invoice", key=invoice.number)
    return invoice.irn is not None or not mailed.exists()


def send_again(invoice: Invoice, *, actor_user_id: int | None = None) -> None:
    """Mail an invoice again, with an audit entry. Raises Conflict for an invoice that waits for its registration."""
    if waits_for_registration(invoice):
        raise Conflict("An invoice is not valid before its registration.")
    attachment = _pdf(invoice)
    with transaction.atomic():
        _invoice_issued(invoice, lambda: attachment)
        corrections.record(invoice, "billing.sent_again", actor_user_id)


def _pdf(document: Invoice | CreditNote) -> Attachment:
    return Attachment(documents.file_name(document.number), "application/pdf", documents.pdf(document))


def _invoice_issued(invoice: Invoice, pdf: Callable[[], Attachment]) -> None:
    """Send the month's invoice. The mail says whether the amount will be debited, or the business must pay it."""
    mandate = Mandate.objects.for_tenant(invoice.tenant_id).filter(status=Mandate.Status.ACTIVE).first()
    due = invoice.amount_due_paise
    _send(
        invoice.tenant,
        "invoice_issued",
        {
            **_facts(invoice),
            "debited": mandate is not None and debits.is_debited(invoice, mandate),
            "above_cap": mandate is not None and due > mandate.max_amount_paise,
        },
        pdf,
    )


def _credit_note_issued(note: CreditNote, pdf: Callable[[], Attachment]) -> None:
    """Send a credit note, with the amount still due."""
    _send(
        note.invoice.tenant,
        "credit_note",
        {**_facts(note.invoice), "note": note, "credited": rupees(note.total_paise)},
        pdf,
    )


# --- Reminders and receipts.

REMINDER_DAYS = (0, 3, 7, 14, 21)


def send_reminders(at: datetime) -> int:
    """Send each due reminder once. Several missed reminders become one mail. Returns how many were sent.

    Skips an invoice that waits for its registration, because it has not been mailed either.
    """
    overdue = Invoice.objects.owing().filter(
        overdue_since__isnull=False, reminders_sent__lt=len(REMINDER_DAYS)
    )
    return each(
        list(overdue.values_list("id", flat=True)),
        lambda invoice_id: _remind(invoice_id, at),
        step="reminders",
    )


def _remind(invoice_id: UUID, at: datetime) -> bool:
    with transaction.atomic():
        invoice = (
            Invoice.objects.select_for_update(of=("self",))
            .select_related("tenant", "snapshot")
            .get(pk=invoice_id)
        )
        if (
            invoice.status not in {Invoice.Status.OPEN, Invoice.Status.FAILED}
            or invoice.overdue_since is None
            or waits_for_registration(invoice)
            or not buyers.email_of(invoice.tenant)
        ):
            return False
        due = sum(invoice.overdue_since + timedelta(days=days) <= at for days in REMINDER_DAYS)
        if due <= invoice.reminders_sent:
            return False
        invoice.reminders_sent = due
        invoice.save(update_fields=["reminders_sent"])
        restricts_at = restriction.restricts_at(invoice.tenant_id) or at
        # Rounded up, because the billing run is up to minutes late.
        days_left = -((at - restricts_at) // timedelta(days=1))
        _payment_reminder(invoice, restricted_in_days=max(0, days_left))
    return True


def _payment_reminder(invoice: Invoice, *, restricted_in_days: int) -> None:
    """Send a reminder with the reason of a failed debit.

    `restricted_in_days` is the number of days until new numbers are restricted; 0 if they already are.
    """
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


RECEIPTS_SINCE = timedelta(days=2)


def send_receipts(at: datetime) -> int:
    """Send a receipt for each recently paid invoice. Returns how many were sent.

    An invoice that was only written off has no receipt.
    """
    paid = Invoice.objects.filter(status=Invoice.Status.PAID, paid_at__gt=at - RECEIPTS_SINCE)

    def send(invoice: Invoice) -> bool:
        key = f"{invoice.number} {invoice.paid_at:%Y-%m-%d}"
        received = invoice.amount_paid_paise - invoice.tds_paise - ledger.written_off_paise(invoice)
        return received > 0 and mail_once(
            invoice.tenant_id, "receipt", key, at, lambda: _receipt(invoice, received)
        )

    return each(paid.select_related("tenant").order_by("id"), send, step="receipts")


def _receipt(invoice: Invoice, received_paise: int) -> None:
    """Send a receipt for a paid invoice."""
    _send(invoice.tenant, "receipt", {**_facts(invoice), "paid": rupees(received_paise)})


# --- Early warnings.

TRIAL_DAYS = (7, 1)
MANDATE_DAYS = (30, 7)
BEFORE_THE_INVOICE = timedelta(days=10)


def send_early_warnings(at: datetime) -> int:
    """Send every due warning. Returns the number of tenants that received a warning."""
    tenants = Tenant.objects.filter(sandbox=False, billing_status__in=BILLED, status=Tenant.Status.ACTIVE)

    def warn(tenant: Tenant) -> int:
        return sum(mail_once(tenant.id, kind, key, at, queue) for kind, key, queue in _warnings(tenant, at))

    return each(tenants.order_by("id"), warn, step="early_warnings")


def _warnings(tenant: Tenant, at: datetime) -> Iterator[tuple[str, str, Callable[[], object]]]:
    """The warnings for a tenant at a moment: the kind of the mail, its key, and the function that queues it.

    One warning, in the last days of a month, is that the next invoice exceeds the mandate's limit.
    """
    mandate = Mandate.objects.for_tenant(tenant.id).filter(status=Mandate.Status.ACTIVE).first()
    ends = tenant.trial_ends_at if tenant.billing_status == Tenant.BillingStatus.TRIALING else None
    if ends and (days := _nearest(TRIAL_DAYS, ends - at)):
        yield "trial_ends", f"{ist_date(ends)} {days}", lambda: _trial_ends(tenant, ends)
    expires = mandate.expires_at if mandate else None
    if mandate and expires and (days := _nearest(MANDATE_DAYS, expires - at)):
        key = f"{mandate.public_id} {days}"
        yield "mandate_expires", key, lambda: _mandate_expires(mandate, expires)
    period = Period.of(at)
    if period.end - BEFORE_THE_INVOICE > at:
        return
    profile = buyers.profile_of(tenant)
    missing = [name for name in buyers.missing(profile) if name != "billing_email"]
    charge = next_invoice.estimate(tenant, at) if mandate or missing else None
    if charge and mandate and charge.debit_paise > (limit := mandate.max_amount_paise):
        total, most = rupees(charge.total_paise), rupees(limit)
        yield "above_limit", str(period), lambda: _above_limit(tenant, total=total, limit=most)
    if charge and missing and charge.numbers and charge.period == str(period):
        waits = buyers.holds_back(profile)
        yield "profile_incomplete", str(period), lambda: _profile_incomplete(tenant, missing, waits)


def _nearest(days: tuple[int, ...], left: timedelta) -> int | None:
    """The smallest of `days` that covers the time left. None when no time is left, or more than the
    largest of `days`.
    """
    if left <= timedelta():
        return None
    return min((number for number in days if left <= timedelta(days=number)), default=None)


def _trial_ends(tenant: Tenant, ends_at: datetime) -> None:
    """Warn that the trial ends soon."""
    autopay = buyers.can_set_up_autopay(buyers.profile_of(tenant))
    _send(tenant, "trial_ends", {"last_day": ist_date(ends_at - timedelta(seconds=1)), "autopay": autopay})


def _mandate_expires(mandate: Mandate, expires_at: datetime) -> None:
    """Warn that the card or the mandate expires soon."""
    _send(mandate.tenant, "mandate_expires", {"mandate": mandate, "expires_on": ist_date(expires_at)})


def _above_limit(tenant: Tenant, *, total: str, limit: str) -> None:
    """Warn that the next invoice will not be debited, because it exceeds the mandate's limit."""
    _send(tenant, "above_limit", {"total": total, "limit": limit})


def _profile_incomplete(tenant: Tenant, missing: list[str], waits: bool) -> None:
    """Warn that the profile lacks fields for the next invoice. `waits`: whether the invoice waits for these fields."""
    names = ", ".join(_FIELDS.get(name, name) for name in missing)
    _send(tenant, "profile_incomplete", {"missing": names, "waits": waits})


_FIELDS = {
    "legal_name": "legal name",
    "pin": "PIN code",
    "state_code": "State",
    "tax_id": "GSTIN or PAN",
    "phone": "phone number",
}


# --- Helpers of all mails.


class NoAddress(Conflict):
    """The tenant has neither a billing email nor a contact email."""

    message = "This business has no address for mails."


_WAITS = "_waits"
"""The end of the kind of a row that says that a mail waits for an address."""


def mail_once(
    tenant_id: UUID, kind: str, key: str, at: datetime, queue: Callable[[], object], *, waits: bool = False
) -> bool:
    """Queue a mail unless one of this kind and key was queued before, or the tenant has no address yet. Of two
    simultaneous runs, one waits for the other and then queues nothing. With `waits`, a row records that the mail waits
    for an address.
    """
    waiting = BillingMail(tenant_id=tenant_id, kind=f"{kind}{_WAITS}", key=key, sent_at=at)
    if BillingMail.objects.filter(tenant_id=tenant_id, kind=kind, key=key).exists():
        return False
    try:
        with transaction.atomic():
            row = BillingMail(tenant_id=tenant_id, kind=kind, key=key, sent_at=at)
            BillingMail.objects.bulk_create([row], ignore_conflicts=True)
            if not BillingMail.objects.filter(tenant_id=tenant_id, kind=kind, key=key, sent_at=at).exists():
                return False
            queue()
            if waits:
                BillingMail.objects.filter(tenant_id=tenant_id, kind=waiting.kind, key=key).delete()
    except NoAddress:
        if waits:
            BillingMail.objects.bulk_create([waiting], ignore_conflicts=True)
        return False
    return True


def _facts(invoice: Invoice) -> dict[str, Any]:
    return {
        "invoice": invoice,
        "total": rupees(invoice.total_paise),
        "due": rupees(invoice.amount_due_paise),
        "month": ist_date(Period.parse(invoice.period).start),
        "due_on": ist_date(invoice.pay_by),
        "pay_url": PayLink.url_of(invoice),
        "invoice_url": f"{PayLink.url_of(invoice)}/invoice",
        "tds": rupees(tds) if (tds := invoice.tds_paise) else "",
    }


def _send(
    tenant: Tenant, template: str, context: dict[str, Any], *attachments: Callable[[], Attachment]
) -> None:
    """Queue a mail. The attachments are made only if there is an address. Raises NoAddress."""
    to = buyers.email_of(tenant)
    if not to:
        raise NoAddress
    made = [attachment() for attachment in attachments]
    mail.send(to=to, template=template, context={"tenant": tenant, **context}, attachments=made)
