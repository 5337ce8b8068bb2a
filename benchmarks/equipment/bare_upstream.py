"""A minimal upstream for benchmarks: it accepts every message at once and gives it an id.

The simulator spends more on a message than the service does: on two cores it would be what is measured.
"""

import itertools
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

ANSWER = (
    b'{"messaging_product":"whatsapp","contacts":[{"wa_id":"919812345678"}],"messages":[{"id":"wamid.%d"}]}'
)
_taken = itertools.count(1)
_last = 0


async def application(
    scope: MutableMapping[str, Any],
    receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
    send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
) -> None:
    """POST takes a message; GET tells how many were taken."""
    global _last
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    if scope["method"] == "POST":
        _last = next(_taken)
        body = (
            b'{"messaging_product":"whatsapp","contacts":[{"wa_id":"919812345678"}],"messages":[{"id":"wamid.%d"}]}'
            % _last
        )
    else:
        body = b"%d" % _last
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
