"""Sums and percentiles of the analytics: by hour or day, number, template and direction.

Counts are stored by hours of UTC. Days of a time zone are sums of these hours. In some time zones, an hour of UTC
crosses midnight. Such an hour belongs to the day in which its middle lies. So a day in India begins at 23:30.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from math import ceil
from typing import Any
from uuid import UUID

from django.db import connections

from gateway.api.errors import InvalidRequest
from gateway.database import replica

HOURS = {"hour": 1, "day": 24}
MOST_HOURS = {"hour": 7 * 24, "day": 92 * 24}
GROUPS = ("phone_number_id", "template", "direction")
MOST_ROWS = 100_000
"""The maximum number of rows of sums that are read for one answer."""

_SUMS = """
SELECT width_bucket(hour, %(hours)s) {groups}, direction = 'webhook', measure, value, sum(count)::bigint
FROM figures
WHERE tenant_id = %(tenant_id)s AND environment = %(environment)s AND hour >= %(first)s AND hour < %(last)s {filters}
GROUP BY 1 {groups}, direction = 'webhook', measure, value
LIMIT %(rows)s
"""
NOTES_READ = 20_000
"""The maximum number of change notes that are searched for the notes of one tenant. The search begins with the oldest
notes of all tenants.
"""
_OWN = "tenant_id = %(tenant_id)s AND environment = %(environment)s AND hour >= %(first)s AND hour < %(last)s"
_PENDING = f"""
WITH noted AS MATERIALIZED (SELECT * FROM figure_changes ORDER BY id LIMIT %(notes)s),
pending AS (
    SELECT hour, since FROM figures_due WHERE {_OWN}
    UNION ALL
    SELECT hour, noted_at FROM noted WHERE {_OWN}
)
SELECT (SELECT count(DISTINCT hour) FROM pending),
    least((SELECT min(since) FROM pending),
        (SELECT CASE WHEN count(*) = %(notes)s THEN max(noted_at) END FROM noted),
        CASE WHEN pg_is_in_recovery() THEN pg_last_xact_replay_timestamp() END,
        statement_timestamp())
"""  # noqa: S608 - only a condition of this module is formatted in


@dataclass
class Sums:
    """The figures of one group in one hour or day."""

    start: datetime
    group: Mapping[str, str]
    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    by_value: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))

    def percentile(self, measure: str, part: float) -> int | None:
        """A percentile of a measure: the smallest value such that at least the share `part` of the counts is at or
        below this value. None without counts.
        """
        counts = sorted((int(value), count) for value, count in self.by_value.get(measure, {}).items())
        needed = part * sum(count for _, count in counts)
        for value, count in counts:
            needed -= count
            if needed <= 0:
                return value
        return None


@dataclass(frozen=True)
class Figures:
    """Figures of a range: messages by group, and deliveries without groups."""

    messages: list[Sums]
    webhooks: list[Sums]
    pending_hours: int
    as_of: datetime
    """Every change that was committed before this time is included."""


def read(
    *,
    tenant_id: UUID,
    environment: str,
    begin: datetime,
    end: datetime,
    interval: str,
    groups: Collection[str],
    equal: Mapping[str, str],
    zone: tzinfo = UTC,
) -> Figures:
    """The figures of all hours or days from the one that contains `begin` until `end`, exclusive. Days are those of the
    time zone `zone`.

    Raises InvalidRequest for a range that is empty or too long.
    """
    length = HOURS[interval]
    start = begin.astimezone(zone).replace(minute=0, second=0, microsecond=0)
    if interval == "day":
        start = start.replace(hour=0)
    first, last = _first_hour(start), ceil(end.timestamp() / 3600)
    if last <= first:
        raise InvalidRequest.of(to="Must be after `from`.")
    if last - first > MOST_HOURS[interval] + length:
        raise InvalidRequest.of(**{"from": f"At most {MOST_HOURS[interval] // 24} days by {interval}."})
    starts = []
    while start < end:
        starts.append(start)
        # A day is a day of local time, so its length changes twice a year. An hour is elapsed time.
        step = timedelta(hours=length)
        start = start + step if interval == "day" else (start.astimezone(UTC) + step).astimezone(zone)
    chosen = [name for name in GROUPS if name in groups]
    parameters: dict[str, Any] = {
        "tenant_id": tenant_id,
        "environment": environment,
        "first": first,
        "last": last,
        "hours": [_first_hour(each) for each in starts],
        "rows": MOST_ROWS + 1,
        "notes": NOTES_READ,
        **equal,
    }
    filters = "".join(f" AND (direction = 'webhook' OR {name} = %({name})s)" for name in equal)
    statement = _SUMS.format(groups="".join(f", {name}" for name in chosen), filters=filters)

    def ask(alias: str) -> tuple[list[Any], int, datetime]:
        with connections[alias].cursor() as cursor:
            cursor.execute(statement, parameters)
            sums = cursor.fetchall()
            cursor.execute(_PENDING, parameters)
            return sums, *cursor.fetchone()

    rows, pending, as_of = replica.read(ask)
    if len(rows) > MOST_ROWS:
        raise InvalidRequest.of(group_by="Too many groups: choose a shorter range, a filter or fewer groups.")
    found: dict[tuple[Any, ...], Sums] = {}
    for *key, is_webhook, measure, value, count in rows:
        place, *group = key
        sums = found.setdefault(
            (is_webhook, *key),
            Sums(starts[place - 1], dict(zip(chosen, group, strict=True))),
        )
        sums.counts[measure] += count
        sums.by_value[measure][value] = count
    return Figures(
        messages=list(_in_order(found, is_webhook=False)),
        webhooks=list(_in_order(found, is_webhook=True)),
        pending_hours=pending,
        as_of=as_of,
    )


def _first_hour(start: datetime) -> int:
    """The first hour since 1970 whose middle is at `start` or later."""
    return -(-(int(start.timestamp()) - 1800) // 3600)


def _in_order(found: Mapping[tuple[Any, ...], Sums], *, is_webhook: bool) -> Iterator[Sums]:
    return (found[key] for key in sorted(found) if key[0] is is_webhook)
