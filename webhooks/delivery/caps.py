"""Limits of one dispatcher: memory for bodies, events in one request, shares of endpoints and tenants, deliveries
in flight.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from time import monotonic
from typing import NamedTuple
from uuid import UUID

from webhooks.delivery.retries_and_attempt_log import AnswerAllowance
from webhooks.events.publish import HandedOver

# --- Memory for the bodies of deliveries in one dispatcher: one limit in all, and one for each tenant.
#
# A body stays in memory until its request ends. Without a limit for each tenant, one tenant with large bodies and
# hanging endpoints could fill the memory. No tenant's deliveries would be claimed until those requests time out.

MOST_BYTES = 128 * 1024 * 1024
"""The maximum number of bytes of bodies in memory. A notification of several megabytes yields a body for each of its
events.
"""
TENANT_PART = 4
"""The memory is divided into this many parts. Each tenant may use one of them."""


class BodyMemory:
    """Bytes of bodies in memory, in all and for each tenant.

    A claim learns the sizes only when it reads the bodies, so a tenant may exceed its part. The excess does not reduce
    the memory of other tenants.
    """

    def __init__(self) -> None:
        self._most_of_tenant = MOST_BYTES // TENANT_PART
        self._most = MOST_BYTES
        self._held: dict[UUID, int] = {}
        self._counted = 0
        self._full: set[UUID] = set()

    @property
    def has_room(self) -> bool:
        """Whether there is memory to claim more bodies."""
        return self._counted < self._most

    @property
    def full_tenants(self) -> AbstractSet[UUID]:
        """Tenants that use their whole part or more. No more deliveries of these tenants are claimed."""
        return self._full

    def fits(self, tenant_id: UUID, size: int) -> bool:
        """Whether a body fits now. A tenant without a body in memory may have one of any size."""
        held = self._held.get(tenant_id, 0)
        if held and held + size > self._most_of_tenant:
            return False
        return not self._counted or self._counted + min(size, self._most_of_tenant) <= self._most

    def add(self, tenant_id: UUID, size: int) -> None:
        """Count a body that is now in memory."""
        self._set(tenant_id, self._held.get(tenant_id, 0) + size)

    def remove(self, tenant_id: UUID, size: int) -> None:
        """Count a body that has left memory."""
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


# --- Batches: several events in one request, for an endpoint whose settings ask for them.

MOST_BATCH_EVENTS = 100
"""The maximum number of events in one request that an endpoint may ask for."""
MOST_BATCH_BYTES = 1024 * 1024
"""The maximum number of bytes of bodies in one request, not counting the first body."""


def fit_in_batch(sizes: Sequence[int]) -> int:
    """How many bodies fit into one request, in the order of `sizes`."""
    held = 0
    for place, size in enumerate(sizes):
        held += size if place else 0
        if held > MOST_BATCH_BYTES:
            return place
    return len(sizes)


# --- Fair shares: how many deliveries of each endpoint and tenant a claim takes. Pure: no database, no clock.

RESERVE = 4
"""A claim's room is divided into this many parts, and one part is a reserve. Deliveries beyond their tenant's cap
cannot use the reserve, so it stays free for other tenants.
"""


class Unserved(NamedTuple):
    """Why a claim left due deliveries: endpoints and tenants at their caps, and whether other endpoints lacked room."""

    endpoints: AbstractSet[UUID]
    tenants: AbstractSet[UUID]
    lacks_room: bool


@dataclass(frozen=True, slots=True)
class Room:
    """The room of a dispatcher: in total, for each endpoint, and for each tenant. Also the deliveries already in
    flight.
    """

    total: int
    per_endpoint: int
    taken: Mapping[UUID, int] = field(default_factory=dict)
    caps: Mapping[UUID, int] = field(default_factory=dict)
    per_tenant: int = 1_000_000
    taken_by_tenant: Mapping[UUID, int] = field(default_factory=dict)
    full_tenants: AbstractSet[UUID] = frozenset()
    """Tenants that use their whole part of the memory for bodies."""
    calls: Mapping[UUID, int] = field(default_factory=dict)
    """The number of deliveries in flight in the lane of calls, by endpoint and by tenant."""
    calls_in_all: int = 0

    def of_endpoint(self, endpoint_id: UUID) -> int:
        """How many more deliveries of an endpoint may be claimed, whatever its tenant's cap."""
        return self.caps.get(endpoint_id, self.per_endpoint) - self.taken.get(endpoint_id, 0)

    def of_tenant(self, tenant_id: UUID) -> int:
        """How many more deliveries of a tenant may be claimed while other tenants have due deliveries."""
        if tenant_id in self.full_tenants:
            return 0
        return self.per_tenant - self.taken_by_tenant.get(tenant_id, 0)

    def shares(self, ready: Sequence[tuple[UUID, UUID, bool]]) -> dict[UUID, int]:
        """How many deliveries of each endpoint may be claimed now. `ready` has (endpoint, tenant, whether it is a
        probe).

        First, every endpoint gets a fair share within its tenant's cap. The remaining room, except for the reserve,
        then goes to endpoints that have answered quickly, even beyond their tenants' caps.
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
        """How many deliveries of calls may be claimed for each endpoint in the lane of calls, in addition to its share.

        `ready` has (endpoint, tenant).
        """
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
        """The limits that stopped a claim from taking more. The endpoints `wanting` may have more due deliveries.

        `claimed` has the number of deliveries that each endpoint got. `tenants` has the tenant of each endpoint of the
        claim.
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
        """Whether an endpoint has answered quickly so far, and so may exceed its tenant's cap."""
        return self.caps.get(endpoint_id, 0) > self.per_endpoint


