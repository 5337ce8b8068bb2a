"""The edge's door to `GET /v1/events/stream`: a stream holds no thread and no connection to the database."""

import asyncio
from collections.abc import AsyncGenerator
from functools import partial

from django.db import OperationalError
from django.http import QueryDict

from edge import stopping
from edge.callers import admitted_caller, credential_of
from edge.request import Request
from edge.stream_hub import Hub
from edge.stream_listener import Listener
from edge.stream_reply import StreamReply
from gateway.api.errors import ServiceUnavailable
from gateway.database.statements import LoopConnection
from webhooks.stream import sse
from webhooks.stream.positions import Position
from webhooks.stream.stream_query import asked_of, place_of

START_SECONDS = 5.0

_hub: Hub | None = None
_starting: asyncio.Lock | None = None
_database: LoopConnection | None = None


async def close() -> None:
    """Give back what the streams hold."""
    if _hub is not None:
        await _hub.close()
    if _database is not None:
        await _database.close()


async def listen(request: Request) -> StreamReply:
    """Stream the caller's events from `Last-Event-ID` on, or from now."""
    caller = await admitted_caller(request)
    assert caller.tenant is not None  # noqa: S101 - an admitted caller acts on a tenant
    asked = asked_of(QueryDict(request.query_string))
    environment = caller.effective_environment
    hub, database, lock = _running()
    try:
        async with asyncio.timeout(START_SECONDS), lock:
            after = await database.run_each(
                place_of(
                    request.header(b"last-event-id"), tenant_id=caller.tenant.id, environment=environment
                )
            )
    except TimeoutError:
        raise OperationalError("The place in the stream was not found in time.") from None
    listener = Listener(
        id=request.request_id,
        slot=f"{caller.key_id or caller.user_id}:{caller.tenant.id}:{environment}",
        credential=credential_of(request),
        tenant_id=caller.tenant.id,
        environment=environment,
        asked=asked,
        after=after,
    )
    if _is_stopping:
        raise ServiceUnavailable("This process is stopping. Try again.")
    await hub.enter(listener)
    return StreamReply(
        sse.HEADERS,
        _chunks(hub, listener, request, after),
        ended=partial(hub.leave, listener),
    )


async def _chunks(
    hub: Hub, listener: Listener, request: Request, sent: Position
) -> AsyncGenerator[bytes, None]:
    """The text of a stream. `sent` is the place up to which the client has everything."""
    watcher = asyncio.create_task(request.disconnected())
    watcher.add_done_callback(lambda _: listener.end("disconnected"))
    try:
        yield sse.opening(sent)
        while True:
            await listener.news.wait()
            listener.news.clear()
            for found in listener.page:
                if listener.ended is None and found.envelope is not None:
                    yield sse.event(found.position, found.envelope.body())
                    listener.told()
            sent = listener.after
            if listener.ended is not None:
                yield sse.closing(listener.ended)
                return
            hub.drained(listener)
            if listener.is_quiet:
                yield sse.heartbeat(sent)
                listener.told()
    finally:
        watcher.cancel()


def _running() -> tuple[Hub, LoopConnection, asyncio.Lock]:
    """The hub of this process, made inside its event loop."""
    global _hub, _starting, _database
    if _hub is None or _database is None or _starting is None:
        _hub, _database, _starting = Hub(), LoopConnection(), asyncio.Lock()
    return _hub, _database, _starting


_is_stopping = False


def _stop() -> None:
    global _is_stopping
    _is_stopping = True
    if _hub is not None:
        _hub.end_all("stopping")


stopping.register(_stop)
