"""The test world of a tenant: an account of the simulator with a ready number, and customers who write.

It is made by the first call that needs it, which is safe to repeat and to race, since its ids follow from the tenant's.
Its numbers need no endpoint to be connected: their events are read with the event stream, the
event log or `GET /v1/test/conversations` as well.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from gateway.api.errors import InvalidRequest, NotFound
from gateway.upstream import sandbox
from gateway.upstream.calls import GraphAnswer, UpstreamUnreachable
from phone_numbers import connection, onboarding
from phone_numbers.actors import Actor
from phone_numbers.models import BusinessAccount, PhoneNumber
from phone_numbers.sandbox_identity import first_number_of, waba_id_of

ENVIRONMENT = "test"
MOST_NUMBERS = 5
INBOUND_MEMBERS = frozenset(
    """from type text image video audio document sticker location contacts interactive button reaction order system
    unsupported name username identity context referral errors""".split()  # noqa: SIM905
)
"""What a caller may say of a customer's message; the id, the time and the number's owner are the sandbox's."""


def ensure(tenant_id: UUID) -> list[PhoneNumber]:
    """The numbers of a tenant's test world, which is made if it is missing. Raises UpstreamUnreachable."""
    numbers = _numbers(tenant_id)
    if numbers:
        return numbers
    waba_id = waba_id_of(tenant_id)
    made = _accepted(
        sandbox.control(
            "POST",
            "accounts",
            json={
                "waba_id": waba_id,
                "name": "Sandbox",
                "numbers": [{"phone_number_id": first_number_of(tenant_id)}],
            },
        )
    )
    _connect(tenant_id, str(made["access_token"]))
    return _numbers(tenant_id)


def add_number(tenant_id: UUID) -> PhoneNumber:
    """One more number. Raises InvalidRequest beyond `MOST_NUMBERS`."""
    before = {number.phone_number_id for number in ensure(tenant_id)}
    if len(before) >= MOST_NUMBERS:
        raise InvalidRequest(f"A test world has at most {MOST_NUMBERS} numbers.")
    account = BusinessAccount.objects.get(waba_id=waba_id_of(tenant_id))
    _accepted(sandbox.control("POST", f"accounts/{account.waba_id}/phone_numbers", json={}))
    _connect(tenant_id, account.access_token)
    return next(number for number in _numbers(tenant_id) if number.phone_number_id not in before)


def write(tenant_id: UUID, message: Mapping[str, Any]) -> dict[str, Any]:
    """A customer of the test world writes. Raises NotFound for a number outside of it, InvalidRequest."""
    number = _number(tenant_id, message.get("phone_number_id"))
    said = {name: value for name, value in message.items() if name in INBOUND_MEMBERS}
    answer = sandbox.control("POST", "inbound", json={**said, "phone_number_id": number.phone_number_id})
    if answer.status == 400:
        raise InvalidRequest(str(answer.json().get("error", "This makes no message.")))
    return _accepted(answer)


def conversations(
    tenant_id: UUID, *, phone_number_id: str | None, customer: str | None, limit: int
) -> list[Any]:
    """Messages of the test world as its customers see them, newest first. Raises NotFound."""
    number = _number(tenant_id, phone_number_id)
    filters = {"phone_number_id": number.phone_number_id, "limit": str(limit)}
    if customer is not None:
        filters["customer"] = customer
    found: list[Any] = _accepted(sandbox.control("GET", "messages", params=filters))["data"]
    return found


def _number(tenant_id: UUID, phone_number_id: object) -> PhoneNumber:
    numbers = ensure(tenant_id)
    if phone_number_id is None:
        return numbers[0]
    for number in numbers:
        if number.phone_number_id == phone_number_id:
            return number
    raise NotFound("There is no such number in your test world.")


def _numbers(tenant_id: UUID) -> list[PhoneNumber]:
    rows = PhoneNumber.objects.for_tenant(tenant_id).filter(
        environment=ENVIRONMENT, account__waba_id=waba_id_of(tenant_id)
    )
    return list(
        rows.select_related("account").defer("pin", "meta_snapshot", "account__access_token").order_by("id")
    )


def _connect(tenant_id: UUID, token: str) -> None:
    waba_id = waba_id_of(tenant_id)
    onboarding.connect(
        tenant_id=tenant_id, environment=ENVIRONMENT, waba_id=waba_id, actor=Actor(), access_token=token
    )
    connection.recompute(tenant_id=tenant_id, waba_id=waba_id)


def _accepted(answer: GraphAnswer) -> dict[str, Any]:
    if not answer.ok:
        raise UpstreamUnreachable(f"sandbox_{answer.status}", answer.ms, is_unsent=False)
    return answer.json()
