"""The audit log: actors, and the only writer of entries."""

import math
from collections.abc import Mapping
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

# --- The only writer of the audit log, called inside the transaction of the action that it records.
#
# Nobody can delete entries, so a tenant has a daily limit of entries. At the limit, the tenant's keys and members
# cannot change anything. Four kinds of actions are always allowed: actions that end an access to data, the acceptance
# of an invitation, actions of staff, and actions of the gateway.

DAY = timedelta(days=1)
MOST_A_DAY = 5_000
"""The maximum number of entries of a tenant in 24 hours."""
ONE_AT_A_TIME = 50
"""Within this many entries of the limit, entries are written one at a time. Only more simultaneous writes than this
could exceed the limit.
"""
ENDING = frozenset(
    {
        "api_key.revoke",
        "connected_app.disconnect",
        "team.remove",
        "team.withdraw",
        "account.release",
        "number.release",
        "webhook_endpoint.delete",
        "flow_endpoint.delete",
    }
)
INVITED = frozenset({"team.join"})
"""Actions of a person outside of the team, who cannot make room. The limit of invitations limits them."""
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
"""Actions that are recorded after Meta has done them, when they can no longer be rejected. Their flows call
`require_room` before the call to Meta.
"""


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
    """Append an entry for an action of `tenants/audit_labels.py`. `details` has the old and the new values, never a
    secret.

    For an API key, `details.acting_key` is the key's prefix. Raises RateLimited at the daily limit.
    """
    if tenant_id is not None and action not in ENDING | INVITED | AFTER_UPSTREAM:
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
    """Raise RateLimited when the tenant is at its limit and the actor is a key or member of the tenant.

    This function never waits for the lock. The transaction that has the lock may wait for rows that this transaction
    has locked. Near the limit, a caller that does not get the lock at once is rejected.
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
        f"This business has made {MOST_A_DAY:,} changes in 24 hours, which is the maximum.",
        hint="Find what repeats a change: the audit log in the console names the key or the member.",
        details={"limit": MOST_A_DAY},
        headers={"Retry-After": str(max(1, seconds))},
    )


def _since(tenant_id: UUID, entries: int) -> timedelta | None:
    """The time until the last 24 hours have fewer than `entries` entries. None when they already have fewer."""
    newest = (
        AuditEntry.objects.filter(tenant_id=tenant_id).order_by("-id").values_list("created_at", flat=True)
    )
    last = newest[entries - 1 : entries].first() if entries > 0 else now()
    if last is None or last <= now() - DAY:
        return None
    return last + DAY - now()


# --- Actors of audit entries: a member, staff, an API key, a hosted connect session, or the gateway itself.


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts: a user or a key, or the gateway when neither is given. `details` describes the actor further."""

    user_id: int | None = None
    key_id: UUID | None = None
    details: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, request: Request) -> Self:
        """The actor behind an API request."""
        caller = caller_of(request)
        return cls(user_id=caller.user_id, key_id=caller.key_id)

    def record(
        self, action: str, *, tenant_id: UUID, target_type: str, target_id: str, **details: object
    ) -> None:
        """Append an entry to the audit log, inside the transaction of the action. Never pass a secret."""
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
        """Raise RateLimited at the limit of the audit log. Call it before a change at Meta, which cannot be undone."""
        require_room(tenant_id, actor_user_id=self.user_id, acting_key_id=self.key_id)


GATEWAY = Actor()
"""The gateway itself."""


def difference(former: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The details `before` and `after` of a change: the members whose values differ. Empty if none does."""
    names = [name for name in {**former, **current} if former.get(name) != current.get(name)]
    if not names:
        return {}
    return {
        "before": {name: former.get(name) for name in names},
        "after": {name: current.get(name) for name in names},
    }
