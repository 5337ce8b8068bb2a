"""Incoming: a notification of the upstream becomes its tenants' events (docs/architecture.md).

normalise → whose is each change → one transaction with events, bodies, deliveries and the side effects. The view
answers 200 only after the commit. Each change is routed by itself; a tenant's `raw` never holds another's bytes.
What belongs to nobody, and what is malformed, is kept and answered 200 (upstream fact 3.2).
"""

import hashlib
from collections import defaultdict
from collections.abc import Collection
from uuid import UUID

import structlog
from django.db import transaction

from gateway import ids
from gateway.api.errors import TenantMoving
from gateway.database.statements import bulk_cursor, run
from gateway.monitoring import metrics
from gateway.upstream.notifications.normalise import Change, EventDraft, normalise
from gateway.upstream.notifications.split_by_tenant import Place, Splitter, rebase
from messaging.media import media_owners
from messaging.models import KeptNotification
from messaging.notifications import side_effects
from messaging.notifications.routing import Owner, owners
from phone_numbers.connection import state as number_connection
from webhooks.events.new_event import NewEvent
from webhooks.events.publish import publish

MAX_BODY_BYTES = 16 * 1024 * 1024
"""The largest notification."""

log = structlog.get_logger(__name__)

metrics.gauge(
    "gateway_kept_notifications",
    "Notifications kept because they belong to no tenant or are malformed.",
    KeptNotification.objects.count,
)


def accept(body: bytes, *, environments: Collection[str]) -> None:
    """Store a signed notification. `environments` are those whose app secret signed it.

    Raises TenantMoving when a part of it belongs to a tenant on a move: the upstream repeats the whole, of which the
    other tenants' part is then known.
    """
    normalised = normalise(body)
    if not normalised.changes:
        _keep(body, reason="malformed", error=normalised.error or "no changes")
        return
    owned: defaultdict[UUID, list[tuple[Change, Owner]]] = defaultdict(list)
    unrouted: list[Change] = []
    for change, owner in zip(
        normalised.changes, owners(normalised.changes, environments=environments), strict=True
    ):
        if owner is None:
            unrouted.append(change)
        elif owner.is_frozen:
            raise TenantMoving
        else:
            owned[owner.tenant_id].append((change, owner))
    whole = len(owned) == 1 and not unrouted and normalised.error is None
    if whole and not any(side_effects.has_effect(change) for change in normalised.changes):
        # Nearly all of what comes, and a single statement is a transaction already: two round trips less.
        ((tenant_id, changes),) = owned.items()
        _publish(tenant_id, changes, body, None, alone=True)
        return
    splitter = None if whole else Splitter(body)
    with transaction.atomic():
        for tenant_id in sorted(owned):
            _publish(tenant_id, owned[tenant_id], body, splitter)
        if normalised.error is not None:
            _keep(body, reason="malformed", error=normalised.error)
        elif unrouted and splitter is not None:
            _keep(
                splitter.split({(change.entry, change.change) for change in unrouted})[0],
                reason="unroutable",
                waba_id=unrouted[0].route.entry_id,
            )


def _publish(
    tenant_id: UUID,
    changes: list[tuple[Change, Owner]],
    body: bytes,
    splitter: Splitter | None,
    *,
    alone: bool = False,
) -> None:
    """One tenant's part of a notification: its events, then what the new ones among them change here."""
    raw, moved = body, None
    if splitter is not None:
        raw, moved = splitter.split({(change.entry, change.change) for change, _ in changes})
    by_change = [[event_of(draft, owner, moved) for draft in change.drafts] for change, owner in changes]
    media = [
        media_owners.Media(tenant_id, owner.environment, media_id, owner.phone_number_id)
        for change, owner in changes
        if owner.phone_number_id
        for media_id in media_owners.media_ids(change)
    ]
    run(media_owners.noting(media))
    fresh = set(
        publish(
            tenant_id=tenant_id,
            raw=raw,
            events=[event for events in by_change for event in events],
            alone=alone,
        )
    )
    for (change, owner), events in zip(changes, by_change, strict=True):
        if any(event.id in fresh for event in events):
            side_effects.apply(change, owner)
    number_connection.touch_last_event(owner.number for _, owner in changes if owner.number)


def event_of(draft: EventDraft, owner: Owner, moved: dict[Place, Place] | None) -> NewEvent:
    """The event of a draft; `moved` says where its change is in the tenant's part of the notification."""
    return NewEvent(
        id=ids.uuid7(),
        type=draft.type,
        environment=owner.environment,
        dedupe_key=draft.dedupe_key,
        data=draft.data,
        raw_path=draft.raw_path
        if moved is None
        else rebase(draft.raw_path, moved[draft.entry, draft.change]),
        waba_id=owner.waba_id,
        phone_number_id=owner.phone_number_id or draft.phone_number_id,
        display_phone_number=draft.display_phone_number or owner.display_phone_number,
        wamid=draft.wamid,
        wa_id=draft.wa_id,
        user_id=draft.user_id,
        message=draft.message,
    )


# In binary: as text, which Django's cursors write, 16 MiB take a quarter of a second.
_KEEP = """
INSERT INTO messaging_keptnotification (id, received_at, reason, error, waba_id, body_sha256, body)
VALUES (%s, now(), %s, %s, %s, %s, %s)
ON CONFLICT (body_sha256) DO NOTHING
"""


def _keep(body: bytes, *, reason: str, error: str | None = None, waba_id: str | None = None) -> None:
    """Keep what became nobody's event, once however often the upstream repeats it."""
    digest = hashlib.sha256(body).hexdigest()
    with bulk_cursor() as cursor:
        cursor.execute(_KEEP, [ids.uuid7(), reason, error, waba_id[:64] if waba_id else None, digest, body])
    log.warning("notification_kept", reason=reason, error=error)
