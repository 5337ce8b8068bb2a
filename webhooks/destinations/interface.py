"""The interface of destinations: five methods. Sending returns an `Answer`, as for an HTTPS endpoint.

`problem` and `address` read only settings. `open`, `send` and `close` belong to one event loop. An error in `send`
becomes the error of the answer. So retries, circuit, health and ledger treat destinations like other endpoints.
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

from gateway.monitoring.logs import type_alone
from gateway.outbound.client import Answer, InvalidUrlError, Outbound, validate_url
from gateway.outbound.connection import Attempt
from webhooks.destinations.bounded_reader import Allowance
from webhooks.models import MAX_URL_LENGTH

TOO_LARGE = "event_too_large"
"""The error for an event that the destination can never accept. The destination is not at fault."""
REFUSED = "refused"
"""The error if the broker answered but did not accept the message. The answer's body has the reason."""
NO_CLIENT = "client_missing"

Settings = TypeVar("Settings", bound=tuple[Any, ...])


class Message(NamedTuple):
    """A message to send: the bytes that an HTTPS endpoint would get, and the headers with their signature."""

    body: bytes
    headers: Mapping[str, str]
    key: str | None
    """Messages with the same key stay in order. None for an endpoint without ordered delivery."""
    seconds: float
    """The time limit for sending the message, in seconds."""

    def __repr__(self) -> str:
        return type_alone(self)


class Destination(ABC, Generic[Settings]):
    """A destination with the settings of an endpoint, on one event loop."""

    SETTINGS: ClassVar[type[Any]]
    """The named tuple of the settings. Each setting is a string. Optional settings have defaults."""
    CLIENT: ClassVar[str | None] = None
    """The optional package that this kind requires (requirements-destinations.txt)."""

    def __init__(self, given: Settings, outbound: Outbound) -> None:
        self._settings = given
        self._outbound = outbound

    @classmethod
    @abstractmethod
    def problem(cls, given: Settings) -> str | None:
        """Why these settings cannot be used. None if they can."""

    @classmethod
    @abstractmethod
    def address(cls, given: Settings) -> str:
        """The address in the settings, as a URL without secrets."""

    async def open(self) -> None:
        """Connect, if messages share a connection."""

    @abstractmethod
    async def send(self, message: Message) -> Answer:
        """Send a message. An `ok` answer means that the destination has stored the message."""

    async def close(self) -> None:
        """Close the connection, if any."""

    @property
    def is_usable(self) -> bool:
        """Whether the open destination can accept another message."""
        return True

    def failure(self, error: Exception, began: float) -> Answer:
        """The answer for an error while sending a message or opening the destination."""
        return Attempt(started=began).answer(error)

    @classmethod
    def has_client(cls) -> bool:
        """Whether the package in `CLIENT` is installed."""
        return cls.CLIENT is None or importlib.util.find_spec(cls.CLIENT) is not None


class BrokerDestination(Destination[Settings]):
    """A destination with a protocol other than HTTP. Its client library opens sockets through this class, and reads
    through a `BoundedReader` with the destination's allowance.
    """

    SECONDS: ClassVar[float] = 10.0
    """Time limit for opening a socket, and for each request of the client to a broker."""
    BYTES_PER_SECOND: ClassVar[float]
    """How much a broker may send on its own, on average."""
    _socket_error: str | None = None
    """Why the last socket could not be opened. None after a success."""

    def __init__(self, given: Settings, outbound: Outbound) -> None:
        super().__init__(given, outbound)
        self.allowance = Allowance(self.BYTES_PER_SECOND)

    async def socket(self, host: str, port: int) -> socket.socket:
        """Open a socket through the address guard and the egress proxy. Raises OSError."""
        until = asyncio.get_running_loop().time() + self.SECONDS
        with self.noting() as attempt:
            return await self._outbound.open_socket(host.strip("[]"), port, attempt, until=until)

    @contextmanager
    def noting(self) -> Iterator[Attempt]:
        """Record why a connection fails, and raise OSError with the reason. Client libraries replace the reason with
        their own errors, or retry until a time-out.
        """
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
    """Why a URL in settings cannot be used. None if it can. Each connection checks the addresses of the URL's host."""
    with suppress(InvalidUrlError):
        if url is not None:
            validate_url(url, allow_http=settings.WEBHOOK_ALLOW_HTTP, max_length=MAX_URL_LENGTH)
        return None
    return "Its URLs must be https:// URLs of a host, without user information or fragment."


def text_problem(pattern: str, **texts: str | None) -> str | None:
    """Name the first text that does not match the pattern. None if each text matches or is None."""
    for name, text in texts.items():
        if text is not None and not re.fullmatch(pattern, text, re.ASCII):
            return f"`{name}` has characters that it cannot have, or too many."
    return None


def failed(error: str | None, began: float, text: str = "") -> Answer:
    """The result where the destination does not use HTTP or was not called. A success if `error` is None."""
    return Answer(None, error, round((time.monotonic() - began) * 1000), text.encode(), None)
