"""`manage.py backdate_business EMAIL 2026-09`: in development, make past months of a tenant billable.

A tenant that was created today has no finished month, so the billing run has nothing to invoice, and a run for a future
moment is rejected. The command moves the creation of the tenant and of its connected numbers to the past.
"""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction
from django.db.models import Min

from billing.models import BillingSnapshot
from billing.pricing.periods import Period
from gateway.clock import now
from phone_numbers.models import NumberStateInterval, PhoneNumber
from tenants.models import ApiKey, Tenant


class Command(BaseCommand):
    help = (
        "For development: move the first billed month of a business into the past, so that it gets invoices."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email", help="the email address of one of its members")
        parser.add_argument("month", help="its first billed month, e.g. 2026-09")

    def handle(self, *args: Any, **options: Any) -> None:
        if settings.PRODUCTION:
            raise CommandError("Backdating a business is for development: it changes what is billed.")
        try:
            first = Period.parse(options["month"])
        except ValueError:
            raise CommandError("Write the month as 2026-09.") from None
        if first >= Period.of(now()):
            raise CommandError("The month must be over, because only past months are billed.")
        tenant = Tenant.objects.filter(users__email=options["email"].lower()).first()
        if tenant is None:
            raise CommandError("No member of a business has this address.")
        numbers = _backdate(tenant, first)
        self.stdout.write(
            f"Numbers billed from {first.name} on: {numbers}. "
            f"Next: manage.py billing_run --as-of {first.next}-01"
        )


def _backdate(tenant: Tenant, first: Period) -> int:
    """Move a tenant's creation and the first connection of its live numbers to the start of a month, and end its trial.
    Returns the count of these numbers.

    Raises CommandError.
    """
    with transaction.atomic():
        tenant = Tenant.objects.select_for_update(of=("self",), no_key=True).get(pk=tenant.pk)
        if tenant.sandbox or tenant.approved_at is None:
            raise CommandError("Only an approved business that is not a sandbox is billed.")
        if BillingSnapshot.objects.filter(tenant=tenant).exists():
            raise CommandError(
                "A month of this business was already billed, and billed months are never changed."
            )
        connected = NumberStateInterval.objects.filter(
            tenant=tenant,
            number__environment=ApiKey.Environment.LIVE,
            connection_state=PhoneNumber.State.CONNECTED,
        )
        firsts = list(connected.values("number").annotate(first=Min("id")).values_list("first", flat=True))
        if not firsts:
            raise CommandError("No live number of this business was connected yet.")
        NumberStateInterval.objects.filter(id__in=firsts, from_at__gt=first.start).update(from_at=first.start)
        tenant.created_at = min(tenant.created_at, first.start)
        tenant.approved_at = min(tenant.approved_at, first.start)
        tenant.trial_ends_at = first.start
        tenant.billing_status = Tenant.BillingStatus.ACTIVE
        tenant.save(update_fields=["created_at", "approved_at", "trial_ends_at", "billing_status"])
    return len(firsts)
