"""The upstream's view of numbers, stored: quality, tier, name, throughput, whether registered.

Written after onboarding, by `refresh=true` and by the sync; the whole view is kept as `meta_snapshot`.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from gateway.clock import now
from gateway.upstream import numbers as upstream
from phone_numbers.connection import state
from phone_numbers.models import PhoneNumber


def store_view(number: PhoneNumber, view: Mapping[str, Any], *, read_at: datetime) -> None:
    """Store what the upstream said of a number at `read_at`, and recompute its connection.

    A command or an event later than `read_at` decides the registration.
    """
    with state.facts_change(tenant_id=number.tenant_id, phone_number_id=number.phone_number_id):
        current = (
            PhoneNumber.objects.select_for_update(of=("self",)).defer("pin").filter(pk=number.pk).first()
        )
        if current is None:
            return  # released meanwhile
        columns = {**upstream.number_columns(view), "meta_snapshot": dict(view), "refreshed_at": now()}
        registered = upstream.registered(view)
        outdated = current.facts_changed_at is not None and current.facts_changed_at > read_at
        if registered is not None and not outdated:
            columns["registered"] = registered
            if registered and current.registered_at is None:
                columns["registered_at"] = upstream.onboarded_at(view) or read_at
        for name, value in columns.items():
            length = getattr(PhoneNumber._meta.get_field(name), "max_length", None)
            setattr(current, name, value[:length] if isinstance(value, str) else value)
        current.save(update_fields=list(columns))
