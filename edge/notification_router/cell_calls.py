"""Calls of the notification router to one cell, behind a bulkhead: bounded in number, in bytes and in time.

A cell that hangs keeps its calls until they time out. What comes for it beyond the bounds is refused at once, so
that it takes neither the memory nor the connections of the other cells' notifications.
"""

from collections import Counter
from types import TracebackType
from typing import Self

import aiohttp
import structlog

log = structlog.get_logger(__name__)

ANSWER_SECONDS = 4.0
"""How long a cell may take. The upstream itself gives up somewhere between 5 and 20 seconds (upstream fact 3.1)."""
MOST_CALLS = 512
MOST_BYTES = 32 * 1024 * 1024
"""What the calls to one cell may hold at once in a router process. The largest notification has 16 MiB."""


class CellCalls:
    """The connections of this process to one cell. They are its own: no cell waits for another one's."""

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
        """Whether the cell answered 200."""
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

    def tell(self) -> None:
        """One line in the log for all that the cell did not take since the last one."""
        if self._refused:
            log.warning("cell_did_not_take", cell=self._name, in_flight=self._calls, **self._refused)
            self._refused.clear()

    async def _status(self, body: bytes, signature: str) -> int:
        assert self._session is not None  # noqa: S101 - made when the application began
        headers = {"Content-Type": "application/json", "X-Hub-Signature-256": signature}
        async with self._session.post(self._url, data=body, headers=headers, allow_redirects=False) as answer:
            return answer.status
