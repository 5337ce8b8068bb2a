"""Limits of one call: the size of its body, calls at once, calls and bytes a minute.

Body limits: 64 KiB of a page, 1 MiB of an operation of the API, or what the view declares. A body of declared length
is refused by its headers before a byte is read, in the API after the caller has been admitted. One sent in chunks is
read when the view asks for it, and refused as soon as it is too large. How slowly a body may come is the listener's
part (`web/request.py`). Flows with larger bodies keep their own limits: notifications
`messaging/notifications/incoming.py`, batches `messaging/batches/body.py`, files `messaging/form_files.py`.

Bulkheads: the upstream or a customer's endpoint may take seconds to answer. What waits for it holds a thread or
memory, so it is bounded per number, per tenant and in all; a call beyond a bound is refused at once with
`too_many_in_flight`, and all other callers are served.

Rate limits of the service's own API, in calls and in bytes, are token buckets per tenant. Without Valkey everything
is allowed.
"""

import io
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial, wraps
from time import monotonic
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
"""The assumed size of a body in chunks, until its view sets a limit."""

View = TypeVar("View")

DEFAULT_BODY_BYTES = 64 * 1024
"""The largest body of a view that declares none: of a page."""
API_BODY_BYTES = 1024 * 1024
"""The largest body of an operation of the API, and the largest message, template or profile that the upstream reads."""


def limited_by(limit: int) -> Callable[[View], View]:
    """Decorates a view, class or function, with the largest body in bytes that it takes."""

    def decorate(view: View) -> View:
        view.body_limit = limit  # type: ignore[attr-defined]
        return view

    return decorate


def limit_of(view: Callable[..., Any]) -> int:
    """The largest body in bytes that a view takes."""
    declaring = getattr(view, "cls", None) or getattr(view, "view_class", None) or view
    return int(getattr(declaring, "body_limit", DEFAULT_BODY_BYTES))


def bound(request: HttpRequest, view: Callable[..., Any]) -> None:
    """Raise PayloadTooLarge for a declared length over the view's limit; bound the reading of a chunked body."""
    limit = limit_of(view)
    chunked: ChunkedBody | None = request.META.get(CHUNKED)
    if chunked is not None:
        chunked.limit = limit
        # Some readers check whether there is a body at all.
        request.META["CONTENT_LENGTH"] = str(limit)
        return
    try:
        length = int(request.META.get("CONTENT_LENGTH") or 0)
    except ValueError:
        length, request.META["CONTENT_LENGTH"] = 0, "0"
    if length > limit:
        raise PayloadTooLarge(f"The body may hold at most {limit} bytes.", details={"limit_bytes": limit})


class ChunkedBody(io.IOBase):
    """A chunked body; reading more than its limit raises RequestDataTooBig."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._read = stream, 0
        self.limit = 0

    def read(self, size: int = -1, /) -> bytes:
        most = self.limit + 1 - self._read
        data: bytes = self._stream.read(most if size < 0 else min(size, most))
        self._read += len(data)
        if self._read > self.limit:
            # Django's own: what reads the body of a page knows it.
            raise RequestDataTooBig(f"The body may hold at most {self.limit} bytes.")
        return data


SMALL_BODY_BYTES = 64 * 1024
LARGE_BODIES_BYTES = 128 * 1024 * 1024
"""Memory of a process for the parts of bodies beyond `SMALL_BODY_BYTES`. Small bodies never wait."""


class LargeBodyMemory:
    """The memory that large bodies share, from any thread: a stranger's megabytes must not exhaust the process."""

    def __init__(self, most: int) -> None:
        self._most, self._taken = most, 0
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        """Take bytes for a large body. Raises ServiceUnavailable when they are not there."""
        with self._lock:
            if self._taken + size > self._most:
                raise ServiceUnavailable("Too many large requests are arriving at once. Try again.")
            self._taken += size

    def release(self, size: int) -> None:
        """Give bytes back that were taken."""
        with self._lock:
            self._taken -= size

    @contextmanager
    def held_for(self, request: HttpRequest) -> Iterator[None]:
        """Hold what the body of a request may take, for the time of the block. Raises ServiceUnavailable."""
        # `bound` has checked that this is a number within the view's limit.
        size = max(0, int(request.META.get("CONTENT_LENGTH") or 0) - SMALL_BODY_BYTES)
        self.take(size)
        try:
            yield
        finally:
            self.release(size)


