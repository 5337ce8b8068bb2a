"""A call of the Graph API and its answer: addresses, tokens, proof, time-outs, errors, and the pool of event loops.

`prepare` creates a call. `blocking_client.send` sends it from a thread, an `AsyncPool` from an event loop. An answer is
a status, bytes and milliseconds. Answers are not parsed or re-serialised more than needed. No transport retries
(upstream fact 1.0), follows a redirect or reads a proxy from the environment. The pool uses the connection class of
deliveries, because a general client costs twice the CPU (decision "Calls to the upstream").

`classify` evaluates an answer (upstream fact 2.5; specification 7). A successful answer is unchanged. An error keeps
its bytes, with `"source": "meta"` inserted as the first member, and its status, with two exceptions: throttling codes
become 429, and codes such as 190 become 401. If Meta rejects the service's own app secret, the caller is not at fault,
and `classify` raises `AppSecretRefused`.
"""

import asyncio
import hashlib
import hmac
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from types import TracebackType
from typing import Any, Protocol, Self
from urllib.parse import quote, urlsplit

import orjson
import structlog
from django.conf import settings
from django.http import HttpResponse

from gateway.api import access_log
from gateway.api.authentication import Environment
from gateway.api.errors import MetaUnreachable, Reply
from gateway.http1 import AnswerTooLargeError, BrokenOffError, Origin, headers_of, request_head, tls_context
from gateway.meta_errors import (
    INVALID_PARAMETER,
    LONG_THROTTLE_SECONDS,
    LONG_THROTTLES,
    MAINTENANCE,
    PAIR_RATE,
    PAIR_RATE_SECONDS,
    SHORT_THROTTLES,
    TOKEN_PROBLEMS,
)
from gateway.monitoring import tracing
from gateway.monitoring.logs import type_alone
from gateway.monitoring.spans import OFF, Span
from gateway.outbound.addresses import Names, UnknownNameError
from gateway.outbound.connection import Attempt, HttpConnection, IdleConnections, connect, open_socket

log = structlog.get_logger(__name__)

CONNECT_SECONDS = 5.0
"""Time limit for a new connection. UPSTREAM_TIMEOUT_MS limits the whole call."""
_EDGE = re.compile(r"[a-z_]{1,40}")
"""The last part of a path if it is a name, such as `messages`."""
IDLE_SECONDS = 10.0
"""A connection that was idle for longer is not reused, because Meta may have closed it."""
MOST_BODY_BYTES = 16 * 1024 * 1024
"""Maximum number of bytes of an answer in memory. A streamed answer has no limit."""


class UpstreamUnreachable(Exception):
    """No answer: refused, reset, or silent for longer than the time-out.

    The outcome of a command is unknown, unless `is_unsent`: there was no connection to send it over.
    """

    def __init__(self, reason: str, ms: float, *, is_unsent: bool) -> None:
        super().__init__(reason)
        self.reason, self.ms, self.is_unsent = reason, ms, is_unsent


@dataclass(frozen=True, slots=True)
class Platform:
    """One server of the Graph API: Meta's, or the simulator for test keys and sandbox tenants."""

    environment: Environment
    graph_url: str
    app_id: str
    app_secret: str

    def __repr__(self) -> str:
        return type_alone(self)

    @property
    def app_token(self) -> str:
        """The app's own access token (upstream fact 1.8)."""
        return f"{self.app_id}|{self.app_secret}"


def platform(environment: str) -> Platform:
    """The server for an environment. A `test` key never reaches Meta."""
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
    """A request to the Graph API, independent of the transport."""

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | StreamedBody | None = field(default=None, repr=False)

    @property
    def body_bytes(self) -> int | None:
        """The length of the body in bytes. None for a GET without a body."""
        return None if self.body is None and self.method == "GET" else len(self.body or b"")


