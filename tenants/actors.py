"""Actors, as the audit log names them: a person, an API key, a hosted connect session, or the gateway itself."""

from dataclasses import dataclass, field
from typing import Any, Self
from uuid import UUID

from rest_framework.request import Request

from gateway.api.authentication import caller_of
from tenants import audit


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
        audit.record(
            action=action,
            target_type=target_type,
            target_id=target_id,
            tenant_id=tenant_id,
            actor_user_id=self.user_id,
            acting_key_id=self.key_id,
            details=self.details | details,
        )


GATEWAY = Actor()
"""The gateway itself."""
