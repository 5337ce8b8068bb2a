"""The audit log's only writer, called inside the transaction of the action that it records."""

from typing import Any
from uuid import UUID

from tenants.models import ApiKey, AuditEntry


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
    """Append an entry of an action (`wording/audit_words.py`); `details` holds before and after, never a secret.

    An action by an API key gets the key's prefix as `details.acting_key`.
    """
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
