"""A call of the API apart from how it is sent: what both clients share, repeats included.

A call is repeated only where that cannot do anything twice: reads, calls with an idempotency key (the service answers
a repeat with the first outcome), and what the service says it did not do.
"""

from __future__ import annotations

import mimetypes
import random
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any, Union

from whabuzz import types
from whabuzz.errors import seconds

API_VERSION = "2026-10-16"
"""The version of the API that this package was made for; every call pins it."""

File = Union[bytes, "IO[bytes]", Path, tuple[str, Union[bytes, "IO[bytes]"], str]]
"""A file to upload: bytes, an open file, a path, or (name, bytes or open file, media type)."""

_LONGEST_WAIT = 60.0
"""Seconds: a longer Retry-After is the caller's to wait."""


@dataclass
class Call:
    """One operation with its values."""

    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    extra_body: Mapping[str, Any] | None = None
    form: Mapping[str, Any] = field(default_factory=dict)
    file: File | None = None
    keyed: bool = False
    idempotency_key: str | None = None
    accept: str = "application/json"
    _opened: IO[bytes] | None = field(default=None, init=False, repr=False)

    def headers(self) -> dict[str, str]:
        """The call's own headers. A call that takes an idempotency key gets one, the same at every repeat."""
        headers = {"Accept": self.accept, "X-Service-Version": API_VERSION}
        if self.keyed:
            self.idempotency_key = self.idempotency_key or str(uuid.uuid4())
            headers["Idempotency-Key"] = self.idempotency_key
        return headers

    def parameters(self) -> tuple[tuple[str, str], ...]:
        """The query: what is None is left out, sequences are repeated."""
        return tuple(
            (name, _text(each))
            for name, value in self.query.items()
            if value is not None
            for each in (value if _is_list(value) else [value])
        )

    def content(self) -> dict[str, Any]:
        """The body as httpx takes it."""
        if self.file is not None:
            fields = {name: _text(value) for name, value in self.form.items() if value is not None}
            if isinstance(self.file, Path):
                self._opened = self.file.open("rb")
                return {
                    "data": fields,
                    "files": {"file": (self.file.name, self._opened, _media_type(self.file.name))},
                }
            return {"data": fields, "files": {"file": _named(self.file)}}
        if self.body is None and self.extra_body is None:
            return {}
        return {"json": {**(self.body or {}), **(self.extra_body or {})}}

    def done(self) -> None:
        """Close the file that `content` opened."""
        if self._opened is not None:
            self._opened.close()

    def can_be_sent_again(self) -> bool:
        """The body is still there: an open file was read to its end."""
        return self.file is None or isinstance(self.file, bytes | Path)

    def may_repeat(self) -> bool:
        """A repeat does nothing twice, whatever became of the first try."""
        return self.method == "GET" or self.keyed


def _named(
    file: bytes | IO[bytes] | tuple[str, bytes | IO[bytes], str],
) -> tuple[str, bytes | IO[bytes], str]:
    """(name, content, media type) of a file."""
    if isinstance(file, tuple):
        return file
    name = Path(str(getattr(file, "name", "file"))).name
    return name, file, _media_type(name)


def _media_type(name: str) -> str:
    return mimetypes.guess_type(name)[0] or "application/octet-stream"


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")
    return str(value)


@dataclass(frozen=True)
class Repeats:
    """How often and when a call is repeated."""

    most: int = 4

    def wait_after_answer(
        self, call: Call, tries: int, status: int, code: object, headers: Mapping[str, str]
    ) -> float | None:
        """Seconds to wait before the next try; None when the answer is final."""
        if tries > self.most or not call.can_be_sent_again():
            return None
        asked = seconds(headers.get("retry-after"))
        if status == 429 or (status == 503 and asked is not None):
            # Neither was done: the service says so with Retry-After.
            wait = asked if asked is not None else _backoff(tries)
            return wait if wait <= _LONGEST_WAIT else None
        if not call.may_repeat():
            return None
        if status == 409 and code == "idempotency_conflict":
            return _backoff(tries)  # An earlier try is still being worked on.
        final = headers.get("idempotent-replayed") == "true"
        return _backoff(tries) if status in {500, 502, 504} and not final else None

    def wait_after_failure(self, call: Call, tries: int, *, was_sent: bool) -> float | None:
        """The same when no answer came."""
        if tries > self.most or not call.can_be_sent_again() or (was_sent and not call.may_repeat()):
            return None
        return _backoff(tries)


def _backoff(tries: int) -> float:
    """Half a second, doubling to eight, with jitter."""
    longest: float = min(8.0, 0.5 * 2.0 ** (tries - 1))
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - nobody gains by guessing it


# --- The event stream: what both clients share of it.
SILENCE_SECONDS = 40.0
"""The service sends a sign of life every 15 seconds: after this long the connection is taken for dead."""
LONGEST_PAUSE_SECONDS = 30.0
ENDINGS = {
    "replaced": "Another program listens with this key now, and one key has one stream.",
    "unauthorized": "The key or the business is no longer active.",
}


@dataclass(frozen=True)
class Streamed:
    """An event: its place in the stream, its bytes as webhooks deliver them, and what they say."""

    place: str
    body: bytes
    event: types.Event
