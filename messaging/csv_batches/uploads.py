"""Uploaded CSV files between upload and start of their batch (decision "Batches from a file").

A file becomes one batch, however often it is started: its row is locked while the batch is made.
"""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

import orjson
from django.db import transaction

from gateway.api.errors import Conflict, NotFound
from messaging.batches import lifecycle
from messaging.csv_batches import file, rows
from messaging.csv_batches.file import Table
from messaging.csv_batches.rows import Filled, Mapped
from messaging.message_templates import parameters
from messaging.message_templates.models import MessageTemplate
from messaging.models import Batch, BatchFile

MAX_FILE_BYTES = 4 * 1024 * 1024
"""The largest file that a batch is made of."""
KEPT = timedelta(days=1)
MOST_FILES = 10
"""Files of one tenant that wait for their start; a newer one replaces the oldest."""


def store(*, tenant_id: UUID, environment: str, name: str, content: bytes) -> BatchFile:
    """Keep an uploaded file. Raises UnreadableFileError when no batch can be made of it."""
    file.read(content)
    with transaction.atomic():
        stored = BatchFile.objects.create(
            tenant_id=tenant_id, environment=environment, name=name[:200], content=content
        )
        waiting = BatchFile.objects.filter(tenant_id=tenant_id, batch_id__isnull=True)
        waiting.exclude(pk__in=waiting.order_by("-id").values("id")[:MOST_FILES]).delete()
    return stored


def find(*, tenant_id: UUID, environment: str, file_id: UUID) -> BatchFile:
    """A tenant's file. Raises NotFound."""
    found = BatchFile.objects.filter(tenant_id=tenant_id, environment=environment, pk=file_id).first()
    if found is None:
        raise NotFound("There is no such file. Files are kept for a day.")
    return found


def table_of(stored: BatchFile) -> Table:
    """The content of a file that no batch was made of yet. Raises Conflict afterwards."""
    if stored.batch_id is not None:
        raise Conflict("This file was sent already.")
    return file.read(bytes(stored.content))


def filled(stored: BatchFile, template: MessageTemplate, mapped: Mapped) -> Filled:
    """The file's rows as messages of a template. Raises CannotBeFilled or Conflict."""
    wanted = parameters.parameters_of(orjson.loads(template.document))
    return rows.filled(table_of(stored), wanted, mapped)


def start(stored: BatchFile, *, from_: str, template: MessageTemplate, mapped: Mapped) -> Batch | None:
    """Make the batch of a file; None when it was made before (`batch_id` says which).

    Raises what `lifecycle.create` raises, CannotBeFilled, or Conflict when no row can be sent.
    """
    with transaction.atomic():
        locked = BatchFile.objects.select_for_update().get(pk=stored.pk)
        if locked.batch_id is not None:
            return None
        found = filled(locked, template, mapped)
        if not found.messages:
            raise Conflict("No row of this file can be sent.")
        document = orjson.loads(template.document)
        head = {"from": from_, "client_ref": f"{locked.name} ({locked.pk})"}
        body = orjson.dumps({**head, "messages": list(rows.bodies(document, found))})
        batch, _ = lifecycle.create(tenant_id=locked.tenant_id, environment=locked.environment, raw=body)
        locked.batch_id, locked.content = batch.id, b""
        locked.row_numbers = [row.number for row, _, _ in found.messages]
        locked.save(update_fields=["batch_id", "content", "row_numbers"])
    return batch


def row_numbers_of(batch_id: UUID) -> Sequence[int] | None:
    """The file's row of each of the batch's messages; None for a batch that was made of no file."""
    return BatchFile.objects.filter(batch_id=batch_id).values_list("row_numbers", flat=True).first()
