"""Intake of notifications on an event loop: what arrives together is routed in one query and written in one statement.

For nearly every notification: small, well formed, of one tenant, without side effects. `Intake.accept` leaves all
others to the flow of `incoming.py`, which has the same result.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from gateway.database.loop_group_commit import LoopGroupCommit
from gateway.database.statements import Statements
from gateway.monitoring import tracing
from gateway.upstream.notifications.normalise import Change, normalise
from messaging.media import media_owners
from messaging.notifications import side_effects
from messaging.notifications.incoming import event_of
from messaging.notifications.routing import Owner, finding_owners
from phone_numbers.connection import state as number_connection
from webhooks import wake_up
from webhooks.events.publish import MOST_TOGETHER, Publication, publishing

MOST_BYTES = 64 * 1024
"""A larger notification would hold the loop for milliseconds."""
CONNECTIONS = 2
"""While one group waits for the disk the next is written."""


@dataclass(frozen=True, slots=True)
class _Notification:
    """A signed notification whose changes could all be read."""

    body: bytes
    changes: tuple[Change, ...]
    environments: tuple[str, ...]
    traceparent: str | None = field(default_factory=tracing.current)
    """Its own request's span: it is published with others'."""


class Intake:
    """The group commit of one process, for one event loop."""

    def __init__(self) -> None:
        self._group_commit: LoopGroupCommit[_Notification, bool] = LoopGroupCommit(
            _taking_in,
            connections=CONNECTIONS,
            size=lambda each: sum(len(change.drafts) for change in each.changes),
            most=MOST_TOGETHER,
        )

    async def accept(self, body: bytes, *, environments: Collection[str]) -> bool:
        """Store a signed notification; True after the commit, False when `incoming.accept` must do it.

        Raises what an unreachable database raises.
        """
        if len(body) > MOST_BYTES:
            return False
        normalised = normalise(body)
        if not normalised.changes or normalised.error is not None:
            return False
        if any(side_effects.has_effect(change) for change in normalised.changes):
            return False
        return await self._group_commit.do(_Notification(body, normalised.changes, tuple(environments)))

    async def close(self) -> None:
        """Close the database connections."""
        await self._group_commit.close()


def _taking_in(notifications: Sequence[_Notification]) -> Statements[list[bool]]:
    """Write the notifications that belong to one tenant each; False for every other."""
    owned: dict[int, list[Owner]] = {}
    for environments in {each.environments for each in notifications}:
        places = [place for place, each in enumerate(notifications) if each.environments == environments]
        changes = [change for place in places for change in notifications[place].changes]
        found = iter((yield from finding_owners(changes, environments=environments)))
        for place in places:
            owners = [next(found) for _ in notifications[place].changes]
            known = [owner for owner in owners if owner is not None]
            # A frozen tenant's is left to the other flow, so that its refusal meets no other notification.
            if any(owner.is_frozen for owner in known):
                continue
            if len(known) == len(owners) and len({owner.tenant_id for owner in known}) == 1:
                owned[place] = known
    if owned:
        publications = [_publication(notifications[place], owners) for place, owners in owned.items()]
        yield from media_owners.noting(
            [
                media_owners.Media(owner.tenant_id, owner.environment, media_id, owner.phone_number_id)
                for place, owners in owned.items()
                for change, owner in zip(notifications[place].changes, owners, strict=True)
                if owner.phone_number_id
                for media_id in media_owners.media_ids(change)
            ]
        )
        published = yield from publishing(publications)
        if published.deliveries:
            wake_up.soon(published.deliveries)
        numbers = (owner.number for owners in owned.values() for owner in owners if owner.number)
        if touched := number_connection.numbers_to_touch(numbers):
            yield from number_connection.touching(touched)
    return [place in owned for place in range(len(notifications))]


def _publication(notification: _Notification, owners: Sequence[Owner]) -> Publication:
    return Publication(
        owners[0].tenant_id,
        [
            event_of(draft, owner, None)
            for change, owner in zip(notification.changes, owners, strict=True)
            for draft in change.drafts
        ],
        notification.body,
        notification.traceparent,
    )
