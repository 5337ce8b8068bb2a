"""Memory for the bodies of deliveries in one dispatcher: bounded in all, and bounded for each tenant.

Bodies stay until their requests end. Without a bound of its own, a tenant whose endpoints hang would fill the memory
with large bodies, and nobody's deliveries would be claimed until the time-outs.
"""

from collections.abc import Set as AbstractSet
from uuid import UUID

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
