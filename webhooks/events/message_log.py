"""Projection of events onto the message log: one row a message, written by the statement that writes the events.

`MessageRows` turns the events of a statement into one row for each message, `UPSERT` is the part of the statement that
stores them. Times only move to the earliest report and other columns only get filled, so repeats and the order of
events do not matter. Rows are locked in the order of their keys, so two statements that name the same messages wait
for each other instead of deadlocking.

A message is found again by its key in the current month or, for a status, in the months of `LOOK_BACK` before. A status
that comes later than that, or a message whose first two events are written at the same moment on both sides of the end
of a month, makes a second row. The look-up is the function `message_month` of the database (migration 0017).
"""

from datetime import timedelta
from operator import attrgetter
from typing import Any
from uuid import UUID

import orjson

from gateway import ids
from gateway.clock import isoformat_of, now
from gateway.upstream.notifications.message_facts import MessageFacts
from webhooks.events.new_event import NewEvent

LOOK_BACK = timedelta(days=95)
"""How long after its message a status is expected: the upstream tries to deliver for up to 30 days."""

_TIME_COLUMN = {
    "accepted": "accepted_at",
    "received": "sent_at",
    "sent": "sent_at",
    "delivered": "delivered_at",
    "read": "read_at",
    "failed": "failed_at",
}
"""Where a status puts its time; `unknown` has none."""
_FILLED = {
    "waba_id": "text",
    "phone_number_id": "text",
    "wa_id": "text",
    "user_id": "text",
    "type": "text",
    "template": "text",
    "template_language": "text",
    "batch_id": "uuid",
    "idx": "int",
    "event_id": "uuid",
    "pricing_category": "text",
    "pricing_type": "text",
    "billable": "bool",
    "service_ms": "int",
    "upstream_ms": "int",
}
"""Columns that keep their first value."""
_TIMES = tuple(dict.fromkeys(_TIME_COLUMN.values()))
_VALUES = {**_FILLED, **dict.fromkeys(_TIMES, "timestamptz"), "error_code": "int"}
_OF_FACTS = tuple(name for name in MessageFacts._fields if name in _VALUES)
"""Facts that go into the column of their name."""
_OF_EVENT = ("waba_id", "phone_number_id", "wa_id", "user_id")
_facts_of, _ids_of = attrgetter(*_OF_FACTS), attrgetter(*_OF_EVENT)

_LIST = ", ".join(_VALUES)
_DRAFT = ", ".join(f"{name} {kind}" for name, kind in _VALUES.items())
_MERGE = ",\n        ".join(
    [
        *(f"{name} = COALESCE(m.{name}, excluded.{name})" for name in _FILLED),
        *(f"{name} = LEAST(m.{name}, excluded.{name})" for name in _TIMES),
        "error_code = CASE WHEN m.failed_at IS NULL OR excluded.failed_at < m.failed_at"
        " THEN COALESCE(excluded.error_code, m.error_code) ELSE COALESCE(m.error_code, excluded.error_code) END",
    ]
)

# Runs after the statement's main query, which has read all of `fresh`: every dedupe key is locked before any message.
UPSERT = f"""
new_message AS (
    INSERT INTO messages AS m (tenant_id, environment, key, month, id, direction, {_LIST})
    SELECT d.tenant_id, d.environment, d.key,
        COALESCE(
            CASE WHEN d.may_exist THEN
                message_month(d.tenant_id, d.environment, d.key, %(first_month)s, %(this_month)s)
            END,
            d.month
        ),
        d.id, d.direction, {_LIST}
    FROM json_to_recordset(%(messages)s::json) AS d (
        place int, tenant_id uuid, environment text, key text, month date, id uuid, direction text,
        may_exist bool, {_DRAFT}
    )
    WHERE d.place IN (SELECT fresh.message FROM fresh)
    ORDER BY d.tenant_id, d.environment, d.key COLLATE "C"
    ON CONFLICT (tenant_id, environment, key, month) DO UPDATE SET
        {_MERGE}
    RETURNING m.tenant_id, m.environment, m.id
)
"""  # noqa: S608 - only column names are formatted in


class MessageRows:
    """The rows of the message log that the events of one statement make: one for each message."""

    def __init__(self) -> None:
        self._places: dict[tuple[UUID, str, str], int] = {}
        self._rows: list[dict[str, Any]] = []

    def add(self, tenant_id: UUID, event_id: UUID, event: NewEvent) -> int | None:
        """Add what an event tells; returns the place of its message's row. None for an event of no message."""
        facts = event.message
        if facts is None or (event.wamid is None and not facts.is_message):
            return None
        row = _row(tenant_id, event_id, event, facts)
        key = tenant_id, event.environment, row["key"]
        place = self._places.setdefault(key, len(self._rows))
        if place == len(self._rows):
            self._rows.append(row)
        else:
            self._rows[place] = _merged(self._rows[place], row)
        return place

    def __len__(self) -> int:
        return len(self._rows)

    def parameters(self) -> dict[str, Any]:
        """The parameters of `UPSERT`."""
        this_month = max([now().date().replace(day=1), *(row["month"] for row in self._rows)])
        first_month = this_month
        for place, row in enumerate(self._rows):
            row["place"] = place
            # One sent as its month ended, or told by the send journal, may have a status by now.
            row["may_exist"] |= row["month"] < this_month
            if row["may_exist"]:
                first_month = min(first_month, (row["month"] - LOOK_BACK).replace(day=1))
        return {
            "messages": orjson.dumps(self._rows).decode(),
            "this_month": this_month,
            "first_month": first_month,
        }


def _row(tenant_id: UUID, event_id: UUID, event: NewEvent, facts: MessageFacts) -> dict[str, Any]:
    """What an event tells, without the members that it does not."""
    row: dict[str, Any] = {
        "tenant_id": tenant_id,
        "environment": event.environment,
        "key": event.wamid or ids.encode(ids.EVENT, event_id),
        "month": ids.month_of(event_id),
        "id": event_id,
        "direction": facts.direction,
        "may_exist": not facts.is_message,
    }
    if facts.is_message:
        row["event_id"] = event_id
    told = zip(_OF_EVENT + _OF_FACTS, _ids_of(event) + _facts_of(facts), strict=True)
    row |= {name: value for name, value in told if value is not None}
    if column := _TIME_COLUMN.get(facts.status or ""):
        row[column] = isoformat_of(facts.at_ms or ids.milliseconds(event_id))
    return row


def _merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Two rows of a message as one, by the rules of `UPSERT`."""
    merged = {**second, **first, "may_exist": first["may_exist"] or second["may_exist"]}
    for name in _TIMES:
        if name in first and name in second:
            merged[name] = min(first[name], second[name])
    if "error_code" in second and merged.get("failed_at") != first.get("failed_at"):
        merged["error_code"] = second["error_code"]
    return merged
