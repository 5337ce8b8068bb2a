"""Calls of the API: their content and their retries, shared by the synchronous and the asynchronous client.

Only calls whose repetition is safe are repeated: reads, calls that the service recognises by their idempotency key or
`client_ref` (it answers a repeat with the first outcome), and calls that were certainly not carried out.
"""

from __future__ import annotations

import json
import mimetypes
import os
import random
import re
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any, Generic, TypeVar, Union
from urllib.parse import quote

import httpx

from whabuzz import types
from whabuzz.errors import APIError, NoAnswer, WhabuzzError, error_of, seconds

Item = TypeVar("Item")

API_VERSION = "2026-10-16"
"""The version of the API for which this package was made. Every call pins this version."""

File = Union[bytes, "IO[bytes]", Path, tuple[str, Union[bytes, "IO[bytes]"], str]]
"""A file to upload: bytes, an open file, a path, or (name, bytes or open file, media type)."""

_BATCHES = "/v1/messages/batch"
_TAKES_KEYS = re.compile(r"/(messages|marketing_messages|messages/scheduled)$")
"""The paths that know an idempotency key, here and in the Cloud API. Other paths ignore it."""

_MEDIA_TYPES = {
    "aac": "audio/aac",
    "amr": "audio/amr",
    "m4a": "audio/mp4",
    "mp3": "audio/mpeg",
    "oga": "audio/ogg",
    "ogg": "audio/ogg",
    "opus": "audio/ogg",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "png": "image/png",
    "webp": "image/webp",
    "3gp": "video/3gpp",
    "mp4": "video/mp4",
    "doc": "application/msword",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "pdf": "application/pdf",
    "ppt": "application/vnd.ms-powerpoint",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "txt": "text/plain",
    "xls": "application/vnd.ms-excel",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}
"""The media types that WhatsApp takes, by suffix. What `mimetypes` knows depends on the system: in a slim container it
does not know half of these.
"""

_KEY = re.compile(r"[!-~]{1,255}")
"""The idempotency keys that the service takes."""

_PART_BYTES = 64 * 1024

_LONGEST_WAIT = 60.0
"""The longest wait before a retry, in seconds. For a longer `Retry-After`, the caller gets the error at once."""


@dataclass
class Call:
    """A call of one operation: its path, query and body."""

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
        """The headers of the call. A call with an idempotency key has the same key on every retry. Raises WhabuzzError
        for a key that the service does not take.
        """
        headers = {"Accept": self.accept, "X-Service-Version": API_VERSION}
        if self._has_json():
            headers["Content-Type"] = "application/json"
        if self.keyed and self.idempotency_key is None:
            self.idempotency_key = str(uuid.uuid4())
        if self.idempotency_key is not None:
            if not _KEY.fullmatch(self.idempotency_key):
                raise WhabuzzError("An idempotency key has 1 to 255 visible ASCII characters, and no blanks.")
            headers["Idempotency-Key"] = self.idempotency_key
        return headers

    def parameters(self) -> tuple[tuple[str, str], ...]:
        """The query. Values that are None are left out. A sequence becomes one parameter for each item."""
        return tuple(
            (name, _text(each))
            for name, value in self.query.items()
            if value is not None
            for each in (value if _is_list(value) else [value])
        )

    def content(self) -> dict[str, Any]:
        """The body as arguments of httpx."""
        if self.file is not None:
            fields = {name: _text(value) for name, value in self.form.items() if value is not None}
            if isinstance(self.file, Path):
                self._opened = self.file.open("rb")
                return {
                    "data": fields,
                    "files": {"file": (self.file.name, self._opened, media_type(self.file.name))},
                }
            return {"data": fields, "files": {"file": _named(self.file)}}
        if not self._has_json():
            return {}
        return {"content": json_bytes({**(self.body or {}), **(self.extra_body or {})})}

    def _has_json(self) -> bool:
        return self.file is None and (self.body is not None or self.extra_body is not None)

    def done(self) -> None:
        """Close the file that `content` opened."""
        if self._opened is not None:
            self._opened.close()

    def can_be_sent_again(self) -> bool:
        """Whether the body can be read again. An open file cannot, because it was read to its end."""
        return self.file is None or isinstance(self.file, bytes | Path)

    def may_repeat(self) -> bool:
        """Whether the call is safe to repeat, even if the first try was carried out."""
        return self.method == "GET" or self.keyed or self._is_named_batch()

    def _is_named_batch(self) -> bool:
        bodies = [body for body in (self.body, self.extra_body) if isinstance(body, Mapping)]
        return self.path == _BATCHES and any(body.get("client_ref") for body in bodies)


