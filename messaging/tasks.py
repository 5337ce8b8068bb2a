"""Celery entry points of the messaging app."""

from datetime import datetime
from typing import Any
from uuid import UUID

from celery import shared_task
from celery.signals import worker_shutting_down

from gateway.task_queue import long_task
from messaging import erasure, known_nodes, retention
from messaging.batches import references, runner
from messaging.conversations import read_marks
from messaging.message_templates import mirror


# Acknowledged at the start, because Celery ends a worker that holds an unacknowledged message when Valkey fails.
@shared_task(acks_late=False)
def run_batches(**_: Any) -> None:
    """Run unclaimed batches until the worker stops. Called by wake-ups, and by beat because a wake-up can be lost. If
    the process already has a runner, as is usual, this only wakes that runner.
    """
    while runner.run():
        pass


@worker_shutting_down.connect
def _stop_runner(**_: Any) -> None:
    """Stop the runner of a worker that shuts down. It finishes its messages and releases its batches."""
    runner.stop()


@shared_task
def start_due_template_syncs(**_: Any) -> None:
    """Every 15 seconds: claim the accounts whose templates are due, and start a task for each."""
    mirror.start_due_syncs()


@shared_task
def sync_templates(*, account_id: str, lease: str, **_: Any) -> None:
    """Read one account's templates, unless the claim has expired."""
    mirror.run_sync(account_id=UUID(account_id), lease=datetime.fromisoformat(lease))


@shared_task
def erase_customers(**_: Any) -> None:
    """Run open erasures of customers. Called after a request, and every minute by beat."""
    with long_task(erasure.RUN) as may_run:
        if may_run:
            erasure.run_open()


@shared_task
def prune_kept_notifications(**_: Any) -> None:
    """Hourly: prune notifications that belong to no tenant."""
    retention.prune_kept_notifications()


@shared_task
def prune_media(**_: Any) -> None:
    """Hourly: prune records of media files that Meta no longer stores."""
    known_nodes.prune_media()


@shared_task
def prune_idempotency_records(**_: Any) -> None:
    """Hourly: prune idempotency records older than 24 hours."""
    retention.prune_idempotency_records()


@shared_task
def prune_batches(**_: Any) -> None:
    """Hourly: prune batches that are past their tenant's retention."""
    retention.prune_batches()


@shared_task
def prune_scheduled_messages(**_: Any) -> None:
    """Hourly: delete scheduled messages that are past their tenant's retention."""
    retention.prune_scheduled_messages()


@shared_task
def prune_message_references(**_: Any) -> None:
    """Hourly: delete message references older than 30 days."""
    references.prune_references()


@shared_task
def prune_read_marks(**_: Any) -> None:
    """Hourly: delete read marks that are older than the message log."""
    read_marks.prune_read_marks()


@shared_task
def prune_batch_files(**_: Any) -> None:
    """Hourly: prune CSV files from which no batch was created within a day."""
    retention.prune_batch_files()
