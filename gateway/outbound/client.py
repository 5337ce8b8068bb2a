"""Outbound HTTP client for every request to an address that a tenant chose.

Callers are webhook deliveries (thousands a second, from the dispatcher), verify pings, single replays and website
checks. The client connects only to public addresses. It checks the address when it opens the socket, so DNS rebinding
fails. One deadline covers everything from the DNS look-up to the last byte of the response. Memory is bounded, whatever
the receiver sends. The result is always an `Answer`, never an exception.

With `WEBHOOK_PROXY_URL`, connections go through an HTTP proxy by CONNECT. The proxy gives deliveries fixed source
addresses, which tenants can allow, and is a second defence behind the address check. It receives exactly the checked
address, never a name. A proxy that resolved names itself could be directed to another address.
"""

import asyncio
import base64
import errno
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from http import HTTPStatus
from time import perf_counter
from types import TracebackType
from typing import Self, TypedDict, Unpack
from urllib.parse import unquote, urlsplit

import structlog
from asgiref.sync import async_to_sync
from django.conf import settings

from gateway.api import access_log
from gateway.database.transactions import leave_database
from gateway.http1 import AnswerTooLargeError, BrokenOffError, Origin, request_head, tls_context
from gateway.monitoring.metrics import Counter
from gateway.outbound.addresses import (
    AddressInfo,
    InvalidUrlError,
    Names,
    Resolve,
    UnknownNameError,
    is_public,
    parse_url,
    validate_url,
)
from gateway.outbound.connection import (
    READ_LIMIT,
    Answer,
    Attempt,
    HttpConnection,
    IdleConnections,
    ProxyAwayError,
    StaleError,
    connect,
    open_socket,
)

log = structlog.get_logger(__name__)

FAILURES = Counter(
    "gateway_egress_proxy_failures_total", "Tunnels that the egress proxy did not open.", label="reason"
)
MOST_HEAD_BYTES = 8 * 1024
"""Maximum length of the proxy's response to CONNECT, in bytes."""

PROXY_CONNECT_SECONDS = 3.0
"""Time to connect to the proxy. The receiver's time excludes it, so a slow proxy does not look like a slow receiver."""


class ProxyError(BrokenOffError):
    """The proxy opened no tunnel. The receiver may be unreachable."""


@dataclass(frozen=True, slots=True)
class EgressProxy:
    """The proxy's address, and the header with its credentials, if it has any."""

    host: str
    port: int
    authorization: str

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Parse the URL of a proxy, `http://[user:password@]host:port`. Raises ValueError for any other form."""
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname or parts.port is None or parts.path.strip("/"):
            raise ValueError("The proxy's URL must have the form http://[user:password@]host:port.")
        header = ""
        if parts.username is not None:
            credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            header = f"Proxy-Authorization: Basic {base64.b64encode(credentials).decode()}\r\n"
        return cls(parts.hostname, parts.port, header)


def configured() -> EgressProxy | None:
    """The proxy of WEBHOOK_PROXY_URL. None when no proxy is set."""
    return _parsed(settings.WEBHOOK_PROXY_URL) if settings.WEBHOOK_PROXY_URL else None


@lru_cache
def _parsed(url: str) -> EgressProxy:
    return EgressProxy.from_url(url)


async def open_tunnel(
    proxy: EgressProxy, addresses: Sequence[AddressInfo], attempt: Attempt, *, until: float
) -> socket.socket:
    """Open a socket through the proxy to the first reachable one of these checked addresses.

    Raises `ProxyError`, or `ProxyAwayError` when the proxy itself is unavailable. Raises TimeoutError when no tunnel is
    open at `until`, a time of the loop's clock, plus the time that it takes to reach the proxy (`proxy_seconds`).
    """
    failure = ProxyError("no address")
    loop, attempt.proxy_seconds = asyncio.get_running_loop(), 0.0
    for _, _, _, _, sockaddr in addresses:
        began = loop.time()
        opened = await _reach(proxy)
        attempt.proxy_seconds += loop.time() - began
        try:
            async with asyncio.timeout_at(until + attempt.proxy_seconds):
                return await _tunnel(opened, proxy, str(sockaddr[0]), int(sockaddr[1]))
        except ProxyError as error:
            failure = error
    raise failure


async def _reach(proxy: EgressProxy) -> socket.socket:
    try:
        async with asyncio.timeout(PROXY_CONNECT_SECONDS):
            return await _connected(proxy)
    except OSError as error:
        _note("unreachable")
        raise ProxyAwayError("unreachable") from error


async def _tunnel(
    transport_socket: socket.socket, proxy: EgressProxy, address: str, port: int
) -> socket.socket:
    loop = asyncio.get_running_loop()
    try:
        target = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{proxy.authorization}\r\n"
        await loop.sock_sendall(transport_socket, head.encode())
        status = await _status(loop, transport_socket)
        if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
            _note("unauthorized")
            raise ProxyAwayError("unauthorized")
        if not 200 <= status < 300:
            raise _failed("refused")
    except OSError as error:
        transport_socket.close()
        raise _failed("broken_off") from error
    except BaseException:
        transport_socket.close()
        raise
    return transport_socket


async def _connected(proxy: EgressProxy) -> socket.socket:
    """A socket to the proxy. Its addresses may be private, because the operator chose them."""
    loop = asyncio.get_running_loop()
    return await open_socket(await loop.getaddrinfo(proxy.host, proxy.port, type=socket.SOCK_STREAM))


async def _status(loop: asyncio.AbstractEventLoop, opened: socket.socket) -> int:
    """The status of the proxy's response. The receiver does not send first, so no bytes may follow the headers."""
    head = b""
    while b"\r\n\r\n" not in head:
        data = await loop.sock_recv(opened, MOST_HEAD_BYTES - len(head))
        head += data
        if not data or len(head) >= MOST_HEAD_BYTES:
            raise _failed("broken_off")
    words = head.split(b" ", 2)
    if not head.startswith(b"HTTP/1.") or len(words) < 2 or not words[1].isdigit():
        raise _failed("broken_off")
    status = int(words[1])
    if 200 <= status < 300 and head.index(b"\r\n\r\n") + 4 != len(head):
        raise _failed("broken_off")
    return status


