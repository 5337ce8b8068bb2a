"""Billing status of a tenant: `active` or `past_due`. A tenant with an invoice overdue for three weeks is restricted.

The status is derived from the tenant's invoices whenever an invoice changes (`payments/attempts.py`,
`invoices/credit_notes.py`) and by every run. `tenants/tenant_status.py` enforces the restriction.
"""

from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, F, Min, OuterRef
from django.db.models.functions import Greatest

from billing import ledger
from billing.error_isolation import each
from billing.models import Invoice, PaymentAttempt, end_of_term
from tenants.models import Tenant

RESTRICTED_AFTER = timedelta(days=21)

_STATUS = Tenant.BillingStatus


def refresh(*, tenant_id: UUID, at: datetime) -> None:
    """Derive the billing status from the tenant's invoices and store it."""
    with transaction.atomic():
        tenant = Tenant.objects.select_for_update(of=("self",), no_key=True).get(pk=tenant_id)
        since: datetime | None = (
            Invoice.objects.for_tenant(tenant_id).owing().aggregate(since=Min("overdue_since"))["since"]
        )
        if tenant.billing_status not in {_STATUS.ACTIVE, _STATUS.PAST_DUE}:
            return
        new = {
            "billing_status": _STATUS.PAST_DUE if since else _STATUS.ACTIVE,
            "past_due_since": since,
            "billing_restricted": since is not None and (restricts_at(tenant_id) or at) <= at,
        }
        changed = {name: value for name, value in new.items() if getattr(tenant, name) != value}
        for name, value in changed.items():
            setattr(tenant, name, value)
        if changed:
            tenant.save(update_fields=list(changed))


def restricts_at(tenant_id: UUID) -> datetime | None:
    """When the tenant's overdue invoices restrict new numbers: three weeks after the first of them became overdue, but
    never before its due date. A failed debit makes an invoice overdue at once, and some tenants have longer to pay.
    """
    overdue = Invoice.objects.for_tenant(tenant_id).owing().filter(overdue_since__isnull=False)
    ends = Greatest(F("overdue_since") + RESTRICTED_AFTER, end_of_term())
    found: datetime | None = overdue.aggregate(at=Min(ends))["at"]
    return found


def use_balance(tenant_id: UUID, at: datetime) -> None:
    """Pay unpaid invoices from the tenant's balance, then derive the billing status, within `ledger.account`.

    Call it after every act that may lower an amount due or make a part of the balance available.
    """
    ledger.set_off(tenant_id, at)
    refresh(tenant_id=tenant_id, at=at)


def mark_overdue(at: datetime) -> int:
    """Mark invoices that are unpaid after their due date as overdue. Returns how many were marked.

    For an invoice that a refund reopened, the full term to pay starts again at the refund. While a debit of a tenant is
    in flight, its invoices wait: the debit may pay them, or the provider may refuse the service's keys.
    """
    debits = PaymentAttempt.objects.filter(
        invoice__tenant=OuterRef("tenant"),
        kind=PaymentAttempt.Kind.AUTOPAY,
        status__in=PaymentAttempt.IN_FLIGHT,
    )
    late = Invoice.objects.owing().filter(~Exists(debits), overdue_since__isnull=True, due_at__lte=at)

    def mark(invoice: Invoice) -> int:
        if invoice.pay_by > at:
            return 0
        with ledger.account(invoice.tenant_id):
            same = late.filter(pk=invoice.pk, reopened_at=invoice.reopened_at)
            marked = same.update(overdue_since=invoice.pay_by)
            refresh(tenant_id=invoice.tenant_id, at=at)
        return marked

    try:
        return each(list(late), mark, step="overdue")
    finally:
        _restrict(at)


def _restrict(at: datetime) -> None:
    """Restrict the tenants whose oldest overdue invoice has become three weeks old."""
    long_overdue = Tenant.objects.filter(
        billing_status=_STATUS.PAST_DUE,
        billing_restricted=False,
        past_due_since__lte=at - RESTRICTED_AFTER,
    )
    each(
        list(long_overdue.values_list("id", flat=True)),
        lambda tenant_id: refresh(tenant_id=tenant_id, at=at),
        step="restriction",
    )
