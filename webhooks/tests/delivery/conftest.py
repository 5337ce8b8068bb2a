"""A receiver that hangs, for tests of what one endpoint's requests may take from the others."""

import asyncio
import threading
from collections.abc import Iterator

import pytest
from aiohttp import web

from tests.receiver import Received, Receiver


class HangingRequests:
    """Requests wait for their answer until `end`; those to a path that ends with `/healthy` get it at once."""

    def __init__(self) -> None:
        self._ended = threading.Event()

    def end(self) -> None:
        """Answer those that wait, and all that come."""
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
