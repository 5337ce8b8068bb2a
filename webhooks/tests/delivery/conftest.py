"""A receiver that hangs, for tests of what one endpoint's requests may occupy."""

import asyncio
import threading
from collections.abc import Iterator

import pytest
from aiohttp import web

from tests.receiver import Received, Receiver


class HangingRequests:
    """Requests wait for their response until `end`. Those to a path that ends with `/healthy` are answered at once."""

    def __init__(self) -> None:
        self._ended = threading.Event()

    def end(self) -> None:
        """Answer the waiting requests, and all later ones."""
        self._ended.set()

    async def answer(self, request: Received) -> web.StreamResponse:
        """What the receiver answers."""
        while not (request.path.endswith("/healthy") or self._ended.is_set()):
            await asyncio.sleep(0.01)
        return web.Response(text="ok")


@pytest.fixture
def hanging(receiver: Receiver) -> Iterator[HangingRequests]:
    """The requests to the receiver hang from now on."""
    requests = HangingRequests()
    receiver.answer = requests.answer
    yield requests
    requests.end()
