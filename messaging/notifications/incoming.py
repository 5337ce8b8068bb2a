"""Incoming: a notification of the upstream becomes its tenants' events (docs/architecture.md).

normalise → whose is each change → one commit with events, bodies, deliveries and the side effects. 200 is answered
only after the commit. Each change is routed by itself; a tenant's `raw` never holds another's bytes. What belongs to
nobody, and what is malformed, is kept and answered 200 (upstream fact 3.2).

Nearly every notification is small, well formed, of one tenant and without side effects: the event loop stores those
that arrive together in one statement (`Intake`). All others take `accept` in a thread, one transaction each.

Side effects are the numbers, accounts, templates and opt-outs that a notification changes (upstream fact 3.3 rule 7).
They are applied inside its transaction, once for each change that brought something new: a repeat that comes days
later must not undo a repair. To add an effect: a function, and its fields in `EFFECTS`.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import structlog
from django.db import transaction

from gateway import ids
from gateway.api.errors import TenantMoving
from gateway.api.event_loop import ThreadPool
from gateway.database.statements import LoopGroupCommit, Statements, bulk_cursor, run
from gateway.database.transactions import concerns_all
from gateway.monitoring import metrics, tracing
from gateway.upstream.notifications.normalise import Change, EventDraft, normalise
from gateway.upstream.notifications.split_by_tenant import Place, Splitter, rebase
from messaging import known_nodes, opt_outs
from messaging.message_templates import mirror
from messaging.models import KeptNotification
from messaging.notifications.routing import Owner, finding_owners, named_in, owners
from phone_numbers import app_data, sync
from phone_numbers.connection import state as number_connection
from phone_numbers.lookup import NumberRoute
from webhooks import wake_up
from webhooks.events.envelope import NewEvent
from webhooks.events.publish import MOST_TOGETHER, Publication, Published, publishing

log = structlog.get_logger(__name__)

Effect = Callable[[Change, Owner], None]


def has_effect(change: Change) -> bool:
    """Whether `apply` would do anything for the change."""
    if change.field not in EFFECTS or change.value is None:
        return False
    return change.field != "messages" or opt_outs.has_word(change.value)


def apply_effect(change: Change, owner: Owner) -> None:
    """Apply what the change's field means for accounts, numbers and templates.

    A failure is logged and does not undo the event; the account is read again from the upstream instead.
    Raises only what an unreachable database raises.
    """
    if not has_effect(change):
        return
    try:
        with transaction.atomic():
            EFFECTS[change.field](change, owner)
    except Exception as error:
        if concerns_all(error):
            raise
        # The upstream would repeat the whole notification for days, for its tenant and all others in it.
        log.exception("side_effect_failed", field=change.field, waba_id=owner.waba_id)
        sync.request_sync(waba_id=owner.waba_id)


def _numbers(change: Change, owner: Owner) -> None:
    sync.apply_notification(
        field=change.field,
        value=change.value or {},
        waba_id=owner.waba_id,
        phone_number_id=owner.phone_number_id,
    )


def _templates(change: Change, owner: Owner) -> None:
    mirror.apply_notification(field=change.field, value=change.value or {}, waba_id=owner.waba_id)


def _opt_outs(change: Change, owner: Owner) -> None:
    if owner.number is not None:
        opt_outs.apply(change, owner.number)


def _app_data(change: Change, owner: Owner) -> None:
    app_data.apply_notification(
        field=change.field, value=change.value or {}, phone_number_id=owner.phone_number_id
    )


EFFECTS: Mapping[str, Effect] = {
    **dict.fromkeys(sync.HANDLERS, _numbers),
    **dict.fromkeys(mirror.HANDLERS, _templates),
    **dict.fromkeys(("messages", "user_preferences"), _opt_outs),
    **dict.fromkeys(("history", "smb_app_state_sync"), _app_data),
}
"""Upstream field → what it changes here."""


MAX_BODY_BYTES = 16 * 1024 * 1024
"""The largest notification."""
MOST_LOOP_BYTES = 64 * 1024
"""A larger notification would hold the loop for milliseconds."""
CONNECTIONS = 2
"""While one group waits for the disk the next is written."""

metrics.gauge(
    "gateway_kept_notifications",
    "Notifications kept because they belong to no tenant or are malformed.",
    KeptNotification.objects.count,
)


class _Part:
    """One tenant's part of a notification. `raw` is what the events' `raw_path` points into.

    `moved` says where each change is in `raw`; None for a whole notification.
    """

    def __init__(
        self,
        changes: Sequence[tuple[Change, Owner]],
        raw: bytes,
        *,
        moved: dict[Place, Place] | None = None,
        traceparent: str | None,
    ) -> None:
        self.changes = changes
        self.events = [
            [_event_of(draft, owner, moved) for draft in change.drafts] for change, owner in changes
        ]
        """Of each change."""
        self.publication = Publication(
            changes[0][1].tenant_id, [event for events in self.events for event in events], raw, traceparent
        )

    @property
    def numbers(self) -> Iterator[NumberRoute]:
        """The numbers whose events these are."""
        return (owner.number for _, owner in self.changes if owner.number)


def accept(body: bytes, *, environments: Collection[str]) -> None:
    """Store a signed notification of any kind, on Django's connection; committed when this returns.

    `environments` are those whose app secret signed it. Raises TenantMoving when a part of it belongs to a tenant on a
    move: the upstream repeats the whole, of which the other tenants' part is then known.
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
    is_whole = len(owned) == 1 and not unrouted and normalised.error is None
    splitter = None if is_whole else Splitter(body)
    parts = [_part(owned[tenant_id], body, splitter) for tenant_id in sorted(owned)]
    with transaction.atomic():
        if parts:
            _apply(parts, run(_recording(parts), prepared=True))
        if normalised.error is not None:
            _keep(body, reason="malformed", error=normalised.error)
        elif unrouted and splitter is not None:
            _keep(
                splitter.split({(change.entry, change.change) for change in unrouted})[0],
                reason="unroutable",
                waba_id=unrouted[0].route.entry_id,
            )


