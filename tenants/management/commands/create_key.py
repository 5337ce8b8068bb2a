from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from gateway.api.errors import NotFound
from tenants import api_keys, platform_apps
from tenants.models import ApiKey, Tenant


class Command(BaseCommand):
    help = "Make an API key of a tenant (--tenant ID) or of a platform app (--app ID); prints the key once."

    def add_arguments(self, parser: CommandParser) -> None:
        owner = parser.add_mutually_exclusive_group(required=True)
        owner.add_argument("--tenant", type=UUID)
        owner.add_argument("--app", type=UUID)
        parser.add_argument("--name", default="made by command")
        parser.add_argument("--environment", choices=ApiKey.Environment.values, default="live")

    def handle(self, *args: Any, **options: Any) -> None:
        name, environment = options["name"], options["environment"]
        if options["app"]:
            try:
                new = platform_apps.create_app_key(app_id=options["app"], name=name, environment=environment)
            except NotFound as error:
                raise CommandError(str(error)) from None
        else:
            tenant = Tenant.objects.filter(pk=options["tenant"]).first()
            if tenant is None:
                raise CommandError("There is no such tenant.")
            new = api_keys.create(name=name, environment=environment, tenant=tenant)
        self.stdout.write(new.key)
