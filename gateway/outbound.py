"""The one door to the outside for everything that goes to an address a customer chose.

Webhook deliveries (thousands a second, from the dispatcher), verify pings, single replays and website checks
come through here. What it promises: connections only to public addresses, judged when the socket is opened,
so a name that changes its address gains nothing; a deadline that covers everything from the resolution of
the name to the last byte of the answer; bounded memory, whatever the other side sends; and an `Answer` for
whatever the other side does, never an exception.
"""

import asyncio
import errno
import io
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import cache, lru_cache
from types import TracebackType
from typing import Self, TypedDict, Unpack

import aiohttp
import certifi
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.connector import Connection
from asgiref.sync import async_to_sync

from gateway.outbound_answers import Answer, Attempt, retry_after
from gateway.outbound_urls import InvalidUrlError, parse_url, validate_url
from gateway.public_addresses import is_public
from gateway.transactions import leave_database

__all__ = ["Answer", "InvalidUrlError", "Outbound", "get_once", "post_once", "validate_url"]

# One delivery attempt: seconds, seconds, bytes.
CONNECT_TIMEOUT = 5.0
TOTAL_TIMEOUT = 15.0
READ_LIMIT = 16 * 1024

_MAX_HEADER_BYTES = 8 * 1024
_MAX_HEADERS = 128
_LARGE_BODY = 1024 * 1024
_RESOLVER_THREADS = 32

# Set by the task that makes a request; read where aiohttp opens a socket and where it sends for that task.
_current: ContextVar[Attempt] = ContextVar("outbound_attempt")


class Limits(TypedDict, total=False):
    """Bounds of one request: time-outs in seconds, what is read of the answer's body in bytes."""

    connect_timeout: float
    total_timeout: float
    read_limit: int


class Outbound:
    """A pool of connections to customers' addresses: an async context manager, for one event loop.

    `allow_private` lifts the guard (setting WEBHOOK_ALLOW_PRIVATE_NETWORKS). `limit` bounds the requests at
    once; one that waits for its turn spends its own time, so callers stay below it. Requests per host are not
    limited here. A name's addresses are kept for `dns_seconds`, an idle connection for `keepalive` seconds.
    `resolver` and `tls` replace the system's resolver and certificates.
    """

    def __init__(
        self,
        *,
        allow_private: bool,
        limit: int = 1000,
        dns_seconds: int = 30,
        keepalive: float = 15.0,
        resolver: AbstractResolver | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._allow_private = allow_private
        self._limit = limit
        self._dns_seconds = dns_seconds
        self._keepalive = keepalive
        self._resolver = resolver or _Resolver()
        self._tls = tls or _tls_context()
        self._session: aiohttp.ClientSession
        self._fresh: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        self._session = self._open_session(reuse=True)
        self._fresh = self._open_session(reuse=False)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()
        await self._fresh.close()
        await self._resolver.close()

    async def post(
        self,
        url: str,
        body: bytes,
        headers: Mapping[str, str],
        *,
        connect_timeout: float = CONNECT_TIMEOUT,
        total_timeout: float = TOTAL_TIMEOUT,
        read_limit: int = READ_LIMIT,
    ) -> Answer:
        """POST `body`, at least once, to a URL that `validate_url` accepted. Redirects are not followed.

        When a connection kept from an earlier request turns out to have been closed by the receiver before
        any answer came, the request is made once more on a new connection, within the same deadline.
        """
        return await self._request("POST", url, body, headers, connect_timeout, total_timeout, read_limit)

    async def get(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        connect_timeout: float = CONNECT_TIMEOUT,
        total_timeout: float = TOTAL_TIMEOUT,
        read_limit: int = READ_LIMIT,
    ) -> Answer:
        """GET a URL that `validate_url` accepted; otherwise as `post`."""
        return await self._request("GET", url, None, headers, connect_timeout, total_timeout, read_limit)

    async def _request(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        connect_timeout: float,
        total_timeout: float,
        read_limit: int,
    ) -> Answer:
        attempt = Attempt()
        _current.set(attempt)
        try:
            # Not aiohttp's total time-out, which leaves things out and is rounded up to a whole second.
            async with asyncio.timeout(total_timeout):
                request = (method, url, body, headers, _connect_within(connect_timeout), read_limit)
                try:
                    await _exchange(self._session, attempt, *request)
                except (
                    aiohttp.ServerDisconnectedError,
                    aiohttp.ClientOSError,
                    aiohttp.ClientConnectionResetError,
                ) as error:
                    if not attempt.was_stale(error):
                        raise
                    await _exchange(self._fresh, attempt, *request)
        except (aiohttp.ClientError, OSError, InvalidUrlError) as error:
            return attempt.answer(error)
        return attempt.answer(None)

    def _open_session(self, *, reuse: bool) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._limit,
                ssl=self._tls,
                resolver=self._resolver,
                ttl_dns_cache=self._dns_seconds,
                socket_factory=self._open_socket,
                keepalive_timeout=self._keepalive if reuse else None,
                force_close=not reuse,
            ),
            request_class=_Request,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Accept-Encoding": "identity"},
            auto_decompress=False,
            trust_env=False,
            read_bufsize=READ_LIMIT,
            max_line_size=_MAX_HEADER_BYTES,
            max_field_size=_MAX_HEADER_BYTES,
            max_headers=_MAX_HEADERS,
        )

    def _open_socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        """The guard: aiohttp asks here for every address it is about to connect to, looked up or literal."""
        family, kind, proto, _, sockaddr = address
        attempt = _current.get()
        if not (self._allow_private or is_public(str(sockaddr[0]))):
            attempt.blocked = True
            raise OSError(errno.EACCES, "Address is not public")
        attempt.opened = True
        return socket.socket(family, kind, proto)


