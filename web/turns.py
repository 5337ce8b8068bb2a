"""Turns: a few requests of the same key run at once, and the others wait in order. While they wait, they hold no
thread, and nobody else's request waits behind them.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class _Turn:
    """The turns of one key."""

    def __init__(self, at_once: int) -> None:
        self.free = asyncio.Semaphore(at_once)
        self.users = 0


class Turns:
    """Gives turns by key, such as the address of a stranger. For one event loop."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self.of: dict[str, _Turn] = {}

    def users(self, key: str) -> int:
        """How many requests of a key run or wait."""
        turn = self.of.get(key)
        return 0 if turn is None else turn.users

    @asynccontextmanager
    async def held(self, key: str) -> AsyncIterator[None]:
        """Wait for a turn, and hold it during the block."""
        turn = self.of.get(key)
        if turn is None:
            turn = self.of[key] = _Turn(self._at_once)
        turn.users += 1
        try:
            async with turn.free:
                yield
        finally:
            turn.users -= 1
            if not turn.users:
                del self.of[key]
