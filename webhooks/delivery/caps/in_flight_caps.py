"""What each endpoint and tenant has in flight in a dispatcher, and the most that it may have: its cap."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic
from uuid import UUID

from webhooks.delivery.caps.body_memory import BodyMemory
from webhooks.delivery.caps.fair_shares import RESERVE, Room, Unserved
from webhooks.delivery.outcomes.failed_answers import AnswerAllowance
from webhooks.events.hand_over import HandedOver

FIRST_CAP = 16
"""Of an endpoint that has not answered yet."""
SLOW_MS = 1_000
SLOW_FACTOR = 16
"""Slow requests that may be under way, as a multiple of the capacity: each costs its body and its socket, no work."""


@dataclass(slots=True, eq=False)
class InFlight:
    """What one endpoint, or one tenant, has in flight here, and its cap."""

    cap: int
    taken: int = 0
    slow: int = 0
    """Requests among them that wait long for their answers."""
    answers: AnswerAllowance = field(default_factory=AnswerAllowance)
    closed_until: float = 0.0
    """Until when its rate allows nothing more, on the monotonic clock."""
    has_more: bool = False
    """Whether more is due than its cap allows: the end of one of its requests is a reason to look."""

    def give_back(self) -> bool:
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
        self._of_tenant = of_tenant
        self._bodies = bodies
        self._endpoints: defaultdict[UUID, InFlight] = defaultdict(lambda: InFlight(FIRST_CAP))
        self._tenants: defaultdict[UUID, InFlight] = defaultdict(lambda: InFlight(of_tenant))

    def of(self, *, endpoint_id: UUID, tenant_id: UUID) -> tuple[InFlight, InFlight]:
        """Where a delivery counts: what its endpoint and what its tenant has in flight."""
        return self._endpoints[endpoint_id], self._tenants[tenant_id]

    def adapt(self, endpoint: InFlight, *, ok: bool, ms: float) -> None:
        """Change an endpoint's cap after an answer that took this many milliseconds."""
        if ok and ms < SLOW_MS:
            endpoint.cap = min(endpoint.cap + 1, self._most)
        else:
            endpoint.cap = max(endpoint.cap // 2, 1)

    def begin_slow(self, endpoint: InFlight) -> bool:
        """A request of an endpoint is slow: its cap halves now, not only at the time-out.

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

    def _cap(self, endpoint: InFlight) -> int:
        """The cap of an endpoint now: while too many requests are slow, those that have one get nothing more."""
        return 0 if endpoint.slow and self.slow >= self._most_slow else endpoint.cap

    def close(self, waits: Mapping[UUID, float]) -> None:
        """Claim nothing more of these endpoints for their seconds: their rates allow nothing."""
        for endpoint_id, seconds in waits.items():
            self._endpoints[endpoint_id].closed_until = monotonic() + seconds

    def room(self, total: int) -> Room:
        """What may be claimed now, of `total` in all."""
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
