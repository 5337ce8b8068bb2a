"""What the message flows hold of a tenant that closes: its open batches, and the contents of its events."""

from typing import Any
from uuid import UUID

from gateway.api.errors import Conflict
from messaging.batches import lifecycle
from messaging.models import Batch
from messaging.retention import expunge


def on_tenant_closing(*, tenant_id: UUID, delete_data: bool, **_: Any) -> dict[str, int]:
    """Receiver of `tenants.signals.tenant_closing`: cancel open batches, and delete the contents of events if asked."""
    ended = {"batches": 0}
    for batch in Batch.objects.for_tenant(tenant_id).filter(status=Batch.Status.QUEUED):
        try:
            lifecycle.cancel(tenant_id=tenant_id, environment=batch.environment, batch_id=batch.public_id)
            ended["batches"] += 1
        except Conflict:
            continue  # it ended meanwhile
    if delete_data:
        ended["events"] = expunge(tenant_id=tenant_id)
    return ended
