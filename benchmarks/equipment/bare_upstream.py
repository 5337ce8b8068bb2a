"""A minimal upstream for benchmarks. It accepts every message and returns an id.

The simulator uses more CPU for a message than the service. On two cores, a benchmark would measure the simulator.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

_ANSWER = (
    b'{"messaging_product":"whatsapp","contacts":[{"wa_id":"919812345678"}],"messages":[{"id":"wamid.%d"}]}'
)
_taken = 0
_seconds = 0.0


async def application(
    scope: MutableMapping[str, Any],
    receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
    send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
) -> None:
    """POST accepts a message. PUT sets the milliseconds before each answer. GET returns the number of messages."""
    global _taken, _seconds
    if scope["type"] != "http":
        return
    given = b""
    while True:
        part = await receive()
        given += part.get("body", b"")
        if not part.get("more_body"):
            break
    body = b"%d" % _taken
    if scope["method"] == "PUT":
        _seconds = int(given) / 1000
    elif scope["method"] == "POST":
        _taken += 1
        body = _ANSWER % _taken
        if _seconds:
            await asyncio.sleep(_seconds)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
