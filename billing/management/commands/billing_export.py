"""`manage.py billing_export 2026-12`: GSTR-1 of a month as JSON, or with `--ledger` all its postings as CSV."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from billing import accounting, gstr1
from billing.pricing.periods import Period


class Command(BaseCommand):
    help = "Write GSTR-1 of a month as JSON, or all ledger postings of the month as CSV, in rupees."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("month", help="the month in Indian time, e.g. 2026-12")
        parser.add_argument("--ledger", action="store_true", help="every posting, for an accounting program")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            period = Period.parse(options["month"])
        except ValueError:
            raise CommandError("Write the month as 2026-12.") from None
        content = accounting.ledger_csv(period).encode() if options["ledger"] else gstr1.file_of(period)
        self.stdout.write(content.decode())
