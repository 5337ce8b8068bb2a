"""References of messages. If several batch items have the same `message_ref`, only one is sent within 30 days.

The 30 days count from the time at which the batch begins: its creation, or a later `send_at`. If they are over when an
item is sent again, they begin again.

So a caller can send the rows of an interrupted job again, in any batch, and no customer gets a message twice. A
reference belongs to the first item stored with it. If that item is skipped before it was sent, the reference is
released. A failed item keeps its reference even after Meta's rejection, because `retry` may still send the item.
"""

import hashlib
from collections.abc import Iterable
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from django.db import connection

from gateway.database.partitions import delete_before
from messaging.models import Batch, MessageReference

REMEMBERED = timedelta(days=30)


class Place(NamedTuple):
    """An item of a batch."""

    batch_id: UUID
    idx: int


_IS_OVER = "known.created_at < now() - make_interval(secs => %(remembered)s)"
# A known reference stays locked until the commit, so no other process can release it. Both statements lock references
# in the same order, so concurrent batches and cancellations with the same references wait instead of deadlocking.
_ACQUIRE = f"""
INSERT INTO messaging_messagereference AS known (tenant_id, environment, ref_hash, batch_id, idx, created_at)
SELECT %(tenant_id)s, %(environment)s, r.ref_hash, %(batch_id)s, r.idx, GREATEST(now(), %(send_at)s)
FROM unnest(%(hashes)s::bytea[], %(places)s::int[]) AS r (ref_hash, idx)
ORDER BY r.ref_hash
ON CONFLICT (tenant_id, environment, ref_hash) DO UPDATE
SET batch_id = CASE WHEN {_IS_OVER} THEN excluded.batch_id ELSE known.batch_id END,
    idx = CASE WHEN {_IS_OVER} THEN excluded.idx ELSE known.idx END,
    created_at = CASE WHEN {_IS_OVER} THEN excluded.created_at ELSE known.created_at END
RETURNING ref_hash, batch_id, idx
"""  # noqa: S608 - only a condition is formatted in

_FOLLOW_SEND_AT = """
UPDATE messaging_messagereference r SET created_at = GREATEST(now(), %(send_at)s)
FROM (
    SELECT ref_hash FROM messaging_messagereference
    WHERE tenant_id = %(tenant_id)s AND environment = %(environment)s AND batch_id = %(batch_id)s
      AND ref_hash = ANY(%(hashes)s::bytea[])
    ORDER BY ref_hash
    FOR UPDATE
) own
WHERE r.tenant_id = %(tenant_id)s AND r.environment = %(environment)s AND r.ref_hash = own.ref_hash
"""

_RELEASE = """
WITH released AS (
    SELECT tenant_id, environment, ref_hash FROM messaging_messagereference
    WHERE tenant_id = %(tenant_id)s AND environment = %(environment)s AND batch_id = %(batch_id)s
      AND ref_hash = ANY(%(hashes)s::bytea[])
    ORDER BY ref_hash
    FOR UPDATE
)
DELETE FROM messaging_messagereference r USING released
WHERE (r.tenant_id, r.environment, r.ref_hash) = (released.tenant_id, released.environment, released.ref_hash)
"""


def acquire(batch: Batch, references: Iterable[tuple[int, str | None]]) -> dict[int, Place]:
    """Acquire the references of a batch's items, given with the items' positions.

    For each item whose reference belongs to another item, returns that other item. Runs inside a transaction.
    """
    places: dict[bytes, list[int]] = {}
    for idx, reference in references:
        if reference is not None:
            places.setdefault(_hash(reference), []).append(idx)
    if not places:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(
            _ACQUIRE,
            {
                "tenant_id": batch.tenant_id,
                "environment": batch.environment,
                "batch_id": batch.id,
                "send_at": batch.send_at,
                "hashes": list(places),
                "places": [own[0] for own in places.values()],
                "remembered": REMEMBERED.total_seconds(),
            },
        )
        owners = {bytes(ref_hash): Place(batch_id, idx) for ref_hash, batch_id, idx in cursor}
    return {
        idx: owner
        for ref_hash, owner in owners.items()
        for idx in places[ref_hash]
        if owner != (batch.id, idx)
    }


def follow_send_at(batch: Batch) -> None:
    """Count the 30 days of a batch's references from its changed `send_at`. Runs inside a transaction."""
    named = batch.items.filter(message_ref__isnull=False).values_list("message_ref", flat=True)
    if hashes := [_hash(reference) for reference in named if reference is not None]:
        with connection.cursor() as cursor:
            cursor.execute(
                _FOLLOW_SEND_AT,
                {
                    "tenant_id": batch.tenant_id,
                    "environment": batch.environment,
                    "batch_id": batch.id,
                    "send_at": batch.send_at,
                    "hashes": hashes,
                },
            )


def release(references: Iterable[str], *, tenant_id: UUID, environment: str, batch_id: UUID) -> None:
    """Release the references of items that were skipped before they were sent. Runs inside a transaction."""
    if hashes := [_hash(reference) for reference in references]:
        with connection.cursor() as cursor:
            cursor.execute(
                _RELEASE,
                {
                    "tenant_id": tenant_id,
                    "environment": environment,
                    "batch_id": batch_id,
                    "hashes": hashes,
                },
            )


def prune_references() -> int:
    """Delete references whose 30 days are over. Returns the number of references."""
    return delete_before(MessageReference, "created_at", REMEMBERED)


def _hash(reference: str) -> bytes:
    return hashlib.sha256(reference.encode()).digest()
