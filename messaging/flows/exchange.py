"""A data request of a WhatsApp Flow: decrypt → forward to the tenant's server → encrypt the server's answer.

Sources: Meta's "Implementing Endpoint for Flows" and "Error codes" of Flows (upstream fact 3.15). This runs in the
listener. So a request that waits for a tenant's server holds memory and a socket, but no thread or database connection.
"""

import binascii
from base64 import b64decode, b64encode
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import orjson
import structlog
from cryptography.exceptions import InvalidTag
from cryptography.fernet import InvalidToken
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.conf import settings

from gateway import ids
from gateway.api import access_log
from gateway.api.errors import NotFound, Reply
from gateway.api.event_loop import ThreadPool
from gateway.api.limits import Bulkhead
from gateway.clock import now
from gateway.database.transactions import is_outage
from gateway.outbound.client import Outbound
from messaging.models import FlowEndpoint
from tenants.tenant_status import served
from webhooks.requests import signed_request
from webhooks.requests.signed_request import key_of

log = structlog.get_logger(__name__)

MAX_BODY_BYTES = 1024 * 1024
"""The largest request from WhatsApp, and the largest answer of a tenant's server."""
FORWARD_SECONDS = 8.0
"""How long a tenant's server may take. WhatsApp itself waits 10 seconds (Meta's error `timeout_error`)."""
CONNECT_SECONDS = 3.0
EVENT_TYPE = "flow.data_exchange"
"""The value of `X-Service-Event-Type`. A data request is not an event: it is neither stored nor repeated."""

CANNOT_DECRYPT, NOT_SIGNED, TOKEN_INVALID = 421, 432, 427
"""Statuses that Meta defines. After 421, WhatsApp fetches the public key again. 432 means a wrong signature, and 427
that the Flow has ended.
"""

exchanges = Bulkhead(per_number=100, per_tenant=200, crowded=400, in_all=600)
"""Limits how many data requests wait for tenants' servers on the event loop."""

_OAEP = padding.OAEP(mgf=padding.MGF1(hashes.SHA256()), algorithm=hashes.SHA256(), label=None)
_ACTIVE = b'{"data":{"status":"active"}}'
_ACKNOWLEDGED = b'{"data":{"acknowledged":true}}'


class UndecryptableError(ValueError):
    """Raised when no private key of the number decrypts a request."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A decrypted request and its endpoint. `content` is WhatsApp's JSON."""

    endpoint: FlowEndpoint
    content: bytes = field(repr=False)
    request: dict[str, Any]
    aes_key: bytes = field(repr=False)
    initial_vector: bytes = field(repr=False)

    @property
    def is_ping(self) -> bool:
        """Whether WhatsApp only checks that the endpoint works."""
        return self.request.get("action") == "ping"

    @property
    def is_error_notification(self) -> bool:
        """Whether WhatsApp reports that it could not use an earlier answer."""
        data = self.request.get("data")
        return isinstance(data, dict) and {"error", "error_message"} <= data.keys()

    def answered(self, content: bytes) -> Reply:
        """Encrypt an answer with the request's key and with its initial vector, in which every bit is inverted."""
        vector = bytes(byte ^ 0xFF for byte in self.initial_vector)
        return _text(200, b64encode(AESGCM(self.aes_key).encrypt(vector, content, None)))


