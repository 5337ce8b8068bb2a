"""`manage.py cancel_open_batches`: cancel open batches after a restore. Their messages may have been sent after the
backup was made.
"""

from typing import Any

from django.core.management.base import BaseCommand
from django.db.models import Q

from gateway.api.errors import Conflict
from gateway.clock import now
from messaging.batches import lifecycle
from messaging.models import Batch, ScheduledMessage


class Command(BaseCommand):
    help = (
        "Cancel the batches and scheduled messages of all tenants whose time has come. Run this after a restore, or "
        "after a fail-over that lost commits, and before a batches worker starts. Otherwise, messages whose send the "
        "database has lost would be sent twice."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        count = 0
        moment = now()
        has_come = Q(send_at=None) | Q(send_at__lte=moment)
        for batch in Batch.objects.filter(has_come, status=Batch.Status.QUEUED).iterator():
            try:
                lifecycle.cancel(batch)
                count += 1
            except Conflict:
                continue  # the batch ended in the meantime
        open_messages = ScheduledMessage.objects.filter(
            status__in=[ScheduledMessage.Status.SCHEDULED, ScheduledMessage.Status.SENDING],
            send_at__lte=moment,
        )
        messages = open_messages.update(
            status=ScheduledMessage.Status.CANCELLED,
            ended_at=moment,
            body=b"",
            claim=None,
            claimed_until=None,
        )
        self.stdout.write(f"{count} batches and {messages} scheduled messages cancelled.")
