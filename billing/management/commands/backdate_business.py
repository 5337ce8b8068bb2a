"""`manage.py backdate_business EMAIL 2026-09`: in development, let a business have months that can be billed."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from billing.backdating import CannotBackdateError, backdate
from billing.pricing.periods import Period
from gateway.clock import now
from tenants.models import Tenant


class Command(BaseCommand):
    help = "For development: let a business begin with an earlier month, so that billing_run makes invoices."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email", help="the address of one of its people")
        parser.add_argument("month", help="its first billed month, e.g. 2026-09")

    def handle(self, *args: Any, **options: Any) -> None:
        if settings.PRODUCTION:
            raise CommandError("Backdating a business is for development: it changes what is billed.")
        try:
            first = Period.parse(options["month"])
        except ValueError:
            raise CommandError("The month is written like 2026-09.") from None
        if first >= Period.of(now()):
            raise CommandError("The month must be over: only then is it billed.")
        tenant = Tenant.objects.filter(users__email=options["email"]).first()
        if tenant is None:
            raise CommandError("Nobody of a business has this address.")
        try:
            numbers = backdate(tenant, first)
        except CannotBackdateError as reason:
            raise CommandError(str(reason)) from None
        self.stdout.write(
            f"Numbers billed from {first.name} on: {numbers}. "
            f"Next: manage.py billing_run --as-of {first.next}-01"
        )
