"""Routing table of a cell: the beginnings of its keys and its accounts (WABAs).

Each cell writes its own part; the router in front reads them all (`deploy/cells/`). A tenant on a move is still listed
by its former cell, which answers 503 for it, and from the switch on by its new one.
"""

from collections.abc import Iterator

from django.db.models import Q

from gateway.clock import now
from phone_numbers.models import BusinessAccount
from tenants.models import ApiKey, Tenant

_ELSEWHERE = (Tenant.Status.ARRIVING, Tenant.Status.MOVED)


def key_prefixes() -> Iterator[str]:
    """The first characters of every key that can still be used here, of tenants and of platform apps."""
    usable = ApiKey.objects.filter(revoked_at=None).filter(Q(expires_at=None) | Q(expires_at__gt=now()))
    found = usable.exclude(tenant__status__in=_ELSEWHERE)
    return found.order_by("prefix").values_list("prefix", flat=True).iterator()


def waba_ids() -> Iterator[str]:
    """The waba_id of every account here."""
    found = BusinessAccount.objects.exclude(tenant__status__in=_ELSEWHERE)
    return found.order_by("waba_id").values_list("waba_id", flat=True).iterator()
