"""The request of one attempt: target, signature, headers and body.

The dispatcher, single replays, pings and the data requests of Flows use it. Each custom header of an endpoint may be a
credential, so the values are encrypted at rest and never shown. A caller who reads an endpoint and writes it back sends
masks. A mask keeps the stored value.
"""

import hashlib
import hmac
import re
import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache, partial
from typing import NamedTuple
from uuid import UUID

import orjson
from cryptography.fernet import InvalidToken
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.conf import settings

from gateway import ids
from gateway.api.errors import Conflict
from gateway.encryption import decrypt
from gateway.monitoring import tracing
from gateway.monitoring.spans import OFF, Span
from gateway.outbound.client import TOTAL_TIMEOUT, Answer
from webhooks.destinations.archives import FULL_OBJECT, OBJECT_SECONDS
from webhooks.destinations.s3 import S3Settings
from webhooks.destinations.sqs import SqsSettings
from webhooks.events.envelope import Envelope
from webhooks.models import Endpoint, steps_of
from webhooks.open_deliveries import StoredTarget
from webhooks.requests import cloud_api_form
from webhooks.requests.credentials import MASK, NONE, Credentials, unpacked

MOST_HEADER_BYTES = 4096
"""The maximum number of bytes of all names and values, including their separators in a request."""

_SEPARATORS = len(": \r\n")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2
_VALUE = re.compile(r"[!-~](?:[ \t!-~]*[!-~])?")  # RFC 9110, 5.5, in ASCII
_RESERVED = frozenset(
    {
        "accept",
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "te",
        "traceparent",
        "tracestate",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
    }
)
_RESERVED_PREFIXES = ("proxy-", "webhook-", "x-hub-", "x-service-")
"""Prefixes of headers that only the service sets, so that receivers can trust these headers."""


def headers_problem(headers: Mapping[str, str]) -> str | None:
    """Why these headers cannot be sent. None if they can."""
    lowered = [name.lower() for name in headers]
    for name, value in headers.items():
        if not _NAME.fullmatch(name):
            return "Names must be header names: letters, digits and -, without spaces."
        if name.lower() in _RESERVED or name.lower().startswith(_RESERVED_PREFIXES):
            return f"`{name}` is set by the service."
        if not _VALUE.fullmatch(value):
            return f"The value of `{name}` must be visible ASCII characters, with spaces only inside."
    if len(set(lowered)) < len(lowered):
        return "The same name is given twice."
    if sum(len(name) + len(value) + _SEPARATORS for name, value in headers.items()) > MOST_HEADER_BYTES:
        return f"Names and values must have at most {MOST_HEADER_BYTES} bytes in all."
    return None


def merged_headers(given: Mapping[str, str], stored: str | None) -> dict[str, str]:
    """The caller's headers, with each mask replaced by the stored value. Raises KeyError with a name that has no stored
    value.

    Names are compared without regard to case.
    """
    former = {name.lower(): value for name, value in unpacked_headers(stored).items()}
    for name, value in given.items():
        if value == MASK and name.lower() not in former:
            raise KeyError(name)
    return {name: former[name.lower()] if value == MASK else value for name, value in given.items()}


def packed_headers(headers: Mapping[str, str] | None) -> str | None:
    """Serialise the headers for their column. None when there are none."""
    return orjson.dumps(headers).decode() if headers else None


def unpacked_headers(stored: str | None) -> dict[str, str]:
    """Parse the column's text."""
    headers: dict[str, str] = orjson.loads(stored) if stored else {}
    return headers


def header_names(endpoint: Endpoint) -> list[str]:
    """The names of an endpoint's headers. Empty if no key decrypts the headers."""
    try:
        return list(unpacked_headers(endpoint.headers))
    except InvalidToken:
        return []


# --- Signatures of all requests to endpoints: Standard Webhooks 1.0 (decision "Webhooks to customers").
#
# `webhook-signature` has one `v1,<base64>` for each secret in force. The HMAC key is the decoded base64 after `whsec_`.
# The signed text is `<webhook-id>.<webhook-timestamp>.<body>`. On request, an endpoint also gets `v1a,<base64>`, an
# Ed25519 signature. Its public key can verify but not sign. Deliveries in Meta's format also have Meta's signature,
# whose key is the text of the secret.
SECRET_PREFIX = "whsec_"
SHOWN_CHARACTERS = 12


def new_secret() -> str:
    """A new signing secret: `whsec_` and the base64 of 32 random bytes."""
    return SECRET_PREFIX + b64encode(secrets.token_bytes(32)).decode()


def shown_prefix(secret: str) -> str:
    """The part of a secret that lists show."""
    return secret[:SHOWN_CHARACTERS]


def key_of(secret: str) -> bytes:
    """The HMAC key that a secret encodes."""
    return b64decode(secret.removeprefix(SECRET_PREFIX))


def is_secret(text: str) -> bool:
    """Whether a text is a signing secret: `whsec_` and the base64 of 24 to 64 bytes, as in Standard Webhooks."""
    try:
        key = b64decode(text.removeprefix(SECRET_PREFIX), validate=True)
    except ValueError:
        return False
    return text.startswith(SECRET_PREFIX) and 24 <= len(key) <= 64


