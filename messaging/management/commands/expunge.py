"""`manage.py expunge`: delete the bodies of a tenant's events at its request, before their retention ends, or erase one
customer.
"""

import math
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.dateparse import parse_datetime

from messaging import erasure
from messaging.models import Erasure
from messaging.retention import delete_opt_outs, expunge
from tenants import audit
from tenants.audit import Actor
from tenants.models import Tenant


class Command(BaseCommand):
    help = (
        "Delete bodies of a tenant's events before their retention ends, when the tenant asks for it. Choose the "
        "events of one customer (--wa-id, --user-id), those before a moment (--before), or all (--all). The rest of "
        "each event is kept, without the customer's ids. With --all, the opt-outs are deleted too. One customer "
        "without --before is erased as by the tenant's own request: with scheduled messages, opt-outs, stored answers "
        "and export files."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", type=UUID)
        parser.add_argument(
            "--again",
            type=Path,
            help="after a restore, erase these customers again: a file with the tenant_id and the customer_hash of "
            "each `customer_erased` in the log",
        )
        parser.add_argument("--wa-id", help="the customer's phone number in digits, as events show it")
        parser.add_argument("--user-id", help="the customer's business-scoped user id")
        parser.add_argument(
            "--before", help="only events before this ISO 8601 date-time, which is UTC without an offset"
        )
        parser.add_argument("--all", action="store_true", help="all events of the tenant")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["again"] is not None:
            customers, unknown = _erase_again(options["again"])
            self.stdout.write(f"Erased {customers} customers again.")
            for tenant_id, customer_hash in unknown:
                self.stderr.write(f"No data was found for {tenant_id} {customer_hash}.")
            return
        if not Tenant.objects.filter(pk=options["tenant"]).exists():
            raise CommandError("There is no such tenant.")
        chosen = {name: options[name] for name in ("wa_id", "user_id", "before") if options[name] is not None}
        if bool(chosen) is options["all"]:
            raise CommandError("Say what to expunge: --wa-id, --user-id or --before, or else --all.")
        if "before" in chosen:
            chosen["before"] = _moment(chosen["before"])
        if "before" in chosen or options["all"]:
            count = expunge(tenant_id=options["tenant"], **chosen)
            opt_outs = 0 if "before" in chosen else delete_opt_outs(options["tenant"])
        else:
            receipts = _complete(
                [
                    erasure.request(
                        tenant_id=options["tenant"], customer_id=each, actor=Actor(), wakes_worker=False
                    )
                    for each in chosen.values()
                ]
            )
            count, opt_outs = (sum(each[kind] for each in receipts) for kind in ("events", "opt_outs"))
        # The log must not name the customer whose events are deleted.
        audit.record(
            action="tenant.expunge",
            target_type="tenant",
            target_id=options["tenant"],
            tenant_id=options["tenant"],
            details={"events": count, "by": sorted(chosen) or ["all"]},
        )
        self.stdout.write(f"Expunged {count} events.")
        if opt_outs:
            self.stdout.write(f"Deleted {opt_outs} opt-outs.")


def _erase_again(path: Path) -> tuple[int, list[tuple[UUID, str]]]:
    """Erase the customers in a file. Each line of the file has a tenant's id and a hash. Returns the number of
    customers, and the lines for which no customer was found.
    """
    hashes: defaultdict[UUID, set[str]] = defaultdict(set)
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise CommandError(str(error)) from None
    for line in filter(str.strip, lines):
        words = line.replace(",", " ").split()
        try:
            tenant_id, customer_hash = UUID(words[0]), words[1]
        except (IndexError, ValueError):
            raise CommandError(f"Not a tenant_id and a customer_hash: {line[:120]}") from None
        hashes[tenant_id].add(customer_hash)
    requested: list[Erasure] = []
    unknown = []
    for tenant_id, some in hashes.items():
        found, without = erasure.request_again(tenant_id, some)
        requested += found
        unknown += [(tenant_id, customer_hash) for customer_hash in sorted(without)]
    return len(_complete(requested)), unknown


def _complete(requested: list[Erasure]) -> list[dict[str, int]]:
    """Run erasures, and return their receipts. Raises CommandError if one is not done."""
    erasure.run_open(seconds=math.inf)
    ids = [each.pk for each in requested]
    if unfinished := Erasure.objects.filter(pk__in=ids, completed_at=None).count():
        raise CommandError(
            f"{unfinished} of {len(ids)} erasures are not done. `erasure_failed` in the log has the reason, or another "
            "process holds them: after an interruption, repeat the command half an hour later."
        )
    return [each.erased or {} for each in Erasure.objects.filter(pk__in=ids)]


def _moment(text: str) -> datetime:
    try:
        moment = parse_datetime(text)
    except ValueError:
        moment = None
    if moment is None:
        raise CommandError("--before must be an ISO 8601 date-time.")
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
