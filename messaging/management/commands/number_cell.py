"""`manage.py number_cell`: start the ids of a new cell at its own range."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from messaging import tenant_moves


class Command(BaseCommand):
    help = "Begin the numbered ids of this cell at its own range: when the cell is new, and when a release adds tables."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("cell", type=int, help=f"0 to {tenant_moves.MOST_CELLS - 1}; the first cell is 0")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            tenant_moves.number(options["cell"])
        except ValueError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"This cell has the number {options['cell']}.")
