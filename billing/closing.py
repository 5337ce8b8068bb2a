"""Closing of months: their figures and documents stay as they were reported. In order, and for ever.

Called by the staff admin. An act that belongs to a closed month is booked on the first moment after it, a document is
dated no earlier.
"""

from datetime import UTC, datetime

from django.db import connection, transaction
from django.db.models import Max

from billing import snapshots
from billing.models import ClosedMonth, InvoiceSeries, LedgerEntry
from billing.pricing.periods import Period
from gateway.api.errors import Conflict
from tenants import audit

NEVER = datetime(1970, 1, 1, tzinfo=UTC)


def closed_until() -> datetime:
    """The end of the last closed month."""
    last: datetime | None = ClosedMonth.objects.aggregate(last=Max("ends_at"))["last"]
    return last or NEVER


def close(period: Period, *, at: datetime, actor_user_id: int | None = None) -> None:
    """Close a month and those before it. Raises Conflict for one that lasts, is closed, or has usage to be counted."""
    with transaction.atomic():
        # What is being issued or booked comes before; what comes later finds the month closed.
        tables = f"{InvoiceSeries._meta.db_table}, {LedgerEntry._meta.db_table}"
        with connection.cursor() as cursor:
            cursor.execute(f"LOCK TABLE {tables} IN SHARE ROW EXCLUSIVE MODE")
        if period.end > at:
            raise Conflict("This month is not over.")
        if period.end <= closed_until():
            raise Conflict("This month is closed already.")
        if any(due <= period and snapshots.uncounted(due).exists() for due in snapshots.due_periods(at)):
            raise Conflict("The usage of this month is not counted yet: the next billing run does.")
        ClosedMonth.objects.create(
            period=str(period), ends_at=period.end, closed_at=at, closed_by=actor_user_id
        )
        audit.record(
            action="billing.close",
            target_type="month",
            target_id=str(period),
            actor_user_id=actor_user_id,
        )
