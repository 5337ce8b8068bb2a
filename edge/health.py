"""The edge's door to `/v1/health*`: concurrent questions share one look at the database."""

import asyncio
from collections.abc import Awaitable, Callable

from edge.request import Request
from gateway.api import health_views
from gateway.api.reply import Reply


async def live(request: Request) -> Reply:
    """GET /v1/health/live."""
    return health_views.live()


def _shared(ask: Callable[[], Reply]) -> Callable[[Request], Awaitable[Reply]]:
    asking: asyncio.Task[Reply] | None = None

    async def handler(request: Request) -> Reply:
        nonlocal asking
        if asking is None or asking.done():
            asking = asyncio.create_task(asyncio.to_thread(ask))
        return await asyncio.shield(asking)

    return handler


health = _shared(health_views.health)
"""GET /v1/health."""
ready = _shared(health_views.ready)
"""GET /v1/health/ready."""
