"""Status of a tenant: approval, rejection, suspension, billing restriction (specification 3), and which tenants are
served.
"""

from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from gateway.api.errors import Conflict, Forbidden, NotFound
from gateway.clock import IST, now
from tenants import audit, mail
from tenants.credentials import key_cache
from tenants.models import AuditEntry, Tenant

# --- Served tenants: active tenants. In the sandbox, tenants that wait for approval are served too.
#
# The condition is SQL in statements that check it for many deliveries or messages.

SERVED = "(t.status = 'active' OR t.status = 'pending_approval' AND {row}.environment = 'test')"
"""SQL condition. `t` is the tenant, and `{row}` is an endpoint or batch in one of the tenant's environments."""


def is_served(tenant: Tenant, environment: str) -> bool:
    """The same condition for a row of a tenant in an environment."""
    waits_in_test = tenant.status == Tenant.Status.PENDING_APPROVAL and environment == "test"
    return tenant.status == Tenant.Status.ACTIVE or waits_in_test


def served(row: str = "") -> Q:
    """The same condition for a query. `row` leads to the row that has the tenant and the environment: `number__`."""
    waits = {f"{row}tenant__status": Tenant.Status.PENDING_APPROVAL, f"{row}environment": "test"}
    return Q(**{f"{row}tenant__status": Tenant.Status.ACTIVE}) | Q(**waits)


# --- Decisions of staff about a tenant. In one transaction, a decision changes the status, writes an audit entry and
# queues a mail.
#
# A decision locks the tenant. So the first of two simultaneous decisions wins and the second raises Conflict. The key
# mirror is updated after the commit.

Changes = dict[str, Any]


def decide(
    action: str,
    tenant_id: UUID,
    actor_user_id: int | None,
    allowed_from: Collection[str],
    changes_for: Callable[[Tenant], Changes],
    *,
    mailed: str | Callable[[Tenant], str] | None,
    note: str = "",
) -> Tenant:
    """Check the status, change the tenant, write the audit entry and queue the mail. `mailed` is a mail template, or a
    function that chooses the template by the tenant's previous state; with None, no mail is queued. Raises NotFound.
    Raises Conflict for a status that is not in `allowed_from`.
    """
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
        if template is not None:
            mail.send_to_tenant(tenant=tenant, template=template)
        transaction.on_commit(lambda: key_cache.write_tenant(tenant))
    return tenant


_DONE = {"approve": "approved", "reject": "rejected", "suspend": "suspended", "reinstate": "reinstated"}


# --- Approval: staff accept a waiting tenant or reject it (specification 3).
#
# `/v1/admin/tenants/*`, the Django admin and commands call these functions.

Status = Tenant.Status


def approve(*, tenant_id: UUID, seen: int | None = None, actor_user_id: int | None = None) -> Tenant:
    """Approve a tenant that waits or was rejected before. Its trial begins.

    `seen` is the version of the application that the reviewer saw (`application_version`). Raises NotFound. Raises
    Conflict for a tenant with any other status, and when the application has another version now.
    """

    def changes(tenant: Tenant) -> Changes:
        _require_version(tenant.id, seen)
        return beginning(tenant)

    return decide(
        "approve",
        tenant_id,
        actor_user_id,
        {Status.PENDING_APPROVAL, Status.REJECTED},
        changes,
        mailed="approved",
    )


def reject(
    *, tenant_id: UUID, reason: str, seen: int | None = None, actor_user_id: int | None = None
) -> Tenant:
    """Reject a waiting tenant. The reason is stored and mailed. `seen` is that of `approve`. Raises NotFound,
    Conflict.
    """

    def changes(tenant: Tenant) -> Changes:
        _require_version(tenant.id, seen)
        return {"status": Status.REJECTED, "rejected_reason": reason}

    return decide("reject", tenant_id, actor_user_id, {Status.PENDING_APPROVAL}, changes, mailed="rejected")


def application_version(tenant_id: UUID) -> int:
    """A number that grows with each correction of a tenant's application."""
    corrections = AuditEntry.objects.filter(tenant_id=tenant_id, action="tenant.apply_again")
    return corrections.order_by("-id").values_list("id", flat=True).first() or 0


