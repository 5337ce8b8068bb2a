"""`GET /v1/events/stream`. An open stream occupies no thread and no database connection."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial

from django.db import OperationalError
from django.http import QueryDict

from gateway.api.errors import Reply, ServiceUnavailable
from gateway.database.statements import LoopConnection
from gateway.roles import KeyScope
from web.admission import admitted_caller, credential_of
from web.open_streams import Hub, Listener
from web.request import Request
from webhooks import stream
from webhooks.stream import Position, asked_of, place_of

START_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class StreamReply:
    """A response with status 200. Its headers are sent at once, and its body in chunks as they are produced."""

    headers: Mapping[str, str]
    chunks: AsyncGenerator[bytes, None]
    ended: Callable[[], Awaitable[None]]
    """Called once when the response has ended, for whatever reason."""


_hub: Hub | None = None
_starting: asyncio.Lock | None = None
_database: LoopConnection | None = None


async def close() -> None:
    """Close the resources that the streams share."""
    global _hub, _database, _is_stopping
    if _hub is not None:
        await _hub.close()
    if _database is not None:
        await _database.close()
    _hub = _database = None
    _is_stopping = False


async def listen(request: Request) -> StreamReply | Reply:
    """Stream the caller's events after `Last-Event-ID`. Without this header, stream only new events."""
    caller = await admitted_caller(request, scope=KeyScope.EVENTS)
    assert caller.tenant is not None  # noqa: S101 - an admitted caller acts on a tenant
    asked = asked_of(QueryDict(request.query_string), caller)
    if request.method == "HEAD":
        return Reply(200, stream.HEADERS, b"")
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
        stream.HEADERS,
        _chunks(hub, listener, request, after, own_change=caller.phone_number_ids is not None),
        ended=partial(hub.leave, listener),
    )


async def _chunks(
    hub: Hub, listener: Listener, request: Request, sent: Position, *, own_change: bool
) -> AsyncGenerator[bytes, None]:
    """The text of a stream. `sent` is the place up to which the client has received everything. `own_change`: whether
    each event gets only its own change of the notification (`Envelope.with_own_change`).
    """
    watcher = asyncio.create_task(request.disconnected())
    watcher.add_done_callback(lambda _: listener.end("disconnected"))
    try:
        yield stream.opening(sent)
        while True:
            await listener.news.wait()
            listener.news.clear()
            for found in listener.page:
                if listener.ended is None and found.envelope is not None:
                    envelope = found.envelope.with_own_change() if own_change else found.envelope
                    yield stream.event(found.position, envelope.body())
                    listener.sent()
            sent = listener.after
            if listener.ended is not None:
                yield stream.closing(listener.ended)
                return
            hub.drained(listener)
            if listener.is_quiet:
                yield stream.heartbeat(sent)
                listener.sent()
    finally:
        watcher.cancel()


def _running() -> tuple[Hub, LoopConnection, asyncio.Lock]:
    """The hub of this process. It is created on the process's event loop."""
    global _hub, _starting, _database
    if _hub is None or _database is None or _starting is None:
        _hub, _database, _starting = Hub(), LoopConnection(), asyncio.Lock()
    return _hub, _database, _starting


_is_stopping = False


def stop() -> None:
    """End all streams, and reject new ones until `close`."""
    global _is_stopping
    _is_stopping = True
    if _hub is not None:
        _hub.end_all("stopping")