# --- Deliveries in flight in a dispatcher, by endpoint and by tenant, and the cap of each.

FIRST_CAP = 16
"""The cap of an endpoint that has not yet answered a request."""
CALLS_OF_ENDPOINT = 8
"""The maximum number of deliveries of an endpoint in the lane of calls. No cap limits these deliveries. Further calls
wait like other deliveries.
"""
MOST_CALLS = 256
"""The maximum number of deliveries in the lane of calls, over all endpoints."""
CALLS_OF_TENANT = 64
"""The maximum number of deliveries of a tenant in the lane of calls. This is a quarter of the lane, so that one
tenant's hanging endpoints leave room.
"""
SLOW_MS = 1_000
SLOW_FACTOR = 16
"""The maximum number of slow requests under way, as a multiple of the capacity. A slow request occupies a socket and
the memory of its body, but no CPU.
"""


KEPT_SECONDS = 600.0
"""How often the counts of endpoints and tenants without deliveries in flight are dropped. Otherwise each claim would go
through all endpoints since the start of the dispatcher.
"""


@dataclass(slots=True, eq=False)
class InFlight:
    """Deliveries in flight of one endpoint or one tenant, and its cap."""

    cap: int
    taken: int = 0
    slow: int = 0
    """How many of these deliveries have waited long for their answers."""
    calls: int = 0
    """How many of these deliveries are in the lane of calls."""
    answers: AnswerAllowance = field(default_factory=AnswerAllowance)
    closed_until: float = 0.0
    """When the pause that the endpoint's rate limit requires is over, on the monotonic clock."""
    has_more: bool = False
    """Whether more deliveries are due than the cap allows. If so, the dispatcher polls when a request in flight
    ends.
    """

    def release(self) -> bool:
        """Count the end of a request. Returns whether to poll for more of this endpoint or tenant."""
        self.taken -= 1
        if self.has_more and self.taken < self.cap:
            self.has_more = False
            return True
        return False


