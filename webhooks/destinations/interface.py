"""What each destination is to the rest: five functions, and an `Answer` like that of an endpoint over HTTPS.

`problem` and `address` look at settings alone. `open`, `send` and `close` belong to one event loop. Whatever goes wrong
in `send` is an error of the answer, so retries, circuit, health and ledger need nothing of their own.
"""

import asyncio
import importlib.util
import re
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from django.conf import settings

from gateway.outbound.client import Answer, InvalidUrlError, Outbound, validate_url
from gateway.outbound.connection import Attempt

TOO_LARGE = "event_too_large"
"""No later attempt can succeed, and it says nothing of the destination."""
REFUSED = "refused"
"""The broker answered, and did not take the message: its reason is the answer's body."""
NO_CLIENT = "client_missing"

Settings = TypeVar("Settings", bound=tuple[Any, ...])


class Message(NamedTuple):
    """What is sent: the bytes that an endpoint over HTTPS gets, and the headers that sign them."""

    body: bytes
    headers: Mapping[str, str]
    key: str | None
    """Messages of one key stay in their order; None where the endpoint has no order."""
    seconds: float
    """How long it may take in all."""


class Destination(ABC, Generic[Settings]):
    """A destination with an endpoint's settings, on one event loop."""

    SETTINGS: ClassVar[type[Any]]
    """A named tuple of texts; its optional members have defaults."""
    CLIENT: ClassVar[str | None] = None
    """The optional package that it needs (requirements-destinations.txt)."""

    def __init__(self, given: Settings, outbound: Outbound) -> None:
        self._settings = given
        self._outbound = outbound

    @classmethod
    @abstractmethod
    def problem(cls, given: Settings) -> str | None:
        """Why these settings cannot be used; None when they can."""

    @classmethod
    @abstractmethod
    def address(cls, given: Settings) -> str:
        """Where they lead to, as a URL to show: without secrets."""

    async def open(self) -> None:
        """Connect, where messages share a connection."""

    @abstractmethod
    async def send(self, message: Message) -> Answer:
        """Have a message stored. It is stored when the answer is ok."""

    async def close(self) -> None:
        """End what was opened."""

    @property
    def is_usable(self) -> bool:
        """Whether an open one takes the next message too."""
        return True

    def failure(self, error: Exception, began: float) -> Answer:
        """The answer to a message, or to opening, that ended with an error."""
        return Attempt(started=began).answer(error)

    @classmethod
    def has_client(cls) -> bool:
        """Whether the package that it needs is installed."""
        return cls.CLIENT is None or importlib.util.find_spec(cls.CLIENT) is not None


class BrokerDestination(Destination[Settings]):
    """A destination with a protocol of its own, whose client opens its sockets here."""

    SECONDS: ClassVar[float] = 10.0
    """For one socket, and for what the client asks a broker."""
    _socket_error: str | None = None
    """Why the newest socket could not be opened; None when it was."""

    async def socket(self, host: str, port: int) -> socket.socket:
        """A socket through the guard of addresses and the egress proxy. Raises OSError."""
        until = asyncio.get_running_loop().time() + self.SECONDS
        with self.noting() as attempt:
            return await self._outbound.open_socket(host.strip("[]"), port, attempt, until=until)

    @contextmanager
    def noting(self) -> Iterator[Attempt]:
        """Note why a connection fails: clients report it in words of their own, or try again until a time-out."""
        attempt = Attempt()
        try:
            yield attempt
        except Exception as error:
            self._socket_error = attempt.answer(error).error
            raise OSError(self._socket_error) from error
        self._socket_error = None

    def failure(self, error: Exception, began: float) -> Answer:
        if self._socket_error is not None:
            return failed(self._socket_error, began)
        return super().failure(error, began)


def url_problem(url: str | None) -> str | None:
    """Why a URL of settings cannot be called; None when it can. Where its name leads is checked at each connection."""
    with suppress(InvalidUrlError):
        if url is None or validate_url(url, allow_http=settings.WEBHOOK_ALLOW_HTTP):
            return None
    return "Its URLs must be https:// URLs of a host, without user information or fragment."


def text_problem(pattern: str, **texts: str | None) -> str | None:
    """Name the first of the texts that does not match; None when all do, or are left out."""
    for name, text in texts.items():
        if text is not None and not re.fullmatch(pattern, text, re.ASCII):
            return f"`{name}` has characters that it cannot have, or too many."
    return None


def failed(error: str | None, began: float, text: str = "") -> Answer:
    """The answer of a destination that speaks no HTTP, or that was not asked; without an error, its success."""
    return Answer(None, error, round((time.monotonic() - began) * 1000), text.encode(), None)
