"""Sending calls and reading their answers, synchronously: JSON, pages of lists, and files as streams."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import httpx

from whabuzz.calls import Call, Repeats
from whabuzz.errors import NoAnswer, WhabuzzError, error_of

Item = TypeVar("Item")

NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
"""Failures before a byte of the request left."""


@dataclass(frozen=True)
class Settings:
    """What all calls of one client have in common."""

    base_url: str
    headers: dict[str, str]
    repeats: Repeats
    timeout: Any = httpx.USE_CLIENT_DEFAULT
    """Seconds, or an `httpx.Timeout`; of the client of httpx unless given."""


class Transport:
    """Sends calls with the credentials of one client."""

    def __init__(self, http: httpx.Client, settings: Settings) -> None:
        self.http = http
        self.settings = settings

    def send(self, call: Call, *, stream: bool = False) -> httpx.Response:
        """A successful answer. Raises APIError for any other, NoAnswer when none came."""
        tries = 0
        repeats = self.settings.repeats
        headers = {**call.headers(), **self.settings.headers}
        while True:
            tries += 1
            request = self.http.build_request(
                call.method,
                self.settings.base_url + call.path,
                params=call.parameters(),
                headers=headers,
                timeout=self.settings.timeout,
                **call.content(),
            )
            try:
                try:
                    answer = self.http.send(request, stream=stream)
                finally:
                    call.done()
            except httpx.TransportError as failure:
                wait = repeats.wait_after_failure(call, tries, was_sent=not isinstance(failure, NOT_SENT))
                if wait is None:
                    raise no_answer(self.settings.base_url, call, failure) from failure
            else:
                if answer.is_success:
                    return answer
                answer.read()
                answer.close()
                error = error_of(answer.status_code, text_or_json(answer), answer.headers)
                wait = repeats.wait_after_answer(call, tries, error.status, error.code, answer.headers)
                if wait is None:
                    raise error
            time.sleep(wait)


def no_answer(address: str, call: Call, failure: httpx.TransportError) -> NoAnswer:
    """What to raise when nothing answered."""
    question = " Is the service running there?" if isinstance(failure, NOT_SENT) else ""
    return NoAnswer(f"{call.method} {address}{call.path}: {type(failure).__name__}: {failure}.{question}")


def text_or_json(answer: httpx.Response) -> Any:
    """The JSON of an answer, its text when it is none."""
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


class Resource:
    """A group of operations."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def _path(self, template: str, **values: str) -> str:
        return path_of(template, values)

    def _json(self, call: Call) -> Any:
        return json_of(self._transport.send(call))

    def _nothing(self, call: Call) -> None:
        self._transport.send(call)

    def _pages(self, call: Call) -> Pages[Any]:
        return Pages(self._transport, call)

    def _download(self, call: Call) -> Download:
        return Download(self._transport.send(call, stream=True))


def path_of(template: str, values: dict[str, str]) -> str:
    """A path with its values; a value holds no separator."""
    for name, value in values.items():
        if not value:
            raise WhabuzzError(f"{name} is empty.")
        template = template.replace(f"{{{name}}}", quote(str(value), safe=""))
    return template


@dataclass(frozen=True)
class Page(Generic[Item]):
    """A part of a list, and where the next one begins; None after the last."""

    items: list[Item]
    next_cursor: str | None


class Pages(Generic[Item]):
    """A list that is read page by page while it is iterated. Nothing is asked before."""

    def __init__(self, transport: Transport, call: Call) -> None:
        self._transport = transport
        self._call = call

    def __iter__(self) -> Iterator[Item]:
        for page in self.pages():
            yield from page

    def pages(self) -> Iterator[list[Item]]:
        """The pages as lists of items."""
        cursor = None
        while True:
            page = self.page(cursor)
            yield page.items
            cursor = page.next_cursor
            if cursor is None:
                return

    def page(self, cursor: str | None = None) -> Page[Item]:
        """One page, with one call: the first, or the one that a `next_cursor` names."""
        self._call.query = {**self._call.query, "cursor": cursor}
        answer = json_of(self._transport.send(self._call))
        return Page(answer["data"], answer.get("next_cursor"))

    def first_page(self) -> list[Item]:
        """The newest items, with one call."""
        return self.page().items


class Download:
    """A file that is being received. Use it in a `with` block, or read it to its end."""

    def __init__(self, answer: httpx.Response) -> None:
        self._answer = answer

    @property
    def content_type(self) -> str | None:
        found: str | None = self._answer.headers.get("content-type")
        return found

    @property
    def size(self) -> int | None:
        """In bytes, when the service knows it."""
        length = self._answer.headers.get("content-length")
        return int(length) if length is not None else None

    def chunks(self, size: int = 65536) -> Iterator[bytes]:
        """The bytes as they come. Raises NoAnswer when they break off."""
        try:
            yield from self._answer.iter_bytes(size)
        except httpx.TransportError as failure:
            raise NoAnswer(f"The file broke off: {failure}") from failure
        finally:
            self.close()

    def read(self) -> bytes:
        """All bytes."""
        return b"".join(self.chunks())

    def save(self, path: str | Path) -> Path:
        """Write the bytes to a file as they come."""
        target = Path(path)
        with target.open("wb") as file:
            for chunk in self.chunks():
                file.write(chunk)
        return target

    def close(self) -> None:
        self._answer.close()

    def __enter__(self) -> Download:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
