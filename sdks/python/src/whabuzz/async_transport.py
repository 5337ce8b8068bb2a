"""Send calls and read their answers: JSON, pages of lists, and files as streams.

`transport.py` is generated from `async_transport.py` by `make sdks`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Any, Generic

import httpx

from whabuzz.calls import NOT_SENT, Call, Item, Page, Settings, in_parts, json_of, no_answer, path_of, refusal
from whabuzz.errors import NoAnswer


class AsyncTransport:
    """Sends calls with the credentials of one client."""

    def __init__(self, http: httpx.AsyncClient, settings: Settings) -> None:
        self.http = http
        self.settings = settings

    async def send(self, call: Call, *, stream: bool = False) -> httpx.Response:
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
                    answer = await self.http.send(in_parts(request), stream=stream)
                finally:
                    call.done()
            except httpx.TransportError as failure:
                wait = repeats.wait_after_failure(call, tries, was_sent=not isinstance(failure, NOT_SENT))
                if wait is None:
                    raise no_answer(self.settings.base_url, call, failure) from failure
            else:
                if answer.is_success:
                    return answer
                await answer.aread()
                await answer.aclose()
                error = refusal(call, answer)
                wait = repeats.wait_after_answer(call, tries, error.status, error.code, answer.headers)
                if wait is None:
                    raise error
            await asyncio.sleep(wait)


class AsyncResource:
    """A group of operations."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def _path(self, template: str, **values: str) -> str:
        return path_of(template, values)

    async def _json(self, call: Call) -> Any:
        return json_of(await self._transport.send(call))

    async def _nothing(self, call: Call) -> None:
        await self._transport.send(call)

    def _pages(self, call: Call) -> AsyncPages[Any]:
        return AsyncPages(self._transport, call)

    def _download(self, call: Call) -> AsyncDownload:
        return AsyncDownload(self._transport, call)


class AsyncPages(Generic[Item]):
    """A list that is read page by page while it is iterated. Creating it makes no call."""

    def __init__(self, transport: AsyncTransport, call: Call) -> None:
        self._transport = transport
        self._call = call

    async def __aiter__(self) -> AsyncIterator[Item]:
        async for page in self.pages():
            for item in page:
                yield item

    async def pages(self) -> AsyncIterator[list[Item]]:
        """Yield each page as a list of items."""
        cursor = None
        while True:
            page = await self.page(cursor)
            yield page.items
            cursor = page.next_cursor
            if cursor is None:
                return

    async def page(self, cursor: str | None = None) -> Page[Item]:
        """Read one page with one call: the first page, or the page to which a `next_cursor` leads."""
        self._call.query = {**self._call.query, "cursor": cursor}
        answer = json_of(await self._transport.send(self._call))
        return Page(answer["data"], answer.get("next_cursor"))

    async def first_page(self) -> list[Item]:
        """Read the items of the first page with one call."""
        return (await self.page()).items


class AsyncDownload:
    """A file to download. Use it in `async with`, or read it to its end."""

    def __init__(self, transport: AsyncTransport, call: Call) -> None:
        self._transport = transport
        self._call = call
        self._answer: httpx.Response | None = None

    async def _opened(self) -> httpx.Response:
        if self._answer is None:
            self._answer = await self._transport.send(self._call, stream=True)
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

    async def chunks(self, size: int = 65536) -> AsyncIterator[bytes]:
        """Yield the bytes as they arrive. Raises NoAnswer if the connection breaks before the end of the file."""
        answer = await self._opened()
        try:
            async for chunk in answer.aiter_bytes(size):
                yield chunk
        except httpx.TransportError as failure:
            raise NoAnswer(f"The file was cut off: {failure}") from failure
        finally:
            await self.close()

    async def read(self) -> bytes:
        """Read all bytes. Raises NoAnswer if the connection breaks before the end of the file."""
        return b"".join([chunk async for chunk in self.chunks()])

    async def save(self, path: str | Path) -> Path:
        """Write the bytes to a file as they arrive, and return its path. Raises the errors of `chunks`."""
        target = Path(path)
        with target.open("wb") as file:  # noqa: ASYNC230 - a local file takes each chunk at once
            async for chunk in self.chunks():
                file.write(chunk)
        return target

    async def close(self) -> None:
        if self._answer is not None:
            await self._answer.aclose()

    async def __aenter__(self) -> AsyncDownload:
        await self._opened()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
