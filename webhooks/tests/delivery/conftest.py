"""A receiver that hangs, for tests of the resources that requests to one endpoint may occupy."""

import asyncio
import threading
from collections.abc import Iterator

import pytest
from aiohttp import web

from tests.receiver import Received, Receiver


class HangingRequests:
    """Requests that wait for their response until `end`. Paths that end with `/healthy` are answered at once."""

    def __init__(self) -> None:
        self._ended = threading.Event()

    def end(self) -> None:
        """Answer the waiting requests and all later ones."""
        self._ended.set()

    async def answer(self, request: Received) -> web.StreamResponse:
        """The receiver's answer."""
        while not (request.path.endswith("/healthy") or self._ended.is_set()):
            await asyncio.sleep(0.01)
        return web.Response(text="ok")


@pytest.fixture
def hanging(receiver: Receiver) -> Iterator[HangingRequests]:
    """Let all requests to the receiver hang from now on."""
    requests = HangingRequests()
    receiver.answer = requests.answer
    yield requests
    requests.end()
