"""Billing restriction: what a tenant may not do while its bills stay unpaid (docs/billing.md). Set by billing."""

from uuid import UUID

from gateway.api.errors import Forbidden
from tenants.models import Tenant


def require_new_numbers_allowed(tenant_id: UUID) -> None:
    """Raise Forbidden with `details.reason` `billing_past_due` when the tenant may not add numbers."""
    if Tenant.objects.filter(pk=tenant_id, billing_restricted=True).exists():
        raise Forbidden(
            "No further number can be connected until what is overdue is paid.",
            hint="GET /v1/billing/invoices names what is due, POST /v1/billing/invoices/{id}/pay the payment page.",
            details={"reason": "billing_past_due"},
        )
