"""Floor of an edge and its delivery worker: `python -m benchmarks.equipment.bare_edge PORT RELAY`.

It checks the signature of a notification, writes it as one committed row to a table of its own, answers 200 and sends a
request to a relay of its own (`relay.py`), which posts it. Two such processes share nothing but the machine and
Postgres, so what eight of them cost more than one is the price of their number.
"""

import asyncio
import hashlib
import hmac
import itertools
import os
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import psycopg
import uvicorn

from edge import server

_REQUEST = (
    b"POST /ok/floor HTTP/1.1\r\nHost: floor\r\nContent-Type: application/json\r\nX-Padding: %b\r\n"
    b"X-Service-Delivery: %b\r\nWebhook-Id: %b\r\nContent-Length: %d\r\n\r\n%b"
)
_PADDING = b"x" * 250
"""With it the headers are as long as those of a delivery."""

Message = MutableMapping[str, Any]


class BareEdge:
    """The ASGI application, with one database connection that its requests take turns at."""

    def __init__(self, relay: str, secret: str) -> None:
        self._relay, self._secret = relay, secret.encode()
        self._signals = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._turn = asyncio.Lock()
        self._numbers = itertools.count(1)
        self._table = f"floor_{os.getpid()}"

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        """The server's start and stop, and requests."""
        if scope["type"] == "lifespan":
            await receive()
            await self._begin()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await self._database.close()
            await send({"type": "lifespan.shutdown.complete"})
            return
        body = b""
        while (part := await receive())["type"] == "http.request":
            body += part["body"]
            if not part.get("more_body"):
                break
        status = 200
        if scope["method"] == "POST":
            status = await self._take(body, dict(scope["headers"]))
        headers = [(b"content-length", b"0")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    async def _begin(self) -> None:
        self._signals.connect(self._relay)
        self._database = await psycopg.AsyncConnection.connect(os.environ["DATABASE_URL"], autocommit=True)
        await self._database.execute(f"CREATE TABLE {self._table} (id bigint PRIMARY KEY, body bytea)")

    async def _take(self, body: bytes, headers: dict[bytes, bytes]) -> int:
        signature = "sha256=" + hmac.digest(self._secret, body, hashlib.sha256).hex()
        if not hmac.compare_digest(headers.get(b"x-hub-signature-256", b"").decode(), signature):
            return 401
        number = next(self._numbers)
        async with self._turn:
            await self._database.execute(
                f"INSERT INTO {self._table} VALUES (%s, %s)",  # noqa: S608 - the table is its own
                [number, body],
                prepare=True,
                binary=True,
            )
        name = b"%b_%d" % (self._table.encode(), number)
        self._signals.send(_REQUEST % (_PADDING, name, name, len(body), body))
        return 200


if __name__ == "__main__":
    port, relay_path = int(sys.argv[1]), sys.argv[2]
    bare = BareEdge(relay_path, os.environ["META_APP_SECRET"])
    uvicorn.Server(server.config(bare, host="127.0.0.1", port=port)).run()