class _Parts(httpx.ByteStream):
    """A body that is sent in parts, each with its own time-out."""

    def __init__(self, body: bytes) -> None:
        super().__init__(body)
        self._body = body

    def __iter__(self) -> Iterator[bytes]:
        for place in range(0, len(self._body), _PART_BYTES):
            yield self._body[place : place + _PART_BYTES]

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in iter(self):
            yield part


def in_parts(request: httpx.Request) -> httpx.Request:
    """The request, with a long body sent in parts: httpx's asynchronous client has one time-out for each part."""
    if isinstance(request.stream, httpx.ByteStream) and len(request.content) > _PART_BYTES:
        request.stream = _Parts(request.content)
    return request


def json_bytes(value: Any) -> bytes:
    """A value as JSON without blanks and escapes. Some versions of httpx would write a Hindi text twice as long."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _named(
    file: bytes | IO[bytes] | tuple[str, bytes | IO[bytes], str],
) -> tuple[str, bytes | IO[bytes], str]:
    """The name, content and media type of a file."""
    if isinstance(file, tuple):
        return file
    name = Path(str(getattr(file, "name", "file"))).name
    return name, file, media_type(name)


def media_type(name: str) -> str:
    """The media type of a file with this name."""
    known = _MEDIA_TYPES.get(name.rpartition(".")[2].lower())
    return known or mimetypes.guess_type(name)[0] or "application/octet-stream"


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
    """Decides whether and when a call is repeated."""

    most: int = 4

    def wait_after_answer(
        self, call: Call, tries: int, status: int, code: object, headers: Mapping[str, str]
    ) -> float | None:
        """The seconds to wait before the next try. None when the answer is final."""
        if tries > self.most or not call.can_be_sent_again():
            return None
        asked = seconds(headers.get("retry-after"))
        # A 429 refuses a call before it is carried out. A 503 may come after the database has stored a change.
        if status == 429 or (status == 503 and asked is not None and call.may_repeat()):
            wait = asked if asked is not None else _backoff(tries)
            return wait if wait <= _LONGEST_WAIT else None
        if not call.may_repeat():
            return None
        if status == 409 and code == "idempotency_conflict":
            return _backoff(tries)  # An earlier try is still running.
        final = headers.get("idempotent-replayed") == "true"
        return _backoff(tries) if status in {500, 502, 504} and not final else None

    def wait_after_failure(self, call: Call, tries: int, *, was_sent: bool) -> float | None:
        """The seconds to wait before the next try when no answer came. None when the call must not be repeated."""
        if tries > self.most or not call.can_be_sent_again() or (was_sent and not call.may_repeat()):
            return None
        return _backoff(tries)


def _backoff(tries: int) -> float:
    """The seconds to wait after a try: half a second, doubled each time up to eight seconds, with jitter."""
    longest: float = min(8.0, 0.5 * 2.0 ** (tries - 1))
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - nobody gains by guessing it


# --- Settings of a client.
NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
"""Failures before any byte of the request was sent."""


TIMEOUT = httpx.Timeout(30.0, connect=5.0)
"""In seconds. The service waits at most 15 seconds for WhatsApp, so it answers a send within 30 seconds."""


@dataclass(frozen=True)
class Settings:
    """The settings that apply to all calls of one client."""

    base_url: str
    headers: dict[str, str]
    repeats: Repeats
    timeout: Any = httpx.USE_CLIENT_DEFAULT
    """Seconds, or an `httpx.Timeout`. By default the time-out of the httpx client."""


@dataclass(frozen=True)
class Options:
    """The options of a client. `with_options` replaces some of them."""

    api_key: str | None
    base_url: str | None
    tenant_id: str | None
    timeout: httpx.Timeout | float | None
    max_retries: int
    headers: Mapping[str, str]

    def settings(self) -> Settings:
        api_key = self.api_key or os.environ.get("WHABUZZ_API_KEY")
        base_url = self.base_url or os.environ.get("WHABUZZ_BASE_URL")
        if not api_key or not base_url:
            raise WhabuzzError("Give api_key and base_url, or set WHABUZZ_API_KEY and WHABUZZ_BASE_URL.")
        # A key that was read from a file ends in a line break. httpx would reject such a header and quote the key.
        api_key = api_key.strip()
        if not (api_key.isascii() and api_key.isprintable()):
            raise WhabuzzError("The api_key is not a key: it has characters that no key contains.")
        headers = {"Authorization": f"Bearer {api_key}", "User-Agent": "whabuzz-python"}
        if self.tenant_id:
            headers["X-Service-Tenant"] = self.tenant_id
        timeout = httpx.USE_CLIENT_DEFAULT if self.timeout is None else self.timeout
        return Settings(address_of(base_url), {**headers, **self.headers}, Repeats(self.max_retries), timeout)

    def changed(
        self,
        timeout: httpx.Timeout | float | None,
        max_retries: int | None,
        headers: Mapping[str, str] | None,
    ) -> Options:
        return replace(
            self,
            timeout=self.timeout if timeout is None else timeout,
            max_retries=self.max_retries if max_retries is None else max_retries,
            headers={**self.headers, **(headers or {})},
        )


def address_of(base_url: str) -> str:
    """The service's address without `/v1`, which each path has. Raises WhabuzzError for an address without a scheme."""
    address = base_url.strip().rstrip("/").removesuffix("/v1")
    if not address.startswith(("https://", "http://")):
        raise WhabuzzError(f"The base URL {base_url} does not begin with https://.")
    return address


