"""Notification router: the upstream's one callback address in front of several cells.

    python -m messaging.cells.notification_router --port 8060 --default a --cell a=http://… --cell b=http://… ROUTES

A notification goes to the cell of its accounts (WABAs), byte for byte. One with changes of several cells is cut into a
part for each, signed anew, and answered 200 only if every cell answered 200: otherwise the upstream repeats the whole,
and a cell that had its part already knows it by its dedupe keys. What is of no cell goes to the default one, which
keeps it. The router stores nothing; run two of them.
"""

import argparse
import asyncio
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import aiohttp

LOOK_SECONDS = 1.0
"""How long the routes that were read count."""
ANSWER_SECONDS = 25.0


class Routes:
    """The accounts of each cell, as `manage.py cell_routes` writes them: `NAME.accounts` in one directory."""

    def __init__(self, directory: Path, cells: Mapping[str, str], *, default: str) -> None:
        self._directory, self.urls, self.default = directory, cells, default
        self._cell_of: dict[str, str] = {}
        self._read_at: dict[str, float] = {}
        self.read()

    def read(self) -> None:
        """Read the files that have changed."""
        for cell in self.urls:
            path = self._directory / f"{cell}.accounts"
            changed_at = path.stat().st_mtime if path.exists() else 0.0
            if changed_at != self._read_at.get(cell):
                rest = {waba_id: of for waba_id, of in self._cell_of.items() if of != cell}
                own = path.read_text().split() if changed_at else []
                # A tenant that moved is in both until the former cell has written its part anew: the newer one counts.
                self._cell_of = {**rest, **dict.fromkeys(own, cell)}
                self._read_at[cell] = changed_at

    def cell_of(self, *waba_ids: str | None) -> str:
        """The cell of the first account that is known."""
        return next((self._cell_of[each] for each in waba_ids if each in self._cell_of), self.default)


def parts(body: bytes, routes: Routes) -> dict[str, bytes]:
    """What each cell gets of a notification."""
    from gateway.upstream.notifications.normalise import normalise
    from gateway.upstream.notifications.split_by_tenant import Splitter

    normalised = normalise(body)
    places = defaultdict(set)
    for change in normalised.changes:
        cell = routes.cell_of(change.route.waba_info_id, change.route.entry_id)
        places[cell].add((change.entry, change.change))
    if normalised.error is not None or not places:
        # The default cell keeps what nobody can read; it gets the whole, as the upstream signed it.
        places[routes.default] = set()
    if len(places) == 1:
        return dict.fromkeys(places, body)
    splitter = Splitter(body)
    return {cell: splitter.split(own)[0] if own else body for cell, own in places.items()}


class Router:
    """The ASGI application."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            status, body = await self._answer(scope, receive)
            headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body))]
            if status == 503:
                headers.append((b"retry-after", b"1"))
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Any, receive: Any) -> tuple[int, bytes]:
        from gateway.api.errors import ServiceError
        from messaging.notifications import app_secrets

        try:
            if scope["method"] == "GET":
                return 200, app_secrets.challenge(dict(parse_qsl(scope["query_string"].decode()))).encode()
            body = await _body(receive)
            if body is None:
                return 413, b""
            header = dict(scope["headers"]).get(b"x-hub-signature-256", b"").decode("latin-1")
            environments = app_secrets.signing_environments(body, header)
        except ServiceError as error:
            return error.status, str(error).encode()
        return (200, b"") if await self._hand_over(body, header, environments[0]) else (503, b"")

    async def _hand_over(self, body: bytes, signature: str, environment: str) -> bool:
        """Whether every cell concerned answered 200."""
        from messaging.notifications.app_secrets import signed_by

        by_cell = parts(body, self._routes)
        calls = [
            self._post(cell, part, signature if part == body else signed_by(environment, part))
            for cell, part in by_cell.items()
        ]
        return all(await asyncio.gather(*calls))

    async def _post(self, cell: str, part: bytes, signature: str) -> bool:
        assert self._session is not None  # noqa: S101 - made when the application began
        headers = {"Content-Type": "application/json", "X-Hub-Signature-256": signature}
        try:
            url = f"{self._routes.urls[cell]}/upstream/webhook"
            async with self._session.post(url, data=part, headers=headers) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def _live(self, receive: Any, send: Any) -> None:
        await receive()
        async with self.running():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep connections to the cells, and read the routes when they change."""
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as self._session:
            reading = asyncio.create_task(self._keep_reading())
            try:
                yield
            finally:
                reading.cancel()

    async def _keep_reading(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self._routes.read()


async def _body(receive: Any) -> bytes | None:
    """The body, or None when it is larger than a notification may be."""
    from messaging.notifications import incoming

    blocks, size = [], 0
    while True:
        message = await receive()
        blocks.append(message.get("body", b""))
        size += len(blocks[-1])
        if size > incoming.MAX_BODY_BYTES:
            return None
        if not message.get("more_body"):
            return b"".join(blocks)


def main() -> None:
    """Serve until SIGTERM."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
    import django
    import uvicorn

    parser = argparse.ArgumentParser(prog="python -m messaging.cells.notification_router")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--cell", action="append", required=True, metavar="NAME=URL")
    parser.add_argument("--default", required=True, help="the cell of what is of no cell")
    parser.add_argument("routes", type=Path, help="the directory that `manage.py cell_routes` writes to")
    options = parser.parse_args()
    cells = dict(each.split("=", 1) for each in options.cell)
    if options.default not in cells:
        parser.error("--default is no --cell")
    django.setup()
    router = Router(Routes(options.routes, cells, default=options.default))
    uvicorn.run(router, host=options.host, port=options.port, access_log=False, log_level="warning")


if __name__ == "__main__":
    main()
