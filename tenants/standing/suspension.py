"""Suspension of a tenant: staff stop a business and let it go on (specification 3).

A suspended tenant's keys get 403 `tenant_suspended` (`gateway/api/authentication.py`), its batches wait
(`messaging/batches/waiting.py`), its events are recorded, and their deliveries wait (`webhooks/delivery/claiming/`) and
go out after it is reinstated. Its numbers keep their state.
"""

from uuid import UUID

from tenants.models import Tenant
from tenants.standing import approval
from tenants.standing.decisions import Changes, decide

Status = Tenant.Status

SUSPENSION_REASONS = ("abuse", "admin")
ELSEWHERE = (Status.MOVING, Status.ARRIVING, Status.MOVED)
"""Nobody but the move itself may end these: a tenant must never be active in two cells."""


def suspend(*, tenant_id: UUID, reason: str, note: str = "", actor_user_id: int | None = None) -> Tenant:
    """Stop a business, whatever its status; `reason` is one of SUSPENSION_REASONS, `note` is for staff alone.

    Raises NotFound, and Conflict when it is suspended already or on a move between cells.
    """
    return decide(
        "suspend",
        tenant_id,
        actor_user_id,
        set(Status) - {Status.SUSPENDED, *ELSEWHERE},
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
            **(approval.beginning(tenant) if first_time else {}),
        }

    return decide(
        "reinstate",
        tenant_id,
        actor_user_id,
        {Status.SUSPENDED},
        changes,
        mailed=lambda before: "reinstated" if before.approved_at else "approved",
    )