def raw_call(method: str, path: str, query: Mapping[str, Any] | None, body: Any, key: str | None) -> Call:
    keyed = key is not None and _TAKES_KEYS.search(path) is not None
    return Call(method, path, query=query or {}, body=body, keyed=keyed, idempotency_key=key)


def stream_options(
    settings: Settings, type: str | None, phone_number_id: str | None, place: str | None
) -> dict[str, Any]:
    """The arguments of an event stream: its URL, headers, filters and place."""
    filters = {"type": type, "phone_number_id": phone_number_id}
    return {
        "url": f"{settings.base_url}/v1/events/stream",
        "headers": settings.headers,
        "filters": {name: value for name, value in filters.items() if value is not None},
        "place": place,
    }


# --- Answers.
def no_answer(address: str, call: Call, failure: httpx.TransportError) -> NoAnswer:
    """The error for a call that got no answer."""
    question = " Is the service running there?" if isinstance(failure, NOT_SENT) else ""
    error = NoAnswer(f"{call.method} {address}{call.path}: {type(failure).__name__}: {failure}.{question}")
    error.idempotency_key = call.idempotency_key
    return error


def refusal(call: Call, answer: httpx.Response) -> APIError:
    """The error for an error answer to a call."""
    error = error_of(answer.status_code, text_or_json(answer), answer.headers)
    error.idempotency_key = call.idempotency_key
    return error


def text_or_json(answer: httpx.Response) -> Any:
    """The JSON of an answer, or its text when the answer is not JSON."""
    try:
        return answer.json()
    except ValueError:
        return answer.text


def json_of(answer: httpx.Response) -> Any:
    """The JSON of a successful answer. Raises WhabuzzError when something else answered, such as a log-in page."""
    try:
        return answer.json()
    except ValueError:
        kind = answer.headers.get("content-type")
        raise WhabuzzError(f"{answer.url} answered {kind}, not JSON: is base_url the service's?") from None


def path_of(template: str, values: dict[str, str]) -> str:
    """A path with its values, percent-encoded. Raises WhabuzzError for an empty value."""
    for name, value in values.items():
        if not value:
            raise WhabuzzError(f"{name} is empty.")
        template = template.replace(f"{{{name}}}", quote(str(value), safe=""))
    return template


@dataclass(frozen=True)
class Page(Generic[Item]):
    """A page of a list, with the cursor of the next page. The cursor of the last page is None."""

    items: list[Item]
    next_cursor: str | None


# --- The event stream: shared by both clients.
SILENCE_SECONDS = 40.0
"""How long the stream may be silent before the connection counts as broken. The service sends a comment every 15
seconds.
"""
LONGEST_PAUSE_SECONDS = 30.0
ENDINGS = {
    "replaced": "Another program listens with this key now, and one key has one stream.",
    "unauthorized": "The key or the business is no longer active.",
    "failed": "The place or the next event cannot be read: read the events at /v1/events.",
}


@dataclass(frozen=True)
class Streamed:
    """An event with its place in the stream. `body` has the bytes as webhooks deliver them, `event` the parsed JSON."""

    place: str
    body: bytes
    event: types.Event
