"""The event envelope (specification 6): assembled from stored bytes, the same bytes at each attempt.

`data` and `raw` are inserted byte for byte and never serialised again. `new_event.py` defines the members.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
from django.conf import settings

from gateway import ids
from gateway.clock import isoformat_of, now
from gateway.database.statements import Statements, id_range, run, uuids
from webhooks.events.new_event import LISTED, STORED
from webhooks.models import within_retention


@dataclass(frozen=True, slots=True)
class Envelope:
    """The parts of an envelope as stored. All events of a notification share its bytes until `body()` joins them."""

    id: str
    """The event's public id."""
    head: bytes = field(repr=False)
    data: bytes = field(repr=False)
    raw: bytes = field(repr=False)
    raw_path: str | None
    traceparent: str | None = None
    """The span that its deliveries belong under; no part of the body."""

    @property
    def size(self) -> int:
        """About how many bytes the body has."""
        return len(self.head) + len(self.data) + len(self.raw)

    def body(self) -> bytes:
        """The JSON that the customer gets."""
        return b'%b,"data":%b,"raw":%b,"raw_path":%b}' % (
            self.head[:-1],
            self.data,
            self.raw,
            orjson.dumps(self.raw_path),
        )


_NO_RAW = b"null"

_READ = (*STORED, "tenant_id", "raw_id", "payload_expires_on", "traceparent")
# By primary key: an index probe for each event in the partitions of their ids.
_EVENTS = f"""
SELECT {", ".join(f"e.{name}" for name in _READ)}, t.retention_days
FROM events e
JOIN tenants_tenant t ON t.id = e.tenant_id
WHERE e.id = ANY(%(ids)s::uuid[]) AND e.id BETWEEN %(first)s AND %(last)s
"""  # noqa: S608 - only column names are formatted in
# Of one day: one partition, which a prepared statement finds before it begins. There are more than 50.
_BODIES_OF_DAY = """
SELECT id, body FROM event_payloads WHERE expires_on = %s AND id = ANY(%s::uuid[])
"""
_BODIES = """
SELECT p.id, p.body FROM unnest(%s::date[], %s::uuid[]) AS wanted (expires_on, id)
JOIN event_payloads p ON p.expires_on = wanted.expires_on AND p.id = wanted.id
"""
FEW_DAYS = 3


def load(event_ids: Sequence[UUID]) -> dict[UUID, Envelope | None]:
    """The envelopes of events, in a few queries; None for an event whose body is past retention."""
    return run(loading(event_ids))


def loading(event_ids: Sequence[UUID]) -> Statements[dict[UUID, Envelope | None]]:
    """The statements of `load`.

    A body may move between the two (`retention.py`), so a missing one is looked up once more.
    """
    envelopes = yield from _loading(event_ids)
    if missing := [event_id for event_id, found in envelopes.items() if found is None]:
        envelopes |= yield from _loading(missing)
    return envelopes


def _loading(event_ids: Sequence[UUID]) -> Statements[dict[UUID, Envelope | None]]:
    if not event_ids:
        return {}
    rows = yield _EVENTS, {"ids": uuids(event_ids), **id_range(event_ids)}
    return (yield from _completing(rows))


def _completing(rows: Sequence[Sequence[Any]]) -> Statements[dict[UUID, Envelope | None]]:
    events = [dict(zip((*_READ, "retention_days"), row, strict=True)) for row in rows]
    # Each notification once, however many of its events are asked for.
    wanted = {event["raw_id"]: event["payload_expires_on"] for event in events if event["raw_id"]}
    wanted |= {event["id"]: event["payload_expires_on"] for event in events}
    bodies: dict[UUID | None, bytes] = {None: _NO_RAW}
    days = set(wanted.values())
    if len(days) <= FEW_DAYS:
        for day in days:
            of_day = [body_id for body_id, expires_on in wanted.items() if expires_on == day]
            bodies |= dict((yield _BODIES_OF_DAY, [day, uuids(of_day)]))
    else:
        bodies |= dict((yield _BODIES, [list(wanted.values()), uuids(wanted)]))
    moment = now()
    return {event["id"]: _envelope(event, bodies, moment) for event in events}


def _envelope(
    event: Mapping[str, Any], bodies: Mapping[UUID | None, bytes], moment: datetime
) -> Envelope | None:
    data, raw = bodies.get(event["id"]), bodies.get(event["raw_id"])
    if data is None or raw is None or not within_retention(event["id"], event["retention_days"], moment):
        return None
    return assembled(event, data, raw)


def assembled(event: Mapping[str, Any], data: bytes, raw: bytes | None) -> Envelope:
    """The envelope of an event from its members (`STORED`, `tenant_id` and `traceparent`) and its bodies.

    `raw` is None when no notification brought it.
    """
    event_id = event["id"]
    public_id = ids.encode(ids.EVENT, event_id)
    head = {
        "id": public_id,
        "type": event["type"],
        "api_version": settings.API_VERSION,
        "created_at": isoformat_of(ids.milliseconds(event_id)),
        "tenant_id": event["tenant_id"],
    }
    head |= {name: event[name] for name in LISTED}
    return Envelope(
        id=public_id,
        head=orjson.dumps(head),
        data=data,
        raw=_NO_RAW if raw is None else raw,
        raw_path=event["raw_path"],
        traceparent=event["traceparent"],
    )
