"""Owners of media: which number a media id belongs to, noted when a message brings it or it is uploaded.

The upstream answers for a media only when it is asked with its number. Without this note a tenant's numbers would have
to be asked one after the other.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from gateway.clock import now
from gateway.database.pruning import delete_before
from gateway.database.statements import Statements
from gateway.upstream.notifications.drafts import Change
from messaging.models import KnownMedia

KEPT = timedelta(days=31)
"""The upstream keeps uploaded media for 30 days and received media for less (upstream fact 1.2)."""
SHORTEST_LIFE = timedelta(days=7)
"""Received media live 7 days at the upstream, uploads 30 (upstream fact 1.2)."""
MEDIA_TYPES = ("image", "video", "audio", "document", "sticker")
MEDIA_ID = re.compile(r"[0-9]{1,64}", re.ASCII)

_NOTE = """
INSERT INTO messaging_knownmedia (tenant_id, environment, media_id, phone_number_id, noted_at)
SELECT tenant_id, environment, media_id, phone_number_id, now()
FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::text[]) AS m (tenant_id, environment, media_id, phone_number_id)
ON CONFLICT DO NOTHING
"""
_NOTE_DELETION = """
INSERT INTO messaging_knownmedia (tenant_id, environment, media_id, phone_number_id, noted_at, deleted_at)
VALUES (%s, %s, %s, %s, now(), now())
ON CONFLICT (tenant_id, environment, media_id) DO UPDATE SET deleted_at = now()
"""


class Media(NamedTuple):
    """A media with the number that it belongs to."""

    tenant_id: UUID
    environment: str
    media_id: str
    phone_number_id: str


def media_ids(change: Change) -> Iterable[str]:
    """The ids of the media in a change's inbound messages."""
    messages = (change.value or {}).get("messages")
    for message in messages if isinstance(messages, list) else []:
        if isinstance(message, dict):
            for kind in MEDIA_TYPES:
                content = message.get(kind)
                media_id = content.get("id") if isinstance(content, dict) else None
                if isinstance(media_id, str) and MEDIA_ID.fullmatch(media_id):
                    yield media_id


def noting(media: Sequence[Media]) -> Statements[None]:
    """The statement that notes media; none when there are none, as in nearly every notification."""
    if media:
        yield _NOTE, [list(column) for column in zip(*sorted(set(media)), strict=True)]


def noting_deletion(media: Media) -> Statements[None]:
    """The statement that notes that a media was deleted upstream with this API."""
    yield _NOTE_DELETION, list(media)


def why_gone(*, tenant_id: UUID, environment: str, media_id: str) -> str:
    """What is known of a media that the upstream does not have."""
    rows = KnownMedia.objects.filter(tenant_id=tenant_id, environment=environment, media_id=media_id)
    media = rows.first()
    if media is None:
        return "media_unknown"
    if media.deleted_at is not None:
        return "media_deleted"
    return "media_expired" if media.noted_at < now() - SHORTEST_LIFE else "media_gone"


def number_of(*, tenant_id: UUID, environment: str, media_id: str) -> str | None:
    """The phone_number_id of a media that was noted."""
    rows = KnownMedia.objects.filter(tenant_id=tenant_id, environment=environment, media_id=media_id)
    return rows.values_list("phone_number_id", flat=True).first()


def forget_media() -> int:
    """Forget media that the upstream keeps no longer. Returns how many."""
    return delete_before(KnownMedia, "noted_at", now() - KEPT)
