"""Operations on one number (specification 4): read its health, read and change its business profile, and repair the
number. A repair subscribes the number's account again.

Each operation makes a Graph API call and stores the change that the call causes. Some return Meta's own response.
`find` raises NotFound for a number of another tenant. A rejection by Meta raises `Refused`, which has the response to
pass through. Registration and verification are in `registration.py`.

Meta's `health_status` lists the entities on which sending a message depends (number, business account, business, app).
Each entity is AVAILABLE, LIMITED (with `additional_info`) or BLOCKED (with `errors`).
"""

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

import structlog

from gateway.api.errors import NotFound
from gateway.clock import now
from gateway.upstream import numbers as upstream
from gateway.upstream.calls import GraphAnswer
from gateway.upstream.notifications.lossless_json import member, objects
from phone_numbers import onboarding, sync, tokens
from phone_numbers.connection import state
from phone_numbers.models import BusinessAccount, PhoneNumber, TakenAway
from phone_numbers.tokens import FAILURES, accepted_for, graph_of

log = structlog.get_logger(__name__)


def find(*, tenant_id: UUID, environment: str, phone_number_id: str) -> PhoneNumber:
    """The tenant's number in the caller's environment, with its account. Raises NotFound."""
    number = (
        PhoneNumber.objects.for_tenant(tenant_id)
        .select_related("account")
        .filter(phone_number_id=phone_number_id, environment=environment)
        .first()
    )
    if number is None:
        raise NotFound(
            "There is no such number.",
            hint="Name it by its phone_number_id: GET /v1/numbers lists yours of the key's environment.",
        )
    return number


def refresh(number: PhoneNumber) -> PhoneNumber:
    """Read the number from the Graph API and store the view as `meta_snapshot`. Also read whether the account is
    subscribed, and check a token that was marked invalid. Raises the errors of `accepted` for the number.
    """
    onboarding.refresh(number.account, number)
    try:
        sync.read_subscription(number.account)
    except FAILURES as error:
        log.warning("subscription_not_read", error=type(error).__name__)
    _ask_again(number.account)
    return PhoneNumber.objects.select_related("account").get(pk=number.pk)


def subscribe(number: PhoneNumber) -> PhoneNumber:
    """Repair a number: subscribe its account again, read the number again, and recompute its connection. A number that
    Meta lists as registered is no longer removed.

    Raises only an error of the subscription. If the number cannot be read, the next sync reads it.
    """
    onboarding.subscribe(number.account)
    try:
        view = onboarding.refresh(number.account, number)
    except FAILURES as error:
        log.warning("number_view_not_read", error=type(error).__name__)
    else:
        if upstream.registered(view):
            _bring_back(number)
    _ask_again(number.account)
    return PhoneNumber.objects.select_related("account").get(pk=number.pk)


def _bring_back(number: PhoneNumber) -> None:
    with state.facts_change(tenant_id=number.tenant_id, phone_number_id=number.phone_number_id):
        removed = PhoneNumber.objects.filter(pk=number.pk, taken_away=TakenAway.ACCOUNT_REMOVED)
        removed.update(taken_away=None, facts_changed_at=now())


def _ask_again(account: BusinessAccount) -> None:
    """Check a token that is marked invalid although a call with it has just worked. A failed check changes nothing."""
    if account.token_invalid_at is not None:
        try:
            tokens.check(account)
        except FAILURES as error:
            log.warning("token_check_failed", account=str(account.pk), error=type(error).__name__)


def find_account(*, tenant_id: UUID, environment: str, waba_id: str) -> BusinessAccount:
    """The tenant's business account in the caller's environment. Raises NotFound."""
    accounts = BusinessAccount.objects.for_environment(tenant_id, environment)
    account = accounts.filter(waba_id=waba_id).first()
    if account is None:
        raise NotFound("There is no such business account.")
    return account


def business_profile(number: PhoneNumber) -> GraphAnswer:
    """The number's business profile."""
    return accepted_for(number.account, graph_of(number.account).business_profile(number.phone_number_id))


def set_business_profile(number: PhoneNumber, *, body: bytes) -> GraphAnswer:
    """Change the business profile. The caller's body is sent unchanged."""
    graph = graph_of(number.account)
    return accepted_for(number.account, graph.set_business_profile(number.phone_number_id, body))


def read_health(number: PhoneNumber) -> dict[str, Any]:
    """Read a number's health from the Graph API. Raises Refused and UpstreamUnreachable."""
    view = accepted_for(number.account, graph_of(number.account).number(number.phone_number_id)).json()
    status = member(view, "health_status")
    return {
        "phone_number_id": number.phone_number_id,
        "connection_state": number.connection_state,
        "connection_detail": number.connection_detail,
        "can_send_message": _text(status.get("can_send_message")),
        "entities": [
            {
                "entity_type": _text(entity.get("entity_type")),
                "id": _text(entity.get("id")),
                "can_send_message": _text(entity.get("can_send_message")),
                "reasons": [*_errors(entity), *_limits(entity)],
            }
            for _, entity in objects(status, "entities")
        ],
        "checked_at": now(),
    }


def _errors(entity: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for _, error in objects(entity, "errors"):
        code = error.get("error_code")
        yield {
            "code": code if isinstance(code, int) else None,
            "description": _text(error.get("error_description")),
            "what_to_do": _text(error.get("possible_solution")),
        }


def _limits(entity: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    info = entity.get("additional_info")
    for text in info if isinstance(info, list) else []:
        yield {"code": None, "description": _text(text), "what_to_do": None}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