class InFlightCaps:
    """All caps of one dispatcher. `capacity` limits the requests in flight, `of_tenant` those of one tenant.

    While a tenant uses its whole part of the memory for `bodies`, no more of its deliveries are claimed. An endpoint's
    cap grows with each quick success and halves with each failure or slow request.
    """

    def __init__(self, *, capacity: int, of_tenant: int, bodies: BodyMemory) -> None:
        self._most = capacity - capacity // RESERVE
        self._most_slow = capacity * SLOW_FACTOR
        self.slow = 0
        """Slow requests under way. The capacity does not count them."""
        self.calls = 0
        """Deliveries in the lane of calls that are under way. The capacity does not count these either."""
        self._of_tenant = of_tenant
        self._bodies = bodies
        self._endpoints: defaultdict[UUID, InFlight] = defaultdict(lambda: InFlight(FIRST_CAP))
        self._tenants: defaultdict[UUID, InFlight] = defaultdict(lambda: InFlight(of_tenant))
        self._dropped_at = monotonic()

    def of(self, *, endpoint_id: UUID, tenant_id: UUID) -> tuple[InFlight, InFlight]:
        """The counts to which a delivery belongs: its endpoint's and its tenant's."""
        return self._endpoints[endpoint_id], self._tenants[tenant_id]

    def adapt(self, endpoint: InFlight, *, ok: bool, ms: float) -> None:
        """Adapt an endpoint's cap to an answer that took `ms` milliseconds."""
        if ok and ms < SLOW_MS:
            endpoint.cap = min(endpoint.cap + 1, self._most)
        else:
            endpoint.cap = max(endpoint.cap // 2, 1)

    def begin_slow(self, endpoint: InFlight) -> bool:
        """Count a request as slow. The endpoint's cap is halved now rather than at the time-out.

        False when too many requests are slow already. The capacity then still counts the request.
        """
        if self.slow >= self._most_slow:
            return False
        self.slow += 1
        endpoint.slow += 1
        self.adapt(endpoint, ok=False, ms=SLOW_MS)
        return True

    def end_slow(self, endpoint: InFlight) -> None:
        """Count the end of an endpoint's slow request."""
        self.slow -= 1
        endpoint.slow -= 1

    def takes_call(self, endpoint: InFlight, tenant: InFlight) -> bool:
        """Whether the lane of calls has a place for this endpoint and its tenant."""
        return (
            self.calls < MOST_CALLS and endpoint.calls < CALLS_OF_ENDPOINT and tenant.calls < CALLS_OF_TENANT
        )

    def count_call(self, endpoint: InFlight, tenant: InFlight, *, change: int) -> None:
        """Count a call's delivery that begins (`change` 1) or has ended (-1) in the lane of calls."""
        self.calls += change
        endpoint.calls += change
        tenant.calls += change

    def _cap(self, endpoint: InFlight) -> int:
        """The cap of an endpoint now. While too many requests are slow, it is 0 for endpoints with slow requests."""
        return 0 if endpoint.slow and self.slow >= self._most_slow else endpoint.cap

    def close(self, waits: Mapping[UUID, float]) -> None:
        """Claim nothing for these endpoints for the given seconds, because their rate limits allow nothing."""
        for endpoint_id, seconds in waits.items():
            self._endpoints[endpoint_id].closed_until = monotonic() + seconds

    def room(self, total: int) -> Room:
        """The room for a claim of `total` deliveries."""
        moment = monotonic()
        if moment - self._dropped_at >= KEPT_SECONDS:
            self._dropped_at = moment
            self._drop_unused()
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

    def _drop_unused(self) -> None:
        for counts in (self._endpoints, self._tenants):
            for id_ in [id_ for id_, each in counts.items() if not each.taken]:
                del counts[id_]

    def note_unserved(self, unserved: Unserved, asked: Room) -> bool:
        """Remember the caps that limited a claim. Returns whether to poll again at once."""
        looks = unserved.lacks_room
        for in_flight, at_cap, taken in (
            (self._endpoints, unserved.endpoints, asked.taken),
            (self._tenants, unserved.tenants, asked.taken_by_tenant),
        ):
            for id_ in at_cap:
                # A request may have ended during the claim.
                looks |= in_flight[id_].taken < taken.get(id_, 0)
                in_flight[id_].has_more = True
        return looks

    def within_caps(self, handed_over: list[HandedOver]) -> list[HandedOver]:
        """The deliveries that fit within the caps of their endpoints and tenants."""
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
