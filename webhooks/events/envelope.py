"""The event envelope (section 6): assembled from stored bytes, the same bytes at each attempt.

`data` and `raw` are spliced in byte for byte and never re-serialised; the members come in the specification's
order with `raw` and `raw_path` last.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

import orjson
from django.conf import settings

from gateway import ids
from gateway.clock import isoformat_of, now
from gateway.database.statements import Statements, run, uuids
from webhooks.models import within_retention


@dataclass(frozen=True, slots=True)
class Envelope:
    """An event's parts as stored; a notification's bytes are shared by all its events until they are joined."""

    id: str
    """The event's public id."""
    head: bytes = field(repr=False)
    data: bytes = field(repr=False)
    raw: bytes = field(repr=False)
    raw_path: str | None

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


# By primary key in both tables: a partition and an index probe for each event.
_EVENTS = """
SELECT e.id, e.type, e.tenant_id, e.waba_id, e.phone_number_id, e.display_phone_number, e.wamid, e.wa_id,
       e.user_id, e.dedupe_key, e.raw_path, e.raw_id, e.payload_expires_on, t.retention_days, p.body
FROM events e
JOIN tenants_tenant t ON t.id = e.tenant_id
LEFT JOIN event_payloads p ON p.expires_on = e.payload_expires_on AND p.id = e.id
WHERE e.id = ANY(%s::uuid[])
"""
# Each notification once, however many of its events are asked for.
_RAWS = """
SELECT p.id, p.body FROM unnest(%s::date[], %s::uuid[]) AS wanted (expires_on, id)
JOIN event_payloads p ON p.expires_on = wanted.expires_on AND p.id = wanted.id
"""


def load(event_ids: Sequence[UUID]) -> dict[UUID, Envelope | None]:
    """The envelopes of events, in two queries; None for an event whose body is past retention."""
    return run(loading(event_ids))


def loading(event_ids: Sequence[UUID]) -> Statements[dict[UUID, Envelope | None]]:
    """The statements of `load`.

    A body may move between the two (`retention.py`): what is not found is looked for once more.
    """
    envelopes = yield from _loading(event_ids)
    if missing := [event_id for event_id, found in envelopes.items() if found is None]:
        envelopes |= yield from _loading(missing)
    return envelopes


def _loading(event_ids: Sequence[UUID]) -> Statements[dict[UUID, Envelope | None]]:
    rows = yield _EVENTS, [uuids(event_ids)]
    wanted = {row[11]: row[12] for row in rows if row[11] is not None}
    raws: dict[UUID | None, bytes] = {None: b"null"}
    if wanted:
        raws |= dict((yield _RAWS, [list(wanted.values()), uuids(wanted)]))
    moment = now()
    envelopes: dict[UUID, Envelope | None] = {}
    for row in rows:
        *columns, raw_path, raw_id, _, retention_days, data = row
        kept = within_retention(row[0], retention_days, moment)
        message_id = ids.encode(ids.EVENT, row[0])
        envelopes[row[0]] = (
            Envelope(message_id, _head(message_id, *columns), data, raws[raw_id], raw_path)
            if kept and data is not None and raw_id in raws
            else None
        )
    return envelopes


def _head(
    message_id: str,
    event_id: UUID,
    kind: str,
    tenant_id: UUID,
    waba_id: str | None,
    phone_number_id: str | None,
    display_phone_number: str | None,
    wamid: str | None,
    wa_id: str | None,
    user_id: str | None,
    dedupe_key: str,
) -> bytes:
    return orjson.dumps(
        {
            "id": message_id,
            "type": kind,
            "api_version": settings.API_VERSION,
            "created_at": isoformat_of(ids.milliseconds(event_id)),
            "tenant_id": tenant_id,
            "waba_id": waba_id,
            "phone_number_id": phone_number_id,
            "display_phone_number": display_phone_number,
            "wamid": wamid,
            "wa_id": wa_id,
            "user_id": user_id,
            "dedupe_key": dedupe_key,
        }
    )
