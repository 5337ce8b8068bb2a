"""`manage.py close_tenant`: a tenant is closed for good."""

from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from gateway.api.errors import NotFound
from phone_numbers import leaving
from tenants.models import User


class Command(BaseCommand):
    help = "Close a tenant for good: suspend it, revoke its keys, delete its endpoints, release its numbers."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", type=UUID, help="the tenant's id")
        parser.add_argument(
            "--staff", required=True, metavar="EMAIL", help="who closes it, for the audit log"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        staff = User.objects.filter(email=options["staff"], is_staff=True, is_active=True).first()
        if staff is None:
            raise CommandError(f"{options['staff']} is no active member of staff.")
        try:
            closed = leaving.close(tenant_id=options["tenant"], actor_user_id=staff.pk)
        except NotFound as error:
            raise CommandError(str(error)) from None
        self.stdout.write(f"Revoked keys: {closed.keys}. Deleted endpoints: {closed.endpoints}.")
        self.stdout.write(f"Released numbers: {closed.numbers}. The tenant is closed.")
