"""Limits of a call: the size of its body, simultaneous calls, calls and bytes a minute.

Body limits: 64 KiB for a page, 1 MiB for an operation of the API, or what the view declares. A body whose declared
length is too large is rejected before a byte is read. In the API, the caller is admitted first. A body in chunks is
read when the view asks for it, and rejected as soon as it is too large. The listener limits how slowly a body may
arrive (`web/request.py`). Larger bodies are limited by the modules that read them: notifications in
`messaging/notifications/incoming.py`, batches in `messaging/batches/body.py`, files in `messaging/media/uploads.py`.

Bulkheads: the Graph API or a tenant's endpoint may take seconds to answer. A call that waits for the answer occupies a
thread or memory, so such calls are limited per number, per tenant and in all. A call beyond a limit is rejected at once
with `too_many_in_flight`. Others are still served.

Rate limits of the service's own API, in calls and in bytes, are token buckets per tenant. That of the console, in pages
and their CPU time, is a token bucket per person. Without Valkey every call is allowed.
"""

import io
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial, wraps
from time import monotonic, thread_time
from typing import Any, TypeVar, cast
from uuid import UUID

import structlog
from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from gateway.api.authentication import Caller, tenant_of
from gateway.api.errors import PayloadTooLarge, RateLimited, ServiceUnavailable, TooManyInFlight
from gateway.valkey import token_bucket, write_behind
from gateway.valkey.connection import VALKEY_UNAVAILABLE
from gateway.valkey.token_bucket import BucketAnswer
from gateway.valkey.write_behind import PendingWrite

CHUNKED = "gateway.chunked_body"
"""The key of a chunked body in the WSGI environment."""
MOST_CHUNKED_BYTES = 128 * 1024 * 1024
"""The assumed size of a chunked body, until its view sets a limit."""

View = TypeVar("View")

DEFAULT_BODY_BYTES = 64 * 1024
"""The largest body of a view that declares no limit, such as a page."""
API_BODY_BYTES = 1024 * 1024
"""The largest body of an operation of the API. Also the largest message, template or profile that Meta reads."""


def limited_by(limit: int) -> Callable[[View], View]:
    """Decorate a view, class or function, with its largest body in bytes."""

    def decorate(view: View) -> View:
        view.body_limit = limit  # type: ignore[attr-defined]
        return view

    return decorate


def limit_of(view: Callable[..., Any]) -> int:
    """The largest body of a view, in bytes."""
    return int(getattr(_declaring(view), "body_limit", DEFAULT_BODY_BYTES))


def refuses_large_bodies(view: Callable[..., Any]) -> bool:
    """Whether a view itself refuses a body over its limit, which `request.too_large` then reports."""
    return getattr(_declaring(view), "refuses_large_bodies", False)


def _declaring(view: Callable[..., Any]) -> Any:
    return getattr(view, "cls", None) or getattr(view, "view_class", None) or view


def bound(request: HttpRequest, view: Callable[..., Any]) -> None:
    """Raise PayloadTooLarge for a declared length over the view's limit. Limit the reading of a chunked body."""
    limit = limit_of(view)
    chunked: ChunkedBody | None = request.META.get(CHUNKED)
    if chunked is not None:
        chunked.limit = limit
        # Some readers only check CONTENT_LENGTH to see whether there is a body.
        request.META["CONTENT_LENGTH"] = str(limit)
        return
    try:
        length = int(request.META.get("CONTENT_LENGTH") or 0)
    except ValueError:
        length, request.META["CONTENT_LENGTH"] = 0, "0"
    if length > limit:
        raise PayloadTooLarge(f"The body may hold at most {limit} bytes.", details={"limit_bytes": limit})


class ChunkedBody(io.IOBase):
    """A chunked body. Reading more than its limit raises RequestDataTooBig."""

    def __init__(self, stream: Any) -> None:
        self._stream, self.bytes_read = stream, 0
        self.limit = 0

    def read(self, size: int = -1, /) -> bytes:
        most = self.limit + 1 - self.bytes_read
        data: bytes = self._stream.read(most if size < 0 else min(size, most))
        self.bytes_read += len(data)
        if self.bytes_read > self.limit:
            # Django's own exception, which the readers of a page's body handle.
            raise RequestDataTooBig(f"The body may hold at most {self.limit} bytes.")
        return data


SMALL_BODY_BYTES = 64 * 1024
LARGE_BODIES_BYTES = 128 * 1024 * 1024
"""Memory of a process for large bodies, in bytes. Only a body's bytes beyond `SMALL_BODY_BYTES` count, so small bodies
are never rejected.
"""


