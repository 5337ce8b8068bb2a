"""`manage.py migrate`: Django's command, with an option to wait for a database that is still starting."""

import time
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.core.management.commands import migrate
from django.db import OperationalError, connections

LOOK_SECONDS = 0.5


class Command(migrate.Command):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--wait",
            type=float,
            default=0.0,
            metavar="SECONDS",
            help="how many seconds to wait for the database to answer before migrating",
        )

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Migrate once the database answers. Raises CommandError if the database does not answer in time."""
        if options["wait"]:
            _wait(options["database"], seconds=options["wait"])
        return super().execute(*args, **options)


def _wait(database: str, *, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            connections[database].ensure_connection()
            return
        except OperationalError as error:
            if time.monotonic() > deadline:
                raise CommandError(
                    f"The database did not answer within {seconds:g} seconds: {error}"
                ) from error
        time.sleep(LOOK_SECONDS)
