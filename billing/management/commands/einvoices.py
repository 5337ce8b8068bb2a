"""`manage.py einvoices export FILE`: documents for the registration portal; `import FILE`: its answers."""

import json
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from billing.einvoices import registration
from billing.einvoices.registration import FileRegistry, UnreadableAnswer


class Command(BaseCommand):
    help = "Writes what must be registered as a file for the portal, and reads the portal's answers."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("direction", choices=["export", "import"])
        parser.add_argument("file", type=Path)

    def handle(self, *args: Any, **options: Any) -> None:
        if options["direction"] == "export":
            wanted = list(registration.unregistered())
            FileRegistry(options["file"]).submit(wanted)
            self.stdout.write(f"{len(wanted)} documents are in {options['file']}.")
            return
        try:
            answers = json.loads(options["file"].read_bytes())
        except (OSError, ValueError) as error:
            raise CommandError(f"The file cannot be read: {error}") from None
        written, problems = 0, []
        for answer in answers if isinstance(answers, list) else [answers]:
            try:
                written += registration.record(registration.parsed(answer))
            except UnreadableAnswer as error:
                problems.append(str(error))
        self.stdout.write(f"{written} documents are registered.")
        if problems:
            raise CommandError("\n".join(problems))