class LargeBodyMemory:
    """Limits the total memory of all large request bodies, including those of unknown callers. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most, self._taken = most, 0
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        """Reserve bytes for a large body. Raises ServiceUnavailable when too few are free."""
        with self._lock:
            if self._taken + size > self._most:
                raise ServiceUnavailable("Too many large requests are arriving at once. Try again.")
            self._taken += size

    def release(self, size: int) -> None:
        """Release reserved bytes."""
        with self._lock:
            self._taken -= size

    @contextmanager
    def held_for(self, request: HttpRequest) -> Iterator[None]:
        """Reserve the memory that a request's body may need, during the block. Raises ServiceUnavailable."""
        # `bound` has checked that the length is a number within the view's limit.
        size = max(0, int(request.META.get("CONTENT_LENGTH") or 0) - SMALL_BODY_BYTES)
        self.take(size)
        try:
            yield
        finally:
            self.release(size)


large_bodies = LargeBodyMemory(LARGE_BODIES_BYTES)


Counted = tuple[tuple[str, str], ...]


class Bulkhead:
    """Counts the waiting calls of a process, usable from any thread.

    While fewer than `crowded` calls wait, a tenant may have up to `per_tenant`. Beyond that, a tenant may have only a
    third as many calls as there are free places (up to `in_all`), but at least one. So a single tenant can use free
    places. While the calls of a few tenants hang, the last places go to tenants with few calls.
    """

    SHARED_AMONG = 3

    def __init__(self, *, per_number: int, per_tenant: int, crowded: int, in_all: int) -> None:
        self._per_number, self._per_tenant = per_number, per_tenant
        self._crowded, self._in_all = crowded, in_all
        self._waiting: Counter[tuple[str, str]] = Counter()
        self._total = 0
        self._lock = threading.Lock()

    def enter(self, tenant_id: UUID, number: str | None = None) -> Counted:
        """Count a call in. Returns the argument of `leave`. Raises TooManyInFlight beyond a limit."""
        tenant = ("tenant", str(tenant_id))
        counted: Counted = (tenant,) if number is None else (tenant, (str(tenant_id), number))
        with self._lock:
            if number is not None and self._waiting[counted[1]] >= self._per_number:
                raise TooManyInFlight(details={"scope": "number", "limit": self._per_number})
            free = self._in_all - self._total
            most = self._per_tenant
            if self._total >= self._crowded:
                most = min(most, max(1, free // self.SHARED_AMONG))
            if self._waiting[tenant] >= most or free <= 0:
                raise TooManyInFlight(details={"scope": "tenant", "limit": most})
            self._waiting.update(counted)
            self._total += 1
        return counted

    def leave(self, counted: Counted) -> None:
        """Count a call out: once for each `enter`."""
        with self._lock:
            self._total -= 1
            for each in counted:
                self._waiting[each] -= 1
                if not self._waiting[each]:
                    del self._waiting[each]

    @contextmanager
    def held(self, tenant_id: UUID, number: str | None = None) -> Iterator[None]:
        """Count a call in during the block. Raises TooManyInFlight beyond a limit."""
        counted = self.enter(tenant_id, number)
        try:
            yield
        finally:
            self.leave(counted)

    def response(self, respond: Callable[[], Any], tenant_id: UUID, number: str | None = None) -> Any:
        """Make a response with a call that is counted in, if it is streamed until it has been sent. Raises
        TooManyInFlight.
        """
        counted = self.enter(tenant_id, number)
        try:
            response = respond()
        except BaseException:
            self.leave(counted)
            raise
        if getattr(response, "streaming", False):
            leave = partial(self.leave, counted)
            response.streaming_content = _UntilClosed(response.streaming_content, leave)
        else:
            self.leave(counted)
        return response


upstream = Bulkhead(per_number=24, per_tenant=26, crowded=26, in_all=34)
"""Limits how many of a web process's 40 threads may wait for the Graph API."""
endpoints = Bulkhead(per_number=1, per_tenant=2, crowded=2, in_all=4)
"""Limits how many threads of a web process may wait for tenants' endpoints, in pings and single replays."""
large_batches = Bulkhead(per_number=1, per_tenant=2, crowded=3, in_all=6)
"""Limits how many threads of a web process may read and store batches of 1 to 32 MiB."""

SENDS_AT_ONCE = 1_000
"""Maximum number of simultaneous sends of one process. Each opens a slot of the send journal, and 1,024 open files are
the usual limit.
"""
sends = Bulkhead(per_number=200, per_tenant=400, crowded=800, in_all=SENDS_AT_ONCE)
"""Limits the sends on the event loop. Each waiting send needs memory and a connection to the Graph API."""

Method = TypeVar("Method", bound=Callable[..., Any])


class _UntilClosed:
    """The content of a streamed response. Django calls `close` once the response was sent or its client has gone."""

    def __init__(self, content: Iterable[bytes], leave: Callable[[], None]) -> None:
        self._content = content
        self.close = leave

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._content)


def _bounded(
    bulkhead_of: Callable[[], Bulkhead], number_of: Callable[[Request, Mapping[str, Any]], str | None]
) -> Callable[[Method], Method]:
    """A decorator that limits how many calls of a view's method are in flight. A call with a streamed response is in
    flight until the response has been sent.
    """

    def decorate(method: Method) -> Method:
        @wraps(method)
        def wrapped(view: Any, request: Request, *args: Any, **kwargs: Any) -> Any:
            respond = partial(method, view, request, *args, **kwargs)
            return bulkhead_of().response(respond, tenant_of(request).id, number_of(request, kwargs))

        return cast("Method", wrapped)

    return decorate


def _number(request: Request, kwargs: Mapping[str, Any]) -> str | None:
    """The number that a call names in its path, query or JSON body, or None.

    A node of the Graph API is treated as a number, even when it is an account or a template.
    """
    named = kwargs.get("phone_number_id") or kwargs.get("node") or request.query_params.get("from")
    if named is None and request.method == "POST" and "json" in (request.content_type or ""):
        # Reads the bytes before REST framework reads the stream, because some views need them.
        _ = request._request.body
        body = request.data
        named = body.get("from") if isinstance(body, Mapping) else None
    return named[:64] if isinstance(named, str) else None


def waits_for_upstream(method: Method) -> Method:
    """Decorate a method of a view that calls the Graph API."""
    return _bounded(lambda: upstream, _number)(method)


def waits_for_endpoint(method: Method) -> Method:
    """Decorate a method of a view that calls a tenant's endpoint."""
    return _bounded(lambda: endpoints, lambda *_: None)(method)


log = structlog.get_logger(__name__)

MOST_OWED = 10
"""Maximum number of calls that a process has allowed from one bucket but not yet written to Valkey."""
KNOWN_SECONDS = 5.0
"""How old Valkey's last answer may be when a process allows a call without asking Valkey again. An old answer does
little harm, because a process allows at most `MOST_OWED` calls too many.
"""
MOST_KNOWN = 10_000
BYTES_PER_SECOND = 8 * 1024 * 1024
"""Rate limit of bodies over `SMALL_BODY_BYTES`, in bytes per second. Without it, such bodies could fill a tenant's
storage even at a permitted rate of calls.
"""
BYTES_AT_ONCE = 256 * 1024 * 1024
MOST_DEBT_SECONDS = 2 * BYTES_AT_ONCE / BYTES_PER_SECOND
"""The largest debt that simultaneous bodies may leave in the bucket, as the seconds until it is paid."""


@dataclass(slots=True)
class _Known:
    """Valkey's last answer about a bucket, and what this process has allowed since."""

    rate: float
    burst: int
    remaining: float
    asked_at: float
    reset_after: float = 0.0
    owed: int = 0

    def refill(self, moment: float) -> None:
        """Add the tokens that came back until the moment."""
        passed = max(0.0, moment - self.asked_at)
        self.remaining = min(self.burst, self.remaining + passed * self.rate)
        self.asked_at += passed


class RateAllowance:
    """A process's view of the buckets, usable from any thread.

    While more than half of a bucket is left, calls are allowed without asking Valkey. These calls are written to Valkey
    soon after (`owing` receives their number), or with the next question. So no caller is rejected wrongly. All
    processes together exceed the limit at most by their unwritten calls.
    """

    def __init__(self, *, owing: Callable[[int], None] | None = None) -> None:
        self._owing = owing
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}
        self._indebted: set[str] = set()

    def recall(self, key: str, *, burst: int) -> BucketAnswer | None:
        """Allow a call without asking Valkey, and write it later. None if Valkey must be asked."""
        with self._lock:
            known = self._known.get(key)
            if known is None:
                return None
            left = known.remaining - known.owed - 1
            if left < burst / 2 or known.owed >= MOST_OWED or known.asked_at + KNOWN_SECONDS <= monotonic():
                return None
            known.owed = owed = known.owed + 1
            self._indebted.add(key)
            answer = BucketAnswer(True, int(left), 0.0, known.reset_after)
        if self._owing is not None:
            self._owing(owed)
        return answer

    def take(self, key: str, *, rate: float, burst: int) -> BucketAnswer:
        """Like `token_bucket.take`."""
        recalled = self.recall(key, burst=burst)
        if recalled is not None:
            return recalled
        moment = monotonic()
        with self._lock:
            owed = self._settle(key, moment, taken=1)
        answer = token_bucket.take(key, rate=rate, burst=burst, owed=owed)
        self._learn(key, answer, moment, rate=rate, burst=burst)
        return answer

    def pending_writes(self) -> list[PendingWrite]:
        """Return the writes that take the pending tokens in Valkey. Count these tokens as taken."""
        moment = monotonic()
        writes: list[PendingWrite] = []
        with self._lock:
            for key in list(self._indebted):
                known = self._known[key]
                # The script takes one token more than the number owed.
                owed = self._settle(key, moment) - 1
                call = token_bucket.taking(key, rate=known.rate, burst=known.burst, owed=owed)
                answered = partial(self._written, key, moment, rate=known.rate, burst=known.burst)
                writes.append(PendingWrite(("EVAL", *call), answered))
        return writes

    def clear(self) -> None:
        """Clear every bucket, for tests."""
        with self._lock:
            self._known.clear()
            self._indebted.clear()

    def _settle(self, key: str, moment: float, *, taken: int = 0) -> int:
        """Settle a bucket's pending tokens, and return their number. The caller's next request to Valkey takes these
        tokens and `taken` more.
        """
        self._indebted.discard(key)
        known = self._known.get(key)
        if known is None:
            return 0
        owed, known.owed = known.owed, 0
        known.refill(moment)
        known.remaining -= owed + taken
        return owed

    def _written(self, key: str, moment: float, values: Sequence[int], *, rate: float, burst: int) -> None:
        self._learn(key, token_bucket.answer_of(values), moment, rate=rate, burst=burst)

    def _learn(self, key: str, answer: BucketAnswer, moment: float, *, rate: float, burst: int) -> None:
        """Store the answer to a question sent at `moment`."""
        with self._lock:
            known = self._known.get(key)
            if known is None:
                if len(self._known) >= MOST_KNOWN:
                    self._known.clear()
                    self._indebted.clear()
                known = self._known[key] = _Known(rate, burst, answer.remaining, moment)
            # Valkey may answer simultaneous questions in another order, so an answer with more tokens is out of date.
            known.refill(moment)
            known.remaining = min(known.remaining, answer.remaining)
            known.reset_after = answer.reset_after