def _failed(reason: str) -> ProxyError:
    _note(reason)
    return ProxyError(reason)


def _note(reason: str) -> None:
    FAILURES.add(label=reason)
    log.warning("egress_proxy_failed", reason=reason)


__all__ = ["Answer", "InvalidUrlError", "Outbound", "get_once", "validate_url"]

# The defaults of a delivery attempt, in seconds, seconds and bytes.
CONNECT_TIMEOUT = 5.0
TOTAL_TIMEOUT = 15.0


class Limits(TypedDict, total=False):
    """Limits of one request: time-outs in seconds, and how many bytes of the response body to read.

    `tls` replaces the client's own TLS settings.
    """

    connect_timeout: float
    total_timeout: float
    read_limit: int
    tls: ssl.SSLContext | None


@dataclass(frozen=True, slots=True)
class _Target:
    """The address in a URL, and the parts of the URL that a request needs."""

    origin: Origin
    path: str
    host: str


class Outbound:
    """A pool of connections to tenants' addresses: an async context manager, for one event loop.

    `allow_private` disables the guard (setting WEBHOOK_ALLOW_PRIVATE_NETWORKS). WEBHOOK_PROXY_URL is a proxy for all
    connections. The pool does not limit the number of simultaneous requests. It caches the addresses of a name for
    `dns_seconds`, and keeps idle connections for `keepalive` seconds. `resolve` and `tls` replace the system's resolver
    and certificates.
    """

    def __init__(
        self,
        *,
        allow_private: bool,
        dns_seconds: float = 30.0,
        keepalive: float = 15.0,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._allow_private = allow_private
        self._proxy = configured()
        self._tls = tls or tls_context()
        self._names = Names(resolve, dns_seconds)
        self._idle = IdleConnections(seconds=keepalive)
        self._loop: asyncio.AbstractEventLoop

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._idle.close()
        await self._names.close()

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], **limits: Unpack[Limits]
    ) -> Answer:
        """`request` with POST."""
        return await self.request("POST", url, body, headers, **limits)

    async def request(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        *,
        connect_timeout: float = CONNECT_TIMEOUT,
        total_timeout: float = TOTAL_TIMEOUT,
        read_limit: int = READ_LIMIT,
        tls: ssl.SSLContext | None = None,
    ) -> Answer:
        """Send a request to a URL that `validate_url` accepted. Redirects are not followed.

        If the receiver closes a reused connection before it responds, the request is sent again on a new connection,
        within the same deadline.
        """
        attempt = Attempt()
        deadline = attempt.started + total_timeout
        try:
            target = _target(url)
            head = request_head(
                method,
                target.path,
                target.host,
                {"Accept": "*/*", **headers},
                body_bytes=None if body is None else len(body),
            )
            # The key has every setting with which a connection is opened, so only calls with equal settings share one.
            key = target.origin if tls is None else (target.origin, tls)
            connection = self._idle.take(key)
            while True:
                if connection is None:
                    connection = await self._connect(
                        target.origin, tls or self._tls, attempt, connect_timeout, deadline
                    )
                try:
                    await connection.exchange(
                        head,
                        body or b"",
                        attempt,
                        read_limit=read_limit,
                        deadline=deadline + attempt.proxy_seconds,
                    )
                    break
                except StaleError:
                    if attempt.opened:
                        raise
                    connection = None
            self._idle.keep(key, connection)
        except (OSError, InvalidUrlError, UnknownNameError, BrokenOffError, AnswerTooLargeError) as error:
            return attempt.answer(error)
        return attempt.answer(None)

    # --- Connections

    async def _connect(
        self, origin: Origin, tls: ssl.SSLContext, attempt: Attempt, seconds: float, deadline: float
    ) -> HttpConnection:
        until = min(self._loop.time() + seconds, deadline)
        sock = await self.open_socket(origin.host, origin.port, attempt, until=until)
        async with asyncio.timeout_at(until + attempt.proxy_seconds):
            return await connect(sock, origin, tls)

    async def open_socket(self, host: str, port: int, attempt: Attempt, *, until: float) -> socket.socket:
        """A socket to a host, through the guard and the proxy, for protocols other than HTTP.

        `until` is a time of the loop's clock. The time to reach the proxy is added. Raises errors that `Attempt.answer`
        classifies.
        """
        async with asyncio.timeout_at(until):
            addresses = await self._names.addresses(host, port)
            if self._proxy is None:
                return await open_socket(addresses, make=partial(self._open_socket, attempt))
        return await open_tunnel(self._proxy, self._public(attempt, addresses), attempt, until=until)

    def _open_socket(self, attempt: Attempt, address: AddressInfo) -> socket.socket:
        self._check_address(attempt, address)
        family, kind, proto, _, _ = address
        return socket.socket(family, kind, proto)

    def _public(self, attempt: Attempt, addresses: Sequence[AddressInfo]) -> list[AddressInfo]:
        """The addresses that may be called. Raises OSError if none may be."""
        passed, refusal = [], None
        for address in addresses:
            try:
                self._check_address(attempt, address)
            except OSError as error:
                refusal = error
            else:
                passed.append(address)
        if refusal is not None and not passed:
            raise refusal
        return passed

    def _check_address(self, attempt: Attempt, address: AddressInfo) -> None:
        """Check an address, looked up or literal, before it is called.

        Raises OSError for an address that is not public.
        """
        if not (self._allow_private or is_public(str(address[4][0]))):
            attempt.blocked = True
            raise OSError(errno.EACCES, "Address is not public")
        attempt.opened = True


@lru_cache(maxsize=4096)
def _target(url: str) -> _Target:
    """Parse a URL. Raises `InvalidUrlError`."""
    parsed = parse_url(url)
    return _Target(
        Origin(parsed.raw_host or "", parsed.port or 0, parsed.scheme == "https"),
        parsed.raw_path_qs,
        parsed.host_port_subcomponent or "",
    )


def get_once(
    url: str, headers: Mapping[str, str], *, allow_private: bool, **limits: Unpack[Limits]
) -> Answer:
    """GET for synchronous callers, on its own connection. Never call it inside a transaction."""
    return once(lambda outbound: outbound.request("GET", url, None, headers, **limits), allow_private)


def once(call: Callable[[Outbound], Awaitable[Answer]], allow_private: bool) -> Answer:
    """Run `call` for a synchronous caller, on its own connections. Never call it inside a transaction."""

    async def run() -> Answer:
        async with Outbound(allow_private=allow_private) as outbound:
            return await call(outbound)

    leave_database()
    started = perf_counter()
    try:
        return async_to_sync(run)()
    finally:
        access_log.add_tenant_ms((perf_counter() - started) * 1000)
