"""Mails that are due at a moment: reminders of overdue invoices, early warnings, receipts. Called by `billing_run.py`.

Reminders go out 0, 3, 7, 14 and 21 days after an invoice became overdue. Warnings precede what would hurt: a trial
that ends, a mandate that expires or is too small for the next invoice, a profile that is incomplete at the month's end.
Each tenant is on its own: trouble with one stops no other.
"""

from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from billing import overview
from billing.buyers import profiles
from billing.invoices.mailing import waits_for_registration
from billing.isolation import each
from billing.mails import messages
from billing.mails.messages import mail_once
from billing.models import Invoice, Mandate
from billing.pricing.money import rupees
from billing.pricing.periods import Period, ist_date
from billing.restriction import RESTRICTED_AFTER
from tenants.models import Tenant

REMINDER_DAYS = (0, 3, 7, 14, 21)


def send_reminders(at: datetime) -> int:
    """Send each reminder that is due, once; several missed ones are one mail. Returns how many were sent.

    An invoice that waits for its registration was not mailed either, so nobody is reminded of it.
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
            or waits_for_registration(invoice, invoice.irn)
        ):
            return False
        due = sum(invoice.overdue_since + timedelta(days=days) <= at for days in REMINDER_DAYS)
        if due <= invoice.reminders_sent:
            return False
        invoice.reminders_sent = due
        invoice.save(update_fields=["reminders_sent"])
        oldest = invoice.tenant.past_due_since or invoice.overdue_since
        messages.payment_reminder(invoice, restricted_in_days=max(0, (oldest + RESTRICTED_AFTER - at).days))
    return True


# --- Receipts and early warnings, each once.

TRIAL_DAYS = (7, 1)
MANDATE_DAYS = (30, 7)
BEFORE_THE_INVOICE = timedelta(days=10)
RECEIPTS_SINCE = timedelta(days=2)

_BILLED = (Tenant.BillingStatus.TRIALING, Tenant.BillingStatus.ACTIVE, Tenant.BillingStatus.PAST_DUE)


def send_receipts(at: datetime) -> int:
    """A receipt for every invoice that was paid lately; returns how many."""
    paid = Invoice.objects.filter(status=Invoice.Status.PAID, paid_at__gt=at - RECEIPTS_SINCE)

    def send(invoice: Invoice) -> bool:
        key = f"{invoice.number} {invoice.paid_at:%Y-%m-%d}"
        return mail_once(
            tenant_id=invoice.tenant_id,
            kind="receipt",
            key=key,
            at=at,
            queue=lambda: messages.receipt(invoice),
        )

    return each(paid.select_related("tenant").order_by("id"), send, step="receipts")


def send_early_warnings(at: datetime) -> int:
    """Every warning that is due; returns how many tenants got one."""
    tenants = Tenant.objects.filter(sandbox=False, billing_status__in=_BILLED, status=Tenant.Status.ACTIVE)
    return each(tenants.order_by("id"), lambda tenant: _warn(tenant, at), step="early_warnings")


def _warn(tenant: Tenant, at: datetime) -> bool:
    sent = [_trial_ends(tenant, at), _mandate_expires(tenant, at)]
    period = Period.of(at)
    if period.end - BEFORE_THE_INVOICE <= at:
        sent += [_above_limit(tenant, period, at), _profile_incomplete(tenant, period, at)]
    return any(sent)


def _trial_ends(tenant: Tenant, at: datetime) -> bool:
    if tenant.billing_status != Tenant.BillingStatus.TRIALING or tenant.trial_ends_at is None:
        return False
    ends = tenant.trial_ends_at
    days = _nearest(TRIAL_DAYS, ends - at)
    if days is None:
        return False
    return mail_once(
        tenant_id=tenant.id,
        kind="trial_ends",
        key=f"{ist_date(ends)} {days}",
        at=at,
        queue=lambda: messages.trial_ends(tenant, ends),
    )


def _mandate_expires(tenant: Tenant, at: datetime) -> bool:
    mandate = Mandate.objects.for_tenant(tenant.id).filter(status=Mandate.Status.ACTIVE).first()
    if mandate is None or mandate.expires_at is None:
        return False
    expires = mandate.expires_at
    days = _nearest(MANDATE_DAYS, expires - at)
    if days is None:
        return False
    return mail_once(
        tenant_id=tenant.id,
        kind="mandate_expires",
        key=f"{mandate.public_id} {days}",
        at=at,
        queue=lambda: messages.mandate_expires(mandate, expires),
    )


def _above_limit(tenant: Tenant, period: Period, at: datetime) -> bool:
    """The next invoice would be above the mandate's limit, so that it would not be debited."""
    mandate = Mandate.objects.for_tenant(tenant.id).filter(status=Mandate.Status.ACTIVE).first()
    if mandate is None:
        return False
    charge = overview.next_charge(tenant, at)
    if charge is None or charge.total_paise <= mandate.max_amount_paise:
        return False
    return mail_once(
        tenant_id=tenant.id,
        kind="above_limit",
        key=str(period),
        at=at,
        queue=lambda: messages.above_limit(
            tenant, total=rupees(charge.total_paise), limit=rupees(mandate.max_amount_paise)
        ),
    )


def _profile_incomplete(tenant: Tenant, period: Period, at: datetime) -> bool:
    profile = profiles.profile_of(tenant)
    missing = [name for name in profiles.missing(profile) if name != "billing_email"]
    if not missing:
        return False
    charge = overview.next_charge(tenant, at)
    if charge is None or charge.numbers == 0 or charge.period != str(period):
        return False
    return mail_once(
        tenant_id=tenant.id,
        kind="profile_incomplete",
        key=str(period),
        at=at,
        queue=lambda: messages.profile_incomplete(tenant, missing, waits=profiles.holds_back(profile)),
    )


def _nearest(days: tuple[int, ...], left: timedelta) -> int | None:
    """The smallest of these numbers of days that covers the time left; None when there is more, or none left."""
    if left <= timedelta():
        return None
    return min((number for number in days if left <= timedelta(days=number)), default=None)