allowance = RateAllowance(owing=write_behind.flush_soon)
write_behind.register(allowance.pending_writes)


PAGES_PER_SECOND = 20.0
PAGES_AT_ONCE = 600
"""Rate limit of the console's pages, for each person. A page with fifty pictures and live parts takes a tenth of it."""
PAGE_CPU_SECONDS = 0.025
"""The CPU time, in seconds, that a page may use for one token. Beyond it, the page takes a token for each such time.
Otherwise a page that reads a large file, requested again and again, would use up the CPU at a permitted rate.
"""


@dataclass(frozen=True, slots=True)
class Admission:
    """Whether a call is within its caller's rate, and the headers that report it."""

    headers: Mapping[str, str] = field(default_factory=dict)
    retry_after: int | None = None
    """Seconds to wait. None for an admitted call."""

    def check(self) -> None:
        """Raise RateLimited unless the call is admitted."""
        if self.retry_after is not None:
            raise RateLimited(headers={"Retry-After": str(self.retry_after)})


def admit(caller: Caller) -> Admission:
    """Take a call from its caller's bucket. Without Valkey every call is admitted."""
    try:
        verdict = allowance.take(
            _bucket(caller), rate=settings.API_RATE_PER_SECOND, burst=settings.API_RATE_BURST
        )
    except VALKEY_UNAVAILABLE as error:
        log.warning("rate_limit_unavailable", error=type(error).__name__)
        return Admission()
    return _admission(verdict)


