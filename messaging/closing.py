"""What the message flows hold of a tenant that closes: its open batches, its scheduled messages, and the
contents of its events.
"""

from typing import Any
from uuid import UUID

from gateway.api.errors import Conflict
from messaging.batches import lifecycle
from messaging.models import Batch, ScheduledMessage
from messaging.retention import expunge
from messaging.sending import schedule


def on_tenant_closing(*, tenant_id: UUID, delete_data: bool, **_: Any) -> dict[str, int]:
    """Receiver of `tenants.signals.tenant_closing`: cancel open batches and scheduled messages.

    Delete the contents of events if asked. Returns how many of each ended.
    """
    ended = {"batches": 0, "scheduled messages": 0}
    for batch in Batch.objects.for_tenant(tenant_id).filter(status=Batch.Status.QUEUED):
        try:
            lifecycle.cancel(tenant_id=tenant_id, environment=batch.environment, batch_id=batch.public_id)
            ended["batches"] += 1
        except Conflict:
            continue  # it ended meanwhile
    for message in ScheduledMessage.objects.for_tenant(tenant_id).filter(status=schedule.Status.SCHEDULED):
        try:
            schedule.cancel(message)
            ended["scheduled messages"] += 1
        except Conflict:
            continue  # its time came meanwhile
    if delete_data:
        ended["events"] = expunge(tenant_id=tenant_id)
    return ended
