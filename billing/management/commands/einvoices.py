"""`manage.py einvoices export FILE`: documents for the registration portal; `import FILE`: its answers."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from billing.einvoices import registration
from billing.einvoices.registration import UnreadableAnswer


class Command(BaseCommand):
    help = "Writes what must be registered as a file for the portal, and reads the portal's answers."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("direction", choices=["export", "import"])
        parser.add_argument("file", type=Path)

    def handle(self, *args: Any, **options: Any) -> None:
        if options["direction"] == "export":
            options["file"].write_bytes(registration.file_for_portal())
            return
        try:
            written, problems = registration.record_file(options["file"].read_bytes())
        except (OSError, UnreadableAnswer) as error:
            raise CommandError(str(error)) from None
        self.stdout.write(f"{written} documents are registered.")
        if problems:
            raise CommandError("\n".join(problems))
