"""Idempotency keys: the same key and body within 24 hours is one send (send rules 1 to 3; decision "Messages").

The record is written in a transaction of its own before the upstream call begins, so of two requests at once one
sends and the other is told so. What was refused before that moment is not stored.
"""

import hashlib
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar
from uuid import UUID

import orjson
from django.conf import settings
from django.db import connection
from django.http import HttpResponse

from gateway.api.errors import InvalidRequest, MetaUnreachable, ServiceError
from messaging.models import IdempotencyRecord

HEADER = "Idempotency-Key"
WINDOW = timedelta(hours=24)
STORED_HEADERS = ("Content-Type", "X-Service-Error-Source", "Retry-After")

_KEY = re.compile(r"[!-~]{1,255}")

# One statement decides who owns the key: a new row, or the take-over of one whose 24 hours are over.
_BEGIN = """
INSERT INTO messaging_idempotencyrecord (tenant_id, environment, key, path, body_hash, started_at, headers)
VALUES (%s, %s, %s, %s, %s, now(), '{}')
ON CONFLICT (tenant_id, environment, key) DO UPDATE
SET path = excluded.path, body_hash = excluded.body_hash, started_at = now(), status = NULL, headers = '{}',
    body = NULL
WHERE messaging_idempotencyrecord.started_at < now() - make_interval(secs => %s)
RETURNING started_at
"""
_EXISTING = """
SELECT path, body_hash, status, headers, body, started_at < now() - make_interval(secs => %s)
FROM messaging_idempotencyrecord WHERE tenant_id = %s AND environment = %s AND key = %s
"""


class InProgress(ServiceError):
    """The first request with this key is still running (send rule 3)."""

    status: ClassVar[int] = 409
    code: ClassVar[str] = "idempotency_conflict"
    message: ClassVar[str] = "A request with this Idempotency-Key is still in progress."


class DifferentBody(ServiceError):
    """The key was used with another body or on another path (send rule 2)."""

    status: ClassVar[int] = 422
    code: ClassVar[str] = "idempotency_conflict"
    message: ClassVar[str] = "This Idempotency-Key was used with a different body."


@dataclass(frozen=True, slots=True)
class Claim:
    """A key that this request owns: `complete` stores what came of it."""

    tenant_id: UUID
    environment: str
    key: str

    def complete(self, response: HttpResponse) -> None:
        """Store an outcome; in the caller's transaction, if it has one."""
        IdempotencyRecord.objects.filter(
            tenant_id=self.tenant_id, environment=self.environment, key=self.key, status__isnull=True
        ).update(
            status=response.status_code,
            headers={name: response[name] for name in STORED_HEADERS if name in response},
            body=response.content,
        )


def key_of(header: str | None) -> str | None:
    """The key that a request names; one that is not 1 to 255 visible ASCII characters is 400."""
    if header is not None and not _KEY.fullmatch(header):
        raise InvalidRequest.of(**{HEADER: "Must be 1 to 255 visible ASCII characters."})
    return header


def begin(
    *, tenant_id: UUID, environment: str, key: str, path: str, body: dict[str, Any]
) -> Claim | HttpResponse:
    """Own the key, or the stored answer of its first use.

    Raises InProgress, DifferentBody, or MetaUnreachable for a first use that was interrupted: its outcome is
    unknown and it is not repeated.
    """
    digest = hashlib.sha256(orjson.dumps(body, option=orjson.OPT_SORT_KEYS)).digest()
    with connection.cursor() as cursor:
        cursor.execute(_BEGIN, [tenant_id, environment, key, path, digest, WINDOW.total_seconds()])
        if cursor.fetchone() is not None:
            return Claim(tenant_id, environment, key)
        patience = 2 * settings.UPSTREAM_TIMEOUT_MS / 1000
        cursor.execute(_EXISTING, [patience, tenant_id, environment, key])
        row = cursor.fetchone()
    if row is None:
        raise InProgress
    first_path, first_digest, status, headers, answer, overdue = row
    if first_path != path or bytes(first_digest) != digest:
        raise DifferentBody
    if status is None:
        if not overdue:
            raise InProgress
        raise MetaUnreachable(details={"timeout_ms": settings.UPSTREAM_TIMEOUT_MS, "reason": "interrupted"})
    return _replayed(status, headers if isinstance(headers, dict) else orjson.loads(headers), bytes(answer))


def _replayed(status: int, headers: dict[str, str], body: bytes) -> HttpResponse:
    response = HttpResponse(body, status=status, headers=headers)
    response["Idempotent-Replayed"] = "true"
    return response
