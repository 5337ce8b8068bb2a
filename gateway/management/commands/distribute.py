"""`manage.py distribute`: distributes the large tables over a Citus cluster."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from gateway.database import distribution
from gateway.database.distribution import NoCitusError


class Command(BaseCommand):
    help = "Distribute the large tables over a Citus cluster by tenant. The command can be repeated."

    def handle(self, *args: Any, **options: Any) -> None:
        if not settings.DATABASE_IS_DISTRIBUTED:
            raise CommandError("Set DATABASE_IS_DISTRIBUTED=true first, here and in every process.")
        try:
            tables = distribution.distribute()
        except NoCitusError:
            raise CommandError(
                "The database has no Citus: CREATE EXTENSION citus, as its superuser."
            ) from None
        self.stdout.write(f"Distributed: {', '.join(tables) or 'nothing more'}.")
