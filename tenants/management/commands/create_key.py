"""`manage.py create_key`: create an API key of a tenant or of a platform app."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from gateway.api.errors import ServiceError
from gateway.clock import now
from tenants import platform_apps
from tenants.credentials import api_keys
from tenants.models import ApiKey, Tenant


class Command(BaseCommand):
    help = "Create an API key of a tenant (--tenant ID) or of a platform app (--app ID), and print it once."

    def add_arguments(self, parser: CommandParser) -> None:
        owner = parser.add_mutually_exclusive_group(required=True)
        owner.add_argument("--tenant", type=UUID)
        owner.add_argument("--app", type=UUID)
        parser.add_argument("--name", default="made by command")
        parser.add_argument("--environment", choices=ApiKey.Environment.values, default="live")
        parser.add_argument(
            "--days", type=int, help="how many days the key works; without this option it never expires"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        days = options["days"]
        if days is not None and days < 1:
            raise CommandError("--days must be at least 1.")
        fields = {
            "name": options["name"],
            "environment": options["environment"],
            "expires_at": now() + timedelta(days=days) if days is not None else None,
        }
        tenant = Tenant.objects.filter(pk=options["tenant"]).first()
        if tenant is None and options["app"] is None:
            raise CommandError("There is no such tenant.")
        try:
            if tenant is None:
                new = platform_apps.create_app_key(app_id=options["app"], **fields)
            else:
                new = api_keys.create(tenant=tenant, **fields)
        except ServiceError as error:
            raise CommandError(str(error)) from None
        self.stdout.write(new.key)
