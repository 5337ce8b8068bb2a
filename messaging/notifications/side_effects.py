"""Side effects of notifications: numbers, accounts and templates that they change (upstream fact 3.3 rule 7).

Called by the incoming flow inside its transaction, once for each change that brought something new: a repeat that
comes days later must not undo a repair. To add an effect: a function, and its fields in `EFFECTS`.
"""

from collections.abc import Callable, Mapping

import structlog
from django.db import transaction

from gateway.database.outage import concerns_all
from gateway.upstream.notifications.normalise import Change
from messaging.message_templates import events
from messaging.notifications.routing import Owner
from phone_numbers.syncing import sync, upstream_events

log = structlog.get_logger(__name__)

Effect = Callable[[Change, Owner], None]


def has_effect(change: Change) -> bool:
    """Whether `apply` would do anything for the change."""
    return change.field in EFFECTS and change.value is not None


def apply(change: Change, owner: Owner) -> None:
    """Apply what the change's field means for accounts, numbers and templates.

    A failure is logged and does not undo the event; the account is read again from the upstream instead.
    Raises only what an unreachable database raises.
    """
    if not has_effect(change):
        return
    try:
        with transaction.atomic():
            EFFECTS[change.field](change, owner)
    except Exception as error:
        if concerns_all(error):
            raise
        # The upstream would repeat the whole notification for days, for its tenant and all others in it.
        log.exception("side_effect_failed", field=change.field, waba_id=owner.waba_id)
        sync.hint(waba_id=owner.waba_id)


def _numbers(change: Change, owner: Owner) -> None:
    upstream_events.apply(
        field=change.field,
        value=change.value or {},
        waba_id=owner.waba_id,
        phone_number_id=owner.phone_number_id,
    )


def _templates(change: Change, owner: Owner) -> None:
    events.apply(field=change.field, value=change.value or {}, waba_id=owner.waba_id)


EFFECTS: Mapping[str, Effect] = {
    **dict.fromkeys(upstream_events.HANDLERS, _numbers),
    **dict.fromkeys(events.HANDLERS, _templates),
}
"""Upstream field → what it changes here."""