large_bodies = LargeBodyMemory(LARGE_BODIES_BYTES)


Counted = tuple[tuple[str, str], ...]


class Bulkhead:
    """Counts the waiting calls of a process, from any thread.

    While fewer than `crowded` wait, a tenant may hold `per_tenant`. The last places, up to `in_all`, are shared: a
    tenant may hold a third as many as are free, at last one. So a single tenant uses the room that is there, and while
    the calls of a few tenants hang, a tenant that holds few places or none gets the next one.
    """

    SHARED_AMONG = 3

    def __init__(self, *, per_number: int, per_tenant: int, crowded: int, in_all: int) -> None:
        self._per_number, self._per_tenant = per_number, per_tenant
        self._crowded, self._in_all = crowded, in_all
        self._waiting: Counter[tuple[str, str]] = Counter()
        self._total = 0
        self._lock = threading.Lock()

    def enter(self, tenant_id: UUID, number: str | None = None) -> Counted:
        """Count a call in; returns what `leave` takes. Raises TooManyInFlight beyond a bound."""
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
        """Count a call in for the time of the block. Raises TooManyInFlight beyond a bound."""
        counted = self.enter(tenant_id, number)
        try:
            yield
        finally:
            self.leave(counted)


upstream = Bulkhead(per_number=24, per_tenant=26, crowded=26, in_all=34)
"""The threads, of a web process's 40, that may wait for the Graph API."""
endpoints = Bulkhead(per_number=1, per_tenant=2, crowded=2, in_all=4)
"""Those that may wait for customers' endpoints: pings and single replays."""
large_batches = Bulkhead(per_number=1, per_tenant=2, crowded=3, in_all=6)
"""Those that may read and store batches of more than 1 MiB, and up to 32 MiB."""

SENDS_AT_ONCE = 1_000
"""In one process: below the 1,024 files that a process may usually open, each with a slot of the send journal."""
sends = Bulkhead(per_number=200, per_tenant=400, crowded=800, in_all=SENDS_AT_ONCE)
"""Sends on the event loop: what waits there holds memory and a connection to the upstream."""

Method = TypeVar("Method", bound=Callable[..., Any])


class _UntilClosed:
    """The content of a streamed answer. Django calls `close` once the answer was sent or its client has gone."""

    def __init__(self, content: Iterable[bytes], leave: Callable[[], None]) -> None:
        self._content = content
        self.close = leave

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._content)


def _bounded(
    bulkhead_of: Callable[[], Bulkhead], number_of: Callable[[Request, Mapping[str, Any]], str | None]
) -> Callable[[Method], Method]:
    """A decorator for methods of views; a streamed answer counts until it has been sent."""

    def decorate(method: Method) -> Method:
        @wraps(method)
        def wrapped(view: Any, request: Request, *args: Any, **kwargs: Any) -> Any:
            bulkhead = bulkhead_of()
            counted = bulkhead.enter(tenant_of(request).id, number_of(request, kwargs))
            try:
                response = method(view, request, *args, **kwargs)
            except BaseException:
                bulkhead.leave(counted)
                raise
            if getattr(response, "streaming", False):
                leave = partial(bulkhead.leave, counted)
                response.streaming_content = _UntilClosed(response.streaming_content, leave)
            else:
                bulkhead.leave(counted)
            return response

        return cast("Method", wrapped)

    return decorate


