"""`manage.py take_tenant`: move a tenant from another cell to this one."""

import os
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from messaging import tenant_moves
from messaging.tenant_moves import MoveError


class Command(BaseCommand):
    help = "Move a tenant from the cell of FORMER_DATABASE_URL to this one. Repeat it after an error."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", type=UUID, help="the tenant's id")
        parser.add_argument(
            "--give-up", action="store_true", help="thaw it there, if it has not been copied yet"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        former = os.environ.get("FORMER_DATABASE_URL")
        if not former:
            raise CommandError("Set FORMER_DATABASE_URL to the database of the tenant's present cell.")
        try:
            if options["give_up"]:
                tenant_moves.give_up(options["tenant"], former=former)
                self.stdout.write("The tenant is active in its cell again.")
                return
            moved = tenant_moves.take(
                options["tenant"], former=former, after=lambda step: self.stdout.write(f"{step} ...")
            )
        except MoveError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"Moved, {sum(moved.rows.values()):,} rows. Write the routes of both cells again.")
