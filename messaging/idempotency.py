"""Idempotency keys: repeated requests with the same key and body within 24 hours send one message (send rules 1 to 3;
decision "Messages").

The record of the first use is committed before the upstream call begins. So of two concurrent requests, one sends the
message and the other gets an error. An earlier use is looked up before any validation. A message that was certainly not
sent leaves no record.
"""

import hashlib
import json
import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar
from uuid import UUID, uuid4

import orjson
from django.conf import settings

from gateway.api.errors import InvalidRequest, MetaUnreachable, Reply, ServiceError
from gateway.clock import isoformat
from gateway.database.statements import Statements

HEADER = "Idempotency-Key"
WINDOW = timedelta(hours=24)
STORED_HEADERS = ("Content-Type", "X-Service-Error-Source")

_KEY = re.compile(r"[!-~]{1,255}")

# One statement claims the key: it inserts a row, or takes over a row older than 24 hours.
_BEGIN = """
INSERT INTO messaging_idempotencyrecord (tenant_id, environment, key, path, body_hash, started_at, headers)
VALUES (%s, %s, %s, %s, %s, now(), jsonb_build_object('claim', %s::text))
ON CONFLICT (tenant_id, environment, key) DO UPDATE
SET path = excluded.path, body_hash = excluded.body_hash, started_at = excluded.started_at, status = NULL,
    headers = excluded.headers, body = NULL
WHERE excluded.started_at - messaging_idempotencyrecord.started_at > make_interval(secs => %s)
RETURNING started_at
"""
_EARLIER = """
SELECT path, body_hash, status, headers::text, body, started_at < now() - make_interval(secs => %s), started_at
FROM messaging_idempotencyrecord
WHERE tenant_id = %s AND environment = %s AND key = %s AND started_at >= now() - make_interval(secs => %s)
"""
_COMPLETE = """
UPDATE messaging_idempotencyrecord SET status = %s, headers = %s::text::jsonb, body = %s
WHERE tenant_id = %s AND environment = %s AND key = %s AND status IS NULL
"""
# A repeated release must not end the claim of a request that came after the first release.
_RELEASE = """
DELETE FROM messaging_idempotencyrecord
WHERE tenant_id = %s AND environment = %s AND key = %s AND status IS NULL AND headers->>'claim' = %s
"""


class InProgress(ServiceError):
    """The first request with this key is still running (send rule 3)."""

    status: ClassVar[int] = 409
    code: ClassVar[str] = "idempotency_conflict"
    message: ClassVar[str] = "A request with this Idempotency-Key is still in progress."
    hint: ClassVar[str] = "Wait a second, then repeat it with the same key: you get its answer."
    repeat: ClassVar[str] = "yes, with the same key"

    def __init__(self) -> None:
        super().__init__(headers={"Retry-After": "1"})


class DifferentBody(ServiceError):
    """The key was used with another body or on another path (send rule 2)."""

    status: ClassVar[int] = 422
    code: ClassVar[str] = "idempotency_conflict"
    message: ClassVar[str] = "This Idempotency-Key was used with a different body."
    hint: ClassVar[str] = (
        "Use a new key for a new message. To repeat a request, send the same body to the same path."
    )
    repeat: ClassVar[str] = "with a new key"

    def __init__(self, *, first_used_at: datetime, other_path: str | None) -> None:
        moment = isoformat(first_used_at)
        details = {"first_used_at": moment} | ({"first_request_at_path": other_path} if other_path else {})
        differs = f"on {other_path}" if other_path else "with a different body"
        super().__init__(f"This Idempotency-Key was used {differs} at {moment}.", details=details)


@dataclass(frozen=True, slots=True)
class KeyUse:
    """The use of a key by one request."""

    tenant_id: UUID
    environment: str
    key: str = field(repr=False)
    path: str
    body_hash: bytes = field(repr=False)
    claim: str = field(default_factory=lambda: uuid4().hex, repr=False)
    """Identifies the claim of this use. Until the reply is stored, it is in the record's `headers`."""


Earlier = Reply | ServiceError
"""The answer to a request whose key was used before: the stored reply, or an error."""


def key_use(header: str | None, *, tenant_id: UUID, environment: str, path: str, raw: bytes) -> KeyUse | None:
    """The use of a key by a request. None without the header. Raises InvalidRequest for an invalid key."""
    if header is None:
        return None
    if not _KEY.fullmatch(header):
        raise InvalidRequest.of(**{HEADER: "Must be 1 to 255 visible ASCII characters."})
    return KeyUse(tenant_id, environment, header, path, body_hash(raw))


def body_hash(raw: bytes) -> bytes:
    """The hash of a JSON body, independent of the order of members.

    Numbers are hashed as written, and each repeated member is hashed. So different messages have different hashes.
    """
    value = json.loads(raw, object_pairs_hook=_members, parse_int=_number, parse_float=_number)
    return hashlib.sha256(orjson.dumps(value)).digest()


def earlier(use: KeyUse) -> Statements[Earlier | None]:
    """Look up an earlier use of the key. Returns its reply or an error; None without an earlier use."""
    patience = 2 * settings.UPSTREAM_TIMEOUT_MS / 1000
    rows = yield _EARLIER, [patience, use.tenant_id, use.environment, use.key, WINDOW.total_seconds()]
    if not rows:
        return None
    path, first_hash, status, headers, body, is_overdue, started_at = rows[0]
    if path != use.path or bytes(first_hash) != use.body_hash:
        return DifferentBody(first_used_at=started_at, other_path=path if path != use.path else None)
    if status is not None:
        return Reply(status, {**orjson.loads(headers), "Idempotent-Replayed": "true"}, bytes(body))
    if is_overdue:
        # The process of the first use has ended. The message may have been sent, so it is not sent again.
        return MetaUnreachable(
            "The first request with this Idempotency-Key was interrupted: its message may have been sent.",
            hint="Wait for its message.status event before you send it again, with a new key.",
            details={"timeout_ms": settings.UPSTREAM_TIMEOUT_MS, "reason": "interrupted"},
        )
    return InProgress()


def beginning(use: KeyUse) -> Statements[Earlier | None]:
    """Claim the key. Returns None on success, or the reply or error of an earlier use."""
    owned = yield (
        _BEGIN,
        [use.tenant_id, use.environment, use.key, use.path, use.body_hash, use.claim, WINDOW.total_seconds()],
    )
    if owned:
        return None
    # The earlier use was released between the two statements, so there is no row. The caller may repeat.
    return (yield from earlier(use)) or InProgress()


def completing(use: KeyUse, reply: Reply) -> Statements[None]:
    """Store the reply of a use that `beginning` claimed."""
    headers = {name: reply.headers[name] for name in STORED_HEADERS if name in reply.headers}
    yield (
        _COMPLETE,
        [reply.status, orjson.dumps(headers).decode(), reply.body, use.tenant_id, use.environment, use.key],
    )


def releasing(use: KeyUse) -> Statements[None]:
    """Release a claimed key, because the message was certainly not sent. The next request may use the key.

    For one transaction. If the answer to the claim was lost, its commit may still be under way. So the key is claimed
    again first, which waits for the end of that commit.
    """
    yield from beginning(use)
    yield _RELEASE, [use.tenant_id, use.environment, use.key, use.claim]


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {"members": sorted(pairs, key=lambda pair: pair[0])}


def _number(text: str) -> dict[str, str]:
    return {"number": text}
