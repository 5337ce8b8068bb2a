"""The Graph API over `requests`: the only code that knows its addresses, tokens, time-outs and proof.

A call is prepared apart from its transport (`prepare`): single sends and batches take the same calls over
`blocking_pool` and `async_pool`. An answer is a status, bytes and milliseconds: nothing here parses or re-serialises
what it does not need. Nothing is retried (upstream fact 1.0).
"""

import hashlib
import hmac
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from time import perf_counter
from typing import IO, Any
from urllib.parse import quote

import orjson
import requests
import structlog
from django.conf import settings
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError, ReadTimeoutError

from gateway.api import timing
from gateway.api.authentication import Environment
from gateway.database.transactions import leave_database

log = structlog.get_logger(__name__)

READ_CHUNK = 64 * 1024
CONNECT_SECONDS = 5.0
"""At most, of UPSTREAM_TIMEOUT_MS."""
IDLE_SECONDS = 10.0
"""A connection idle for longer is not used again: the upstream may have closed it."""


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


@dataclass(frozen=True, slots=True)
class GraphCall:
    """A request to the Graph API, ready for any transport."""

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | IO[bytes] | None = field(default=None, repr=False)
    """Bytes, or an open file that is streamed."""


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
        try:
            value = orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return {}
        return value if isinstance(value, dict) else {}


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


def send(call: GraphCall) -> GraphAnswer:
    """Make a call and read the whole answer. Raises UpstreamUnreachable; never inside a transaction."""
    leave_database()
    deadline_seconds = settings.UPSTREAM_TIMEOUT_MS / 1000
    streamed = call.body is not None and not isinstance(call.body, bytes)
    started = perf_counter()
    try:
        with _begin(call, deadline_seconds) as response:
            # A file may take longer than the time-out to send, as long as it moves: then the answer's clock counts.
            since = perf_counter() if streamed else started
            body = b"".join(_chunks_until(response, since + deadline_seconds))
    except requests.RequestException as error:
        raise unreachable(error, started) from None
    ms = (perf_counter() - started) * 1000
    timing.add(ms)
    return GraphAnswer(response.status_code, body, response.headers, ms)


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer whose body is still to come. Whoever has it closes it."""

    status: int
    headers: Mapping[str, str]
    response: requests.Response = field(repr=False)

    def __iter__(self) -> Iterator[bytes]:
        """The body as it arrives, in bounded pieces. Raises `requests.RequestException` when it breaks off."""
        return iter(self.response.iter_content(READ_CHUNK))

    def close(self) -> None:
        self.response.close()


def stream(call: GraphCall) -> Stream:
    """Make a call whose answer may be large: the body is left to be read. Raises UpstreamUnreachable."""
    leave_database()
    seconds = settings.UPSTREAM_TIMEOUT_MS / 1000
    started = perf_counter()
    try:
        response = _begin(call, seconds)
    except requests.RequestException as error:
        raise unreachable(error, started) from None
    timing.add((perf_counter() - started) * 1000)
    return Stream(response.status_code, response.headers, response)


def request(
    *,
    environment: str,
    method: str,
    path: str,
    token: str | None,
    params: Mapping[str, str] | None = None,
    json: Any = None,
    body: bytes | None = None,
) -> GraphAnswer:
    """Prepare and send in one step; `json` is serialised, `body` goes as it is."""
    payload = orjson.dumps(json) if json is not None else body
    return send(
        prepare(environment=environment, method=method, path=path, token=token, params=params, body=payload)
    )


def _chunks_until(response: requests.Response, deadline: float) -> Iterator[bytes]:
    """The body as it comes; one that is not whole by the deadline is a time-out like any other.

    `read1` returns what one read of the socket gives, and each read has what is left of the time: `iter_content` would
    wait for a full chunk for as long as a byte comes every now and then.
    """
    raw = response.raw
    while (left := deadline - perf_counter()) > 0:
        if raw.connection is not None and raw.connection.sock is not None:
            raw.connection.sock.settimeout(left)
        try:
            chunk = raw.read1(READ_CHUNK, decode_content=True)
        except ReadTimeoutError as error:
            raise requests.ReadTimeout(error) from None
        except HTTPError as error:
            raise requests.ConnectionError(error) from None
        if not chunk:
            return
        yield chunk
    raise requests.ReadTimeout("the answer's body took too long")


def unreachable(error: Exception, started: float, *, is_unsent: bool = False) -> UpstreamUnreachable:
    """The one mapping of a transport's errors; `started` is the call's begin by `perf_counter`."""
    ms = (perf_counter() - started) * 1000
    timing.add(ms)
    reason = "timeout" if isinstance(error, requests.Timeout | TimeoutError) else "connection_error"
    log.warning(
        "upstream_unreachable",
        reason=reason,
        error=type(error).__name__,
        ms=round(ms, 1),
        is_unsent=is_unsent,
    )
    return UpstreamUnreachable(reason, ms, is_unsent=is_unsent)


def _begin(call: GraphCall, timeout_seconds: float) -> requests.Response:
    """Send a call; its answer is still to be read.

    Straight to the adapter: a session would only look for redirects, cookies, proxies and .netrc, of which there are
    none here, and take as long again as the request itself.
    """
    prepared = requests.Request(call.method, call.url, headers=call.headers, data=call.body).prepare()
    return _adapter().send(
        prepared, stream=True, timeout=(min(CONNECT_SECONDS, timeout_seconds), timeout_seconds)
    )


@cache
def _adapter() -> HTTPAdapter:
    """The connections of this process: pooled, thread-safe, no retries."""
    return HTTPAdapter(pool_connections=8, pool_maxsize=256, max_retries=0)
