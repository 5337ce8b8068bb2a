"""Usage of a month: a tenant's active numbers, and the snapshot that stores the usage of a finished month once.

A number is active when it was connected for long enough in the month (docs/billing.md). Two simultaneous runs take one
snapshot, because it is unique per tenant and month. Reads the state intervals that `phone_numbers` writes. Called by
`billing_run.py` and by the estimate of `GET /v1/billing`.
"""

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Coalesce

from billing import buyers, plan
from billing.error_isolation import each
from billing.models import BillingSnapshot
from billing.pricing.periods import Period
from phone_numbers.models import NumberStateInterval, PhoneNumber
from tenants.models import ApiKey, Tenant
from tenants.signup import tax_ids

BILLED = (Tenant.BillingStatus.TRIALING, Tenant.BillingStatus.ACTIVE, Tenant.BillingStatus.PAST_DUE)
"""Statuses of tenants that are billed, now or after the trial."""
MIN_CONNECTED = timedelta(hours=24)
"""A number that was connected for less than this in a month is not billed."""


@dataclass(slots=True)
class ActiveNumber:
    """A number and how long it was connected in the month."""

    phone_number_id: str
    display_phone_number: str
    active_since: datetime
    connected_seconds: int
    intervals: list[dict[str, datetime]]
    """[{from, to}], cut to the month. `to` of an interval that still lasts is the end of the month."""


def billed_from(tenant: Tenant, period: Period) -> datetime:
    """The moment from which a tenant is billed in a month: the start of the month, or the end of the trial."""
    return max(period.start, tenant.trial_ends_at) if tenant.trial_ends_at else period.start


def active_numbers(*, tenant_id: UUID, start: datetime, end: datetime) -> list[ActiveNumber]:
    """The live numbers that were connected for at least `MIN_CONNECTED` between two moments, ordered by id.

    A number that is still connected counts up to `end`. So in a month that is not over, the result is an estimate. A
    number that moves to another account gets another id there. It counts once, under its newest id.
    """
    rows = list(
        NumberStateInterval.objects.filter(
            Q(number__environment=ApiKey.Environment.LIVE) | Q(environment=ApiKey.Environment.LIVE),
            Q(to_at__isnull=True) | Q(to_at__gt=start),
            tenant_id=tenant_id,
            connection_state=PhoneNumber.State.CONNECTED,
            from_at__lt=end,
        )
        .order_by("from_at", "id")
        .values_list(
            Coalesce("number__phone_number_id", "phone_number_id"),
            Coalesce("number__display_phone_number", "display_phone_number"),
            "from_at",
            "to_at",
        )
    )
    names = {phone_number_id: display for phone_number_id, display, _, _ in rows if display}
    found: dict[str, ActiveNumber] = {}
    for phone_number_id, _, from_at, to_at in rows:
        display = names.get(phone_number_id, "")
        key = re.sub("[^0-9]", "", display) or phone_number_id
        number = found.setdefault(key, ActiveNumber(phone_number_id, display, from_at, 0, []))
        number.phone_number_id, number.display_phone_number = phone_number_id, display
        _add(number.intervals, max(from_at, start), min(to_at or end, end))
    for number in found.values():
        spans = (interval["to"] - interval["from"] for interval in number.intervals)
        number.connected_seconds = int(sum(spans, timedelta()).total_seconds())
    active = [
        number for number in found.values() if number.connected_seconds >= MIN_CONNECTED.total_seconds()
    ]
    return sorted(active, key=lambda number: number.phone_number_id)


def _add(intervals: list[dict[str, datetime]], from_at: datetime, to_at: datetime) -> None:
    """Add an interval that begins after the others. If it overlaps the last one, the two become one."""
    if intervals and from_at < intervals[-1]["to"]:
        intervals[-1]["to"] = max(intervals[-1]["to"], to_at)
    else:
        intervals.append({"from": from_at, "to": to_at})


AFTER_MIDNIGHT = timedelta(minutes=10)
"""How long after a month's end its snapshot is taken (00:10 IST). By then the month's last transactions are committed.
"""

_STATUS = Tenant.BillingStatus


def end_trials(at: datetime) -> int:
    """End the trials that are over. A tenant whose row is locked is left to the next run. Returns how many trials
    ended.
    """
    with transaction.atomic():
        over = Tenant.objects.filter(billing_status=_STATUS.TRIALING, trial_ends_at__lte=at)
        free = over.select_for_update(of=("self",), skip_locked=True, no_key=True)
        ended = list(free.values_list("id", flat=True))
        return Tenant.objects.filter(pk__in=ended).update(billing_status=_STATUS.ACTIVE)


def take_snapshots(at: datetime) -> int:
    """Take every due snapshot. Returns how many were new."""
    due = [(tenant, period) for period in due_periods(at) for tenant in uncounted(period)]
    return each(due, lambda one: _take_snapshot(*one, at), step="snapshots")


def due_periods(at: datetime) -> Iterator[Period]:
    """The months that are over, from BILLING_FIRST_PERIOD on. Without that setting, only the last month."""
    last = Period.of(at - AFTER_MIDNIGHT).previous
    period = Period.parse(settings.BILLING_FIRST_PERIOD) if settings.BILLING_FIRST_PERIOD else last
    while period <= last:
        yield period
        period = period.next


def uncounted(period: Period) -> QuerySet[Tenant]:
    """Tenants to bill for a month that have no snapshot of it."""
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


def _take_snapshot(tenant: Tenant, period: Period, at: datetime) -> int:
    numbers = active_numbers(tenant_id=tenant.id, start=billed_from(tenant, period), end=period.end)
    charge = plan.charge_for(len(numbers), plan.terms_for(tenant.id, period))
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
    """The tax of the later invoice. For a buyer with an invalid tax id, the full GST: such a tax id delays the invoice,
    but not the snapshot.
    """
    try:
        return charge.taxes(buyers.supply(buyers.profile_of(tenant), period.end)).total_paise
    except tax_ids.InvalidTaxIdError:
        return charge.tax_paise
