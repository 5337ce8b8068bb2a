"""Settings of a tenant that the tenant changes itself."""

from typing import Any
from uuid import UUID

from django.db import transaction

from tenants import audit
from tenants.models import Tenant


def change(
    *,
    tenant_id: UUID,
    changes: dict[str, Any],
    actor_user_id: int | None = None,
    acting_key_id: UUID | None = None,
) -> Tenant:
    """Change a tenant's settings (name, billing_email, retention_days). The audit entry has the old and
    the new values.
    """
    with transaction.atomic():
        tenant = Tenant.objects.select_for_update(of=("self",)).get(pk=tenant_id)
        before = {field: getattr(tenant, field) for field in changes}
        changed = {field: value for field, value in changes.items() if before[field] != value}
        if changed:
            for field, value in changed.items():
                setattr(tenant, field, value)
            tenant.save(update_fields=list(changed))
            audit.record(
                action="tenant.update",
                target_type="tenant",
                target_id=tenant.id,
                tenant_id=tenant.id,
                actor_user_id=actor_user_id,
                acting_key_id=acting_key_id,
                details={"before": {field: before[field] for field in changed}, "after": changed},
            )
    return tenant
