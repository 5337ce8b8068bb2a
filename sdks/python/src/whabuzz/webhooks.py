"""Webhooks: the signature of a delivery (Standard Webhooks 1.0) and the typed event in it."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Iterable
from typing import Any, Protocol, cast

from whabuzz import types
from whabuzz.errors import InvalidSignature

TOLERANCE_SECONDS = 300


class Headers(Protocol):
    """The headers of a request: the mapping of any framework, or the headers object of `http.server`."""

    def items(self) -> Iterable[tuple[str, str]]: ...


class WebhookVerifier:
    """Verifies deliveries with the secret of an endpoint, or with several secrets during a rotation."""

    def __init__(self, secret: str | Iterable[str], *, tolerance: float | None = TOLERANCE_SECONDS) -> None:
        """`tolerance` is the highest age of a delivery in seconds. None accepts any age, for messages of a queue and
        objects of an archive. A recorded delivery is then valid for ever, so drop repeats by `dedupe_key`.
        """
        self._tolerance = tolerance
        secrets = [secret] if isinstance(secret, str) else list(secret or ())
        if not secrets:
            raise ValueError("At least one secret (whsec_…) is needed.")
        self._keys = [_key(each) for each in secrets]

    def verify(self, body: bytes | str, headers: Headers) -> types.Event | types.VerifyPing:
        """Return the event of a delivery, or a ping. Answer a ping with its `challenge`. Raises InvalidSignature.

        `body` must be the raw body. A parsed body raises TypeError.
        """
        event: Any = _parsed(self._verified(body, headers))
        return cast("types.Event | types.VerifyPing", event)

    def verify_all(self, body: bytes | str, headers: Headers) -> list[types.Event] | list[types.VerifyPing]:
        """Return the events of a delivery to an endpoint that batches events, or a list with the ping.

        Raises the errors of `verify`.
        """
        verified: Any = self.verify(body, headers)
        return verified["events"] if verified["type"] == "events" else [verified]

    def verify_lines(self, body: bytes | str, headers: Headers) -> list[types.Event] | list[types.VerifyPing]:
        """Return the events of an object in an archive, which has one in each line, or a list with the ping.

        Raises the errors of `verify`.
        """
        lines: Any = [_parsed(line) for line in self._verified(body, headers).split(b"\n") if line]
        return cast("list[types.Event] | list[types.VerifyPing]", lines)

    def _verified(self, body: bytes | str, headers: Headers) -> bytes:
        """The bytes of a body with a valid signature. Raises InvalidSignature and TypeError."""
        given: Any = body
        if not isinstance(given, (str, bytes, bytearray, memoryview)):
            raise TypeError("Give verify the body as it arrived, before any parsing.")
        raw = body.encode() if isinstance(body, str) else bytes(body)
        named = {str(name).lower(): value for name, value in headers.items()}
        try:
            id_, timestamp, signatures = (
                named[f"webhook-{part}"] for part in ("id", "timestamp", "signature")
            )
            # Integers of any size can be subtracted, but a float is too small for a forged timestamp of many digits.
            age = abs(int(time.time()) - int(timestamp))
        except (KeyError, ValueError):
            raise InvalidSignature("The headers webhook-id, -timestamp and -signature are missing.") from None
        if self._tolerance is not None and age > self._tolerance:
            raise InvalidSignature("The delivery was signed too long ago, or the clock is wrong.")
        expected = [_signature(key, id_, timestamp, raw) for key in self._keys]
        # All pairs are compared, each in constant time, so the duration reveals nothing about the signatures.
        matches = [
            hmac.compare_digest(_bytes(given), own) for given in signatures.split(" ") for own in expected
        ]
        if not any(matches):
            raise InvalidSignature(
                "No signature matches. Is the secret the endpoint's, and the body as it arrived, before any parsing?"
            )
        return raw


def signed_headers(secret: str, *, id_: str, body: bytes) -> dict[str, str]:
    """The headers of a delivery with this body, signed now. Raises ValueError for an invalid secret."""
    timestamp = str(int(time.time()))
    return {
        "webhook-id": id_,
        "webhook-timestamp": timestamp,
        "webhook-signature": _signature(_key(secret), id_, timestamp, body).decode(),
    }


def _signature(key: bytes, id_: str, timestamp: str, body: bytes) -> bytes:
    signed = _bytes(f"{id_}.{timestamp}.") + body
    return b"v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256))


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise InvalidSignature("The body is not JSON.") from None


def _bytes(header: str) -> bytes:
    """The bytes of a header. aiohttp, for example, reads bytes that are not UTF-8 as surrogates."""
    return header.encode(errors="surrogateescape")


def _key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.strip().removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    # With an empty key anybody could sign.
    if not key:
        raise ValueError("A secret must be whsec_ and base64.")
    return key
