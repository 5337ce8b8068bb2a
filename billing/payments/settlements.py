"""Settlements: post the amounts that the provider paid to the bank, with their fees. Each item is stored for
reconciliation.

Called by every billing run and after a notice. Settlements are read newest first, until `LOOKED_BACK` of them are found
to be posted already. The run's moment makes no difference.
"""

from dataclasses import asdict
from datetime import datetime

import structlog
from django.conf import settings
from django.db import transaction

from billing import ledger
from billing.error_isolation import each
from billing.models import LedgerEntry, LedgerPosting, SettledItem
from billing.payments.provider import Settled, Settlement, provider

log = structlog.get_logger(__name__)

Account = LedgerPosting.Account
LOOKED_BACK = 50
"""When this many of the newest settlements are posted already, all older settlements are assumed to be posted."""


def reconcile(_: datetime) -> int:
    """Post every new settlement. Does not call the provider before the first payment was collected."""
    collected = LedgerPosting.objects.filter(account=Account.CLEARING).exists()
    return each([settings.PAYMENT_PROVIDER] if collected else [], _reconcile, step="settlements")


def _reconcile(name: str) -> int:
    pay = provider(name)
    waiting, known = [], 0
    for settlement in pay.settlements():
        if LedgerEntry.objects.filter(key=_key(settlement)).exists():
            known += 1
            if known == LOOKED_BACK:
                break
        else:
            waiting.append(settlement)
    for settlement in reversed(waiting):
        _book(settlement, pay.settled_of(settlement))
    return len(waiting)


def _key(settlement: Settlement) -> str:
    return f"settlement {settlement.id}"


def _book(settlement: Settlement, items: list[Settled]) -> None:
    """Post a settlement and store its items. A settlement waits while its items do not add up to its amount."""
    if sum(item.net_paise for item in items) != settlement.amount_paise:
        log.warning("settlement_not_complete", settlement=settlement.id, items=len(items))
        return
    fees = sum(item.fee_paise - item.tax_paise for item in items)
    tax = sum(item.tax_paise for item in items)
    amounts = {
        Account.BANK: settlement.amount_paise,
        Account.FEES: fees,
        Account.FEE_GST: tax,
        Account.CLEARING: -(settlement.amount_paise + fees + tax),
    }
    with transaction.atomic():
        booked = ledger.post(
            LedgerEntry.Act.SETTLEMENT,
            _key(settlement),
            settlement.at,
            amounts,
            text=f"{settlement.id} {settlement.utr}",
        )
        if booked:
            known = {"utr": settlement.utr, "settled_at": settlement.at}
            rows = [SettledItem(**asdict(item), **known) for item in items]
            SettledItem.objects.bulk_create(rows, ignore_conflicts=True)
