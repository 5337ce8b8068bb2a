"""Acts of staff with a tenant's money. Beyond a daily amount per staff member, a second person must approve an act.

Every act is stored before it is carried out. So simultaneous acts count too, and many small acts cannot bypass the
limit. Called by the staff admin, which takes the flow of each act from `admin/money_acts.py`.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Sum

from billing.models import StaffAct
from billing.pricing.periods import ist_midnight
from gateway.api.errors import Conflict
from tenants import audit
from tenants.models import Tenant

Status = StaffAct.Status
CarryOut = Callable[[StaffAct], str]
"""A function that carries out an act and returns a sentence about its result. Raises ServiceError."""


def act(
    carry_out: CarryOut,
    *,
    act: str,
    target_id: UUID,
    tenant_id: UUID,
    values: dict[str, Any],
    amount_paise: int,
    at: datetime,
    actor_user_id: int | None,
) -> str:
    """Carry out an act, or store it for a second person. Returns a sentence about the result. Raises the errors of
    `carry_out`.
    """
    with transaction.atomic():
        Tenant.objects.select_for_update(of=("self",), no_key=True).only("id").get(pk=tenant_id)
        own = StaffAct.objects.filter(tenant_id=tenant_id, asked_by=actor_user_id, decided_by=None)
        today = own.filter(asked_at__gte=ist_midnight(at), status__in=(Status.BEGUN, Status.DONE))
        total = today.aggregate(total=Sum("amount_paise", default=0))["total"] + amount_paise
        waits = 0 < settings.BILLING_SECOND_PERSON_RUPEES * 100 < total
        row = StaffAct.objects.create(
            tenant_id=tenant_id,
            act=act,
            target_id=target_id,
            values=values,
            amount_paise=amount_paise,
            status=Status.WAITING if waits else Status.BEGUN,
            asked_by=actor_user_id,
            asked_at=at,
        )
        if waits:
            _record(row, "billing.ask", actor_user_id)
            return "A second person has to approve this. It waits under Staff acts."
    return _done(row, carry_out, undo=row.delete)


def approve(act_id: UUID, carry_out: CarryOut, *, at: datetime, actor_user_id: int | None) -> str:
    """Carry out an act that another person requested. Returns a sentence about the result. Raises Conflict, and the
    errors of `carry_out`, after which the act waits again.
    """
    row = _decide(act_id, Status.BEGUN, at, actor_user_id)
    waiting = {"status": Status.WAITING, "decided_by": None, "decided_at": None}
    return _done(
        row,
        carry_out,
        undo=lambda: StaffAct.objects.filter(pk=act_id).update(**waiting),
        record=lambda: _record(row, "billing.approve", actor_user_id),
    )


def _done(
    row: StaffAct, carry_out: CarryOut, undo: Callable[[], object], record: Callable[[], None] = lambda: None
) -> str:
    """Carry out an act, and record that it is done. If it fails, undo what was stored before."""
    try:
        said = carry_out(row)
    except BaseException:
        undo()
        raise
    with transaction.atomic():
        StaffAct.objects.filter(pk=row.pk).update(status=Status.DONE)
        record()
    return said


def decline(act_id: UUID, *, at: datetime, actor_user_id: int | None) -> None:
    """Decline a waiting act. The person who requested the act may also decline it. Raises Conflict."""
    with transaction.atomic():
        row = _decide(act_id, Status.DECLINED, at, actor_user_id)
        _record(row, "billing.decline", actor_user_id)


def _decide(act_id: UUID, status: Status, at: datetime, actor_user_id: int | None) -> StaffAct:
    row = StaffAct.objects.get(pk=act_id)
    if status != Status.DECLINED and row.asked_by == actor_user_id:
        raise Conflict("Another person has to approve your request.")
    waiting = StaffAct.objects.filter(pk=act_id, status=Status.WAITING)
    if not waiting.update(status=status, decided_by=actor_user_id, decided_at=at):
        raise Conflict("This was already decided.")
    return row


def _record(row: StaffAct, action: str, actor_user_id: int | None) -> None:
    audit.record(
        action=action,
        target_type="staff_act",
        target_id=row.pk,
        tenant_id=row.tenant_id,
        actor_user_id=actor_user_id,
        details={"act": row.act, "amount_paise": row.amount_paise},
    )
