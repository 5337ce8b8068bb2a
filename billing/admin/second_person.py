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
from gateway.ids import uuid7
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
    act_id: UUID | None = None,
) -> str:
    """Carry out an act, or store it for a second person. Returns a sentence about the result. Raises the errors of
    `carry_out`.

    `act_id` is the id of the submission. The same submission again, for example after its answer was lost, does nothing
    and returns what became of the first. Raises Conflict if that is not known, or if the submissions differ.
    """
    act_id = act_id or uuid7()
    with transaction.atomic():
        Tenant.objects.select_for_update(of=("self",), no_key=True).only("id").get(pk=tenant_id)
        if before := StaffAct.objects.filter(pk=act_id).first():
            same = (before.act, before.target_id, before.values, before.asked_by)
            return _outcome(before, is_same=same == (act, target_id, values, actor_user_id))
        own = StaffAct.objects.filter(tenant_id=tenant_id, asked_by=actor_user_id, decided_by=None)
        today = own.filter(asked_at__gte=ist_midnight(at), status__in=(Status.BEGUN, Status.DONE))
        total = today.aggregate(total=Sum("amount_paise", default=0))["total"] + amount_paise
        waits = 0 < settings.BILLING_SECOND_PERSON_RUPEES * 100 < total
        row = StaffAct.objects.create(
            id=act_id,
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
            return _WAITS
    return _done(row, carry_out, undo=row.delete)


_WAITS = "A second person has to approve this. It waits under Staff acts."


def _outcome(row: StaffAct, *, is_same: bool) -> str:
    """What became of an act whose dialog is submitted again. Raises Conflict if that is not known, if the act was
    declined, or if this submission has other values.
    """
    if not is_same:
        raise Conflict(
            "This dialog was already submitted with other values: see Staff acts. Open it again for another act."
        )
    if row.status == Status.DECLINED:
        raise Conflict("This was declined. Open the dialog again for another request.")
    if row.status == Status.BEGUN:
        raise Conflict(
            "This was begun and may have been done: look at the page before you open the dialog again."
        )
    return _WAITS if row.status == Status.WAITING else "This was already done."


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
