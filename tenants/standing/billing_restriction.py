"""Billing restriction: what a tenant may not do while its bills stay unpaid (docs/billing.md). Set by billing."""

from uuid import UUID

from gateway.api.errors import Forbidden
from tenants.models import Tenant


class NewNumbersClosed(Forbidden):
    """What is overdue for long must be paid before a further number."""

    message = "No further number can be connected until what is overdue is paid."
    hint = "GET /v1/billing/invoices names what is due, POST /v1/billing/invoices/{id}/pay the payment page."

    def __init__(self) -> None:
        super().__init__(details={"reason": "billing_past_due"})


def is_restricted(tenant_id: UUID) -> bool:
    """Whether the tenant may add no numbers."""
    return Tenant.objects.filter(pk=tenant_id, billing_restricted=True).exists()
