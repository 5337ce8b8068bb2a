"""Room of a dispatcher: how many deliveries of each endpoint and tenant it may claim. Pure: no database, no clock."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

RESERVE = 4
"""The part (a quarter) of the room that no tenant gets beyond its cap: it is for the next tenant."""


@dataclass(frozen=True, slots=True)
class Room:
    """What a dispatcher can take: in all, and for one endpoint or tenant beside what it holds already."""

    total: int
    per_endpoint: int
    taken: Mapping[UUID, int] = field(default_factory=dict)
    caps: Mapping[UUID, int] = field(default_factory=dict)
    per_tenant: int = 1_000_000
    taken_by_tenant: Mapping[UUID, int] = field(default_factory=dict)

    def of_endpoint(self, endpoint_id: UUID) -> int:
        """How many more deliveries of an endpoint may be claimed, whatever its tenant has."""
        return self.caps.get(endpoint_id, self.per_endpoint) - self.taken.get(endpoint_id, 0)

    def of_tenant(self, tenant_id: UUID) -> int:
        """How many more deliveries of a tenant may be claimed while others want theirs."""
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
        for endpoint_id, _, probing in ready:
            if spare <= 0:
                break
            is_quick = self.caps.get(endpoint_id, 0) > self.per_endpoint
            more = min(self.of_endpoint(endpoint_id) - shares.get(endpoint_id, 0), spare)
            if is_quick and not probing and more > 0:
                shares[endpoint_id] = shares.get(endpoint_id, 0) + more
                spare -= more
        return shares
