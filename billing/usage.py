"""Active numbers of a month: those connected for long enough in it (docs/billing.md).

Reads the state intervals that `phone_numbers` writes. Called by the snapshot and by the estimate of `GET /v1/billing`.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Q
from django.db.models.functions import Coalesce

from billing.pricing.periods import Period
from phone_numbers.models import NumberStateInterval, PhoneNumber
from tenants.models import ApiKey, Tenant

BILLED = (Tenant.BillingStatus.TRIALING, Tenant.BillingStatus.ACTIVE, Tenant.BillingStatus.PAST_DUE)
"""Who is billed, or will be after the trial."""
MIN_CONNECTED = timedelta(hours=24)
"""A number connected for less than this in a month is not billed."""


@dataclass(slots=True)
class ActiveNumber:
    """A number and how long it was connected in the month."""

    phone_number_id: str
    display_phone_number: str
    active_since: datetime
    connected_seconds: int
    intervals: list[dict[str, datetime]]
    """[{from, to}], cut to the month; `to` is the end of the month while it lasts."""


def billed_from(tenant: Tenant, period: Period) -> datetime:
    """The moment of a month from which a tenant is billed: its start, or the trial's end."""
    return max(period.start, tenant.trial_ends_at) if tenant.trial_ends_at else period.start


def active_numbers(*, tenant_id: UUID, start: datetime, end: datetime) -> list[ActiveNumber]:
    """The live numbers connected for at least `MIN_CONNECTED` between two moments, by their id.

    A number that is still connected counts up to `end`: of a month that is not over yet, this is the estimate.
    """
    rows = (
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
    since: dict[str, tuple[str, datetime]] = {}
    connected: dict[str, timedelta] = {}
    intervals: dict[str, list[dict[str, datetime]]] = {}
    for phone_number_id, display, from_at, to_at in rows:
        since.setdefault(phone_number_id, (display, from_at))
        from_at, to_at = max(from_at, start), min(to_at or end, end)
        connected[phone_number_id] = connected.get(phone_number_id, timedelta()) + (to_at - from_at)
        intervals.setdefault(phone_number_id, []).append({"from": from_at, "to": to_at})
    return [
        ActiveNumber(
            phone_number_id, *since[phone_number_id], int(span.total_seconds()), intervals[phone_number_id]
        )
        for phone_number_id, span in sorted(connected.items())
        if span >= MIN_CONNECTED
    ]
