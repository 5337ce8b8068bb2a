"""Custom headers of an endpoint: which a caller may set, how they are stored, and how they are shown.

Any of them may be a credential, so their values are encrypted at rest and never shown again. A caller who reads an
endpoint and writes it back sends the mask, which keeps the stored value.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

import orjson
from cryptography.fernet import InvalidToken

from gateway.encryption.cipher import decrypt
from webhooks.models import Endpoint

MASK = "***"
MOST_BYTES = 4096
"""Of all names and values, with what separates them in a request."""

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
"""What the service says itself: a receiver must be able to trust it."""


def problem(headers: Mapping[str, str]) -> str | None:
    """Why these headers cannot be sent; None when they can."""
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
    if sum(len(name) + len(value) + _SEPARATORS for name, value in headers.items()) > MOST_BYTES:
        return f"Names and values must have at most {MOST_BYTES} bytes in all."
    return None


def merged(given: Mapping[str, str], stored: str | None) -> dict[str, str]:
    """The headers that a caller gives, with the stored value behind each mask. Raises KeyError with its name.

    The name of a header is the same in any case.
    """
    former = {name.lower(): value for name, value in unpacked(stored).items()}
    for name, value in given.items():
        if value == MASK and name.lower() not in former:
            raise KeyError(name)
    return {name: former[name.lower()] if value == MASK else value for name, value in given.items()}


def packed(headers: Mapping[str, str] | None) -> str | None:
    """The column's text; None without any header."""
    return orjson.dumps(headers).decode() if headers else None


def unpacked(stored: str | None) -> dict[str, str]:
    """The headers in the column's text."""
    headers: dict[str, str] = orjson.loads(stored) if stored else {}
    return headers


def names(endpoint: Endpoint) -> list[str]:
    """The names of an endpoint's headers; none when no key opens them."""
    try:
        return list(unpacked(endpoint.headers))
    except InvalidToken:
        return []


@lru_cache(maxsize=4096)
def decrypted(ciphertext: str | None) -> tuple[tuple[str, str], ...]:
    """The headers in the column's ciphertext. Raises `cryptography.fernet.InvalidToken` when no key opens it."""
    return tuple(unpacked(decrypt(ciphertext, purpose="webhook_headers") if ciphertext else None).items())
