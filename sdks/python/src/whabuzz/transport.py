"""Send calls and read their answers: JSON, pages of lists, and files as streams.

`transport.py` is generated from `async_transport.py` by `make sdks`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Generic

import httpx

from whabuzz.calls import NOT_SENT, Call, Item, Page, Settings, in_parts, json_of, no_answer, path_of, refusal
from whabuzz.errors import NoAnswer


class Transport:
    """Sends calls with the credentials of one client."""

    def __init__(self, http: httpx.Client, settings: Settings) -> None:
        self.http = http
        self.settings = settings

    def send(self, call: Call, *, stream: bool = False) -> httpx.Response:
        """Send a call, with retries, and return the successful answer. Raises APIError for an error answer, and
        NoAnswer if no answer arrives.
        """
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
                    answer = self.http.send(in_parts(request), stream=stream)
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
                error = refusal(call, answer)
                wait = repeats.wait_after_answer(call, tries, error.status, error.code, answer.headers)
                if wait is None:
                    raise error
            time.sleep(wait)


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
        return Download(self._transport, call).__enter__()


class Pages(Generic[Item]):
    """A list that is read page by page while it is iterated. Creating it makes no call."""

    def __init__(self, transport: Transport, call: Call) -> None:
        self._transport = transport
        self._call = call

    def __iter__(self) -> Iterator[Item]:
        for page in self.pages():
            for item in page:
                yield item

    def pages(self) -> Iterator[list[Item]]:
        """Yield each page as a list of items."""
        cursor = None
        while True:
            page = self.page(cursor)
            yield page.items
            cursor = page.next_cursor
            if cursor is None:
                return

    def page(self, cursor: str | None = None) -> Page[Item]:
        """Read one page with one call: the first page, or the page to which a `next_cursor` leads."""
        self._call.query = {**self._call.query, "cursor": cursor}
        answer = json_of(self._transport.send(self._call))
        return Page(answer["data"], answer.get("next_cursor"))

    def first_page(self) -> list[Item]:
        """Read the items of the first page with one call."""
        return (self.page()).items


class Download:
    """A file to download. Use it in `with`, or read it to its end."""

    def __init__(self, transport: Transport, call: Call) -> None:
        self._transport = transport
        self._call = call
        self._answer: httpx.Response | None = None

    def _opened(self) -> httpx.Response:
        if self._answer is None:
            self._answer = self._transport.send(self._call, stream=True)
        return self._answer

    @property
    def content_type(self) -> str | None:
        found: str | None = self._answer.headers.get("content-type") if self._answer else None
        return found

    @property
    def size(self) -> int | None:
        """The size in bytes. None before the answer has begun, or when the service does not know the size."""
        length = self._answer.headers.get("content-length") if self._answer else None
        return int(length) if length is not None else None

    def chunks(self, size: int = 65536) -> Iterator[bytes]:
        """Yield the bytes as they arrive. Raises NoAnswer if the connection breaks before the end of the file."""
        answer = self._opened()
        try:
            for chunk in answer.iter_bytes(size):
                yield chunk
        except httpx.TransportError as failure:
            raise NoAnswer(f"The file was cut off: {failure}") from failure
        finally:
            self.close()

    def read(self) -> bytes:
        """Read all bytes. Raises NoAnswer if the connection breaks before the end of the file."""
        return b"".join([chunk for chunk in self.chunks()])

    def save(self, path: str | Path) -> Path:
        """Write the bytes to a file as they arrive, and return its path. Raises the errors of `chunks`."""
        target = Path(path)
        with target.open("wb") as file:
            for chunk in self.chunks():
                file.write(chunk)
        return target

    def close(self) -> None:
        if self._answer is not None:
            self._answer.close()

    def __enter__(self) -> Download:
        self._opened()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
