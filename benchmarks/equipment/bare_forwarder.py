"""The floor of a send: a server that forwards each body to the upstream at META_GRAPH_URL and returns the answer.

It does not parse, check or store anything. Its connections to the upstream are kept alive and shared.
"""

import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import aiohttp

_HEADERS = {"Content-Type": "application/json", "Authorization": "Bearer EAAbench"}
_sessions: list[aiohttp.ClientSession] = []


async def application(
    scope: MutableMapping[str, Any],
    receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
    send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
) -> None:
    """Forward a POST. Answer any other method with 200 at once."""
    if scope["type"] == "lifespan":
        await receive()
        _sessions.append(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await _sessions.pop().close()
        await send({"type": "lifespan.shutdown.complete"})
        return
    body, status = b"", 200
    while (part := await receive())["type"] == "http.request":
        body += part["body"]
        if not part.get("more_body"):
            break
    if scope["method"] == "POST":
        url = f"{os.environ['META_GRAPH_URL']}/messages"
        async with _sessions[0].post(url, data=body, headers=_HEADERS) as answer:
            body, status = await answer.read(), answer.status
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
