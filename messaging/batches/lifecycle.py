"""Batches, for callers: create, find, reschedule, cancel, retry (send rule 8).

One transaction stores a batch with its items. Each item is stored as the bytes that the upstream will receive. After
the commit, a signal wakes the runner (`runner.py`). If the signal is lost, beat finds the batch within seconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import structlog
from django.db import IntegrityError, connection, transaction
from django.db.models import F, Sum

from gateway import ids
from gateway.api.errors import Conflict, RateLimited
from gateway.api.query import by_public_id
from gateway.clock import now
from gateway.monitoring import tracing
from gateway.task_queue import enqueue
from messaging.batches import body as batch_body
from messaging.batches import held_batch, references
from messaging.message_templates import parameters
from messaging.message_templates.parameters import TemplateWarning
from messaging.models import Batch, BatchItem
from messaging.pacing import rate_of
from messaging.sending import customer_hours
from phone_numbers.senders_and_owners import connected_sender
from tenants.models import Tenant

MOST_WAITING_ITEMS = 500_000
"""How many unsent items a tenant's open batches in one environment may have: fifty full batches."""
MOST_WAITING_BYTES = 1024**3
"""How many bytes the items in a tenant's open batches in one environment may have in total."""
FULL_RETRY_SECONDS = 60
TIME_COLUMNS = ("send_at", "waiting_for", "waiting_since")

log = structlog.get_logger(__name__)


class Waiting(NamedTuple):
    """The unsent items in open batches, and the bytes of these batches."""

    items: int
    size: int


@dataclass(frozen=True, slots=True)
class Stored:
    """The answer to the caller that creates a batch."""

    batch: Batch
    is_new: bool = True
    same_messages: bool = True
    """False if this call's messages differ from those of the existing batch with the same client_ref."""
    warnings: Sequence[TemplateWarning] = ()


def create(*, tenant_id: UUID, environment: str, raw: bytes, within: frozenset[str] | None = None) -> Stored:
    """Store a batch, or find the existing batch with its client_ref.

    Raises InvalidRequest or NumberNotConnected; then nothing is queued.
    """
    body = batch_body.read(raw)
    from_, client_ref, messages_hash = body.sender, body.reference, batch_body.messages_hash(raw)

    def known() -> Stored | None:
        found = _known(tenant_id, environment, client_ref, within) if client_ref is not None else None
        if found is None:
            return None
        return Stored(found, is_new=False, same_messages=found.has_messages(messages_hash))

    if earlier := known():
        return earlier
    number = connected_sender(tenant_id=tenant_id, environment=environment, from_=from_, within=within)
    body.check_item_senders({from_, number.phone_number_id, number.digits, f"+{number.digits}"})
    send_at, hours = body.moment(), body.hours
    warnings = parameters.check_sends(
        [(idx, bytes(item.template)) for idx, item in enumerate(body.messages) if item.is_template],
        waba_id=number.waba_id,
        send_at=send_at,
    )
    batch = Batch(
        tenant_id=tenant_id,
        environment=environment,
        phone_number_id=number.phone_number_id,
        client_ref=client_ref,
        skip_opted_out=body.skips_opted_out,
        total=len(body.messages),
        rate_per_sec=rate_of(throughput_level=number.throughput_level, coexistence=number.coexistence),
        traceparent=tracing.current(),
        messages_hash=messages_hash,
    )
    _set_time(batch, send_at)
    try:
        with transaction.atomic():
            _require_room(batch, len(raw))
            batch.save(force_insert=True)
            zones: set[str] | None = None if hours is None else set()
            batch.body_bytes, batch.skipped = _store_items(batch, body, raw, zones)
            if hours is not None and zones is not None:
                batch.customer_hours = hours.within(zones).stored()
                _set_time(batch, send_at)
                references.follow_send_at(batch)
            batch.save(update_fields=["body_bytes", "skipped", "customer_hours", *TIME_COLUMNS])
            transaction.on_commit(wake, robust=True)
    except IntegrityError:
        # A concurrent request has stored a batch with this client_ref.
        if (earlier := known()) is None:
            raise
        return earlier
    return Stored(batch, warnings=warnings)


