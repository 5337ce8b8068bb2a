"""Billing restriction: what a tenant may not do while its bills stay unpaid (docs/billing.md). Set by billing."""

from uuid import UUID

from gateway.api.errors import Forbidden
from tenants.models import Tenant


def require_new_numbers_allowed(tenant_id: UUID) -> None:
    """Raise Forbidden with `details.reason` `billing_past_due` when the tenant may not add numbers."""
    if Tenant.objects.filter(pk=tenant_id, billing_restricted=True).exists():
        raise Forbidden(
            "New numbers are closed until the overdue invoices are paid: see GET /v1/billing/invoices.",
            details={"reason": "billing_past_due"},
        )
