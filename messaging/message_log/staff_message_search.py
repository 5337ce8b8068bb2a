"""Search of all tenants' messages, for staff: messages with one of Meta's ids, or the newest messages with a
customer.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import OperationalError, connection, transaction

from gateway.clock import now
from messaging.message_log.message_search import MESSAGES
from webhooks.models import Message

MOST_TENANTS = 5_000
"""How many tenants a search covers. If there are more, only the newest tenants are searched."""

# One index look-up for each tenant, newest first, because no index covers all tenants. Citus does not support a limit
# for each tenant.
_NEWEST = "(SELECT id FROM tenants_tenant ORDER BY id DESC LIMIT %(tenants)s)"
_BY_TENANT = f"""{_NEWEST} t
CROSS JOIN LATERAL (SELECT * FROM messages WHERE tenant_id = t.id AND {{condition}} {{first}})"""  # noqa: S608
_BY_NODE = f"(SELECT * FROM messages WHERE tenant_id = ANY(ARRAY{_NEWEST}) AND {{condition}})"  # noqa: S608
_EVERYWHERE = f"""
SELECT {", ".join(f"m.{column}" for column in MESSAGES.columns)}
FROM {_BY_NODE if settings.DATABASE_IS_DISTRIBUTED else _BY_TENANT} m
ORDER BY m.id DESC LIMIT %(limit)s
"""  # noqa: S608 - only column names and the conditions below are formatted in
_FIND_EVERYWHERE = _EVERYWHERE.format(
    condition="environment IN ('live', 'test') AND key = %(key)s", first="ORDER BY month LIMIT 1"
)
_OF_CUSTOMER_EVERYWHERE = _EVERYWHERE.format(
    condition="wa_id = ANY(%(wa_ids)s) AND month >= %(first_month)s", first="ORDER BY id DESC LIMIT %(limit)s"
)


def find(key: str) -> list[Message]:
    """The messages of any tenant with this id. Empty when the database takes longer than three seconds."""
    return _everywhere(_FIND_EVERYWHERE, key=key)


def find_of_customer(wa_ids: Sequence[str]) -> list[Message]:
    """The newest messages with a customer at any tenant, in this month and the two months before.

    Empty when the database takes longer than three seconds.
    """
    first_month = now().date().replace(day=1)
    for _ in range(2):
        first_month = (first_month - timedelta(days=1)).replace(day=1)
    return _everywhere(_OF_CUSTOMER_EVERYWHERE, wa_ids=list(wa_ids), first_month=first_month)


def _everywhere(statement: str, **parameters: Any) -> list[Message]:
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            # Without this, the planner prefers a sequential scan of `messages` while its partitions are new.
            cursor.execute("SET LOCAL statement_timeout = '3s'; SET LOCAL enable_seqscan = off")
            cursor.execute(statement, {**parameters, "tenants": MOST_TENANTS, "limit": 10})
            return [MESSAGES.instance(row) for row in cursor.fetchall()]
    except OperationalError:
        return []
