"""`manage.py cancel_open_batches`: after a restore, batches that were open must not send their messages again."""

from typing import Any

from django.core.management.base import BaseCommand

from gateway.api.errors import Conflict
from messaging.batches import lifecycle
from messaging.models import Batch


class Command(BaseCommand):
    help = (
        "After a restore, or a fail-over that lost commits, and before a batches worker starts: cancel every open "
        "batch of every tenant. Messages that the database does not know to be sent would go out twice."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        count = 0
        for batch in Batch.objects.filter(status=Batch.Status.QUEUED).iterator():
            try:
                lifecycle.cancel(
                    tenant_id=batch.tenant_id, environment=batch.environment, batch_id=batch.public_id
                )
                count += 1
            except Conflict:
                continue  # it ended meanwhile
        self.stdout.write(f"{count} batches cancelled.")
