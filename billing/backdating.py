"""Backdating, for development: a business and its connected numbers get an earlier beginning, so that months are due.

A business that was made today has no month that is over, so the billing run has nothing to invoice, and a run for a
moment in the future is refused. Called by `manage.py backdate_business`.
"""

from django.db import transaction
from django.db.models import Min

from billing.models import BillingSnapshot
from billing.pricing.periods import Period
from phone_numbers.models import NumberStateInterval, PhoneNumber
from tenants.models import ApiKey, Tenant


class CannotBackdateError(Exception):
    """The business has no past that could be moved; the message says why."""


def backdate(tenant: Tenant, first: Period) -> int:
    """Let a business begin with a month, its trial over and its live numbers connected since; returns how many numbers.

    Raises `CannotBackdateError`.
    """
    with transaction.atomic():
        tenant = Tenant.objects.select_for_update(of=("self",), no_key=True).get(pk=tenant.pk)
        if tenant.sandbox or tenant.approved_at is None:
            raise CannotBackdateError("Only an approved business that is no sandbox is billed.")
        if BillingSnapshot.objects.filter(tenant=tenant).exists():
            raise CannotBackdateError(
                "A month of this business was billed already. What was billed is never changed."
            )
        connected = NumberStateInterval.objects.filter(
            tenant=tenant,
            number__environment=ApiKey.Environment.LIVE,
            connection_state=PhoneNumber.State.CONNECTED,
        )
        firsts = list(connected.values("number").annotate(first=Min("id")).values_list("first", flat=True))
        if not firsts:
            raise CannotBackdateError("No live number of this business was connected yet.")
        NumberStateInterval.objects.filter(id__in=firsts, from_at__gt=first.start).update(from_at=first.start)
        tenant.created_at = min(tenant.created_at, first.start)
        tenant.approved_at = min(tenant.approved_at, first.start)
        tenant.trial_ends_at = first.start
        tenant.billing_status = Tenant.BillingStatus.ACTIVE
        tenant.save(update_fields=["created_at", "approved_at", "trial_ends_at", "billing_status"])
    return len(firsts)