def require_room_for_body(caller: Caller, size: int) -> None:
    """Raise RateLimited while a caller has sent more bytes than allowed. Small bodies pass without asking Valkey.

    `size` is in bytes. A body is accepted whole while the bucket has tokens. Later bodies are rejected until its debt
    is paid. So no body is too large for the bucket, and a rejected body takes no tokens.
    """
    if size <= SMALL_BODY_BYTES:
        return
    rate, burst = BYTES_PER_SECOND / SMALL_BODY_BYTES, BYTES_AT_ONCE // SMALL_BODY_BYTES
    try:
        verdict = token_bucket.take(_bytes_bucket(caller), rate=rate, burst=burst)
        if verdict.allowed:
            _take_bytes(caller, size - SMALL_BODY_BYTES)
    except VALKEY_UNAVAILABLE as error:
        log.warning("rate_limit_unavailable", error=type(error).__name__)
        return
    if not verdict.allowed:
        raise RateLimited(
            "This business has sent more bytes than it may in this time.",
            details={"limit_bytes_per_second": BYTES_PER_SECOND},
            headers={"Retry-After": str(max(1, math.ceil(verdict.retry_after)))},
        )


def count_whole_body(caller: Caller, request: HttpRequest) -> None:
    """Take the tokens for a chunked body beyond those that its call took when it was admitted."""
    chunked: ChunkedBody | None = request.META.get(CHUNKED)
    if chunked is None or chunked.bytes_read <= API_BODY_BYTES:
        return
    try:
        _take_bytes(caller, chunked.bytes_read - API_BODY_BYTES)
    except VALKEY_UNAVAILABLE as error:
        log.warning("rate_limit_unavailable", error=type(error).__name__)


