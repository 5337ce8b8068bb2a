"""State intervals of numbers: from when to when a number was in a connection state. Usage is measured by them.

Written in the transaction that changes the state, under the tenant's lock (`connection.facts_change`).
"""

from collections.abc import Sequence
from datetime import datetime

from django.db.models import F, Value
from django.db.models.functions import Greatest

from gateway.clock import now
from phone_numbers.models import NumberStateInterval, PhoneNumber


def change_state(numbers: Sequence[PhoneNumber]) -> None:
    """Close the numbers' intervals and open those of their new states."""
    if not numbers:
        return
    moment = now()
    _close(numbers, moment)
    NumberStateInterval.objects.bulk_create(
        NumberStateInterval(
            number=number,
            tenant_id=number.tenant_id,
            connection_state=number.connection_state,
            from_at=moment,
        )
        for number in numbers
    )


def end(number: PhoneNumber) -> None:
    """Close the interval of a number that leaves its tenant; its intervals keep what usage shows of it."""
    _close([number], now())
    NumberStateInterval.objects.filter(number=number).update(
        number=None,
        phone_number_id=number.phone_number_id,
        display_phone_number=number.display_phone_number,
        environment=number.environment,
    )


def _close(numbers: Sequence[PhoneNumber], moment: datetime) -> None:
    NumberStateInterval.objects.filter(number__in=numbers, to_at__isnull=True).update(
        to_at=Greatest(F("from_at"), Value(moment))
    )
