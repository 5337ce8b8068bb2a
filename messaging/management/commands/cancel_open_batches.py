"""`manage.py cancel_open_batches`: cancel open batches and scheduled messages after a restore. They may have been sent
or cancelled after the backup was made. For the same reason, failed messages can no longer be retried, and uploaded
files can no longer be started.
"""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db.models import Q

from gateway.api.errors import Conflict
from gateway.clock import now
from messaging.batches import lifecycle
from messaging.models import Batch, BatchFile, BatchItem, ScheduledMessage


class Command(BaseCommand):
    help = (
        "Cancel the open batches and scheduled messages of all tenants, end the retries of completed batches, and "
        "delete uploaded files that were not started. Run this after a restore, or after a fail-over "
        "that lost commits, and before a batches worker starts. Otherwise, messages whose send or cancellation the "
        "database has lost would be sent."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--due-only",
            action="store_true",
            help="keep those whose time has not come. Those that their tenant brought forward or cancelled in the time "
            "that the database has lost are sent at their former time.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        count = 0
        moment = now()
        chosen = Q(send_at=None) | Q(send_at__lte=moment) if options["due_only"] else Q()
        for batch in Batch.objects.filter(chosen, status=Batch.Status.QUEUED).iterator():
            try:
                lifecycle.cancel(batch, keeps_references=True)
                count += 1
            except Conflict:
                continue  # the batch ended in the meantime
        completed = Batch.objects.filter(status=Batch.Status.COMPLETED, failed__gt=0)
        retryable = BatchItem.objects.filter(
            batch_id__in=completed.values("id"), status=BatchItem.Status.FAILED
        )
        retryable.exclude(body=b"").update(body=b"")
        BatchFile.objects.filter(batch_id=None).delete()
        open_messages = ScheduledMessage.objects.filter(
            chosen, status__in=[ScheduledMessage.Status.SCHEDULED, ScheduledMessage.Status.SENDING]
        )
        messages = open_messages.update(
            status=ScheduledMessage.Status.CANCELLED,
            ended_at=moment,
            body=b"",
            claim=None,
            claimed_until=None,
        )
        self.stdout.write(f"{count} batches and {messages} scheduled messages cancelled.")
