"""One attempt at a delivery: sign, address, post. Used by the dispatcher, by single replays and by the ping."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings

from gateway import ids
from gateway.encryption import decrypt
from gateway.outbound.client import Answer
from webhooks.delivery.signing import key_of, signature
from webhooks.models import Endpoint

KEPT_ATTEMPTS = 20
EXCERPT_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class Target:
    """Where a delivery goes and which keys sign it: the newest, and the one before during an overlap."""

    endpoint_id: UUID
    url: str
    keys: tuple[bytes, ...] = field(repr=False)


def target(
    *,
    endpoint_id: UUID,
    url: str,
    secret: str,
    previous_secret: str | None,
    previous_expires_at: datetime | None,
    at: datetime,
) -> Target:
    """The target of an endpoint's row as it stands in the database: secrets are ciphertexts."""
    keys = [_key(secret)]
    if previous_secret and previous_expires_at is not None and previous_expires_at > at:
        keys.append(_key(previous_secret))
    return Target(endpoint_id, url, tuple(keys))


def target_of(endpoint: Endpoint, *, at: datetime) -> Target:
    """The target of an endpoint that was read through its model."""
    keys = [key_of(endpoint.secret)]
    until = endpoint.previous_secret_expires_at
    if endpoint.previous_secret and until is not None and until > at:
        keys.append(key_of(endpoint.previous_secret))
    return Target(endpoint.id, endpoint.url, tuple(keys))


def _key(ciphertext: str) -> bytes:
    return key_of(decrypt(ciphertext, purpose="webhook_secret"))


def headers(
    *, keys: tuple[bytes, ...], message_id: str, timestamp: int, body: bytes, event_type: str
) -> dict[str, str]:
    """The headers of every signed POST; `timestamp` is this attempt's, in epoch seconds."""
    return {
        "Content-Type": "application/json",
        "User-Agent": f"{settings.SERVICE_NAME}/{settings.API_VERSION}",
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature(keys, message_id=message_id, timestamp=timestamp, body=body),
        "X-Service-Event-Type": event_type,
    }


def delivery_headers(
    to: Target,
    *,
    delivery_id: UUID,
    message_id: str,
    event_type: str,
    attempt: int,
    timestamp: int,
    body: bytes,
) -> dict[str, str]:
    """The headers of an attempt; `message_id` is the event's public id, the same at every attempt and replay."""
    return {
        **headers(
            keys=to.keys,
            message_id=message_id,
            timestamp=timestamp,
            body=body,
            event_type=event_type,
        ),
        "X-Service-Delivery": ids.encode(ids.DELIVERY, delivery_id),
        "X-Service-Attempt": str(attempt),
    }


def log_entry(answer: Answer, at: str) -> dict[str, Any]:
    """An item of `attempt_log`; text that Postgres cannot hold is replaced."""
    excerpt = answer.body[: EXCERPT_CHARACTERS * 4].decode("utf-8", "replace")[:EXCERPT_CHARACTERS]
    return {
        "at": at,
        "http_status": answer.status,
        "ms": answer.ms,
        "error": answer.error,
        "response_excerpt": excerpt.replace("\0", "\N{REPLACEMENT CHARACTER}"),
    }