def _number(request: Request, kwargs: Mapping[str, Any]) -> str | None:
    """The number that a call concerns: of the path, the query or a JSON body; as its caller writes it.

    A node of the Graph API counts like a number, also when it is an account or a template.
    """
    named = kwargs.get("phone_number_id") or kwargs.get("node") or request.query_params.get("from")
    if named is None and request.method == "POST" and "json" in (request.content_type or ""):
        # Before REST framework reads it as a stream: some views want the bytes.
        _ = request._request.body
        body = request.data
        named = body.get("from") if isinstance(body, Mapping) else None
    return named[:64] if isinstance(named, str) else None


def waits_for_upstream(method: Method) -> Method:
    """Decorates a method of a view that calls the upstream."""
    return _bounded(lambda: upstream, _number)(method)


def waits_for_endpoint(method: Method) -> Method:
    """Decorates a method of a view that calls a customer's endpoint."""
    return _bounded(lambda: endpoints, lambda *_: None)(method)


log = structlog.get_logger(__name__)

MOST_OWED = 10
"""Calls of a bucket that a process has allowed and not yet written, at most."""
KNOWN_SECONDS = 5.0
"""How old Valkey's answer may be for a call that does not ask. Its age costs no accuracy: what one process allows too
much is bounded by `MOST_OWED`."""
MOST_KNOWN = 10_000
BYTES_PER_SECOND = 8 * 1024 * 1024
"""Bytes of bodies over `SMALL_BODY_BYTES`. They fill a tenant's storage, and a rate of calls does not bound them."""
BYTES_AT_ONCE = 256 * 1024 * 1024
MOST_DEBT_SECONDS = 2 * BYTES_AT_ONCE / BYTES_PER_SECOND
"""Longest debt that bodies which began together may leave in the bucket."""


@dataclass(slots=True)
class _Known:
    """Valkey's last answer about a bucket, and what this process has allowed from it since."""

    rate: float
    burst: int
    remaining: int
    asked_at: float
    reset_after: float = 0.0
    owed: int = 0


class RateAllowance:
    """A process's view of the buckets, for any number of threads.

    While more than half of a bucket is left, calls are allowed without asking and written soon after (`owing` receives
    how many), or by the next question. So no caller is rejected wrongly, and all processes
    together exceed the limit by at most their unwritten calls.
    """

    def __init__(self, *, owing: Callable[[int], None] | None = None) -> None:
        self._owing = owing
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}
        self._indebted: set[str] = set()

    def recall(self, key: str, *, burst: int) -> BucketAnswer | None:
        """A call allowed without asking Valkey, to be written later; None when Valkey must be asked."""
        with self._lock:
            known = self._known.get(key)
            if known is None:
                return None
            left = known.remaining - known.owed - 1
            if left < burst / 2 or known.owed >= MOST_OWED or known.asked_at + KNOWN_SECONDS <= monotonic():
                return None
            known.owed = owed = known.owed + 1
            self._indebted.add(key)
            answer = BucketAnswer(True, left, 0.0, known.reset_after)
        if self._owing is not None:
            self._owing(owed)
        return answer

    def take(self, key: str, *, rate: float, burst: int) -> BucketAnswer:
        """As `token_bucket.take`."""
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
        """Return the pending tokens as calls that take them; from now on they count as taken."""
        moment = monotonic()
        writes: list[PendingWrite] = []
        with self._lock:
            for key in list(self._indebted):
                known = self._known[key]
                # The script takes one more than it is told is owed.
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
        """Settle a bucket's pending tokens: the question that goes out now takes them, and `taken` more."""
        self._indebted.discard(key)
        known = self._known.get(key)
        if known is None:
            return 0
        owed, known.owed = known.owed, 0
        known.remaining, known.asked_at = known.remaining - owed - taken, moment
        return owed

    def _written(self, key: str, moment: float, values: Sequence[int], *, rate: float, burst: int) -> None:
        self._learn(key, token_bucket.answer_of(values), moment, rate=rate, burst=burst)

    def _learn(self, key: str, answer: BucketAnswer, moment: float, *, rate: float, burst: int) -> None:
        """Keep an answer to a question of that moment."""
        with self._lock:
            known = self._known.get(key)
            if known is None:
                if len(self._known) >= MOST_KNOWN:
                    self._known.clear()
                    self._indebted.clear()
                known = self._known[key] = _Known(rate, burst, answer.remaining, moment)
            if moment >= known.asked_at:
                known.remaining, known.asked_at = answer.remaining, moment
            else:
                # A later question may have been answered sooner: this answer is outdated.
                known.remaining = min(known.remaining, answer.remaining)
            known.reset_after = answer.reset_after


