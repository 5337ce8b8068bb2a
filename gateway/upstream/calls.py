"""Calls of the Graph API apart from their transport: addresses, tokens, proof, time-outs, answers and errors.

`prepare` makes a call, `blocking_pool` sends it from a thread, `async_pool` from an event loop. An answer is a status,
bytes and milliseconds: nothing here parses or re-serialises what it does not need. No transport retries
(upstream fact 1.0), follows a redirect or asks the environment for a proxy.
"""

import hashlib
import hmac
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

import orjson
import structlog
from django.conf import settings

from gateway.api import timing
from gateway.api.authentication import Environment
from gateway.http1 import Origin, request_head
from gateway.monitoring import tracing
from gateway.monitoring.spans import OFF, Span

log = structlog.get_logger(__name__)

CONNECT_SECONDS = 5.0
"""For a new connection, at most; UPSTREAM_TIMEOUT_MS is for the whole call."""
_EDGE = re.compile(r"[a-z_]{1,40}")
"""The last part of a path that names what is asked for, such as `messages`."""
IDLE_SECONDS = 10.0
"""A connection idle for longer is not used again: the upstream may have closed it."""
MOST_BODY_BYTES = 16 * 1024 * 1024
"""Of an answer that is held in memory; one that is streamed has no limit."""


class UpstreamUnreachable(Exception):
    """No answer: refused, reset, or silent for longer than the time-out.

    The outcome of a command is unknown, unless `is_unsent`: then there was no connection to send it over.
    """

    def __init__(self, reason: str, ms: float, *, is_unsent: bool) -> None:
        super().__init__(reason)
        self.reason, self.ms, self.is_unsent = reason, ms, is_unsent


@dataclass(frozen=True, slots=True)
class Platform:
    """One upstream: the live one, or the simulator that serves test keys and sandbox tenants."""

    environment: Environment
    graph_url: str
    app_id: str
    app_secret: str

    @property
    def app_token(self) -> str:
        """The app's own access token (upstream fact 1.8)."""
        return f"{self.app_id}|{self.app_secret}"


def platform(environment: str) -> Platform:
    """The upstream that serves an environment: a `test` key never reaches the real one."""
    if environment == "test":
        return Platform(
            "test", settings.SANDBOX_GRAPH_URL, settings.SANDBOX_APP_ID, settings.SANDBOX_APP_SECRET
        )
    return Platform("live", settings.META_GRAPH_URL, settings.META_APP_ID, settings.META_APP_SECRET)


class StreamedBody(Protocol):
    """A body too large for memory: its length in bytes, and its pieces as they are read."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[bytes]: ...


@dataclass(frozen=True, slots=True)
class GraphCall:
    """A request to the Graph API, ready for any transport."""

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | StreamedBody | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class GraphAnswer:
    """What the upstream answered: status, exact bytes, the headers that matter, milliseconds."""

    status: int
    body: bytes
    headers: Mapping[str, str]
    ms: float

    @property
    def ok(self) -> bool:
        """A 2xx answer."""
        return 200 <= self.status < 300

    def json(self) -> dict[str, Any]:
        """The body as an object; anything else reads as empty."""
        return self.object() or {}

    def object(self) -> dict[str, Any] | None:
        """The body as an object; None when it is none."""
        try:
            value = orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return None
        return value if isinstance(value, dict) else None


def appsecret_proof(token: str, app_secret: str) -> str:
    """Proof that the caller knows the app's secret (upstream fact 1.8)."""
    return hmac.new(app_secret.encode(), token.encode(), hashlib.sha256).hexdigest()


def prepare(
    *,
    environment: str,
    method: str,
    path: str,
    token: str | None,
    params: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> GraphCall:
    """A JSON call of the Graph API; `path` has no version, e.g. `200300400500600/messages`."""
    upstream = platform(environment)
    query = dict(params or {})
    headers = {"Accept": "application/json", "User-Agent": settings.SERVICE_NAME}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
        query["appsecret_proof"] = appsecret_proof(token, upstream.app_secret)
    if body is not None:
        headers["Content-Type"] = "application/json"
    url = f"{upstream.graph_url}/{settings.META_GRAPH_VERSION}/{quote(path, safe='/:|')}"
    if query:
        url += "?" + "&".join(
            f"{quote(key, safe='')}={quote(value, safe='')}" for key, value in query.items()
        )
    return GraphCall(method, url, headers, body)


def request_of(call: GraphCall) -> tuple[Origin, bytes]:
    """Where a call goes, and its request up to the body: the same bytes from both pools."""
    url = urlsplit(call.url)
    is_tls = url.scheme == "https"
    origin = Origin(url.hostname or "", url.port or (443 if is_tls else 80), is_tls)
    head = request_head(
        call.method,
        f"{url.path}?{url.query}" if url.query else url.path,
        url.netloc,
        call.headers,
        body_bytes=None if call.body is None and call.method == "GET" else len(call.body or b""),
    )
    return origin, head


def span_of(call: GraphCall) -> Span:
    """The span of a call, which is not told to the upstream (decision "Traces"). Ids in the path are left out."""
    if not tracing.is_on():
        return OFF
    url = urlsplit(call.url)
    edge = url.path.rpartition("/")[2]
    name = f"{call.method} {edge if _EDGE.fullmatch(edge) else '{id}'}"
    return tracing.span(
        name,
        "client",
        attributes={"http.request.method": call.method, "server.address": url.hostname or ""},
    )


def unreachable(error: Exception, started: float, *, is_unsent: bool = False) -> UpstreamUnreachable:
    """The one mapping of all transports' errors; `started` is the call's begin by `perf_counter`."""
    ms = (perf_counter() - started) * 1000
    timing.add(ms)
    reason = "timeout" if isinstance(error, TimeoutError) else "connection_error"
    log.warning(
        "upstream_unreachable",
        reason=reason,
        error=type(error).__name__,
        ms=round(ms, 1),
        is_unsent=is_unsent,
    )
    return UpstreamUnreachable(reason, ms, is_unsent=is_unsent)