@dataclass(frozen=True, slots=True)
class GraphAnswer:
    """Meta's answer: status, exact bytes, the relevant headers, milliseconds."""

    status: int
    body: bytes = field(repr=False)
    headers: Mapping[str, str]
    ms: float

    @property
    def ok(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300

    def json(self) -> dict[str, Any]:
        """The body as an object. Empty for any other body."""
        return self.object() or {}

    def object(self) -> dict[str, Any] | None:
        """The body as an object. None for any other body."""
        try:
            value = orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return None
        return value if isinstance(value, dict) else None


def appsecret_proof(token: str, app_secret: str) -> str:
    """A proof that the caller knows the app's secret (upstream fact 1.8)."""
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
    """A JSON call of the Graph API. `path` has no version, such as `200300400500600/messages`."""
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
    """The address of a call, and its request without the body. All transports send these bytes."""
    url = urlsplit(call.url)
    is_tls = url.scheme == "https"
    origin = Origin(url.hostname or "", url.port or (443 if is_tls else 80), is_tls)
    head = request_head(
        call.method,
        f"{url.path}?{url.query}" if url.query else url.path,
        url.netloc,
        call.headers,
        body_bytes=call.body_bytes,
    )
    return origin, head


def span_of(call: GraphCall) -> Span:
    """The span of a call, without the ids in its path. It is not sent to the Graph API (decision "Traces")."""
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


def upstream_unreachable(error: Exception, started: float, *, is_unsent: bool = False) -> UpstreamUnreachable:
    """Log an error of any transport, and convert it. `started` is when the call began, by `perf_counter`."""
    ms = (perf_counter() - started) * 1000
    access_log.add_upstream_ms(ms)
    reason = "timeout" if isinstance(error, TimeoutError) else "connection_error"
    log.warning(
        "upstream_unreachable",
        reason=reason,
        error=type(error).__name__,
        ms=round(ms, 1),
        is_unsent=is_unsent,
    )
    return UpstreamUnreachable(reason, ms, is_unsent=is_unsent)


MOST_REGAIN_MINUTES = 24 * 60
"""The longest time until access is regained that is accepted from Meta's answer."""
_PROOF_REFUSED = "Invalid appsecret_proof"
"""The text of code 100 for a proof made with another secret (upstream fact 1.8)."""


class AppSecretRefused(MetaUnreachable):
    """Meta rejected the call because of the service's app secret. The secret was changed at Meta but not here."""

    message = "WhatsApp refuses this service at the moment. Nothing was sent or changed."
    hint = "The service's operator is notified. Repeat in a minute."


def app_secret_refused() -> AppSecretRefused:
    """Log that Meta rejected the service's app secret, and return the error for the caller."""
    log.error("app_secret_refused")
    return AppSecretRefused(
        details={"timeout_ms": settings.UPSTREAM_TIMEOUT_MS, "reason": "app_secret_refused"}
    )


@dataclass(frozen=True, slots=True)
class Verdict:
    """The classification of an answer: the gateway's status, additional headers, and the state of the token."""

    status: int
    code: int | None
    retry_after: int | None = None

    @property
    def ok(self) -> bool:
        return self.status < 400

    @property
    def token_problem(self) -> bool:
        """Whether the token is invalid or expired. The status is then 401, and the account's token state changes."""
        return self.status == 401

    @property
    def throttled(self) -> bool:
        return self.status == 429

    @property
    def is_unsent(self) -> bool:
        """Whether Meta refused the call for a reason other than the message. The message was then certainly not
        sent, and may be sent again later.
        """
        return self.throttled or self.token_problem or self.code == MAINTENANCE


def classify(answer: GraphAnswer) -> Verdict:
    """Classify an answer. Raises MetaUnreachable (502) for a redirect, an answer that is not a JSON object, and an
    error without content. Raises AppSecretRefused.
    """
    body = answer.object()
    if body is None or not (body or answer.ok) or 300 <= answer.status < 400:
        raise MetaUnreachable(
            details={"timeout_ms": settings.UPSTREAM_TIMEOUT_MS, "upstream_status": answer.status}
        )
    if answer.ok:
        return Verdict(answer.status, None)
    found = body.get("error")
    error = found if isinstance(found, dict) else {}
    code = _number(error.get("code"))
    if code == INVALID_PARAMETER and _PROOF_REFUSED in str(error.get("message")):
        raise app_secret_refused()
    if code in SHORT_THROTTLES or answer.status == 429:
        seconds = PAIR_RATE_SECONDS if code == PAIR_RATE else _regain_seconds(answer.headers) or 1
        return Verdict(429, code, seconds)
    if code in LONG_THROTTLES:
        return Verdict(429, code, LONG_THROTTLE_SECONDS)
    if code in TOKEN_PROBLEMS or answer.status == 401:
        return Verdict(401, code)
    return Verdict(answer.status, code)


def _number(code: object) -> int | None:
    """The code of an error if it is an integer, otherwise None. Python would treat `false` as 0."""
    return code if type(code) is int else None


def error_body(body: bytes) -> bytes:
    """The bytes of Meta's error with `"source": "meta"` as the first member."""
    start = body.index(b"{") + 1
    rest = body[start:]
    comma = b"" if rest.lstrip().startswith(b"}") else b","
    return body[:start] + b'"source":"meta"' + comma + rest


def reply_of(answer: GraphAnswer, verdict: Verdict) -> Reply:
    """The response to the caller."""
    if verdict.ok:
        return Reply(answer.status, {"Content-Type": _content_type(answer.headers)}, answer.body)
    headers = {"Content-Type": "application/json", "X-Service-Error-Source": "meta"}
    if verdict.retry_after is not None:
        headers["Retry-After"] = str(verdict.retry_after)
    if verdict.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return Reply(verdict.status, headers, error_body(answer.body))


def passed_through(answer: GraphAnswer, verdict: Verdict | None = None) -> HttpResponse:
    """The response to the caller, as Django's class. Raises MetaUnreachable for an unusable answer."""
    return reply_of(answer, verdict or classify(answer)).as_response()


def meta_unreachable(
    error: UpstreamUnreachable, text: str | None = None, *, hint: str | None = None
) -> MetaUnreachable:
    """The 502 for a call without an answer (send rule 7), with the operation's text."""
    details = {"timeout_ms": settings.UPSTREAM_TIMEOUT_MS, "reason": error.reason}
    return MetaUnreachable(text, hint=hint, details=details)


def _content_type(headers: Mapping[str, str]) -> str:
    return headers.get("Content-Type") or "application/json"


def _regain_seconds(headers: Mapping[str, str]) -> int | None:
    """The longest `estimated_time_to_regain_access` (minutes) of X-Business-Use-Case-Usage, in seconds. None if
    there is no wait.
    """
    try:
        usage: Any = orjson.loads(headers.get("X-Business-Use-Case-Usage") or b"{}")
        minutes = [
            limit.get("estimated_time_to_regain_access", 0) for limits in usage.values() for limit in limits
        ]
    except (orjson.JSONDecodeError, AttributeError, TypeError):
        return None
    longest = max((value for value in minutes if isinstance(value, int | float)), default=0)
    return max(int(min(longest, MOST_REGAIN_MINUTES) * 60), 0) or None


NAMES_SECONDS = 10.0
"""How long the addresses of a name are cached."""


class AsyncPool:
    """A pool of connections to the Graph API: an async context manager, for one event loop."""

    def __init__(self, *, limit: int) -> None:
        self._turns = asyncio.Semaphore(limit)
        self._names = Names(None, NAMES_SECONDS)
        self._idle = IdleConnections(seconds=IDLE_SECONDS)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._idle.close()
        await self._names.close()

    async def send(self, call: GraphCall) -> GraphAnswer:
        """Send a call when its turn comes, and read the whole answer within UPSTREAM_TIMEOUT_MS.

        Raises UpstreamUnreachable.
        """
        if not isinstance(call.body, bytes | None):
            raise TypeError("Only calls from threads stream bodies.")
        origin, head = request_of(call)
        with span_of(call) as span:
            async with self._turns:
                answer = await self._exchange(origin, head, call.body or b"")
            span.answered(answer.status)
            return answer

    async def _exchange(self, origin: Origin, head: bytes, body: bytes) -> GraphAnswer:
        started = perf_counter()
        deadline = asyncio.get_running_loop().time() + settings.UPSTREAM_TIMEOUT_MS / 1000
        try:
            connection = self._idle.take(origin) or await self._connect(origin, deadline)
        except (OSError, UnknownNameError) as error:
            raise upstream_unreachable(error, started, is_unsent=True) from None
        attempt = Attempt()
        try:
            await connection.exchange(head, body, attempt, read_limit=MOST_BODY_BYTES + 1, deadline=deadline)
            if attempt.status is None or len(attempt.body) > MOST_BODY_BYTES:
                raise AnswerTooLargeError
        except (OSError, BrokenOffError, AnswerTooLargeError) as error:
            raise upstream_unreachable(error, started) from None
        self._idle.keep(origin, connection)
        ms = (perf_counter() - started) * 1000
        access_log.add_upstream_ms(ms)
        return GraphAnswer(attempt.status, bytes(attempt.body), headers_of(attempt.fields), ms)

    async def _connect(self, origin: Origin, deadline: float) -> HttpConnection:
        """Open a connection. Raises OSError or UnknownNameError."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout_at(min(loop.time() + CONNECT_SECONDS, deadline)):
            addresses = await self._names.addresses(origin.host, origin.port)
            return await connect(await open_socket(addresses), origin, tls_context())
