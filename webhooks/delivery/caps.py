"""Limits of one dispatcher: deliveries in flight, shares of endpoints and tenants, memory of bodies."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from time import monotonic
from typing import NamedTuple
from uuid import UUID

from gateway.outbound.client import Answer
from webhooks.delivery.attempts import AnswerAllowance
from webhooks.events.publish import HandedOver

# --- Memory for the bodies of deliveries in one dispatcher: bounded in all, and bounded for each tenant.
#
# Bodies stay until their requests end. Without a bound of its own, a tenant whose endpoints hang would fill
# the memory with large bodies, and nobody's deliveries would be claimed until the time-outs.

MOST_BYTES = 128 * 1024 * 1024
"""Bodies at once: a notification of megabytes makes one for each of its events."""
TENANT_PART = 4
"""The part (a quarter) of the memory that is one tenant's."""


class BodyMemory:
    """The bytes that are held for each tenant.

    A claim learns sizes only with the bodies, so a tenant may hold more than its part. What it holds beyond that takes
    no memory from the others' share.
    """

    def __init__(self) -> None:
        self._most_of_tenant = MOST_BYTES // TENANT_PART
        self._most = MOST_BYTES
        self._held: dict[UUID, int] = {}
        self._counted = 0
        self._full: set[UUID] = set()

    @property
    def has_room(self) -> bool:
        """Whether more bodies may be claimed."""
        return self._counted < self._most

    @property
    def full_tenants(self) -> AbstractSet[UUID]:
        """The tenants that hold their part or more: nothing more of theirs is claimed."""
        return self._full

    def fits(self, tenant_id: UUID, size: int) -> bool:
        """Whether a body may be held now. A tenant that holds none may hold one of any size."""
        held = self._held.get(tenant_id, 0)
        if held and held + size > self._most_of_tenant:
            return False
        return not self._counted or self._counted + min(size, self._most_of_tenant) <= self._most

    def add(self, tenant_id: UUID, size: int) -> None:
        """A body is held from now on."""
        self._set(tenant_id, self._held.get(tenant_id, 0) + size)

    def remove(self, tenant_id: UUID, size: int) -> None:
        """A body is not held any more."""
        self._set(tenant_id, self._held.get(tenant_id, 0) - size)

    def _set(self, tenant_id: UUID, held: int) -> None:
        before = self._held.get(tenant_id, 0)
        self._counted += min(held, self._most_of_tenant) - min(before, self._most_of_tenant)
        if held:
            self._held[tenant_id] = held
        else:
            self._held.pop(tenant_id, None)
        if held >= self._most_of_tenant:
            self._full.add(tenant_id)
        else:
            self._full.discard(tenant_id)


# --- Fair shares: how many deliveries of each endpoint and tenant a claim takes. Pure: no database, no clock.

RESERVE = 4
"""The part (a quarter) of the room that no tenant gets beyond its cap: it is for the next tenant."""


class Unserved(NamedTuple):
    """What a claim left due: at endpoints and tenants with full caps, and whether others lacked room."""

    endpoints: AbstractSet[UUID]
    tenants: AbstractSet[UUID]
    lacks_room: bool