class FlowExchange:
    """Answers the data requests of one process, on one event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPool("flows", threads=2, waiting=500)
        self._outbound: Outbound | None = None

    async def answer(self, endpoint_id: UUID, body: bytes, *, environments: Collection[str]) -> Reply:
        """Answer a request whose signature was verified. Raises NotFound, TooManyInFlight, ServiceUnavailable."""
        try:
            opened = await self._threads.run(open_request, endpoint_id, body, environments=environments)
        except UndecryptableError:
            return _text(CANNOT_DECRYPT)
        if opened.is_ping:
            return opened.answered(_ACTIVE)
        number = opened.endpoint.number
        with exchanges.held(number.tenant_id, number.phone_number_id):
            reply, error = await self._forwarded(opened)
        try:
            await self._threads.run(_record, endpoint_id, error)
        except Exception as failure:
            if not is_outage(failure):
                raise
            log.warning("flow_exchange_not_recorded", error=type(failure).__name__)
        return reply

    async def close(self) -> None:
        """Close the connections and end the threads."""
        if self._outbound is not None:
            await self._outbound.__aexit__(None, None, None)
        self._threads.close()

    async def _forwarded(self, opened: Opened) -> tuple[Reply, str | None]:
        """The answer for WhatsApp, and the reason why the tenant's answer could not be used. The reason is None if it
        was used.
        """
        if self._outbound is None:
            private = settings.WEBHOOK_ALLOW_PRIVATE_NETWORKS
            self._outbound = await Outbound(allow_private=private).__aenter__()
        answer = await self._outbound.post(
            opened.endpoint.url,
            opened.content,
            _headers(opened),
            connect_timeout=CONNECT_SECONDS,
            total_timeout=FORWARD_SECONDS,
            read_limit=MAX_BODY_BYTES,
        )
        access_log.add_tenant_ms(answer.ms)
        is_object = _is_object(answer.body)
        is_used = (answer.ok and is_object) or answer.status == TOKEN_INVALID
        error = None if is_used else answer.error or "no_json_object"
        if opened.is_error_notification:
            return opened.answered(_ACKNOWLEDGED), error
        if answer.status == TOKEN_INVALID:
            # WhatsApp shows the `error_msg` in this body to the customer.
            shown = answer.body if is_object else b"{}"
            return Reply(TOKEN_INVALID, {"Content-Type": "application/json"}, shown), None
        if error is None:
            return opened.answered(answer.body), None
        number = opened.endpoint.number.phone_number_id
        log.info("flow_exchange_failed", phone_number_id=number, error=error, ms=answer.ms)
        return _text(504 if error == "timeout" else 502), error


def open_request(endpoint_id: UUID, body: bytes, *, environments: Collection[str]) -> Opened:
    """Find the endpoint of a request and decrypt it. Raises NotFound, UndecryptableError.

    `environments` are the environments whose app secret signed the request.
    """
    endpoint = (
        FlowEndpoint.objects.select_related("number")
        .filter(served("number__"), pk=endpoint_id, number__environment__in=environments)
        .first()
    )
    if endpoint is None:
        raise NotFound("There is no such Flow endpoint.")
    content, aes_key, vector = _decrypted(endpoint, body)
    try:
        request = orjson.loads(content)
    except orjson.JSONDecodeError:
        raise UndecryptableError from None
    return Opened(endpoint, content, request if isinstance(request, dict) else {}, aes_key, vector)


def _decrypted(endpoint: FlowEndpoint, body: bytes) -> tuple[bytes, bytes, bytes]:
    """The decrypted content of a request, its AES key and its initial vector. Raises UndecryptableError."""
    try:
        given = orjson.loads(body)
        data, encrypted_key, vector = (
            b64decode(given[name], validate=True)
            for name in ("encrypted_flow_data", "encrypted_aes_key", "initial_vector")
        )
    except (orjson.JSONDecodeError, KeyError, TypeError, binascii.Error, ValueError):
        raise UndecryptableError from None
    for name in ("private_key", "next_private_key"):
        try:
            stored = getattr(endpoint, name)
            if stored is None:
                continue
            aes_key = _private_key(stored).decrypt(encrypted_key, _OAEP)
            return AESGCM(aes_key).decrypt(vector, data, None), aes_key, vector
        except (ValueError, InvalidTag, InvalidToken):
            continue
    raise UndecryptableError


def _private_key(stored: str) -> rsa.RSAPrivateKey:
    loaded = serialization.load_pem_private_key(stored.encode(), password=None)
    assert isinstance(loaded, rsa.RSAPrivateKey)  # noqa: S101 - the service made it
    return loaded


def _headers(opened: Opened) -> dict[str, str]:
    endpoint = opened.endpoint
    ends_at = endpoint.previous_secret_expires_at
    secrets = [endpoint.secret, endpoint.previous_secret if ends_at and ends_at > now() else None]
    signed = signed_request.headers(
        keys=tuple(key_of(secret) for secret in secrets if secret),
        message_id=ids.encode("flow_", ids.uuid7()),
        timestamp=int(now().timestamp()),
        body=opened.content,
        event_type=EVENT_TYPE,
    )
    return {**signed, "X-Service-Phone-Number-Id": endpoint.number.phone_number_id}


def _is_object(body: bytes) -> bool:
    try:
        return isinstance(orjson.loads(body), dict)
    except orjson.JSONDecodeError:
        return False


def _record(endpoint_id: UUID, error: str | None) -> None:
    """Store the time of the last data request, and the reason if the tenant's answer could not be used."""
    FlowEndpoint.objects.filter(pk=endpoint_id).update(last_request_at=now(), last_error=error)


def _text(status: int, body: bytes = b"") -> Reply:
    return Reply(status, {"Content-Type": "text/plain"}, body)
