"""Egress proxy: connections to customers' addresses lead through an HTTP proxy (`WEBHOOK_PROXY_URL`), by CONNECT.

It gives deliveries fixed addresses, which customers can allow, and is a second wall behind the check of addresses. The
proxy is asked for the very address that was looked up and judged here, never for a name: a proxy that resolves names
itself could be led to another address than the one that was judged.
"""

import asyncio
import base64
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import Self
from urllib.parse import unquote, urlsplit

import structlog
from django.conf import settings

from gateway.http1 import BrokenOffError
from gateway.monitoring.metrics import Counter
from gateway.outbound.dns import AddressInfo
from gateway.outbound.receiver_answer import ProxyAwayError

log = structlog.get_logger(__name__)

FAILURES = Counter(
    "gateway_egress_proxy_failures_total", "Tunnels that the egress proxy did not open.", label="reason"
)
MOST_HEAD_BYTES = 8 * 1024
"""Of the proxy's answer to CONNECT."""


CONNECT_SECONDS = 3.0
"""To the proxy itself. It is not part of the receiver's time: a slow proxy must not look like a slow receiver."""


class ProxyError(BrokenOffError):
    """The proxy opened no tunnel, perhaps because the receiver is away."""


@dataclass(frozen=True, slots=True)
class EgressProxy:
    """Where the proxy listens, and the header with its credentials if it wants any."""

    host: str
    port: int
    authorization: str

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Raises ValueError for a URL that is not `http://[user:password@]host:port`."""
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname or parts.port is None or parts.path.strip("/"):
            raise ValueError("The proxy's URL must have the form http://[user:password@]host:port.")
        header = ""
        if parts.username is not None:
            credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            header = f"Proxy-Authorization: Basic {base64.b64encode(credentials).decode()}\r\n"
        return cls(parts.hostname, parts.port, header)


def configured() -> EgressProxy | None:
    """The proxy of WEBHOOK_PROXY_URL, None without one."""
    return _parsed(settings.WEBHOOK_PROXY_URL) if settings.WEBHOOK_PROXY_URL else None


@lru_cache
def _parsed(url: str) -> EgressProxy:
    return EgressProxy.from_url(url)


async def open_tunnel(proxy: EgressProxy, addresses: Sequence[AddressInfo], *, until: float) -> socket.socket:
    """A socket through the proxy to the first of the addresses, all of them judged, that it reaches.

    Raises `ProxyError`; `ProxyAwayError` when the proxy itself is away; TimeoutError when no tunnel is open at `until`,
    a moment of the loop's clock.
    """
    failure = ProxyError("no address")
    for _, _, _, _, sockaddr in addresses:
        opened = await _reach(proxy)
        try:
            async with asyncio.timeout_at(until):
                return await _tunnel(opened, proxy, str(sockaddr[0]), int(sockaddr[1]))
        except ProxyError as error:
            failure = error
    raise failure


async def _reach(proxy: EgressProxy) -> socket.socket:
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            return await _connected(asyncio.get_running_loop(), proxy)
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


async def _connected(loop: asyncio.AbstractEventLoop, proxy: EgressProxy) -> socket.socket:
    """A socket to the proxy, whose address the operator chose: it may be private."""
    found = await loop.getaddrinfo(proxy.host, proxy.port, type=socket.SOCK_STREAM)
    family, kind, proto, _, address = found[0]
    opened = socket.socket(family, kind, proto)
    opened.setblocking(False)
    try:
        await loop.sock_connect(opened, address)
    except BaseException:
        opened.close()
        raise
    return opened


async def _status(loop: asyncio.AbstractEventLoop, opened: socket.socket) -> int:
    """The status of the proxy's answer. Behind its head nothing may come: the receiver does not speak first."""
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