@dataclass(frozen=True, slots=True)
class Room:
    """Room of a dispatcher: in all, and for one endpoint or tenant beside what it holds already."""

    total: int
    per_endpoint: int
    taken: Mapping[UUID, int] = field(default_factory=dict)
    caps: Mapping[UUID, int] = field(default_factory=dict)
    per_tenant: int = 1_000_000
    taken_by_tenant: Mapping[UUID, int] = field(default_factory=dict)
    full_tenants: AbstractSet[UUID] = frozenset()
    """Tenants whose bodies fill their part of the memory."""
    calls: Mapping[UUID, int] = field(default_factory=dict)
    """Calls of each endpoint and each tenant in their lane."""
    calls_in_all: int = 0

    def of_endpoint(self, endpoint_id: UUID) -> int:
        """How many more deliveries of an endpoint may be claimed, whatever its tenant has."""
        return self.caps.get(endpoint_id, self.per_endpoint) - self.taken.get(endpoint_id, 0)

    def of_tenant(self, tenant_id: UUID) -> int:
        """How many more deliveries of a tenant may be claimed while others want theirs."""
        if tenant_id in self.full_tenants:
            return 0
        return self.per_tenant - self.taken_by_tenant.get(tenant_id, 0)

    def shares(self, ready: Sequence[tuple[UUID, UUID, bool]]) -> dict[UUID, int]:
        """How many deliveries of each endpoint may be claimed now: (endpoint, tenant, whether it is a probe).

        First everybody gets a fair share within its tenant's cap. Of what is left then, all but a reserve goes to
        endpoints that answered quickly so far, beyond their tenants' caps.
        """
        fair = max(1, self.total // max(1, len(ready)))
        left = {tenant_id: self.of_tenant(tenant_id) for _, tenant_id, _ in ready}
        shares = {}
        for endpoint_id, tenant_id, probing in ready:
            free = 1 - self.taken.get(endpoint_id, 0) if probing else self.of_endpoint(endpoint_id)
            rows = min(free, fair, left[tenant_id])
            if rows > 0:
                shares[endpoint_id] = rows
                left[tenant_id] -= rows
        spare = self.total - sum(shares.values()) - self.total // RESERVE
        for endpoint_id, tenant_id, probing in ready:
            if spare <= 0:
                break
            if tenant_id in self.full_tenants:
                continue
            more = min(self.of_endpoint(endpoint_id) - shares.get(endpoint_id, 0), spare)
            if self._is_quick(endpoint_id) and not probing and more > 0:
                shares[endpoint_id] = shares.get(endpoint_id, 0) + more
                spare -= more
        return shares

    def call_shares(self, ready: Iterable[tuple[UUID, UUID]]) -> dict[UUID, int]:
        """How many calls of each (endpoint, tenant) may be claimed beyond all shares: what their lane has left."""
        left, shares = MOST_CALLS - self.calls_in_all, {}
        of_tenants: Counter[UUID] = Counter()
        for endpoint_id, tenant_id in ready:
            rows = min(
                CALLS_OF_ENDPOINT - self.calls.get(endpoint_id, 0),
                CALLS_OF_TENANT - self.calls.get(tenant_id, 0) - of_tenants[tenant_id],
                left,
            )
            if rows > 0:
                shares[endpoint_id] = rows
                of_tenants[tenant_id] += rows
                left -= rows
        return shares

    def unserved(
        self, tenants: Mapping[UUID, UUID], claimed: Mapping[UUID, int], wanting: Iterable[UUID]
    ) -> "Unserved":
        """Why the endpoints of which more may be due (`wanting`) got no more than was claimed.

        `tenants` has the tenant of each endpoint that was asked for.
        """
        of_tenants: Counter[UUID] = Counter()
        for endpoint_id, tenant_id in tenants.items():
            of_tenants[tenant_id] += claimed.get(endpoint_id, 0)
        endpoints_at_cap, tenants_at_cap, lacks_room = set(), set(), False
        for endpoint_id in wanting:
            tenant_id = tenants[endpoint_id]
            if claimed.get(endpoint_id, 0) >= self.of_endpoint(endpoint_id):
                endpoints_at_cap.add(endpoint_id)
            elif tenant_id in self.full_tenants or (
                of_tenants[tenant_id] >= self.of_tenant(tenant_id) and not self._is_quick(endpoint_id)
            ):
                tenants_at_cap.add(tenant_id)
            else:
                lacks_room = True
        return Unserved(endpoints_at_cap, tenants_at_cap, lacks_room)

    def _is_quick(self, endpoint_id: UUID) -> bool:
        """Whether an endpoint has answered quickly so far: it may get more than its tenant's cap."""
        return self.caps.get(endpoint_id, 0) > self.per_endpoint


# --- What each endpoint and tenant has in flight in a dispatcher, and the most that it may have: its cap.

FIRST_CAP = 16
"""The first cap of an endpoint that has not answered yet."""
CALLS_OF_ENDPOINT = 8
"""Calls of an endpoint at once in their lane, beside all caps. More wait like everything else."""
MOST_CALLS = 256
"""Calls at once in their lane, of all endpoints."""
CALLS_OF_TENANT = 64
"""Calls of a tenant at once in their lane, a quarter of it: endpoints of one that hang leave others theirs."""
SLOW_MS = 1_000
SLOW_FACTOR = 16
"""Slow requests that may be under way, as a multiple of the capacity: each costs its body and its socket, no work."""


@dataclass(slots=True, eq=False)
class InFlight:
    """Deliveries in flight of one endpoint, or one tenant, and the cap."""

    cap: int
    taken: int = 0
    slow: int = 0
    """Requests among them that wait long for their answers."""
    calls: int = 0
    """Those among them in the lane of calls."""
    answers: AnswerAllowance = field(default_factory=AnswerAllowance)
    closed_until: float = 0.0
    """End of the pause that the endpoint's rate demands, on the monotonic clock."""
    has_more: bool = False
    """Whether more is due than its cap allows: the end of one of its requests is a reason to look."""

    def release(self) -> bool:
        """One of its requests has ended; returns whether that is a reason to look for more of it."""
        self.taken -= 1
        if self.has_more and self.taken < self.cap:
            self.has_more = False
            return True
        return False


class InFlightCaps:
    """All caps of one dispatcher, which sends `capacity` requests at once and `of_tenant` of one tenant.

    A tenant that fills its part of the memory for `bodies` gets nothing more.
    The cap of an endpoint grows with each quick success and halves with each failure or slow request.
    """

    def __init__(self, *, capacity: int, of_tenant: int, bodies: BodyMemory) -> None:
        self._most = capacity - capacity // RESERVE
        self._most_slow = capacity * SLOW_FACTOR
        self.slow = 0
        """Slow requests under way. They are not counted in the capacity."""
        self.calls = 0
        """Calls under way in their lane. They are not counted in the capacity either."""
        self._of_tenant = of_tenant
        self._bodies = bodies
        self._endpoints: defaultdict[UUID, InFlight] = defaultdict(lambda: InFlight(FIRST_CAP))
        self._tenants: defaultdict[UUID, InFlight] = defaultdict(lambda: InFlight(of_tenant))

    def of(self, *, endpoint_id: UUID, tenant_id: UUID) -> tuple[InFlight, InFlight]:
        """Return the counts that a delivery belongs to: its endpoint's and its tenant's."""
        return self._endpoints[endpoint_id], self._tenants[tenant_id]

    def adapt(self, endpoint: InFlight, *, ok: bool, ms: float) -> None:
        """Change an endpoint's cap after an answer that took this many milliseconds."""
        if ok and ms < SLOW_MS:
            endpoint.cap = min(endpoint.cap + 1, self._most)
        else:
            endpoint.cap = max(endpoint.cap // 2, 1)

    def begin_slow(self, endpoint: InFlight) -> bool:
        """Count a request as slow: its endpoint's cap halves now, not only at the time-out.

        False when too many are slow already: then this one still counts in the capacity.
        """
        if self.slow >= self._most_slow:
            return False
        self.slow += 1
        endpoint.slow += 1
        self.adapt(endpoint, ok=False, ms=SLOW_MS)
        return True

    def end_slow(self, endpoint: InFlight) -> None:
        """A slow request of an endpoint has ended."""
        self.slow -= 1
        endpoint.slow -= 1

    def takes_call(self, endpoint: InFlight, tenant: InFlight) -> bool:
        """Whether the lane of calls takes one more of an endpoint and its tenant."""
        return (
            self.calls < MOST_CALLS and endpoint.calls < CALLS_OF_ENDPOINT and tenant.calls < CALLS_OF_TENANT
        )

    def count_call(self, endpoint: InFlight, tenant: InFlight, *, change: int) -> None:
        """Count a call that begins (1) or has ended (-1) in the lane."""
        self.calls += change
        endpoint.calls += change
        tenant.calls += change

    def _cap(self, endpoint: InFlight) -> int:
        """The cap of an endpoint now: while too many requests are slow, those that have one get nothing more."""
        return 0 if endpoint.slow and self.slow >= self._most_slow else endpoint.cap

    def close(self, waits: Mapping[UUID, float]) -> None:
        """Claim nothing more of these endpoints for their seconds: their rates allow nothing."""
        for endpoint_id, seconds in waits.items():
            self._endpoints[endpoint_id].closed_until = monotonic() + seconds

    def room(self, total: int) -> Room:
        """Return the room for a claim, of `total` in all."""
        moment = monotonic()
        return Room(
            total=total,
            per_endpoint=FIRST_CAP,
            taken={endpoint_id: each.taken for endpoint_id, each in self._endpoints.items()},
            caps={
                endpoint_id: 0 if each.closed_until > moment else self._cap(each)
                for endpoint_id, each in self._endpoints.items()
            },
            per_tenant=self._of_tenant,
            taken_by_tenant={tenant_id: each.taken for tenant_id, each in self._tenants.items()},
            full_tenants=frozenset(self._bodies.full_tenants),
            calls={
                id_: each.calls
                for counts in (self._endpoints, self._tenants)
                for id_, each in counts.items()
                if each.calls
            },
            calls_in_all=self.calls,
        )

    def note_unserved(self, unserved: Unserved, asked: Room) -> bool:
        """Remember whose caps a claim met; returns whether to look again at once."""
        looks = unserved.lacks_room
        for in_flight, at_cap, taken in (
            (self._endpoints, unserved.endpoints, asked.taken),
            (self._tenants, unserved.tenants, asked.taken_by_tenant),
        ):
            for id_ in at_cap:
                # One of its requests may have ended during the claim.
                looks |= in_flight[id_].taken < taken.get(id_, 0)
                in_flight[id_].has_more = True
        return looks

    def within_caps(self, handed_over: list[HandedOver]) -> list[HandedOver]:
        """Those deliveries for which their endpoints' and tenants' caps leave room."""
        fitting: list[HandedOver] = []
        asked: dict[InFlight, int] = {}
        for each in handed_over:
            endpoint, tenant = self.of(endpoint_id=each.endpoint_id, tenant_id=each.tenant_id)
            asked[endpoint] = asked.get(endpoint, 0) + 1
            asked[tenant] = asked.get(tenant, 0) + 1
            if endpoint.taken + asked[endpoint] > self._cap(endpoint):
                endpoint.has_more = True
            elif tenant.taken + asked[tenant] > tenant.cap or each.tenant_id in self._bodies.full_tenants:
                tenant.has_more = True
            else:
                fitting.append(each)
        return fitting


# --- Pause of a dispatcher while the service's egress proxy is down: nothing is claimed then.

FAILURES = 3
"""In a row, until it pauses: one connection to the proxy may fail by chance."""
SECONDS = 5.0


class EgressPause:
    """`note` is called with every answer; `is_on` while nothing may be claimed. After it a few deliveries try again."""

    def __init__(self) -> None:
        self._failures = 0
        self._until = 0.0

    def note(self, answer: Answer) -> None:
        """Count an answer in."""
        if answer.concerns_receiver:
            self._failures = 0
            return
        self._failures += 1
        if self._failures >= FAILURES:
            self._until = time.monotonic() + SECONDS

    @property
    def is_on(self) -> bool:
        return time.monotonic() < self._until