def _require_version(tenant_id: UUID, seen: int | None) -> None:
    if seen is not None and seen != application_version(tenant_id):
        raise Conflict(
            "The business has corrected its application since you opened its page: look at it again."
        )


def trial_end(start: datetime) -> datetime:
    """The end of a trial: the first start of a month in IST, TRIAL_DAYS or more after `start`."""
    local = (start + timedelta(days=settings.TRIAL_DAYS)).astimezone(IST)
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
    if local == midnight and local.day == 1:
        return local.astimezone(start.tzinfo)
    first_of_next = (midnight.replace(day=1) + timedelta(days=32)).replace(day=1)
    return first_of_next.astimezone(start.tzinfo)


def beginning(tenant: Tenant) -> Changes:
    """The columns that an approval sets, such as the status and the end of the trial."""
    moment = now()
    billing = Tenant.BillingStatus
    return {
        "status": Status.ACTIVE,
        "approved_at": moment,
        "rejected_reason": None,
        "billing_status": billing.EXEMPT if tenant.sandbox else billing.TRIALING,
        "trial_ends_at": None if tenant.sandbox else trial_end(moment),
    }


# --- Suspension: staff stop a tenant and reinstate it (specification 3).
#
# Keys of a suspended tenant get 403 `tenant_suspended` (`gateway/api/authentication.py`), and its batches wait
# (`messaging/batches/held_batch.py`). Events of the tenant are recorded, but their deliveries wait
# (`webhooks/delivery/claim_statements.py`) until the tenant is reinstated. The tenant's numbers do not change.

SUSPENSION_REASONS = ("abuse", "admin")


def suspend(*, tenant_id: UUID, reason: str, note: str = "", actor_user_id: int | None = None) -> Tenant:
    """Suspend a tenant in any status. `reason` is one of SUSPENSION_REASONS; `note` is visible to staff only.

    Raises NotFound, and Conflict when the tenant is already suspended.
    """
    return _suspend(tenant_id, reason, note, actor_user_id, mailed="suspended")


def suspend_for_closing(*, tenant_id: UUID, actor_user_id: int | None) -> Tenant:
    """Suspend a tenant that is being closed. It gets only the receipt of the closing by mail, because its deliveries do
    not wait for the end of this suspension.
    """
    return _suspend(tenant_id, "admin", "Closed.", actor_user_id, mailed=None)


def _suspend(
    tenant_id: UUID, reason: str, note: str, actor_user_id: int | None, *, mailed: str | None
) -> Tenant:
    return decide(
        "suspend",
        tenant_id,
        actor_user_id,
        set(Status) - {Status.SUSPENDED},
        lambda _: {"status": Status.SUSPENDED, "suspended_reason": reason},
        mailed=mailed,
        note=note,
    )


def reinstate(*, tenant_id: UUID, actor_user_id: int | None = None) -> Tenant:
    """End a suspension: the tenant is active again (specification 3). Raises NotFound, and Conflict when the tenant is
    not suspended, or is closed.

    This also approves a tenant that was never approved: the trial begins, and the approval mail is sent.
    """

    def changes(tenant: Tenant) -> Changes:
        if Tenant.objects.closed().filter(pk=tenant.pk).exists():
            raise Conflict("This tenant is closed: it cannot be reinstated.")
        first_time = tenant.approved_at is None
        return {
            "status": Status.ACTIVE,
            "suspended_reason": None,
            **(beginning(tenant) if first_time else {}),
        }

    return decide(
        "reinstate",
        tenant_id,
        actor_user_id,
        {Status.SUSPENDED},
        changes,
        mailed=lambda before: "reinstated" if before.approved_at else "approved",
    )


# --- Billing restriction: a tenant with long overdue bills cannot add numbers (docs/billing.md). The billing app sets
# it.


class NewNumbersClosed(Forbidden):
    """Long overdue bills must be paid before another number can be added."""

    message = "No further number can be connected until all overdue invoices are paid."
    hint = "GET /v1/billing/invoices lists what is due, POST /v1/billing/invoices/{id}/pay returns the payment page."

    def __init__(self) -> None:
        super().__init__(details={"reason": "billing_past_due"})


def is_restricted(tenant_id: UUID) -> bool:
    """Whether the tenant may not add numbers."""
    return Tenant.objects.get(pk=tenant_id).is_restricted
