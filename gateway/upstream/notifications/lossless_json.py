"""Lossless reading of Meta's JSON for an event's `data`.

Integers that a JavaScript client cannot represent become strings of the same digits, of any length. Half a surrogate
pair becomes U+FFFD. If a key is duplicated, its last value is used. All else is read exactly as Meta wrote it, or
rejected with ValueError.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any, NoReturn

import orjson

JsonObject = dict[str, Any]

MAX_SAFE_INTEGER = 2**53 - 1

LARGEST_BODY = 3 * 1024 * 1024
"""The largest notification that Meta sends, in bytes (upstream fact 3.2). Every body of this size is read."""

# An integer above 2^53-1 has at least sixteen digits. A match inside a string only costs time.
_LONG_INTEGER = re.compile(rb"[\[,:\s-][0-9]{16}")

MOST_ESCAPES = 100_000
"""Maximum number of escapes in a larger body that the fast reader rejects. Each escape takes time."""

# Matches the escapes of backslashes and surrogates in order, so that the `u` after an escaped backslash begins no
# escape. Group 1 is a surrogate without its other half.
_ESCAPE = re.compile(
    rb"(?:\\\\)+|\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2}))"
)


def loads(body: bytes) -> Any:
    """Parse a JSON text. Raises ValueError when it is not JSON in UTF-8, or is nested too deeply to read.

    The fast reader parses nearly every notification. The exact reader parses those that the fast one would round or
    reject. What the fast one can read has no half surrogate pair.
    """
    try:
        value = orjson.loads(body)
        if not _LONG_INTEGER.search(body):
            return value
    except orjson.JSONDecodeError:
        if len(body) > LARGEST_BODY and body.count(b"\\") > MOST_ESCAPES:
            raise ValueError("too many escapes") from None
        body = _ESCAPE.sub(_whole_character, body)
    try:
        return json.loads(body.decode(), parse_int=_integer, parse_float=_real, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def dumps(value: object) -> bytes:
    """`value` as JSON. Raises orjson.JSONEncodeError when it is nested deeper than 254 levels."""
    return orjson.dumps(value)


def digest(value: object) -> str:
    """SHA-256, in hex, of the canonical JSON (sorted keys, no space) of `value`. Raises the errors of `dumps`."""
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()


def text(value: object) -> str | None:
    """An identifier as text, from an integer or a string that is not empty. None for any other value.

    U+0000, which Postgres cannot store, becomes U+FFFD.
    """
    if isinstance(value, str):
        return value.replace("\0", "\ufffd") or None
    if type(value) is int:
        return str(value)
    return None


def member(value: Mapping[str, Any], name: str) -> JsonObject:
    """The object at `name`. Empty if the member is missing or not an object."""
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def objects(value: Mapping[str, Any], name: str) -> list[tuple[int, JsonObject]]:
    """The objects in the list at `name`, each with its index. Empty if there is no list."""
    found = value.get(name)
    items = enumerate(found) if isinstance(found, list) else ()
    return [(place, item) for place, item in items if isinstance(item, dict)]


def _whole_character(escape: re.Match[bytes]) -> bytes:
    return escape[0] if escape[1] is None else rb"\ufffd"


def _integer(digits: str) -> int | str:
    if len(digits) > len("-9007199254740991"):
        return digits
    number = int(digits)
    return number if abs(number) <= MAX_SAFE_INTEGER else digits


def _real(digits: str) -> float | str:
    number = float(digits)
    return number if math.isfinite(number) else digits


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
