"""The ASGI application of the notification router: a notification goes to the cell of its accounts, byte for byte.

One with changes of several cells is cut into a part for each, signed anew, and answered 200 only if every cell answered
200: otherwise the upstream repeats the whole, and a cell that had its part already knows it by its dedupe keys. What is
of no cell goes to the default one, which keeps it. The router stores nothing.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import structlog

from edge.notification_router.cell_calls import CellCalls
from edge.notification_router.routing_table import RoutingTable
from edge.request import AsgiScope, ClientGone, Receive, Request, Send
from gateway import ids
from gateway.api.errors import MethodNotAllowed, NotFound, ServiceUnavailable, as_service_error, error_reply
from gateway.api.reply import Reply
from messaging.notifications import app_secrets, incoming

log = structlog.get_logger(__name__)

LOOK_SECONDS = 1.0
"""How long the routes that were read count, and the refusals of a cell are collected for one line of the log."""
_TEXT = {"Content-Type": "text/plain"}


class Router:
    """The application. Its cells are those of the routing table."""

    def __init__(self, table: RoutingTable) -> None:
        self._table = table
        self._cells = {name: CellCalls(name, url) for name, url in table.urls.items()}

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        request = Request(scope, receive, ids.uuid7())
        try:
            reply = await self._answer(request)
        except ClientGone:
            return
        except Exception as exception:  # noqa: BLE001 - every exception becomes an answer; the unforeseen is logged
            reply = error_reply(as_service_error(exception), request.request_id)
        finally:
            request.close()
        headers = {**reply.headers, "Content-Length": str(len(reply.body))}
        if not request.body_is_read:
            headers["Connection"] = "close"
        lines = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": reply.status, "headers": lines})
        await send({"type": "http.response.body", "body": reply.body})

    async def _answer(self, request: Request) -> Reply:
        match request.path, request.method:
            case "/upstream/webhook", "POST":
                return await self._hand_over(request)
            case "/upstream/webhook", "GET":
                return Reply(200, _TEXT, app_secrets.challenge(request.parameters).encode())
            case "/v1/health/live", "GET" | "HEAD":
                return Reply(200, _TEXT, b"")
            case "/upstream/webhook" | "/v1/health/live", _:
                raise MethodNotAllowed
        raise NotFound(f"There is nothing at {request.path}.")

    async def _hand_over(self, request: Request) -> Reply:
        """200 when every cell concerned answered 200. Raises ServiceUnavailable otherwise."""
        body = await request.body(limit=incoming.MAX_BODY_BYTES)
        signature = request.header(b"x-hub-signature-256") or ""
        environment = app_secrets.signing_environments(body, signature)[0]
        calls = [
            self._cells[cell].post(
                part, signature if part == body else app_secrets.signed_by(environment, part)
            )
            for cell, part in self._table.parts(body).items()
        ]
        if not all(await asyncio.gather(*calls)):
            raise ServiceUnavailable("Not every cell has taken its part. Repeat the notification.")
        return Reply(200, _TEXT, b"")

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with self.running():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep connections to the cells, and read the routes when they change."""
        async with AsyncExitStack() as open_cells:
            for cell in self._cells.values():
                await open_cells.enter_async_context(cell)
            looking = asyncio.create_task(self._keep_looking())
            try:
                yield
            finally:
                looking.cancel()

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for cell in self._cells.values():
                cell.tell()
            try:
                self._table.read()
            except (OSError, ValueError):
                # The routes read before still count; the file is read again at the next look.
                log.exception("routes_unreadable")