def signature(
    keys: Iterable[bytes],
    *,
    message_id: str,
    timestamp: int,
    body: bytes,
    signing_key: Ed25519PrivateKey | None = None,
) -> str:
    """The value of `webhook-signature`. `timestamp` is the time of the attempt in epoch seconds."""
    signed = b"%b.%d.%b" % (message_id.encode(), timestamp, body)
    signatures = ["v1," + b64encode(hmac.digest(key, signed, "sha256")).decode() for key in keys]
    if signing_key is not None:
        signatures.append("v1a," + b64encode(signing_key.sign(signed)).decode())
    return " ".join(signatures)


def hub_signature(key: bytes, body: bytes) -> str:
    """The value of `X-Hub-Signature-256` (upstream fact 3.1)."""
    return "sha256=" + hmac.digest(key, body, "sha256").hex()


# --- Spans of deliveries: an attempt's span is below its event's span. The receiver gets it as `traceparent`.
def delivery_span(
    event: Envelope, *, delivery_id: UUID, endpoint_id: UUID, tenant_id: UUID, event_type: str, attempt: int
) -> Span:
    """The span of one attempt. It omits the endpoint's URL, which may contain secrets."""
    if not tracing.is_on():
        return OFF
    return tracing.span(
        f"deliver {event_type}",
        "producer",
        parent=event.traceparent,
        attributes={
            "gateway.tenant.id": str(tenant_id),
            "gateway.event.id": event.id,
            "gateway.event.type": event_type,
            "gateway.delivery.id": ids.encode(ids.DELIVERY, delivery_id),
            "gateway.delivery.attempt": attempt,
            "gateway.endpoint.id": str(endpoint_id),
        },
    )


def note_answer(span: Span, answer: Answer) -> None:
    """Record the receiver's answer on the span."""
    span.note("http.response.status_code", answer.status)
    if answer.error is not None:
        span.failed(answer.error)


class UnreadableSecret(Conflict):
    """No key of ENCRYPTION_KEYS decrypts an endpoint's signing secret, headers or credentials. Until they are
    replaced, nothing can be sent.
    """

    message = "The endpoint's signing secret, its headers or its credentials cannot be read."
    hint = (
        "Give it new ones: POST /v1/webhooks/{endpoint_id}/rotate-secret, and its `headers`, `tls`, `oauth2`, "
        "`asymmetric_signature` and `destination` again with PATCH /v1/webhooks/{endpoint_id}."
    )


class BatchShape(NamedTuple):
    """How many events a request may have, and how many seconds it waits for them."""

    events: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a delivery. `keys` has the newest secret's key and, during an overlap, the previous secret's."""

    endpoint_id: UUID
    url: str
    keys: tuple[bytes, ...] = field(repr=False)
    hub_key: bytes | None = field(default=None, repr=False)
    """The text of the newest secret, as the key of Meta's signature. None if bodies are envelopes."""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """The caller's headers."""
    timeout: float = TOTAL_TIMEOUT
    """The time limit of a whole attempt, in seconds."""
    keeps_answers: bool = False
    """Whether the beginnings of answers to successful attempts are stored too."""
    credentials: Credentials = NONE
    steps: tuple[float, ...] | None = None
    """Seconds from each failed attempt to the next. None for the service's schedule."""
    batch: BatchShape | None = None
    collects: bool = False
    """Whether a customer's messages are collected for a while."""
    takes_several: bool = False
    """Whether a request has a list of events, even for a single event."""
    archives: bool = False
    """Whether the list has an archive's form, one event on each line."""


def target(stored: StoredTarget, endpoint_id: UUID, *, at: datetime) -> Target:
    """Build the target from an endpoint's row. Raises `UnreadableSecret`."""
    overlaps = _overlaps(stored.previous_secret_expires_at, at)
    return _target_of_row(stored, endpoint_id, overlaps, tuple(settings.ENCRYPTION_KEYS))


def _overlaps(until: datetime | None, at: datetime) -> bool:
    """Whether the previous secret still signs in addition to the newest."""
    return until is not None and until > at


_PURPOSES = {
    name: Endpoint._meta.get_field(name).purpose  # type: ignore[union-attr]
    for name in ("secret", "previous_secret", "headers", "credentials")
}
"""The encryption purpose of each column that a target decrypts."""


# Cached, because the result is the same for all deliveries to an endpoint. ENCRYPTION_KEYS are an argument, because
# other keys may decrypt other secrets.
@lru_cache(maxsize=4096)
def _target_of_row(
    stored: StoredTarget, endpoint_id: UUID, overlaps: bool, _encryption_keys: tuple[str, ...]
) -> Target:
    def opened(column: str) -> str | None:
        stored_text: str | None = getattr(stored, column)
        return decrypt(stored_text, purpose=_PURPOSES[column]) if stored_text else None

    return _target(endpoint_id, stored, opened, overlaps=overlaps)


