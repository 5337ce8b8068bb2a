"""Giving back claimed deliveries that were not tried: their leases end, so they are due again at once."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings

from gateway.database.statements import Statements, id_range, uuids

# By primary key; what another worker has claimed meanwhile, because the lease ran out, has a later lease and stays.
_GIVE_BACK = """
UPDATE webhook_deliveries SET next_attempt_at = now(), leased_until = NULL
WHERE id = ANY(%(ids)s::uuid[]) AND id BETWEEN %(first)s AND %(last)s
  AND status IN ('pending', 'failed') AND leased_until > now() AND leased_until <= %(leased_until)s
"""


def giving_back(claimed_at: Mapping[UUID, datetime]) -> Statements[None]:
    """The statement that ends the leases of deliveries that were not tried: they are due again at once.

    `claimed_at` has the database time of each delivery's claim by its id.
    """
    lease = timedelta(seconds=settings.DELIVERY_LEASE_SECONDS)
    yield (
        _GIVE_BACK,
        {
            "ids": uuids(claimed_at),
            "leased_until": max(claimed_at.values()) + lease,
            **id_range(claimed_at),
        },
    )
