"""`manage.py close_tenant`: close a tenant permanently."""

from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from gateway.api.errors import NotFound
from phone_numbers import leaving
from tenants.models import User


class Command(BaseCommand):
    help = (
        "Close a tenant permanently. This suspends the tenant, removes its members, keys, endpoints, numbers, open "
        "batches and mandate, and mails a receipt to the tenant's contact."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", type=UUID, help="the id of the tenant")
        parser.add_argument(
            "--staff",
            required=True,
            metavar="EMAIL",
            help="the member of staff who closes the tenant, for the audit log",
        )

        parser.add_argument(
            "--delete-data",
            action="store_true",
            help="delete the contents of the tenant's events now, not when their retention ends",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        staff = User.objects.filter(email=options["staff"].lower(), is_staff=True, is_active=True).first()
        if staff is None:
            raise CommandError(f"{options['staff']} is not an active member of staff.")
        try:
            receipt = leaving.close(
                tenant_id=options["tenant"], actor_user_id=staff.pk, delete_data=options["delete_data"]
            )
        except NotFound as error:
            raise CommandError(str(error)) from None
        for what, count in receipt.ended.items():
            self.stdout.write(f"{what}: {count}")
        kept = f"kept until {receipt.data_until}" if receipt.data_until else "deleted"
        self.stdout.write(f"The tenant is closed. Its stored contents: {kept}.")
