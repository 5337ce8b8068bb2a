"""Forgetting what the message flows keep only for a time. Called hourly by beat."""

from datetime import timedelta

from django.conf import settings
from django.db import connection, transaction

from gateway.clock import now
from gateway.database.pruning import delete_before, delete_free
from messaging.csv_batches import uploads
from messaging.idempotency import WINDOW
from messaging.models import BatchFile, IdempotencyRecord, KeptNotification


def forget_kept_notifications() -> int:
    """Forget notifications that nobody asked for within UNROUTED_DAYS. Returns how many."""
    return delete_before(KeptNotification, "received_at", now() - timedelta(days=settings.UNROUTED_DAYS))


def forget_idempotency_records() -> int:
    """Forget the outcomes whose 24 hours are over (specification 8). Returns how many."""
    return delete_before(IdempotencyRecord, "started_at", now() - WINDOW)


def forget_batch_files() -> int:
    """Forget the CSV files of which no batch was made within a day. Returns how many."""
    return delete_free(BatchFile.objects.filter(batch_id__isnull=True, created_at__lt=now() - uploads.KEPT))


# A few at a time: each has up to 10,000 items.
_FORGET_BATCHES = """
WITH old AS (
    SELECT b.id FROM messaging_batch b JOIN tenants_tenant t ON t.id = b.tenant_id
    WHERE b.completed_at < now() - make_interval(days => t.retention_days)
    ORDER BY b.completed_at LIMIT 10
    FOR UPDATE OF b SKIP LOCKED
), items AS (
    DELETE FROM messaging_batchitem i USING old WHERE i.batch_id = old.id
), files AS (
    DELETE FROM messaging_batchfile f USING old WHERE f.batch_id = old.id
)
DELETE FROM messaging_batch b USING old WHERE b.id = old.id
"""


def forget_batches() -> int:
    """Forget batches that ended longer ago than their tenant's retention, items and file included. Returns how many."""
    forgotten = 0
    while True:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(_FORGET_BATCHES)
            if not cursor.rowcount:
                return forgotten
            forgotten += cursor.rowcount