def find(*, tenant_id: UUID, environment: str, batch_id: str, within: frozenset[str] | None = None) -> Batch:
    """A tenant's batch by its public id. Raises NotFound."""
    own = Batch.objects.for_environment(tenant_id, environment, within)
    return by_public_id(own, ids.BATCH, batch_id, "batch")


def reschedule(found: Batch, send_at: datetime | None) -> Batch:
    """Change the time of a batch that has not begun. None means now. Raises Conflict when the batch has already begun
    or ended.
    """
    with transaction.atomic():
        batch = Batch.objects.select_for_update(no_key=True).get(pk=found.pk)
        is_held = batch.started_at is not None or batch.lease_token is not None
        if is_held or batch.status != Batch.Status.QUEUED:
            status = batch.status if batch.status != Batch.Status.QUEUED else "being sent"
            raise Conflict(f"This batch is {status}.", details={"status": batch.status})
        _set_time(batch, send_at)
        batch.save(update_fields=TIME_COLUMNS)
        references.follow_send_at(batch)
        transaction.on_commit(wake, robust=True)
    return batch


def cancel(found: Batch, *, keeps_references: bool = False) -> Batch:
    """Stop a batch and skip the items that are not being sent. Raises Conflict when the batch has ended.

    After a restore, skipped items may have been sent in the time that the database lost. Then the batch keeps their
    references, so that no message with the same `message_ref` is sent.
    """
    with transaction.atomic():
        batch = Batch.objects.select_for_update(no_key=True).get(pk=found.pk)
        if batch.status != Batch.Status.QUEUED:
            raise Conflict(f"This batch is {batch.status}.", details={"status": batch.status})
        batch.status = Batch.Status.CANCELLED
        batch.save(update_fields=["status"])
        held_batch.skip_unsent(batch, keeps_references=keeps_references)
        if batch.lease_token is None and not batch.items.filter(status=BatchItem.Status.PENDING).exists():
            held_batch.complete(batch)
        else:
            # The batch has claimed items without a result. Their runner ends it, or the next one that claims it.
            transaction.on_commit(wake, robust=True)
    return batch


def retry(found: Batch) -> Batch:
    """Queue the failed items that were certainly not sent. Raises Conflict when there are no such items. An item whose
    `message_ref` now belongs to another item is skipped instead.

    Only a completed batch can be retried, so no runner holds it. Queued items are then claimed and counted like new
    items.
    """
    with transaction.atomic():
        batch = Batch.objects.select_for_update(no_key=True).get(pk=found.pk)
        if batch.status != Batch.Status.COMPLETED:
            raise Conflict("Only a completed batch can be retried.", details={"status": batch.status})
        skipped = held_batch.skip_failed_duplicates(batch)
        queued = held_batch.requeue_failed(batch)
        if not queued:
            raise Conflict(
                "No failed item of this batch can be sent again.", details={"status": batch.status}
            )
        batch.failed -= queued + skipped
        batch.skipped = batch.items.filter(status=BatchItem.Status.SKIPPED).count()
        batch.retries += 1
        batch.status, batch.completed_at = Batch.Status.QUEUED, None
        batch.save(update_fields=["failed", "skipped", "retries", "status", "completed_at"])
        transaction.on_commit(wake, robust=True)
    return batch


def _set_time(batch: Batch, send_at: datetime | None) -> None:
    """Set when a batch begins: now or at `send_at`, moved into its customers' hours. Raises InvalidRequest."""
    hours = customer_hours.restored(batch.customer_hours)
    if hours is not None:
        begins = hours.first_open(moment := send_at or now())
        send_at = begins if begins > moment else send_at
    batch.send_at = send_at
    batch.waiting_for = Batch.WaitingFor.SCHEDULED if send_at else None
    batch.waiting_since = None


