"""Approval of a tenant: staff let a waiting business in, or reject it (specification 3).

Called alike by `/v1/admin/tenants/*`, the Django admin and commands.
"""

from uuid import UUID

from gateway.clock import now
from tenants import lifecycle
from tenants.models import Tenant
from tenants.standing.decisions import Changes, decide

Status = Tenant.Status


def approve(*, tenant_id: UUID, actor_user_id: int | None = None) -> Tenant:
    """Let a waiting business in, or one that was rejected before; its trial begins.

    Raises NotFound, and Conflict in any other status.
    """

    return decide(
        "approve",
        tenant_id,
        actor_user_id,
        {Status.PENDING_APPROVAL, Status.REJECTED},
        beginning,
        mailed="approved",
    )


def reject(*, tenant_id: UUID, reason: str, actor_user_id: int | None = None) -> Tenant:
    """Turn a waiting business away; the reason is stored and mailed. Raises NotFound, Conflict."""
    return decide(
        "reject",
        tenant_id,
        actor_user_id,
        {Status.PENDING_APPROVAL},
        lambda _: {"status": Status.REJECTED, "rejected_reason": reason},
        mailed="rejected",
    )


def beginning(tenant: Tenant) -> Changes:
    """What approval sets: the business is active, and its trial begins."""
    moment = now()
    billing = Tenant.BillingStatus
    return {
        "status": Status.ACTIVE,
        "approved_at": moment,
        "rejected_reason": None,
        "billing_status": billing.EXEMPT if tenant.sandbox else billing.TRIALING,
        "trial_ends_at": None if tenant.sandbox else lifecycle.trial_end(moment),
    }