class Intake:
    """The group commit of one process, for one event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPool("notifications", threads=4, waiting=1_000)
        self._group_commit: LoopGroupCommit[_Signed, bool] = LoopGroupCommit(
            _taking_in,
            connections=CONNECTIONS,
            size=lambda each: sum(len(change.drafts) for change in each.changes),
            most=MOST_TOGETHER,
        )

    async def accept(self, body: bytes, *, environments: Collection[str]) -> None:
        """Store a signed notification; committed when this returns.

        Raises TenantMoving, ServiceUnavailable, and what an unreachable database raises.
        """
        if len(body) <= MOST_LOOP_BYTES:
            normalised = normalise(body)
            is_plain = normalised.error is None and not any(
                has_effect(change) for change in normalised.changes
            )
            if normalised.changes and is_plain:
                signed = _Signed(body, normalised.changes, tuple(environments))
                if await self._group_commit.do(signed):
                    return
        await self._threads.run(accept, body, environments=environments)

    async def close(self) -> None:
        """Close the database connections and end the threads."""
        await self._group_commit.close()
        self._threads.close()


@dataclass(frozen=True, slots=True)
class _Signed:
    """A signed notification whose changes could all be read."""

    body: bytes
    changes: tuple[Change, ...]
    environments: tuple[str, ...]
    traceparent: str | None = field(default_factory=tracing.current)
    """Its own request's span: it is published with others'."""


def _taking_in(notifications: Sequence[_Signed]) -> Statements[list[bool]]:
    """Write the notifications that belong to one tenant each; False for every other."""
    parts: dict[int, _Part] = {}
    for environments in {each.environments for each in notifications}:
        places = [place for place, each in enumerate(notifications) if each.environments == environments]
        changes = [change for place in places for change in notifications[place].changes]
        found = iter((yield from finding_owners(changes, environments=environments)))
        for place in places:
            each = notifications[place]
            owned = [(change, owner) for change in each.changes if (owner := next(found)) is not None]
            tenants = {owner.tenant_id for _, owner in owned}
            # A frozen tenant's is left to the other flow, so that its refusal meets no other notification.
            is_frozen = any(owner.is_frozen for _, owner in owned)
            if len(owned) == len(each.changes) and len(tenants) == 1 and not is_frozen:
                parts[place] = _Part(owned, each.body, traceparent=each.traceparent)
    if parts:
        published = yield from _recording(list(parts.values()))
        if published.deliveries:
            wake_up.soon(published.deliveries)
        numbers = (number for part in parts.values() for number in part.numbers)
        if touched := number_connection.numbers_to_touch(numbers):
            yield from number_connection.touching(touched)
    return [place in parts for place in range(len(notifications))]


def _part(changes: Sequence[tuple[Change, Owner]], body: bytes, splitter: Splitter | None) -> _Part:
    raw, moved = body, None
    if splitter is not None:
        raw, moved = splitter.split({(change.entry, change.change) for change, _ in changes})
    return _Part(changes, raw, moved=moved, traceparent=tracing.current())


def _recording(parts: Sequence[_Part]) -> Statements[Published]:
    """Write the events of notifications with their bodies and deliveries, and whose media and nodes they name."""
    yield from known_nodes.record_media(
        [
            known_nodes.Media(owner.tenant_id, owner.environment, media_id, owner.phone_number_id)
            for part in parts
            for change, owner in part.changes
            if owner.phone_number_id
            for media_id in known_nodes.media_ids(change)
        ]
    )
    yield from known_nodes.record_nodes(
        [named for part in parts for change, owner in part.changes for named in named_in(change, owner)]
    )
    return (yield from publishing([part.publication for part in parts]))


def _apply(parts: Sequence[_Part], published: Published) -> None:
    """Apply the effects of new events, in their transaction and after its commit."""
    if published.deliveries:
        wake_up.after_commit(published.deliveries)
    for part, event_ids in zip(parts, published.fresh, strict=True):
        fresh = set(event_ids)
        for (change, owner), events in zip(part.changes, part.events, strict=True):
            if any(event.id in fresh for event in events):
                apply_effect(change, owner)
    number_connection.touch_last_event(number for part in parts for number in part.numbers)


def _event_of(draft: EventDraft, owner: Owner, moved: dict[Place, Place] | None) -> NewEvent:
    """The event of a draft; `moved` says where its change is in the tenant's part of the notification."""
    raw_path: str | None = draft.raw_path
    if draft.type == "message.history":
        # Thousands come in one notification: it stays with the event of the whole, not with each of them.
        raw_path = None
    elif moved is not None:
        raw_path = rebase(draft.raw_path, moved[draft.entry, draft.change])
    return NewEvent(
        id=ids.uuid7(),
        type=draft.type,
        environment=owner.environment,
        dedupe_key=draft.dedupe_key,
        data=draft.data,
        raw_path=raw_path,
        waba_id=owner.waba_id,
        phone_number_id=owner.phone_number_id or draft.phone_number_id,
        display_phone_number=draft.display_phone_number or owner.display_phone_number,
        wamid=draft.wamid,
        wa_id=draft.wa_id,
        user_id=draft.user_id,
        message=draft.message,
    )


# In binary: as text, which Django's cursors write, a large body takes long.
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
