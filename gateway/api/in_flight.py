"""Bulkheads: how many calls that wait for somebody else one tenant and one number may hold in a process at once.

The upstream or a customer's endpoint may take seconds to answer. What waits for it holds a thread or memory, so it is
bounded per number, per tenant and in all; a call beyond a bound is refused at once with `too_many_in_flight`, and
everybody else is served.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from gateway.api.errors import TooManyInFlight


class Bulkhead:
    """Counts the waiting calls of a process, from any thread. A release is due exactly once for each `enter`."""

    def __init__(self, *, per_number: int, per_tenant: int, in_all: int) -> None:
        self._limits = {"number": per_number, "tenant": per_tenant, "process": in_all}
        self._waiting: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def enter(self, tenant_id: UUID, number: str | None = None) -> list[tuple[str, str]]:
        """Count a call in; returns what `leave` takes. Raises TooManyInFlight beyond a bound."""
        counted = [("tenant", str(tenant_id)), ("process", "")]
        if number is not None:
            counted.insert(0, ("number", f"{tenant_id}:{number}"))
        with self._lock:
            for each in counted:
                if self._waiting[each] >= self._limits[each[0]]:
                    raise TooManyInFlight(details={"scope": each[0], "limit": self._limits[each[0]]})
            self._waiting.update(counted)
        return counted

    def leave(self, counted: list[tuple[str, str]]) -> None:
        """Count a call out."""
        with self._lock:
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
