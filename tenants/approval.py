"""What staff decide about a tenant: approve, reject, suspend, reinstate (specification 3).

Called alike by `/v1/admin/tenants/*`, the Django admin and commands. Each decision locks the tenant, so of two
reviewers at once one wins and the other gets a Conflict; state, audit entry and mail are one transaction, and the
key mirror follows after the commit.
"""

from collections.abc import Callable, Collection
from typing import Any
from uuid import UUID

from django.db import transaction

from gateway.api.errors import Conflict, NotFound
from gateway.clock import now
from tenants import audit, key_cache, mail, tenants
from tenants.models import Tenant

Changes = dict[str, Any]
Status = Tenant.Status

SUSPENSION_REASONS = ("abuse", "admin")


def approve(*, tenant_id: UUID, actor_user_id: int | None = None) -> Tenant:
    """Let a waiting business in, or one that was rejected before; its trial begins.

    Raises NotFound, and Conflict in any other status.
    """

    return _decide(
        "approve",
        tenant_id,
        actor_user_id,
        {Status.PENDING_APPROVAL, Status.REJECTED},
        _approval,
        mailed="approved",
    )


def _approval(tenant: Tenant) -> Changes:
    moment = now()
    billing = Tenant.BillingStatus
    return {
        "status": Status.ACTIVE,
        "approved_at": moment,
        "rejected_reason": None,
        "billing_status": billing.EXEMPT if tenant.sandbox else billing.TRIALING,
        "trial_ends_at": None if tenant.sandbox else tenants.trial_end(moment),
    }


def reject(*, tenant_id: UUID, reason: str, actor_user_id: int | None = None) -> Tenant:
    """Turn a waiting business away; the reason is stored and mailed. Raises NotFound, Conflict."""
    return _decide(
        "reject",
        tenant_id,
        actor_user_id,
        {Status.PENDING_APPROVAL},
        lambda _: {"status": Status.REJECTED, "rejected_reason": reason},
        mailed="rejected",
    )


def suspend(*, tenant_id: UUID, reason: str, note: str = "", actor_user_id: int | None = None) -> Tenant:
    """Stop a business, whatever its status; `reason` is one of SUSPENSION_REASONS, `note` is for staff alone.

    Raises NotFound, and Conflict when it is suspended already.
    """
    return _decide(
        "suspend",
        tenant_id,
        actor_user_id,
        set(Status) - {Status.SUSPENDED},
        lambda _: {"status": Status.SUSPENDED, "suspended_reason": reason},
        mailed="suspended",
        note=note,
    )


def reinstate(*, tenant_id: UUID, actor_user_id: int | None = None) -> Tenant:
    """End a suspension: the business is active (specification 3). Raises NotFound, Conflict.

    One that was never approved is approved by it: its trial begins and it gets the mail of an approval.
    """

    def changes(tenant: Tenant) -> Changes:
        first_time = tenant.approved_at is None
        return {
            "status": Status.ACTIVE,
            "suspended_reason": None,
            **(_approval(tenant) if first_time else {}),
        }

    return _decide(
        "reinstate",
        tenant_id,
        actor_user_id,
        {Status.SUSPENDED},
        changes,
        mailed=lambda before: "reinstated" if before.approved_at else "approved",
    )


def _decide(
    action: str,
    tenant_id: UUID,
    actor_user_id: int | None,
    allowed_from: Collection[str],
    changes_for: Callable[[Tenant], Changes],
    *,
    mailed: str | Callable[[Tenant], str],
    note: str = "",
) -> Tenant:
    """Check the status, change, audit and mail. `mailed` is the mail's template, or finds it from the former tenant."""
    with transaction.atomic():
        tenant = Tenant.objects.select_for_update(of=("self",)).filter(pk=tenant_id).first()
        if tenant is None:
            raise NotFound("There is no such tenant.")
        if tenant.status not in allowed_from:
            raise Conflict(
                f"This tenant is {tenant.get_status_display().lower()} now: it cannot be {_DONE[action]}.",
                details={"status": tenant.status},
            )
        after = changes_for(tenant)
        template = mailed(tenant) if callable(mailed) else mailed
        before = {field: getattr(tenant, field) for field in after}
        for field, value in after.items():
            setattr(tenant, field, value)
        tenant.save(update_fields=list(after))
        audit.record(
            action=f"tenant.{action}",
            target_type="tenant",
            target_id=tenant.id,
            tenant_id=tenant.id,
            actor_user_id=actor_user_id,
            details={"before": before, "after": after, **({"note": note} if note else {})},
        )
        mail.send_to_tenant(tenant=tenant, template=template)
        transaction.on_commit(lambda: key_cache.write_tenant(tenant))
    return tenant


_DONE = {"approve": "approved", "reject": "rejected", "suspend": "suspended", "reinstate": "reinstated"}
