"""The ASGI application of the notification router: it forwards a notification to the cell of its accounts, byte for
byte.

A notification with changes of several cells is split into a part for each cell and signed again. It is answered 200
only if every cell answered 200. Otherwise Meta repeats the whole, and a cell that has its part already recognises it by
its dedupe keys. Changes of no cell go to the default cell, which stores them. The router stores nothing.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
import structlog

from gateway import ids
from gateway.api.errors import (
    MethodNotAllowed,
    NotFound,
    Reply,
    ServiceUnavailable,
    as_service_error,
    error_reply,
)
from gateway.upstream.notifications.normalise import normalise
from gateway.upstream.notifications.split_by_tenant import Splitter
from messaging.notifications import incoming, signatures
from web.request import AsgiScope, ClientGone, Receive, Request, Send, send_whole

# --- Routing table of the notification router: the cell of each account (WABA).


class RoutingTable:
    """The accounts of each cell, as `manage.py cell_routes` writes them: `NAME.accounts` in one directory."""

    def __init__(self, directory: Path, cells: Mapping[str, str], *, default: str) -> None:
        self._directory, self.urls, self.default = directory, cells, default
        self._cell_of: dict[str, str] = {}
        self._read_at: dict[str, float] = {}
        self.read()

    def read(self) -> None:
        """Read the changed files."""
        for cell in self.urls:
            path = self._directory / f"{cell}.accounts"
            changed_at = path.stat().st_mtime if path.exists() else 0.0
            if changed_at != self._read_at.get(cell):
                rest = {waba_id: of for waba_id, of in self._cell_of.items() if of != cell}
                own = path.read_text().split() if changed_at else []
                # A tenant that moved is in both files until its former cell has rewritten its file, so the newer file
                # counts.
                self._cell_of = {**rest, **dict.fromkeys(own, cell)}
                self._read_at[cell] = changed_at

    def cell_of(self, *waba_ids: str | None) -> str:
        """The cell of the first known account."""
        return next((self._cell_of[each] for each in waba_ids if each in self._cell_of), self.default)

    def parts(self, body: bytes) -> dict[str, bytes]:
        """The parts of a notification by cell."""
        normalised = normalise(body)
        places = defaultdict(set)
        for change in normalised.changes:
            cell = self.cell_of(change.route.waba_info_id, change.route.entry_id)
            places[cell].add((change.entry, change.change))
        if normalised.error is not None or not places:
            # The default cell stores unreadable notifications. It gets the whole, as Meta signed it.
            places[self.default] = set()
        if len(places) == 1:
            return dict.fromkeys(places, body)
        splitter = Splitter(body)
        return {cell: splitter.split(own)[0] if own else body for cell, own in places.items()}


# --- Calls of the notification router to one cell, behind a bulkhead: limited in number, bytes and time.
#
# A hanging cell occupies its calls until they time out. Further notifications for it are rejected at once, so they use
# neither memory nor connections of the other cells.

log = structlog.get_logger(__name__)

ANSWER_SECONDS = 4.0
"""How long a cell may take. Meta gives up after 5 to 20 seconds (upstream fact 3.1)."""
MOST_CALLS = 512
MOST_BYTES = 32 * 1024 * 1024
"""Most bytes of the calls to one cell in a router process. The largest notification has 16 MiB."""


class CellCalls:
    """The connections of this process to one cell. Each cell has its own, so no cell waits for another's."""

    def __init__(self, name: str, url: str) -> None:
        self._name, self._url = name, f"{url}/upstream/webhook"
        self._calls = self._bytes = 0
        self._refused: Counter[str] = Counter()
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=MOST_CALLS),
            timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def post(self, body: bytes, signature: str) -> bool:
        """Send a notification. Returns whether the cell answered 200."""
        if self._calls >= MOST_CALLS or self._bytes + len(body) > MOST_BYTES:
            self._refused["full"] += 1
            return False
        self._calls += 1
        self._bytes += len(body)
        try:
            status = await self._status(body, signature)
        except TimeoutError:
            self._refused["timeout"] += 1
            return False
        except aiohttp.ClientError:
            self._refused["away"] += 1
            return False
        finally:
            self._calls -= 1
            self._bytes -= len(body)
        if status != 200:
            self._refused[f"answered_{status}"] += 1
        return status == 200

    def log_state(self) -> None:
        """Log one line about everything that the cell has not accepted since the last line."""
        if self._refused:
            log.warning("cell_refused", cell=self._name, in_flight=self._calls, **self._refused)
            self._refused.clear()

    async def _status(self, body: bytes, signature: str) -> int:
        assert self._session is not None  # noqa: S101 - made when the application began
        headers = {"Content-Type": "application/json", "X-Hub-Signature-256": signature}
        async with self._session.post(self._url, data=body, headers=headers, allow_redirects=False) as answer:
            return answer.status


REFRESH_SECONDS = 1.0
"""Interval at which the routes are read again, and refusals of a cell are logged in one line."""
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
        request = Request(scope, receive, ids.encode(ids.REQUEST, ids.uuid7()))
        try:
            reply = await self._answer(request)
        except ClientGone:
            return
        except Exception as exception:  # noqa: BLE001 - every exception becomes an answer; the unforeseen is logged
            reply = error_reply(as_service_error(exception), request.request_id)
        finally:
            request.close()
        await send_whole(reply.status, reply.headers.items(), reply.body, request, send)

    async def _answer(self, request: Request) -> Reply:
        match request.path, request.method:
            case "/upstream/webhook", "POST":
                return await self._hand_over(request)
            case "/upstream/webhook", "GET":
                return Reply(200, _TEXT, signatures.challenge(request.parameters).encode())
            case "/v1/health/live", "GET" | "HEAD":
                return Reply(200, _TEXT, b"")
            case "/upstream/webhook" | "/v1/health/live", _:
                raise MethodNotAllowed
        raise NotFound(f"There is nothing at {request.path}.")

    async def _hand_over(self, request: Request) -> Reply:
        """200 when every cell concerned answered 200. Raises ServiceUnavailable otherwise."""
        body = await request.body(limit=incoming.MAX_BODY_BYTES)
        signature = request.header(b"x-hub-signature-256") or ""
        environment = signatures.signing_environments(body, signature)[0]
        calls = [
            self._cells[cell].post(
                part, signature if part == body else signatures.signed_by(environment, part)
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
            looking = asyncio.create_task(self._refresh_routes())
            try:
                yield
            finally:
                looking.cancel()

    async def _refresh_routes(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            for cell in self._cells.values():
                cell.log_state()
            try:
                self._table.read()
            except (OSError, ValueError):
                # The previous routes stay valid, and the next interval reads the file again.
                log.exception("routes_unreadable")
