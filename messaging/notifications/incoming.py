"""Turns incoming notifications of the upstream into events of their tenants (docs/architecture.md).

normalise → find the owner of each change → one commit with events, bodies, deliveries and side effects. The 200 is
sent only after the commit. Each change is routed separately, and a tenant's `raw` never has bytes of another tenant.
Unroutable and malformed notifications are stored and answered with 200 (upstream fact 3.2).

A usual notification is small and well formed, belongs to one tenant, and has no side effects. The event loop stores
concurrent notifications of this kind in one statement (`Intake`). All others go through `accept` in a thread, each in
its own transaction.

Side effects are changes of numbers, accounts, templates and opt-outs (upstream fact 3.3 rule 7). They are applied in
the notification's transaction, only for changes with a new event, because a repeat that arrives days later must not
undo a repair. To add an effect, write a function and add its fields to `EFFECTS`.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from uuid import UUID

import msgspec
import structlog
from django.db import transaction

from gateway import ids
from gateway.api.event_loop import ThreadPool
from gateway.database.statements import LoopGroupCommit, Statements, bulk_cursor, run
from gateway.database.transactions import may_pass
from gateway.monitoring import metrics, tracing
from gateway.monitoring.logs import type_alone
from gateway.upstream.notifications.normalise import Change, EventDraft, normalise
from gateway.upstream.notifications.split_by_tenant import Place, Splitter, rebase
from messaging import known_nodes, opt_outs
from messaging.message_templates import mirror
from messaging.models import KeptNotification
from messaging.notifications.routing import Owner, finding_owners, named_in, owners
from phone_numbers import app_data, sync
from phone_numbers.connection import state as number_connection
from phone_numbers.models import BusinessAccount
from phone_numbers.senders_and_owners import NumberRoute
from webhooks import wake_up
from webhooks.events.envelope import NewEvent
from webhooks.events.publish import MOST_TOGETHER, Publication, Published, publishing

log = structlog.get_logger(__name__)

Effect = Callable[[Change, Owner], None]


def has_effect(change: Change) -> bool:
    """Whether the change has a side effect."""
    if change.field not in EFFECTS or change.value is None:
        return False
    return change.field not in opt_outs.OF_MESSAGES or opt_outs.concerns(change)


def apply_effect(change: Change, owner: Owner) -> None:
    """Apply the side effect of a change to accounts, numbers, templates or opt-outs.

    An error is logged and the event stays; the account is then read again from the upstream. Raises only errors of the
    database that may pass, because an opt-out cannot be read again.
    """
    if not has_effect(change):
        return
    try:
        with transaction.atomic():
            EFFECTS[change.field](change, owner)
    except Exception as error:
        if may_pass(error):
            raise
        # If this raised any other error, the upstream would repeat the notification, with all tenants' changes, for
        # days.
        log.exception("side_effect_failed", field=change.field, waba_id=owner.waba_id)
        sync.request_sync(waba_id=owner.waba_id)
        if change.field in mirror.HANDLERS:
            for account in BusinessAccount.objects.filter(waba_id=owner.waba_id):
                mirror.reread_soon(account)


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
    **dict.fromkeys((*opt_outs.OF_MESSAGES, "user_preferences"), _opt_outs),
    **dict.fromkeys(("history", "smb_app_state_sync"), _app_data),
}
"""The side effect for each upstream field."""


MAX_BODY_BYTES = 16 * 1024 * 1024
"""The largest notification, in bytes."""
MOST_LOOP_BYTES = 64 * 1024
"""The largest notification that the event loop handles. A larger one would block the loop for milliseconds."""
CONNECTIONS = 2
"""Connections for group commits. While one waits for the disk, the other writes the next group."""

metrics.gauge(
    "gateway_kept_notifications",
    "Notifications kept because they belong to no tenant or are malformed.",
    KeptNotification.objects.count,
)


class _Part:
    """One tenant's part of a notification. The `raw_path` of its events refers to `raw`.

    `moved` maps the place of each change in the notification to its place in `raw`. It is None if `raw` is the whole
    notification.
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
        """One list of events for each change."""
        self.publication = Publication(
            changes[0][1].tenant_id, [event for events in self.events for event in events], raw, traceparent
        )

    @property
    def numbers(self) -> Iterator[NumberRoute]:
        """The numbers to which these events belong."""
        return (owner.number for _, owner in self.changes if owner.number)


