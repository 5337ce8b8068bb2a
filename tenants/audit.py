"""The audit log: who did something (actors), and its only writer, called inside the transaction of the action."""

import math
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Self
from uuid import UUID

from django.db import connection
from rest_framework.request import Request

from gateway.api.authentication import caller_of
from gateway.api.errors import RateLimited
from gateway.clock import now
from tenants.models import ApiKey, AuditEntry, User

# --- The audit log's only writer, called inside the transaction of the action that it records.
#
# Nobody may delete entries, so a business has a bound of them a day: at the bound its keys and members change
# nothing more. What ends an access is never refused, and neither is what staff or the gateway itself does.

DAY = timedelta(days=1)
MOST_A_DAY = 5_000
"""Entries of a business in 24 hours."""
ONE_AT_A_TIME = 50
"""The last entries below the bound are written one after the other: to exceed it, more than these would have to be
written at the same moment."""
ENDING = frozenset(
    {
        "api_key.revoke",
        "connected_app.disconnect",
        "team.remove",
        "team.withdraw",
        "account.release",
        "number.release",
    }
)
AFTER_UPSTREAM = frozenset(
    {
        "number.deregister",
        "number.migrate",
        "number.register",
        "number.two_step",
        "account.move",
        "number.move",
    }
)
"""What is recorded when it has happened elsewhere: too late to refuse it. Flows ask `require_room` before."""


def record(
    *,
    action: str,
    target_type: str,
    target_id: object,
    tenant_id: UUID | None = None,
    actor_user_id: int | None = None,
    acting_key_id: UUID | None = None,
    details: dict[str, Any] | None = None,
) -> AuditEntry:
    """Append an entry of an action (`tenants/labels.py`); `details` holds before and after, never a secret.

    An action by an API key gets the key's prefix as `details.acting_key`. Raises RateLimited at the bound of a day.
    """
    if tenant_id is not None and action not in ENDING | AFTER_UPSTREAM:
        require_room(tenant_id, actor_user_id=actor_user_id, acting_key_id=acting_key_id)
    if acting_key_id is not None:
        details = (details or {}) | {"acting_key": ApiKey.objects.get(pk=acting_key_id).prefix}
    return AuditEntry.objects.create(
        action=action,
        target_type=target_type,
        target_id=str(target_id),
        tenant_id=tenant_id,
        actor_user_id=actor_user_id,
        details=details or {},
    )


def require_room(tenant_id: UUID, *, actor_user_id: int | None, acting_key_id: UUID | None) -> None:
    """Raise RateLimited at the bound of a business whose own key or member acts.

    Nobody waits for another's transaction, which may wait for rows that are locked here: near the bound, a caller
    that does not get the lock at once is rejected.
    """
    if acting_key_id is None and actor_user_id is None:
        return
    if _since(tenant_id, MOST_A_DAY - ONE_AT_A_TIME) is None:
        return
    if actor_user_id is not None and not User.objects.filter(pk=actor_user_id, tenant_id=tenant_id).exists():
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))", [f"audit:{tenant_id}"])
        (is_alone,) = cursor.fetchone()
    room_in = _since(tenant_id, MOST_A_DAY)
    if is_alone and room_in is None:
        return
    seconds = math.ceil(room_in.total_seconds()) if room_in is not None else 1
    raise RateLimited(
        f"This business has changed {MOST_A_DAY:,} things in 24 hours, the most that are possible.",
        hint="Look at what repeats a change: the audit log in the console names the key or the member.",
        details={"limit": MOST_A_DAY},
        headers={"Retry-After": str(max(1, seconds))},
    )


def _since(tenant_id: UUID, entries: int) -> timedelta | None:
    """How long until this many entries are no longer within the last 24 hours; None when they are not now."""
    newest = (
        AuditEntry.objects.filter(tenant_id=tenant_id).order_by("-id").values_list("created_at", flat=True)
    )
    last = newest[entries - 1 : entries].first() if entries > 0 else now()
    if last is None or last <= now() - DAY:
        return None
    return last + DAY - now()


# --- Actors, as the audit log names them: a person, an API key, a hosted connect session, or the gateway
# itself.


@dataclass(frozen=True, slots=True)
class Actor:
    """The acting person or key, the gateway when neither is given; `details` say more about who acts."""

    user_id: int | None = None
    key_id: UUID | None = None
    details: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, request: Request) -> Self:
        """The caller of an API request."""
        caller = caller_of(request)
        return cls(user_id=caller.user_id, key_id=caller.key_id)

    def record(
        self, action: str, *, tenant_id: UUID, target_type: str, target_id: str, **details: object
    ) -> None:
        """Append an entry to the audit log, inside the transaction of the action. Never with a secret."""
        record(
            action=action,
            target_type=target_type,
            target_id=target_id,
            tenant_id=tenant_id,
            actor_user_id=self.user_id,
            acting_key_id=self.key_id,
            details=self.details | details,
        )

    def require_room(self, *, tenant_id: UUID) -> None:
        """Raise RateLimited at the audit log's bound: before a change upstream, which cannot be taken back."""
        require_room(tenant_id, actor_user_id=self.user_id, acting_key_id=self.key_id)


GATEWAY = Actor()
"""The gateway itself."""
