"""Fair shares: how many deliveries of each endpoint and tenant a claim takes. Pure: no database, no clock."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

RESERVE = 4
"""The part (a quarter) of the room that no tenant gets beyond its cap: it is for the next tenant."""


class Unserved(NamedTuple):
    """What a claim left due: of endpoints and tenants at their caps, and whether others lacked room."""

    endpoints: AbstractSet[UUID]
    tenants: AbstractSet[UUID]
    lacks_room: bool


@dataclass(frozen=True, slots=True)
class Room:
    """What a dispatcher can take: in all, and for one endpoint or tenant beside what it holds already."""

    total: int
    per_endpoint: int
    taken: Mapping[UUID, int] = field(default_factory=dict)
    caps: Mapping[UUID, int] = field(default_factory=dict)
    per_tenant: int = 1_000_000
    taken_by_tenant: Mapping[UUID, int] = field(default_factory=dict)
    full_tenants: AbstractSet[UUID] = frozenset()
    """Tenants whose bodies fill their part of the memory."""

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
