"""The HTTP server of the edge: uvicorn with httptools and uvloop, and the bounds of `edge/protocol.py`."""

import asyncio
from types import FrameType
from typing import Any

import uvicorn

from edge.protocol import BoundedProtocol

KEEP_ALIVE_SECONDS = 75
"""Longer than a proxy keeps an idle connection, so it is the proxy that closes it."""
GRACEFUL_SECONDS = 20


def config(application: Any, *, host: str, port: int) -> uvicorn.Config:
    """How an ASGI application of the edge is served, in production and in tests."""
    return uvicorn.Config(
        application,
        host=host,
        port=port,
        http=BoundedProtocol,
        ws="none",
        loop="uvloop",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACEFUL_SECONDS,
    )


class Server(uvicorn.Server):
    """uvicorn's server that is told by the signal to stop.

    uvicorn looks ten times a second whether it was, which was three quarters of what an edge at rest costs.
    """

    _loop: asyncio.AbstractEventLoop | None = None

    async def main_loop(self) -> None:
        """Serve until a signal comes."""
        self._told_to_stop = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        await self.on_tick(0)
        if not self.should_exit:
            await self._told_to_stop.wait()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called by Python between any two steps of the loop."""
        super().handle_exit(sig, frame)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._told_to_stop.set)
