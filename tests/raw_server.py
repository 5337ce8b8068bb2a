"""A TCP server in its own thread. The test writes the bytes of each answer."""

import asyncio
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

Connected = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextmanager
def raw_server(connected: Connected, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve each connection on loopback with `connected`. Yields the base URL. Clients may disconnect early."""
    started: Future[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await connected(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            writer.transport.abort()  # the client has disconnected or the test ends, so nobody reads the rest
        finally:
            writer.close()

    async def serve() -> None:
        stopped = asyncio.Event()
        server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
        url = f"http{'s' if tls else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        started.set_result((url, asyncio.get_running_loop(), stopped))
        await stopped.wait()
        # From Python 3.12 on, `async with` would wait until every client has disconnected.
        server.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    url, loop, stopped = started.result(5)
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join(10)
