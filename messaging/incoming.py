"""Incoming: a notification of the upstream becomes its tenants' events (architecture.md, IN).

normalise → whose is each change → one transaction with events, bodies, deliveries and the side effects. The view
answers 200 only after the commit. Each change is routed by itself; a tenant's `raw` never holds another's bytes.
What belongs to nobody, and what is malformed, is kept and answered 200 (section 3.2 of the upstream facts).
"""

import hashlib
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

import structlog
from django.db import transaction

from gateway.upstream.normalise import Change, EventDraft, normalise
from gateway.upstream.splice import Splitter, rebase
from messaging.models import KeptNotification
from phone_numbers import connection as number_connection
from phone_numbers import lookup
from webhooks.publish import NewEvent, publish

log = structlog.get_logger(__name__)

Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose change it is, and which number it concerns as far as the gateway knows."""

    tenant_id: UUID
    waba_id: str
    phone_number_id: str | None
    display_phone_number: str | None


def accept(body: bytes, *, environments: Collection[str]) -> None:
    """Store a signed notification. `environments` are those whose app secret signed it."""
    normalised = normalise(body)
    if not normalised.changes:
        _keep(body, reason="malformed", error=normalised.error or "no changes")
        return
    routes = _routes(normalised.changes, environments)
    owned: defaultdict[UUID, list[tuple[Change, Owner]]] = defaultdict(list)
    unrouted: list[Change] = []
    for change in normalised.changes:
        owner = _owner(change, routes)
        if owner is None:
            unrouted.append(change)
        else:
            owned[owner.tenant_id].append((change, owner))
    whole = len(owned) == 1 and not unrouted and normalised.error is None
    splitter = None if whole else Splitter(body)
    with transaction.atomic():
        for tenant_id in sorted(owned):
            _publish(tenant_id, owned[tenant_id], body, splitter)
        if unrouted or normalised.error is not None:
            _keep(
                splitter.split({(c.entry, c.change) for c in unrouted})[0] if splitter and unrouted else body,
                reason="unroutable" if unrouted else "malformed",
                error=normalised.error,
                waba_id=unrouted[0].route.entry_id if unrouted else None,
            )


def _routes(changes: Collection[Change], environments: Collection[str]) -> lookup.Routes:
    routes = [change.route for change in changes]
    return lookup.route(
        waba_ids={waba_id for route in routes for waba_id in (route.waba_info_id, route.entry_id) if waba_id},
        phone_number_ids={route.phone_number_id for route in routes if route.phone_number_id},
        environments=environments,
        digits={route.display_phone_number for route in routes if route.display_phone_number},
    )


def _owner(change: Change, routes: lookup.Routes) -> Owner | None:
    """The first hit of: the account named in the value, the number, the entry as account (upstream fact 3.2)."""
    route = change.route
    account = routes.accounts.get(route.waba_info_id or "")
    number = None
    if account is None:
        number = routes.numbers.get(route.phone_number_id or "")
        if number is None:
            account = routes.accounts.get(route.entry_id or "")
            if account is None:
                return None
    if number is None and account is not None:
        number = routes.by_digits.get((account.waba_id, route.display_phone_number or ""))
    if number is not None:
        return Owner(
            number.tenant_id, number.waba_id, number.phone_number_id, _digits(number.display_phone_number)
        )
    assert account is not None  # noqa: S101 - one of the two was found
    return Owner(account.tenant_id, account.waba_id, None, None)


def _publish(
    tenant_id: UUID, changes: list[tuple[Change, Owner]], body: bytes, splitter: Splitter | None
) -> None:
    raw, moved = body, None
    if splitter is not None:
        raw, moved = splitter.split({(change.entry, change.change) for change, _ in changes})
    publish(
        tenant_id=tenant_id,
        raw=raw,
        events=[_event(draft, owner, moved) for change, owner in changes for draft in change.drafts],
    )
    number_connection.touch_last_event(
        {owner.phone_number_id for _, owner in changes if owner.phone_number_id}
    )


def _event(draft: EventDraft, owner: Owner, moved: dict[Place, Place] | None) -> NewEvent:
    return NewEvent(
        type=draft.type,
        dedupe_key=draft.dedupe_key,
        data=draft.data,
        raw_path=draft.raw_path
        if moved is None
        else rebase(draft.raw_path, moved[draft.entry, draft.change]),
        waba_id=owner.waba_id,
        phone_number_id=owner.phone_number_id or draft.phone_number_id,
        display_phone_number=draft.display_phone_number or owner.display_phone_number,
        wamid=draft.wamid,
        wa_id=draft.wa_id,
        user_id=draft.user_id,
    )


def _keep(body: bytes, *, reason: str, error: str | None, waba_id: str | None = None) -> None:
    """Keep what became nobody's event, once however often the upstream repeats it."""
    KeptNotification.objects.bulk_create(
        [
            KeptNotification(
                reason=reason,
                error=error,
                waba_id=waba_id[:64] if waba_id else None,
                body_sha256=hashlib.sha256(body).hexdigest(),
                body=body,
            )
        ],
        ignore_conflicts=True,
    )
    log.warning("notification_kept", reason=reason, error=error)


def _digits(display: str) -> str:
    return "".join(filter(str.isdigit, display))
