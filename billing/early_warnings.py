"""Early warnings: mails before something hurts, each once, and the receipt after a payment. Called by `billing_run.py`.

A trial that ends, a mandate that expires or is too small for the next invoice, a profile that is not complete before
the month ends. Each tenant is on its own: trouble with one stops no other.
"""

from datetime import datetime, timedelta

from billing import overview
from billing.buyers import profiles
from billing.isolation import each
from billing.mails import messages
from billing.mails.mail_once import mail_once
from billing.models import Invoice, Mandate
from billing.pricing.money import rupees
from billing.pricing.periods import Period, ist_date
from tenants.models import Tenant

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


def send_due(at: datetime) -> int:
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
