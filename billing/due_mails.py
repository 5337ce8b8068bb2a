"""Mails that are due at a moment, each sent once: documents with their PDF, reminders of overdue invoices, early
warnings, receipts. Called by `billing_run.py`.

Reminders are sent 0, 3, 7, 14 and 21 days after an invoice became overdue. Warnings are sent before a trial ends,
before a mandate expires or is too small for the next invoice, and when a profile is incomplete at the end of the month.
An error with one tenant does not stop the others.
"""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db import transaction

from billing import buyers, mails, overview
from billing.einvoices import must_be_registered
from billing.invoices import pdf
from billing.isolation import each
from billing.mails import mail_once
from billing.models import CreditNote, Invoice, Mandate
from billing.payments import corrections
from billing.pricing.money import rupees
from billing.pricing.periods import Period, ist_date
from billing.restriction import RESTRICTED_AFTER
from billing.usage import BILLED
from gateway.api.errors import Conflict
from tenants.mail import Attachment
from tenants.models import Tenant

REMINDER_DAYS = (0, 3, 7, 14, 21)


def send_reminders(at: datetime) -> int:
    """Send each due reminder once. Several missed ones become one mail. Returns how many were sent.

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
        ):
            return False
        due = sum(invoice.overdue_since + timedelta(days=days) <= at for days in REMINDER_DAYS)
        if due <= invoice.reminders_sent:
            return False
        invoice.reminders_sent = due
        invoice.save(update_fields=["reminders_sent"])
        oldest = invoice.tenant.past_due_since or invoice.overdue_since
        mails.payment_reminder(invoice, restricted_in_days=max(0, (oldest + RESTRICTED_AFTER - at).days))
    return True


TRIAL_DAYS = (7, 1)
MANDATE_DAYS = (30, 7)
BEFORE_THE_INVOICE = timedelta(days=10)
RECEIPTS_SINCE = timedelta(days=2)


def send_receipts(at: datetime) -> int:
    """Send a receipt for each recently paid invoice. Returns how many were sent."""
    paid = Invoice.objects.filter(status=Invoice.Status.PAID, paid_at__gt=at - RECEIPTS_SINCE)

    def send(invoice: Invoice) -> bool:
        key = f"{invoice.number} {invoice.paid_at:%Y-%m-%d}"
        return mail_once(invoice.tenant_id, "receipt", key, at, lambda: mails.receipt(invoice))

    return each(paid.select_related("tenant").order_by("id"), send, step="receipts")


def send_early_warnings(at: datetime) -> int:
    """Send every due warning. Returns how many tenants received one."""
    tenants = Tenant.objects.filter(sandbox=False, billing_status__in=BILLED, status=Tenant.Status.ACTIVE)

    def warn(tenant: Tenant) -> int:
        return sum(mail_once(tenant.id, kind, key, at, queue) for kind, key, queue in _warnings(tenant, at))

    return each(tenants.order_by("id"), warn, step="early_warnings")


def _warnings(tenant: Tenant, at: datetime) -> Iterator[tuple[str, str, Callable[[], object]]]:
    """The warnings for a tenant at a moment: the kind of the mail, its key, and the function that queues it.

    In the last days of a month this includes a next invoice above the mandate's limit, because it would not be debited.
    """
    mandate = Mandate.objects.for_tenant(tenant.id).filter(status=Mandate.Status.ACTIVE).first()
    ends = tenant.trial_ends_at if tenant.billing_status == Tenant.BillingStatus.TRIALING else None
    if ends and (days := _nearest(TRIAL_DAYS, ends - at)):
        yield "trial_ends", f"{ist_date(ends)} {days}", lambda: mails.trial_ends(tenant, ends)
    expires = mandate.expires_at if mandate else None
    if mandate and expires and (days := _nearest(MANDATE_DAYS, expires - at)):
        key = f"{mandate.public_id} {days}"
        yield "mandate_expires", key, lambda: mails.mandate_expires(mandate, expires)
    period = Period.of(at)
    if period.end - BEFORE_THE_INVOICE > at:
        return
    profile = buyers.profile_of(tenant)
    missing = [name for name in buyers.missing(profile) if name != "billing_email"]
    charge = overview.next_charge(tenant, at) if mandate or missing else None
    if charge and mandate and charge.total_paise > (limit := mandate.max_amount_paise):
        total, most = rupees(charge.total_paise), rupees(limit)
        yield "above_limit", str(period), lambda: mails.above_limit(tenant, total=total, limit=most)
    if charge and missing and charge.numbers and charge.period == str(period):
        waits = buyers.holds_back(profile)
        yield "profile_incomplete", str(period), lambda: mails.profile_incomplete(tenant, missing, waits)


def _nearest(days: tuple[int, ...], left: timedelta) -> int | None:
    """The smallest of `days` that covers the time left. None when more than all of them is left, or no time."""
    if left <= timedelta():
        return None
    return min((number for number in days if left <= timedelta(days=number)), default=None)


SINCE = timedelta(days=3)
"""Age up to which unmailed documents are mailed."""
SINCE_REGISTRABLE = timedelta(days=31)
"""The same for documents that wait for their registration, for which the law allows 30 days."""


def send_invoices(at: datetime) -> int:
    """Mail every recently issued invoice that was not mailed. Returns how many were mailed."""
    invoices = Invoice.objects.filter(issued_at__gt=at - _since()).select_related("tenant", "snapshot")

    def send(invoice: Invoice) -> bool:
        return not waits_for_registration(invoice) and mail_once(
            invoice.tenant_id,
            "invoice",
            invoice.number,
            at,
            lambda: mails.invoice_issued(invoice, _pdf(invoice)),
        )

    return each(invoices.order_by("id"), send, step="invoice_mails")


def send_credit_notes(at: datetime) -> int:
    """Mail every recently issued credit note that was not mailed. Returns how many were mailed."""
    notes = CreditNote.objects.filter(issued_at__gt=at - _since()).select_related(
        "invoice__tenant", "invoice__snapshot"
    )

    def send(note: CreditNote) -> bool:
        return not waits_for_registration(note) and mail_once(
            note.invoice.tenant_id,
            "credit_note",
            note.number,
            at,
            lambda: mails.credit_note_issued(note, _pdf(note)),
        )

    return each(notes.order_by("id"), send, step="credit_note_mails")


def _since() -> timedelta:
    return SINCE_REGISTRABLE if settings.BILLING_EINVOICES else SINCE


def waits_for_registration(document: Invoice | CreditNote) -> bool:
    """Whether a document is not valid yet for lack of its registration: CGST rule 48(5). A credit note without tax
    needs none.
    """
    if isinstance(document, CreditNote) and document.is_commercial:
        return False
    invoice = document if isinstance(document, Invoice) else document.invoice
    return settings.BILLING_EINVOICES and document.irn is None and must_be_registered(invoice)


def send_again(invoice: Invoice, *, actor_user_id: int | None = None) -> None:
    """Mail an invoice again, with an audit entry. Raises Conflict for one that waits for its registration."""
    if waits_for_registration(invoice):
        raise Conflict("An invoice is not valid before its registration.")
    attachment = _pdf(invoice)
    with transaction.atomic():
        mails.invoice_issued(invoice, attachment)
        corrections.record(invoice, "billing.sent_again", actor_user_id)


def _pdf(document: Invoice | CreditNote) -> Attachment:
    return Attachment(pdf.file_name(document.number), "application/pdf", pdf.issued(document))