def accept(body: bytes, *, environments: Collection[str]) -> None:
    """Store a signed notification of any kind, on Django's connection. It is committed when this returns.

    `environments` are the environments whose app secret signed the notification.
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
        else:
            owned[owner.tenant_id].append((change, owner))
    is_whole = len(owned) + bool(unrouted) == 1 and normalised.error is None
    splitter = None if is_whole else Splitter(body)
    parts = [_part(owned[tenant_id], body, splitter) for tenant_id in sorted(owned)]
    with transaction.atomic():
        if parts:
            _apply(parts, run(_recording(parts), prepared=True))
        if normalised.error is not None:
            _keep(body, reason="malformed", error=normalised.error)
        elif unrouted:
            places = {(change.entry, change.change) for change in unrouted}
            kept = body if splitter is None else splitter.split(places)[0]
            _keep(kept, reason="unroutable", waba_id=unrouted[0].route.entry_id)


class Intake:
    """Stores the notifications of one process, in groups where possible, on one event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPool("notifications", threads=4, waiting=1_000)
        self._group_commit: LoopGroupCommit[_Signed, bool] = LoopGroupCommit(
            _taking_in,
            connections=CONNECTIONS,
            size=lambda each: sum(len(change.drafts) for change in each.changes),
            most=MOST_TOGETHER,
        )

    async def accept(self, body: bytes, *, environments: Collection[str]) -> None:
        """Store a signed notification. It is committed when this returns.

        Raises ServiceUnavailable and the errors of an unreachable database.
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


class _Signed(msgspec.Struct, frozen=True):
    """A signed notification whose changes could all be parsed."""

    body: bytes
    changes: tuple[Change, ...]
    environments: tuple[str, ...]
    traceparent: str | None = msgspec.field(default_factory=tracing.current)
    """The span of the notification's request. It is stored here, because one commit stores notifications of several
    requests.
    """

    def __repr__(self) -> str:
        return type_alone(self)


def _taking_in(notifications: Sequence[_Signed]) -> Statements[list[bool]]:
    """Write each notification whose changes all belong to one tenant. Returns for each whether it was written."""
    parts: dict[int, _Part] = {}
    for environments in {each.environments for each in notifications}:
        places = [place for place, each in enumerate(notifications) if each.environments == environments]
        changes = [change for place in places for change in notifications[place].changes]
        found = iter((yield from finding_owners(changes, environments=environments)))
        for place in places:
            each = notifications[place]
            owned = [(change, owner) for change in each.changes if (owner := next(found)) is not None]
            tenants = {owner.tenant_id for _, owner in owned}
            if len(owned) == len(each.changes) and len(tenants) == 1:
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
    """Write the events with bodies and deliveries, and record the owners of the media files and nodes in them."""
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
    """Apply the side effects of new events in the transaction. After the commit, wake the deliveries."""
    if published.deliveries:
        wake_up.after_commit(published.deliveries)
    for part, event_ids in zip(parts, published.fresh, strict=True):
        fresh = set(event_ids)
        for (change, owner), events in zip(part.changes, part.events, strict=True):
            if any(event.id in fresh for event in events):
                apply_effect(change, owner)
    number_connection.touch_last_event(number for part in parts for number in part.numbers)


def _event_of(draft: EventDraft, owner: Owner, moved: dict[Place, Place] | None) -> NewEvent:
    """The event of a draft. `moved` maps the place of the draft's change to its place in the tenant's part."""
    raw_path: str | None = draft.raw_path
    if draft.type == "message.history":
        # A notification can have thousands of these events. Only the event of the whole history refers to the
        # notification.
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


# Passes the body as a binary parameter. Django's cursors would pass it as text, which is slow for large bodies.
_KEEP = """
INSERT INTO messaging_keptnotification (id, received_at, reason, error, waba_id, body_sha256, body)
VALUES (%s, now(), %s, %s, %s, %s, %s)
ON CONFLICT (body_sha256) DO NOTHING
"""


def _keep(body: bytes, *, reason: str, error: str | None = None, waba_id: str | None = None) -> None:
    """Store a notification that belongs to no tenant. A repeat by the upstream is not stored again."""
    digest = hashlib.sha256(body).hexdigest()
    with bulk_cursor() as cursor:
        cursor.execute(_KEEP, [ids.uuid7(), reason, error, waba_id[:64] if waba_id else None, digest, body])
    log.warning("notification_kept", reason=reason, error=error)
