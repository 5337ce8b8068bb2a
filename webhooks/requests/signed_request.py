"""One attempt at a delivery: sign, address, post. Used by the dispatcher, by single replays and by the ping."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from uuid import UUID

from cryptography.fernet import InvalidToken
from django.conf import settings

from gateway import ids
from gateway.api.errors import Conflict
from gateway.encryption.cipher import decrypt
from gateway.monitoring import tracing
from gateway.outbound.client import TOTAL_TIMEOUT
from webhooks.events.envelope import Envelope
from webhooks.models import Endpoint
from webhooks.requests import cloud_api_form, custom_headers
from webhooks.requests.signing import hub_signature, key_of, signature
from webhooks.stored_target import StoredTarget


class UnreadableSecret(Conflict):
    """No key of ENCRYPTION_KEYS opens an endpoint's signing secret or its headers: nothing can be sent until it has
    new ones."""

    message = "The endpoint's signing secret or its headers cannot be read."
    hint = (
        "Give it new ones: POST /v1/webhooks/{endpoint_id}/rotate-secret, and its `headers` again with "
        "PATCH /v1/webhooks/{endpoint_id}."
    )


@dataclass(frozen=True, slots=True)
class Target:
    """Where a delivery goes, and how. The keys that sign it are the newest, and the one before during an overlap."""

    endpoint_id: UUID
    url: str
    keys: tuple[bytes, ...] = field(repr=False)
    hub_key: bytes | None = field(default=None, repr=False)
    """The newest secret's text, which signs as the upstream does; None where bodies are envelopes."""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """The caller's own."""
    timeout: float = TOTAL_TIMEOUT
    """Seconds for one attempt in all."""


def target(stored: StoredTarget, endpoint_id: UUID, *, at: datetime) -> Target:
    """The target of an endpoint's row as the database has it. Raises `UnreadableSecret`."""
    overlaps = _overlaps(stored.previous_secret_expires_at, at)
    return _target_of_row(stored, endpoint_id, overlaps, tuple(settings.ENCRYPTION_KEYS))


def _overlaps(until: datetime | None, at: datetime) -> bool:
    """Whether a secret that was rotated away still signs beside the newest one."""
    return until is not None and until > at


# The same for delivery after delivery; other ENCRYPTION_KEYS may open other secrets.
@lru_cache(maxsize=4096)
def _target_of_row(
    stored: StoredTarget, endpoint_id: UUID, overlaps: bool, _encryption_keys: tuple[str, ...]
) -> Target:
    previous = stored.previous_secret if overlaps else None
    return _target(
        endpoint_id,
        stored.url,
        stored.format,
        lambda: decrypt(stored.secret, purpose="webhook_secret"),
        lambda: decrypt(previous, purpose="webhook_secret") if previous else None,
        lambda: custom_headers.decrypted(stored.headers),
        stored.timeout_seconds or TOTAL_TIMEOUT,
    )


def target_of(endpoint: Endpoint, *, at: datetime) -> Target:
    """The target of an endpoint that was read through its model. Raises `UnreadableSecret`."""
    overlaps = _overlaps(endpoint.previous_secret_expires_at, at)
    return _target(
        endpoint.id,
        endpoint.url,
        endpoint.format,
        lambda: endpoint.secret,
        lambda: endpoint.previous_secret if overlaps else None,
        lambda: custom_headers.unpacked(endpoint.headers).items(),
        endpoint.timeout_seconds or TOTAL_TIMEOUT,
    )


def is_readable(endpoint: Endpoint) -> bool:
    """Whether the newest secret of an endpoint can sign."""
    try:
        key_of(endpoint.secret)
    except (InvalidToken, ValueError):
        return False
    return True


def _target(
    endpoint_id: UUID,
    url: str,
    format_: str,
    newest: Callable[[], str],
    previous: Callable[[], str | None],
    custom: Callable[[], Iterable[tuple[str, str]]],
    timeout: float,
) -> Target:
    """A target with the keys in force. A previous secret that cannot be read is left out: the newest signs alone."""
    try:
        secret = newest()
        keys = [key_of(secret)]
    except (InvalidToken, ValueError):
        raise UnreadableSecret from None
    with suppress(InvalidToken, ValueError):
        if former := previous():
            keys.append(key_of(former))
    hub_key = secret.encode() if format_ == Endpoint.Format.META else None
    return Target(endpoint_id, url, tuple(keys), hub_key, _headers(custom), timeout)


def body_of(event: Envelope, to: Target) -> bytes:
    """What is sent of an event: its envelope, or the notification that the upstream would send."""
    return event.body() if to.hub_key is None else cloud_api_form.notification(event)


def user_agent() -> str:
    """How the service names itself to receivers."""
    return f"{settings.SERVICE_NAME}/{settings.API_VERSION}"


def _headers(stored: Callable[[], Iterable[tuple[str, str]]]) -> tuple[tuple[str, str], ...]:
    """The caller's headers. A receiver that asks for a credential would refuse what comes without them."""
    try:
        return tuple(stored())
    except InvalidToken:
        raise UnreadableSecret from None


def headers(
    *,
    keys: tuple[bytes, ...],
    message_id: str,
    timestamp: int,
    body: bytes,
    event_type: str,
    custom: Iterable[tuple[str, str]] = (),
    hub_key: bytes | None = None,
) -> dict[str, str]:
    """The headers of every signed POST; `timestamp` is this attempt's, in epoch seconds."""
    return {
        **dict(custom),
        **({"X-Hub-Signature-256": hub_signature(hub_key, body)} if hub_key is not None else {}),
        "Content-Type": "application/json",
        "User-Agent": user_agent(),
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
    traceparent: str | None,
) -> dict[str, str]:
    """The headers of an attempt; `message_id` is the event's public id, the same at every attempt and replay.

    `traceparent` is the attempt's span, while traces are on; it is not part of what is signed.
    """
    return {
        **headers(
            keys=to.keys,
            hub_key=to.hub_key,
            message_id=message_id,
            timestamp=timestamp,
            body=body,
            event_type=event_type,
            custom=to.headers,
        ),
        "X-Service-Delivery": ids.encode(ids.DELIVERY, delivery_id),
        "X-Service-Attempt": str(attempt),
        **({tracing.HEADER: traceparent} if traceparent else {}),
    }