allowance = RateAllowance(owing=write_behind.flush_soon)
write_behind.register(allowance.pending_writes)


@dataclass(frozen=True, slots=True)
class Admission:
    """Whether a call is within its caller's rate, and the headers that say so."""

    headers: Mapping[str, str] = field(default_factory=dict)
    retry_after: int | None = None
    """Seconds to wait; None for a call that is admitted."""

    def check(self) -> None:
        """Raise RateLimited unless the call is admitted."""
        if self.retry_after is not None:
            raise RateLimited(headers={"Retry-After": str(self.retry_after)})


def admit(caller: Caller) -> Admission:
    """Take a call from its caller's bucket; without Valkey every call is admitted."""
    try:
        verdict = allowance.take(
            _bucket(caller), rate=settings.API_RATE_PER_SECOND, burst=settings.API_RATE_BURST
        )
    except VALKEY_UNAVAILABLE as error:
        log.warning("rate_limit_unavailable", error=type(error).__name__)
        return Admission()
    return _admission(verdict)


def require_room_for_body(caller: Caller, size: int) -> None:
    """Raise RateLimited while a caller has sent more bytes than it may; a small body never asks Valkey.

    `size` is in bytes. A body that begins while there is room is taken whole, and those after it wait for what it took:
    so none is ever too large for the bucket, and a refusal takes nothing.
    """
    if size <= SMALL_BODY_BYTES:
        return
    bucket = f"bytes:{caller.rate_key}"
    units, rate = math.ceil(size / SMALL_BODY_BYTES), BYTES_PER_SECOND / SMALL_BODY_BYTES
    burst = BYTES_AT_ONCE // SMALL_BODY_BYTES
    try:
        verdict = token_bucket.take(bucket, rate=rate, burst=burst)
        if verdict.allowed:
            token_bucket.reserve(bucket, rate=rate, tokens=units - 1, at_most_ahead=MOST_DEBT_SECONDS)
    except VALKEY_UNAVAILABLE as error:
        log.warning("rate_limit_unavailable", error=type(error).__name__)
        return
    if not verdict.allowed:
        raise RateLimited(
            "Too many bytes in the bodies of this business's calls.",
            details={"limit_bytes_per_second": BYTES_PER_SECOND},
            headers={"Retry-After": str(max(1, math.ceil(verdict.retry_after)))},
        )


def admit_at_once(caller: Caller) -> Admission | None:
    """`admit` without a question to Valkey, or None where it takes one: for an event loop."""
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


class TenantRateThrottle(BaseThrottle):
    """Answers 429 `rate_limited` with Retry-After; every answer carries RateLimit-Limit/-Remaining/-Reset."""

    def allow_request(self, request: Request, view: Any) -> bool:
        # One HTTP request is one call, also when a view hands it on to another.
        if isinstance(request.user, Caller) and not hasattr(request._request, "rate_limit_headers"):
            admission = admit(request.user)
            request._request.rate_limit_headers = admission.headers  # type: ignore[attr-defined]
            admission.check()
            require_room_for_body(request.user, _size(request))
        return True


def _size(request: Request) -> int:
    """The bytes of a body; of one that comes in chunks, those of the largest ordinary one."""
    if CHUNKED in request.META:
        return API_BODY_BYTES
    length = request.META.get("CONTENT_LENGTH") or ""
    return int(length) if length.isdecimal() else 0
