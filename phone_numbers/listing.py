"""The list of a tenant's numbers, as the API shows them."""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from gateway.database.statements import bulk_cursor


class ListedNumber(NamedTuple):
    """What a list shows of a number and of its account."""

    phone_number_id: str
    display_phone_number: str
    verified_name: str | None
    waba_id: str
    connection_state: str
    connection_detail: str | None
    quality_rating: str | None
    messaging_limit_tier: str | None
    throughput_level: str | None
    name_status: str | None
    registered_at: datetime | None
    last_event_at: datetime | None


# Written out: composing it would take longer than running it.
_LIST = """
SELECT n.phone_number_id, n.display_phone_number, n.verified_name, a.waba_id, n.connection_state, n.connection_detail,
       n.quality_rating, n.messaging_limit_tier, n.throughput_level, n.name_status, n.registered_at, n.last_event_at
FROM numbers_phonenumber n JOIN numbers_businessaccount a ON a.id = n.account_id
WHERE n.tenant_id = %s AND n.environment = %s
ORDER BY n.id DESC
"""


def listed(*, tenant_id: UUID, environment: str) -> list[ListedNumber]:
    """A tenant's numbers of one environment, newest first."""
    with bulk_cursor(prepared=True) as cursor:
        cursor.execute(_LIST, [tenant_id, environment])
        return [ListedNumber(*row) for row in cursor.fetchall()]
