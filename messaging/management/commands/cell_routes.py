"""`manage.py cell_routes`: write this cell's part of the routing table, for the router in front of the cells."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from messaging import tenant_moves


class Command(BaseCommand):
    help = "Write DIRECTORY/NAME.keys (nginx) and DIRECTORY/NAME.accounts (for the notification router)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="this cell, as the router's configuration names it")
        parser.add_argument("directory", type=Path)

    def handle(self, *args: Any, **options: Any) -> None:
        directory, name = options["directory"], options["name"]
        self._write(
            directory / f"{name}.keys", (f"{prefix} {name};\n" for prefix in tenant_moves.key_prefixes())
        )
        self._write(directory / f"{name}.accounts", (f"{waba_id}\n" for waba_id in tenant_moves.waba_ids()))

    @staticmethod
    def _write(path: Path, lines: Any) -> None:
        """Replace the file atomically, because the router may read it at any moment."""
        unfinished = path.with_suffix(f"{path.suffix}.new")
        with unfinished.open("w") as file:
            file.writelines(lines)
        unfinished.replace(path)
