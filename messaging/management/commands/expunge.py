"""`manage.py expunge`: bodies of a tenant's events are deleted at its request, before their retention ends."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.dateparse import parse_datetime

from messaging.retention import expunge
from tenants import audit
from tenants.models import Tenant


class Command(BaseCommand):
    help = (
        "Delete the bodies of a tenant's events at its request, before their retention ends: of one customer "
        "(--wa-id, --user-id), older than a moment (--before), or all (--all). What is kept of them names no customer."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", type=UUID, required=True)
        parser.add_argument("--wa-id", help="the customer's phone number as events show it, digits only")
        parser.add_argument("--user-id", help="the customer's business-scoped user id")
        parser.add_argument("--before", help="ISO 8601 date-time; without an offset it is UTC")
        parser.add_argument("--all", action="store_true", help="every event of the tenant")

    def handle(self, *args: Any, **options: Any) -> None:
        if not Tenant.objects.filter(pk=options["tenant"]).exists():
            raise CommandError("There is no such tenant.")
        chosen = {name: options[name] for name in ("wa_id", "user_id", "before") if options[name] is not None}
        if bool(chosen) is options["all"]:
            raise CommandError("Say what to expunge: --wa-id, --user-id or --before, or else --all.")
        if "before" in chosen:
            chosen["before"] = _moment(chosen["before"])
        count = expunge(tenant_id=options["tenant"], **chosen)
        # Whose events they were is exactly what must not be written down.
        audit.record(
            action="tenant.expunge",
            target_type="tenant",
            target_id=options["tenant"],
            tenant_id=options["tenant"],
            details={"events": count, "by": sorted(chosen) or ["all"]},
        )
        self.stdout.write(f"Expunged {count} events.")


def _moment(text: str) -> datetime:
    try:
        moment = parse_datetime(text)
    except ValueError:
        moment = None
    if moment is None:
        raise CommandError("--before must be an ISO 8601 date-time.")
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
