"""Identity of a tenant's sandbox account: ids that follow from the tenant's, so that making it twice makes one."""

import hashlib
from uuid import UUID


def waba_id_of(tenant_id: UUID) -> str:
    """The business account of a tenant's test world."""
    return f"99{_digits(tenant_id, 'account')}"


def first_number_of(tenant_id: UUID) -> str:
    """The phone_number_id of its first number."""
    return f"98{_digits(tenant_id, 'number')}"


def _digits(tenant_id: UUID, what: str) -> str:
    digest = hashlib.sha256(tenant_id.bytes + what.encode()).digest()
    return f"{int.from_bytes(digest[:8]) % 10**14:014d}"
