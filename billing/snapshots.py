"""Monthly snapshots: ends trials, then fixes each tenant's usage of a finished month, once.

Called by `billing_run.py`. Two runs at once take one snapshot: it is unique per tenant and month.
"""

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet

from billing import buyers
from billing.isolation import each
from billing.models import BillingSnapshot
from billing.pricing import gst, plan
from billing.pricing.periods import Period
from billing.terms import terms_for
from billing.usage import active_numbers, billed_from
from tenants.models import Tenant
from tenants.signup import tax_ids

AFTER_MIDNIGHT = timedelta(minutes=10)
"""How long after a month's end its snapshot is taken (IST 00:10): by then its last transactions have committed."""

_STATUS = Tenant.BillingStatus


def end_trials(at: datetime) -> int:
    """Tenants whose trial is over begin to pay. One whose row is held does at the next run."""
    with transaction.atomic():
        over = Tenant.objects.filter(billing_status=_STATUS.TRIALING, trial_ends_at__lte=at)
        free = over.select_for_update(of=("self",), skip_locked=True, no_key=True)
        ended = list(free.values_list("id", flat=True))
        return Tenant.objects.filter(pk__in=ended).update(billing_status=_STATUS.ACTIVE)


def take(at: datetime) -> int:
    """Take every snapshot that is due; returns how many were new."""
    due = [(tenant, period) for period in due_periods(at) for tenant in uncounted(period)]
    return each(due, lambda one: _take(*one, at), step="snapshots")


def due_periods(at: datetime) -> Iterator[Period]:
    """The months that are over: from BILLING_FIRST_PERIOD, or only the last one where that is not set."""
    last = Period.of(at - AFTER_MIDNIGHT).previous
    period = Period.parse(settings.BILLING_FIRST_PERIOD) if settings.BILLING_FIRST_PERIOD else last
    while period <= last:
        yield period
        period = period.next


def uncounted(period: Period) -> QuerySet[Tenant]:
    """Tenants that are to be billed for a month and have no snapshot of it."""
    return (
        Tenant.objects.filter(
            Q(trial_ends_at__isnull=True) | Q(trial_ends_at__lt=period.end),
            billing_status__in=[_STATUS.ACTIVE, _STATUS.PAST_DUE],
            sandbox=False,
            created_at__lt=period.end,
        )
        .exclude(billing_snapshots__period=str(period))
        .order_by("id")
    )


def _take(tenant: Tenant, period: Period, at: datetime) -> int:
    numbers = active_numbers(tenant_id=tenant.id, start=billed_from(tenant, period), end=period.end)
    charge = plan.charge_for(len(numbers), terms_for(tenant.id, period))
    tax_paise = _tax(tenant, charge, period)
    before = BillingSnapshot(
        tenant=tenant,
        period=str(period),
        active_numbers=len(numbers),
        numbers=[asdict(number) for number in numbers],
        terms=charge.terms.as_json(),
        subtotal_paise=charge.subtotal_paise,
        tax_paise=tax_paise,
        total_paise=charge.subtotal_paise + tax_paise,
        taken_at=at,
    )
    BillingSnapshot.objects.bulk_create([before], ignore_conflicts=True)
    return int(BillingSnapshot.objects.filter(pk=before.pk).exists())


def _tax(tenant: Tenant, charge: plan.Charge, period: Period) -> int:
    """The tax as the invoice will have it. A profile that cannot be read holds back the invoice, not the usage."""
    try:
        return gst.taxes(charge, buyers.supply(buyers.profile_of(tenant), period.end)).total_paise
    except tax_ids.InvalidTaxIdError:
        return charge.tax_paise
