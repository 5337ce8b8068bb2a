"""Batches as callers see them: create, find, cancel, retry (send rule 8).

A batch is stored with its items in one transaction, each item as the bytes that the upstream will receive. The
runner (`runner.py`) is woken after the commit; when that signal is lost, beat finds the batch within seconds.
"""

from collections.abc import Iterable
from uuid import UUID

import structlog
from django.db import IntegrityError, connection, transaction

from gateway import ids
from gateway.api.errors import Conflict, NotFound
from gateway.monitoring import tracing
from gateway.task_queue import enqueue
from messaging.batches import body as batch_body
from messaging.batches import held_batch
from messaging.models import Batch
from messaging.pacing import rate_of
from messaging.sending import flow

log = structlog.get_logger(__name__)


def create(*, tenant_id: UUID, environment: str, raw: bytes) -> tuple[Batch, bool]:
    """Store a batch, or find the one that has its client_ref already; the second value says whether it is new.

    Raises InvalidRequest (nothing is queued) or NumberNotConnected.
    """
    body = batch_body.read(raw)
    from_, client_ref = body.sender, body.reference
    if client_ref is not None and (known := _known(tenant_id, environment, client_ref)):
        return known, False
    number = flow.resolve_sender(tenant_id=tenant_id, environment=environment, from_=from_)
    body.check_item_senders({from_, number.phone_number_id, number.digits, f"+{number.digits}"})
    batch = Batch(
        tenant_id=tenant_id,
        environment=environment,
        phone_number_id=number.phone_number_id,
        client_ref=client_ref,
        total=len(body.messages),
        rate_per_sec=rate_of(throughput_level=number.throughput_level, coexistence=number.coexistence),
        traceparent=tracing.current(),
    )
    try:
        with transaction.atomic():
            batch.save(force_insert=True)
            _store_items(batch, batch_body.outgoing(raw, body))
            transaction.on_commit(wake, robust=True)
    except IntegrityError:
        # Another request stored a batch with this client_ref meanwhile.
        if client_ref is None or (known := _known(tenant_id, environment, client_ref)) is None:
            raise
        return known, False
    return batch, True


def find(*, tenant_id: UUID, environment: str, batch_id: str) -> Batch:
    """A tenant's batch by its public id. Raises NotFound."""
    key = ids.decode(ids.BATCH, batch_id)
    own = Batch.objects.for_tenant(tenant_id).filter(environment=environment)
    batch = own.filter(pk=key).first() if key is not None else None
    if batch is None:
        raise NotFound("There is no such batch.")
    return batch


def cancel(*, tenant_id: UUID, environment: str, batch_id: str) -> Batch:
    """Stop a batch: what is not under way yet is skipped. Raises NotFound, or Conflict when it has ended."""
    found = find(tenant_id=tenant_id, environment=environment, batch_id=batch_id)
    with transaction.atomic():
        batch = Batch.objects.select_for_update(no_key=True).get(pk=found.pk)
        if batch.status != Batch.Status.QUEUED:
            raise Conflict(f"This batch is {batch.status}.", details={"status": batch.status})
        batch.status = Batch.Status.CANCELLED
        if batch.lease_token is None:
            held_batch.complete(batch)
        else:
            batch.save(update_fields=["status"])
            held_batch.skip_unsent(batch)
    return batch


def retry(*, tenant_id: UUID, environment: str, batch_id: str) -> Batch:
    """Queue the failed items again that were certainly not sent. Raises NotFound, or Conflict when there are none.

    Only a completed batch is retried, so no runner holds it: what it sends again is claimed and counted as new.
    """
    found = find(tenant_id=tenant_id, environment=environment, batch_id=batch_id)
    with transaction.atomic():
        batch = Batch.objects.select_for_update(no_key=True).get(pk=found.pk)
        if batch.status != Batch.Status.COMPLETED:
            raise Conflict("Only a completed batch can be retried.", details={"status": batch.status})
        queued = held_batch.requeue_failed(batch)
        if not queued:
            raise Conflict(
                "No failed item of this batch can be sent again.", details={"status": batch.status}
            )
        batch.failed -= queued
        batch.retries += 1
        batch.status, batch.completed_at = Batch.Status.QUEUED, None
        batch.save(update_fields=["failed", "retries", "status", "completed_at"])
        transaction.on_commit(wake, robust=True)
    return batch


def wake() -> None:
    """Have a worker look for batches to run."""
    enqueue("messaging.tasks.run_batches", expires=5)


def _known(tenant_id: UUID, environment: str, client_ref: str) -> Batch | None:
    """The tenant's batch with a client_ref. Raises Conflict when it is in the other environment."""
    batch = Batch.objects.for_tenant(tenant_id).filter(client_ref=client_ref).first()
    if batch is not None and batch.environment != environment:
        raise Conflict(f"This client_ref belongs to a batch of the {batch.environment} environment.")
    return batch


def _store_items(batch: Batch, items: Iterable[bytes]) -> None:
    with (
        # psycopg's own errors otherwise: Django wraps those of its cursors, not those of a copy.
        connection.wrap_database_errors,
        connection.cursor() as cursor,
        cursor.copy(
            "COPY messaging_batchitem (batch_id, idx, status, body) FROM STDIN (FORMAT BINARY)"
        ) as copy,
    ):
        copy.set_types(["uuid", "int4", "varchar", "bytea"])
        for idx, item in enumerate(items):
            copy.write_row((batch.id, idx, "pending", item))