def target_of(endpoint: Endpoint, *, at: datetime) -> Target:
    """Build the target from an endpoint's model. Raises `UnreadableSecret`."""
    overlaps = _overlaps(endpoint.previous_secret_expires_at, at)
    return _target(endpoint.id, endpoint, partial(getattr, endpoint), overlaps=overlaps)


def is_readable(endpoint: Endpoint) -> bool:
    """Whether an endpoint's newest secret can be decrypted, so that it can sign."""
    try:
        key_of(endpoint.secret)
    except (InvalidToken, ValueError):
        return False
    return True


def _target(
    endpoint_id: UUID, row: StoredTarget | Endpoint, opened: Callable[[str], str | None], *, overlaps: bool
) -> Target:
    """Build a target with the keys in force. `opened` decrypts a column.

    A previous secret that cannot be read is left out, so only the newest signs.
    """
    try:
        if not (secret := opened("secret")):
            raise UnreadableSecret
        keys = [key_of(secret)]
        # Unreadable credentials raise too, because the receiver would reject a request without them.
        own_headers, credentials = unpacked_headers(opened("headers")), unpacked(opened("credentials"))
    except (InvalidToken, ValueError):
        raise UnreadableSecret from None
    with suppress(InvalidToken, ValueError):
        if overlaps and (former := opened("previous_secret")):
            keys.append(key_of(former))
    archives = isinstance(credentials.destination, S3Settings)
    batch = BatchShape(FULL_OBJECT, OBJECT_SECONDS) if archives else None
    if row.batch_events is not None and not archives:
        batch = BatchShape(row.batch_events, (row.batch_milliseconds or 0) / 1000)
    collects = row.quiet_seconds is not None
    return Target(
        endpoint_id,
        row.url,
        tuple(keys),
        hub_key=secret.encode() if row.format == Endpoint.Format.META else None,
        headers=tuple(own_headers.items()),
        timeout=row.timeout_seconds or TOTAL_TIMEOUT,
        keeps_answers=row.keep_answers,
        credentials=credentials,
        steps=tuple(steps_of(row.retry_schedule)) if row.retry_schedule else None,
        batch=batch,
        collects=collects,
        takes_several=batch is not None or collects,
        archives=archives,
    )


BATCH_TYPE = "events"
BATCH_ID = "evs_"


def body_of(events: Sequence[Envelope], to: Target) -> bytes:
    """The body of a request: the event's envelope, its notification in Meta's format, or a list of envelopes."""
    if to.archives:
        # JSON has line ends only between its tokens.
        return b"".join(event.body().replace(b"\r", b" ").replace(b"\n", b" ") + b"\n" for event in events)
    if to.takes_several:
        return b'{"type":"%b","events":[%b]}' % (
            BATCH_TYPE.encode(),
            b",".join(event.body() for event in events),
        )
    (event,) = events
    body = event.body() if to.hub_key is None else cloud_api_form.notification(event)
    return _storable_in_sqs(body) if isinstance(to.credentials.destination, SqsSettings) else body


def _storable_in_sqs(body: bytes) -> bytes:
    """The JSON with escapes for the two characters that SQS rejects, although JSON allows them. They occur only in
    texts.
    """
    return body.replace("\ufffe".encode(), rb"\ufffe").replace("\uffff".encode(), rb"\uffff")


def user_agent() -> str:
    """The name of the service in requests to receivers."""
    return f"{settings.SERVICE_NAME}/{settings.API_VERSION}"


def headers(
    *,
    keys: tuple[bytes, ...],
    message_id: str,
    timestamp: int,
    body: bytes,
    event_type: str,
    custom: Iterable[tuple[str, str]] = (),
    hub_key: bytes | None = None,
    signing_key: Ed25519PrivateKey | None = None,
) -> dict[str, str]:
    """The headers of a signed POST. `timestamp` is the time of the attempt in epoch seconds."""
    return {
        **dict(custom),
        **({"X-Hub-Signature-256": hub_signature(hub_key, body)} if hub_key is not None else {}),
        "Content-Type": "application/json",
        "User-Agent": user_agent(),
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature(
            keys, message_id=message_id, timestamp=timestamp, body=body, signing_key=signing_key
        ),
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
    """The headers of an attempt. `message_id` is the event's public id, the same for every attempt and replay.

    `traceparent` is the span of the attempt, if traces are on. The signature does not cover it. A request with a list
    of events has no trace. Its message id is derived from its body, so the same events always have the same id.
    """
    if to.takes_several:
        digest = hashlib.blake2b(body, digest_size=16, usedforsecurity=False).digest()
        message_id, event_type, traceparent = ids.encode(BATCH_ID, UUID(bytes=digest)), BATCH_TYPE, None
    return {
        **headers(
            keys=to.keys,
            hub_key=to.hub_key,
            message_id=message_id,
            timestamp=timestamp,
            body=body,
            event_type=event_type,
            custom=to.headers,
            signing_key=to.credentials.signing_key,
        ),
        "X-Service-Delivery": ids.encode(ids.DELIVERY, delivery_id),
        "X-Service-Attempt": str(attempt),
        **({tracing.HEADER: traceparent} if traceparent else {}),
    }
