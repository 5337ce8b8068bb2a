"""The event stream: server-sent events. After a broken connection, the stream continues where it was.

`stream.py` is generated from `async_stream.py` by `make sdks`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import httpx
from httpx_sse import EventSource, SSEError

from whabuzz.calls import (
    API_VERSION,
    ENDINGS,
    LONGEST_PAUSE_SECONDS,
    SILENCE_SECONDS,
    Streamed,
    text_or_json,
)
from whabuzz.errors import APIError, StreamEnded, error_of


class AsyncEventStream:
    """Events as they happen: `async for streamed in client.events.listen()`. A broken connection loses no events.

    `place` is the position after the last event that was handled. Store it, and pass it as `after` to go on from there.
    """

    def __init__(
        self,
        http: httpx.AsyncClient,
        *,
        url: str,
        headers: Mapping[str, str],
        filters: Mapping[str, str],
        place: str | None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.place = place
        self._http, self._url, self._filters = http, url, dict(filters)
        self._headers = {**headers, "X-Service-Version": API_VERSION}
        self._sleep, self._tell = sleep, tell
        self._pause = 1.0
        self._failures = 0

    async def __aiter__(self) -> AsyncIterator[Streamed]:
        """Yield every event once, even if the connection breaks. Raises StreamEnded, APIError."""
        while True:
            async for streamed in self._until_it_breaks():
                yield streamed

    async def _until_it_breaks(self) -> AsyncIterator[Streamed]:
        """Yield the events of one connection, then wait until the next connection may be opened."""
        try:
            async for streamed in self._connection():
                yield streamed
        except httpx.TransportError as failure:
            await self._wait_after(f"{type(failure).__name__}: the service cannot be reached. Trying again …")
        except APIError as error:
            if error.status != 429 and error.status < 500:
                raise
            await self._wait_after(f"{error} Trying again …", at_least=error.retry_after or 0.0)
        else:
            await self._sleep(self._pause)

    async def _connection(self) -> AsyncIterator[Streamed]:
        headers = {**self._headers, **({"Last-Event-ID": self.place} if self.place else {})}
        timeout = httpx.Timeout(10.0, read=SILENCE_SECONDS)
        async with self._http.stream(
            "GET", self._url, params=self._filters, headers=headers, timeout=timeout
        ) as answer:
            if answer.status_code != 200:
                await answer.aread()
                raise error_of(answer.status_code, text_or_json(answer), answer.headers)
            try:
                async for sent in EventSource(answer).aiter_sse():
                    self._failures = 0
                    if sent.retry is not None:
                        self._pause = sent.retry / 1000
                    if sent.event == "closed":
                        if sent.data in ENDINGS:
                            raise StreamEnded(ENDINGS[sent.data])
                        return
                    if sent.data:
                        body = sent.data.encode()
                        yield Streamed(sent.id, body, json.loads(body))
                    # `place` is set after the caller has handled the event, so an unhandled event comes again.
                    self.place = sent.id or self.place
            except SSEError as error:
                raise StreamEnded(f"This is not an event stream: {error}") from None

    async def _wait_after(self, problem: str, *, at_least: float = 0.0) -> None:
        if self._failures == 0:
            self._tell(problem)
        self._failures += 1
        pause = min(LONGEST_PAUSE_SECONDS, self._pause * 2.0 ** min(self._failures - 1, 5))
        await self._sleep(max(pause, at_least))
