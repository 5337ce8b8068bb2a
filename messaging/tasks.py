"""Celery entry points of the messaging app."""

from datetime import datetime
from typing import Any
from uuid import UUID

from celery import shared_task
from celery.signals import worker_shutting_down

from messaging import erasure, known_nodes, retention
from messaging.batches import references, runner
from messaging.conversations import read_marks
from messaging.message_templates import sync


# Acknowledged at its start: with a message that is not, a Celery worker ends when Valkey goes away under it.
@shared_task(acks_late=False)
def run_batches(**_: Any) -> None:
    """Run the batches that nobody runs until the worker stops. Called by wake-ups and by beat as the safety net; has
    the runner look at once where the process has one, as it does from its start on."""
    while runner.run():
        pass


@worker_shutting_down.connect
def _stop_runner(**_: Any) -> None:
    """A stopping worker lets its messages finish and gives its batches back."""
    runner.stop()


@shared_task
def start_due_template_syncs(**_: Any) -> None:
    """Every quarter minute: hand out the accounts whose templates are due."""
    sync.start_due()


@shared_task
def sync_templates(*, account_id: str, lease: str, **_: Any) -> None:
    """Read one account's templates, if the lease is still its own."""
    sync.run(account_id=UUID(account_id), lease=datetime.fromisoformat(lease))


@shared_task
def erase_customers(**_: Any) -> None:
    """Run open erasures of customers. Called when one is requested, and every minute by beat."""
    erasure.run_open()


@shared_task
def prune_kept_notifications(**_: Any) -> None:
    """Hourly: prune notifications that no tenant claimed in time."""
    retention.prune_kept_notifications()


@shared_task
def prune_media(**_: Any) -> None:
    """Hourly: prune the numbers of media that Meta stores no longer."""
    known_nodes.prune_media()


@shared_task
def prune_idempotency_records(**_: Any) -> None:
    """Hourly: prune the outcomes whose 24 hours are over."""
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
    """Hourly: delete references of messages after 30 days."""
    references.prune_references()


@shared_task
def prune_read_marks(**_: Any) -> None:
    """Hourly: delete read marks of conversations that the message log holds no longer."""
    read_marks.prune_read_marks()


@shared_task
def prune_batch_files(**_: Any) -> None:
    """Hourly: prune uploaded CSV files after a day."""
    retention.prune_batch_files()
