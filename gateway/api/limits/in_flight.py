"""Bulkheads: how many calls that wait for the upstream or a receiver one tenant and one number may hold in a process.

The upstream or a customer's endpoint may take seconds to answer. What waits for it holds a thread or memory, so it is
bounded per number, per tenant and in all; a call beyond a bound is refused at once with `too_many_in_flight`, and all
other callers are served.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any, TypeVar, cast
from uuid import UUID

from rest_framework.request import Request

from gateway.api.authentication import tenant_of
from gateway.api.errors import TooManyInFlight

Counted = tuple[tuple[str, str], ...]


class Bulkhead:
    """Counts the waiting calls of a process, from any thread.

    While fewer than `crowded` wait, a tenant may hold `per_tenant`; beyond that only `FEW`, up to `in_all`. So a lone
    tenant uses the room that is free, and a few tenants whose calls hang leave room for all others.
    """

    FEW = 2

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
            most = self._per_tenant if self._total < self._crowded else self.FEW
            if self._waiting[tenant] >= most or self._total >= self._in_all:
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


upstream = Bulkhead(per_number=24, per_tenant=26, crowded=28, in_all=34)
"""Of a web process's 40 threads, those that may wait for the upstream."""
endpoints = Bulkhead(per_number=1, per_tenant=2, crowded=3, in_all=4)
"""Those that may wait for customers' endpoints: pings and single replays."""
large_batches = Bulkhead(per_number=1, per_tenant=2, crowded=3, in_all=6)
"""Those that may read and store batches of more than 1 MiB, and up to 32 MiB."""

Method = TypeVar("Method", bound=Callable[..., Any])


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
                response._resource_closers.append(partial(bulkhead.leave, counted))
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
