"""Server-sent events for the pages. Every listener gets every change. Without listeners no event is built."""

import asyncio
import contextlib
from typing import Any

import orjson
from aiohttp import web

_WAITING = 500
_PING_SECONDS = 15.0


class Channel:
    """A stream of changes for any number of listeners. A listener that is too slow misses changes and then gets a
    request to reload.
    """

    def __init__(self) -> None:
        self._listeners: set[asyncio.Queue[bytes | None]] = set()

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def say(self, change: dict[str, Any]) -> None:
        """Send a change to every listener."""
        if not self._listeners:
            return
        line = b"data: " + orjson.dumps(change) + b"\n\n"
        for listener in self._listeners:
            if listener.full():
                while not listener.empty():
                    listener.get_nowait()
                listener.put_nowait(b'data: {"reload":true}\n\n')
            else:
                listener.put_nowait(line)

    def close(self) -> None:
        """End every stream when the server stops."""
        for listener in self._listeners:
            with contextlib.suppress(asyncio.QueueFull):
                listener.put_nowait(None)

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Answer a request with the stream, until the page disconnects or the server stops."""
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        )
        await response.prepare(request)
        listener: asyncio.Queue[bytes | None] = asyncio.Queue(_WAITING)
        self._listeners.add(listener)
        try:
            await response.write(b": open\n\n")
            while True:
                try:
                    line = await asyncio.wait_for(listener.get(), _PING_SECONDS)
                except TimeoutError:
                    line = b": ping\n\n"
                if line is None:
                    break
                await response.write(line)
        except ConnectionError:
            return response
        finally:
            self._listeners.discard(listener)
        return response
