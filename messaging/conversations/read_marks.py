"""Read marks: how far a team has read each conversation. A mark only moves forward. It names no customer."""

import hashlib
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection

from gateway.database.partitions import delete_before
from messaging.models import ReadMark

_MARK = """
INSERT INTO messaging_readmark (tenant_id, environment, conversation, through, read_at)
SELECT %(tenant_id)s, %(environment)s, conversation, %(through)s, now()
FROM unnest(%(conversations)s::bigint[]) AS c (conversation) ORDER BY conversation
ON CONFLICT (tenant_id, environment, conversation) DO UPDATE SET through = excluded.through, read_at = now()
WHERE messaging_readmark.through < excluded.through
"""


def key_of(phone_number_id: str, customer: str) -> int:
    """The key of the conversation between a number and a customer, by one of the customer's ids."""
    digest = hashlib.sha256(f"{phone_number_id}:{customer}".encode()).digest()
    return int.from_bytes(digest[:8], signed=True)


def mark(*, tenant_id: UUID, environment: str, conversations: Iterable[int], through: UUID) -> None:
    """Record that the team has read conversations up to a message."""
    values: dict[str, Any] = {
        "tenant_id": tenant_id,
        "environment": environment,
        "conversations": list(conversations),
        "through": through,
    }
    with connection.cursor() as cursor:
        cursor.execute(_MARK, values)


def through(*, tenant_id: UUID, environment: str, conversations: Iterable[int]) -> Mapping[int, UUID]:
    """The newest read message of each conversation. Conversations without a mark are left out."""
    rows = ReadMark.objects.filter(
        tenant_id=tenant_id, environment=environment, conversation__in=set(conversations)
    )
    return dict(rows.values_list("conversation", "through"))


def prune_read_marks() -> int:
    """Delete marks so old that the message log no longer has their messages. Returns the number of marks."""
    return delete_before(ReadMark, "read_at", timedelta(days=settings.EVENT_METADATA_DAYS))