async def _exchange(
    session: aiohttp.ClientSession,
    attempt: Attempt,
    method: str,
    url: str,
    body: bytes | None,
    headers: Mapping[str, str],
    timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109
    read_limit: int,
) -> None:
    """One request, and what is read of the answer to it, into `attempt`."""
    # A large body goes out in pieces, as fast as the receiver reads.
    data = io.BytesIO(body) if body is not None and len(body) > _LARGE_BODY else body
    try:
        async with session.request(
            method, parse_url(url), data=data, headers=headers, timeout=timeout, allow_redirects=False
        ) as response:
            attempt.status = response.status
            if "Retry-After" in response.headers:
                attempt.retry_after = retry_after(response.headers)
            while (room := read_limit - len(attempt.body)) > 0:
                chunk = await response.content.read(room)
                if not chunk:
                    break
                attempt.body += chunk
    finally:
        # A closed transport lives on until the receiver has read what is still to be sent: perhaps for ever.
        if attempt.transport is not None and attempt.transport.is_closing():
            attempt.transport.abort()


class _Request(aiohttp.ClientRequest):
    """Remembers what a request was sent on, so that it can be aborted."""

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        _current.get().transport = conn.transport
        return await super().send(conn)


@lru_cache(maxsize=64)
def _connect_within(seconds: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(connect=seconds, ceil_threshold=float("inf"))


@cache
def _tls_context() -> ssl.SSLContext:
    """Verification against the system's certificates (SSL_CERT_FILE counts) and certifi's."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    context.set_alpn_protocols(["http/1.1"])
    return context


class _Resolver(AbstractResolver):
    """The system's resolver on threads of its own: names that hang must not use up the loop's few threads."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_RESOLVER_THREADS, thread_name_prefix="outbound-dns")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _look_up, host, port, family)

    async def close(self) -> None:
        # Not waited for: a lookup that hangs must not hold up a caller whose deadline has passed.
        self._threads.shutdown(wait=False, cancel_futures=True)


def _look_up(host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
    try:
        found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    except UnicodeError as error:
        raise OSError(errno.EINVAL, "Not a host name") from error
    return [
        ResolveResult(hostname=host, host=str(address[0]), port=port, family=kind, proto=proto, flags=0)
        for kind, _, proto, _, address in found
    ]


def post_once(
    url: str, body: bytes, headers: Mapping[str, str], *, allow_private: bool, **limits: Unpack[Limits]
) -> Answer:
    """`Outbound.post` for synchronous callers, on a connection of its own; never inside a transaction."""
    return _once(lambda outbound: outbound.post(url, body, headers, **limits), allow_private)


def get_once(
    url: str, headers: Mapping[str, str], *, allow_private: bool, **limits: Unpack[Limits]
) -> Answer:
    """`Outbound.get` for synchronous callers, on a connection of its own; never inside a transaction."""
    return _once(lambda outbound: outbound.get(url, headers, **limits), allow_private)


def _once(call: Callable[[Outbound], Awaitable[Answer]], allow_private: bool) -> Answer:
    async def run() -> Answer:
        async with Outbound(allow_private=allow_private) as outbound:
            return await call(outbound)

    leave_database()
    return async_to_sync(run)()
