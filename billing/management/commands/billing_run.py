"""`manage.py billing_run [--as-of 2026-12-01T09:30:00+05:30]`: run billing for a moment."""

from datetime import datetime
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.dateparse import parse_datetime

from billing.billing_run import run
from gateway.clock import IST, now
from gateway.database.transactions import limited_locks


class Command(BaseCommand):
    help = "End trials, take snapshots, issue invoices, start debits, fetch results, send reminders. Safe to repeat."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--as-of", help="run for this date or date-time, in IST if it has no offset; the default is now"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if not settings.BILLING_ENABLED:
            raise CommandError("Billing is off: set BILLING_ENABLED.")
        with limited_locks():
            report = run(_moment(options["as_of"]) if options["as_of"] else now())
        for name, count in report.items():
            self.stdout.write(f"{name}: {count}")
        if report["failed"]:
            raise CommandError(
                "Some steps failed: see the log. All other steps were done. Run the command again."
            )


def _moment(text: str) -> datetime:
    """Parse a moment. A date alone means 09:30 of that day in Indian time, when debits may begin."""
    try:
        moment = parse_datetime(text if "T" in text or " " in text else f"{text}T09:30:00")
    except ValueError:
        moment = None
    if moment is None:
        raise CommandError("--as-of takes 2026-12-01 or 2026-12-01T09:30:00+05:30.")
    moment = moment if moment.tzinfo else moment.replace(tzinfo=IST)
    if moment > now():
        raise CommandError("--as-of is in the future: invoices of months that are not over would be final.")
    return moment
