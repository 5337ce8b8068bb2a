"""Claim-ahead of a batch: how many items are claimed before their turn, while those before them go out."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

from messaging.batches.held_batch import ClaimedItem

CLAIM_SECONDS = 0.25
"""The items of this many seconds are claimed at once: what a crash leaves between claim and send is reported as
unknown."""


def items_ahead(per_second: float) -> int:
    """How many items one claim takes at a pace."""
    return max(1, int(per_second * CLAIM_SECONDS))


async def claimed_ahead(
    claim: Callable[[], Awaitable[list[ClaimedItem]]],
) -> AsyncGenerator[list[ClaimedItem], None]:
    """The claims of a batch until one is empty; the next is made while the last goes out, so the pace has no gaps."""
    upcoming = asyncio.ensure_future(claim())
    try:
        while items := await upcoming:
            upcoming = asyncio.ensure_future(claim())
            yield items
    finally:
        upcoming.cancel()
