"""`manage.py billing_export 2026-12`: the documents of a month as CSV, one row each, in the shape of GSTR-1."""

import csv
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from billing.accounting import COLUMNS, rows
from billing.pricing.periods import Period


class Command(BaseCommand):
    help = "Writes the invoices and credit notes that were issued in a month, as CSV in rupees."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("month", help="the month of issue in Indian time, e.g. 2026-12")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            period = Period.parse(options["month"])
        except ValueError:
            raise CommandError("The month is written 2026-12.") from None
        writer = csv.writer(self.stdout)
        writer.writerow(COLUMNS)
        writer.writerows(rows(period))