def _take_bytes(caller: Caller, size: int) -> None:
    token_bucket.reserve(
        _bytes_bucket(caller),
        rate=BYTES_PER_SECOND / SMALL_BODY_BYTES,
        tokens=math.ceil(size / SMALL_BODY_BYTES),
        at_most_ahead=MOST_DEBT_SECONDS,
    )


def _bytes_bucket(caller: Caller) -> str:
    return f"bytes:{caller.rate_key}"


def admit_at_once(caller: Caller) -> Admission | None:
    """`admit` without asking Valkey, for an event loop. None when Valkey must be asked."""
    verdict = allowance.recall(_bucket(caller), burst=settings.API_RATE_BURST)
    return _admission(verdict) if verdict is not None else None


def _bucket(caller: Caller) -> str:
    return f"rate:{caller.rate_key}"


def _admission(verdict: BucketAnswer) -> Admission:
    headers = {
        "RateLimit-Limit": str(settings.API_RATE_BURST),
        "RateLimit-Remaining": str(verdict.remaining),
        "RateLimit-Reset": str(math.ceil(verdict.reset_after)),
    }
    return Admission(headers, None if verdict.allowed else max(1, math.ceil(verdict.retry_after)))


@contextmanager
def paced_page(person: object) -> Iterator[Admission]:
    """Take a page of the console from the bucket of its person, whose primary key is `person`, and yield whether it is
    admitted. At the end, also take the tokens for the CPU time of the block. Without Valkey every page is admitted.
    """
    key, rate, burst = f"pages:{person}", PAGES_PER_SECOND, PAGES_AT_ONCE
    admission = Admission()
    try:
        verdict = token_bucket.take(key, rate=rate, burst=burst)
        if not verdict.allowed:
            admission = Admission(retry_after=max(1, math.ceil(verdict.retry_after)))
    except VALKEY_UNAVAILABLE as error:
        log.warning("rate_limit_unavailable", error=type(error).__name__)
    began = thread_time()
    try:
        yield admission
    finally:
        tokens = int((thread_time() - began) / PAGE_CPU_SECONDS)
        if tokens and admission.retry_after is None:
            with suppress(*VALKEY_UNAVAILABLE):
                token_bucket.reserve(key, rate=rate, tokens=tokens, at_most_ahead=2 * burst / rate)


class TenantRateThrottle(BaseThrottle):
    """Returns 429 `rate_limited` with Retry-After. Every response has RateLimit-Limit/-Remaining/-Reset."""

    def allow_request(self, request: Request, view: Any) -> bool:
        # One HTTP request is one call, even when a view passes it to another.
        if isinstance(request.user, Caller) and not hasattr(request._request, "rate_limit_headers"):
            admission = admit(request.user)
            request._request.rate_limit_headers = admission.headers  # type: ignore[attr-defined]
            admission.check()
            # The view rejects a body that is too large, unread.
            if not hasattr(request._request, "too_large"):
                require_room_for_body(request.user, _size(request))
        return True


def _size(request: Request) -> int:
    """The bytes of a body. A chunked body counts as `API_BODY_BYTES` until it is read."""
    # `bound` has checked that the length is a number.
    return API_BODY_BYTES if CHUNKED in request.META else int(request.META.get("CONTENT_LENGTH") or 0)
