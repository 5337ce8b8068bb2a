"""The floor of a listener: `python -m benchmarks.equipment.bare_listener PORT [RELAY]`.

It checks the signature of a notification, writes the notification as one row of its own table, and answers 200 after
the commit. Notifications that arrive during a commit are written together by the next commit. With a RELAY, it also
passes a request to that process (`relay.py`), which posts it. That is the floor of a listener with deliveries. Several
such processes share only the machine and Postgres. So if they use more CPU for a notification than a single process,
the number of processes is the reason.

Any other method is answered with 200 at once.
"""

import asyncio
import hashlib
import hmac
import os
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import psycopg
import uvicorn

_REQUEST = (
    b"POST /ok/floor HTTP/1.1\r\nHost: floor\r\nContent-Type: application/json\r\nX-Padding: %b\r\n"
    b"X-Service-Delivery: %b\r\nWebhook-Id: %b\r\nContent-Length: %d\r\n\r\n%b"
)
_PADDING = b"x" * 250
"""Padding that makes the headers as long as those of a delivery."""

Message = MutableMapping[str, Any]


class BareListener:
    """The ASGI application, with one database connection."""

    def __init__(self, relay: str | None, secret: str) -> None:
        self._relay, self._secret = relay, secret.encode()
        self._signals = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._waiting: list[tuple[bytes, asyncio.Future[int]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._table = f"floor_{os.getpid()}"

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        """Handle the server's start and stop, and requests."""
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
        if self._relay is not None:
            self._signals.connect(self._relay)
        self._database = await psycopg.AsyncConnection.connect(os.environ["DATABASE_URL"], autocommit=True)
        await self._database.execute(
            f"CREATE TABLE {self._table} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body bytea)"
        )

    async def _take(self, body: bytes, headers: dict[bytes, bytes]) -> int:
        signature = "sha256=" + hmac.digest(self._secret, body, hashlib.sha256).hex()
        if not hmac.compare_digest(headers.get(b"x-hub-signature-256", b"").decode(), signature):
            return 401
        written: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append((body, written))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        number = await written
        if self._relay is not None:
            name = b"%b_%d" % (self._table.encode(), number)
            self._signals.send(_REQUEST % (_PADDING, name, name, len(body), body))
        return 200

    async def _write(self) -> None:
        """Group commit: write all waiting notifications in one statement, and repeat until none waits."""
        while self._waiting:
            group, self._waiting = self._waiting, []
            try:
                cursor = await self._database.execute(
                    f"INSERT INTO {self._table} (body) SELECT unnest(%s::bytea[]) RETURNING id",
                    [[body for body, _ in group]],
                    prepare=True,
                    binary=True,
                )
                for (_, written), (number,) in zip(group, await cursor.fetchall(), strict=True):
                    written.set_result(number)
            except psycopg.Error as error:
                for _, written in group:
                    written.set_exception(error)
        self._writing = None


if __name__ == "__main__":
    port, relay_path = int(sys.argv[1]), next(iter(sys.argv[2:]), None)
    bare = BareListener(relay_path, os.environ["META_APP_SECRET"])
    uvicorn.run(
        bare,
        port=port,
        http="httptools",
        loop="uvloop",
        ws="none",
        log_level="warning",
        timeout_keep_alive=300,
        access_log=False,
    )
