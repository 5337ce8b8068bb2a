"""`manage.py revoke_key`: revoke an API key of a tenant or of a platform app."""

from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser

from tenants.credentials import api_keys
from tenants.models import ApiKey


class Command(BaseCommand):
    help = "Revoke an API key of a tenant or a platform app, named by its id or its prefix (first 16 characters)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("key", help="the key's id or prefix, never the whole key")

    def handle(self, *args: Any, **options: Any) -> None:
        found = _found(options["key"])
        if len(found) != 1:
            raise CommandError(f"{len(found)} keys have this id or prefix: give the id of one key.")
        key = api_keys.revoke(keys=ApiKey.objects.all(), key_id=found[0].id)
        self.stdout.write(f"{key.prefix}… is revoked.")


def _found(named: str) -> list[ApiKey]:
    if named.startswith("wb_"):
        return list(ApiKey.objects.filter(prefix=named)[:2])
    try:
        return list(ApiKey.objects.filter(pk=named))
    except ValidationError:
        return []