def wake() -> None:
    """Wake a runner to claim batches."""
    enqueue("messaging.tasks.run_batches", expires=5)


def _known(tenant_id: UUID, environment: str, client_ref: str, within: frozenset[str] | None) -> Batch | None:
    """The tenant's batch with a client_ref. None when there is no such batch. Raises Conflict when the caller may not
    access it.
    """
    batch = Batch.objects.for_tenant(tenant_id).filter(client_ref=client_ref).first()
    if batch is not None and batch.environment != environment:
        raise Conflict(f"This client_ref belongs to a batch of the {batch.environment} environment.")
    if batch is not None and within is not None and batch.phone_number_id not in within:
        raise Conflict("This client_ref belongs to a batch of another number.")
    return batch


def waiting(*, tenant_id: UUID, environment: str) -> Waiting:
    """The number of unsent items in a tenant's open batches, and the bytes of these batches."""
    found = Batch.objects.for_environment(tenant_id, environment).filter(completed_at__isnull=True)
    sums = found.aggregate(
        items=Sum(F("total") - F("accepted") - F("failed") - F("skipped"), default=0),
        size=Sum("body_bytes", default=0),
    )
    return Waiting(sums["items"], sums["size"])


def _require_room(batch: Batch, size: int) -> None:
    """Require that a new batch and the open batches together stay within the limits. Raises RateLimited. Locks the
    tenant's row, so that concurrent requests take turns.
    """
    Tenant.objects.select_for_update(no_key=True, of=("self",)).get(pk=batch.tenant_id)
    open_now = waiting(tenant_id=batch.tenant_id, environment=batch.environment)
    if open_now.items + batch.total <= MOST_WAITING_ITEMS and open_now.size + size <= MOST_WAITING_BYTES:
        return
    raise RateLimited(
        f"{open_now.items:,} messages of batches are waiting; at most {MOST_WAITING_ITEMS:,} messages or "
        f"{MOST_WAITING_BYTES // 1024**2:,} MiB may wait.",
        hint="Send this batch when the waiting batches have progressed: GET /v1/messages/batch lists them.",
        details={"limit": MOST_WAITING_ITEMS, "limit_bytes": MOST_WAITING_BYTES},
        headers={"Retry-After": str(FULL_RETRY_SECONDS)},
    )


def _store_items(batch: Batch, body: batch_body.Body, raw: bytes, zones: set[str] | None) -> tuple[int, int]:
    """Store the items in their order. Returns their size in bytes, and how many were skipped because their
    `message_ref` belongs to another item.

    Adds the customers' time zones to `zones`. Raises InvalidRequest for customers whose zone is unknown.
    """
    stored = 0
    problems = batch_body.Problems()
    others = references.acquire(batch, ((idx, item.reference) for idx, item in enumerate(body.messages)))
    with (
        # Wraps psycopg's errors here, because Django does not wrap errors of COPY.
        connection.wrap_database_errors,
        connection.cursor() as cursor,
        cursor.copy(
            "COPY messaging_batchitem (batch_id, idx, status, body, message_ref, first_batch_id, first_idx) "
            "FROM STDIN (FORMAT BINARY)"
        ) as copy,
    ):
        copy.set_types(["uuid", "int4", "varchar", "bytea", "varchar", "uuid", "int4"])
        for idx, (item, content) in enumerate(
            zip(body.messages, batch_body.outgoing(raw, body), strict=True)
        ):
            first = others.get(idx)
            if zones is not None:
                own = customer_hours.zones_of(batch_body.recipient_of(content))
                zones.update(own)
                if not own:
                    problems.add(idx, {"to": customer_hours.NO_ZONE})
            status, sent = ("skipped", b"") if first else ("pending", content)
            copy.write_row((batch.id, idx, status, sent, item.reference, *(first or (None, None))))
            stored += len(sent)
    problems.refuse()
    return stored, len(others)
