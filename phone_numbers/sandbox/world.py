"""The test world of a tenant in use: its numbers, customers who write, and the conversations as those see them.

Its numbers need no endpoint to be connected: their events are read with the event stream, the event log or
`GET /v1/test/conversations` as well.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote
from uuid import UUID

from gateway.api.errors import InvalidRequest, NotFound
from gateway.upstream import sandbox
from gateway.upstream.calls import GraphAnswer
from phone_numbers.models import BusinessAccount, PhoneNumber
from phone_numbers.sandbox import making
from phone_numbers.sandbox.making import ENVIRONMENT
from phone_numbers.sandbox_identity import waba_id_of

MOST_NUMBERS = 5
INBOUND_MEMBERS = frozenset(
    """from type text image video audio document sticker location contacts interactive button reaction order edit
    revoke system unsupported name username identity context referral errors""".split()  # noqa: SIM905
)
"""What a caller may say of a customer's message; the id, the time and the number's owner are the sandbox's."""


def ensure(tenant_id: UUID) -> list[PhoneNumber]:
    """The numbers of a tenant's test world, which is made if it is missing. Raises UpstreamUnreachable."""
    if not making.is_made(tenant_id):
        making.make(tenant_id)
    return _numbers(tenant_id)


def add_number(tenant_id: UUID) -> PhoneNumber:
    """One more number. Raises InvalidRequest beyond `MOST_NUMBERS`."""
    before = {number.phone_number_id for number in ensure(tenant_id)}
    if len(before) >= MOST_NUMBERS:
        raise InvalidRequest(f"A test world has at most {MOST_NUMBERS} numbers.")
    account = BusinessAccount.objects.get(waba_id=waba_id_of(tenant_id))
    sandbox.accepted(_control(tenant_id, "POST", f"accounts/{account.waba_id}/phone_numbers", json={}))
    making.connect(tenant_id, account.access_token)
    return next(number for number in _numbers(tenant_id) if number.phone_number_id not in before)


def write(tenant_id: UUID, message: Mapping[str, Any]) -> dict[str, Any]:
    """A customer of the test world writes. Raises NotFound for a number outside of it, InvalidRequest."""
    number = number_of(tenant_id, message.get("phone_number_id"))
    said = {name: value for name, value in message.items() if name in INBOUND_MEMBERS}
    answer = _control(tenant_id, "POST", "inbound", json={**said, "phone_number_id": number.phone_number_id})
    if answer.status == 400:
        raise InvalidRequest(str(answer.json().get("error", "This makes no message.")))
    return sandbox.accepted(answer)


def messages(tenant_id: UUID, *, phone_number_id: str | None, customer: str | None, limit: int) -> list[Any]:
    """Messages of the test world as its customers see them, newest first. Raises NotFound."""
    number = number_of(tenant_id, phone_number_id)
    filters = {"phone_number_id": number.phone_number_id, "limit": str(limit)}
    if customer is not None:
        filters["customer"] = customer
    found: list[Any] = sandbox.accepted(sandbox.control("GET", "messages", params=filters))["data"]
    return found


def customers(tenant_id: UUID, *, phone_number_id: str, limit: int) -> list[Any]:
    """The customers of a number with their last message, newest first. Raises NotFound."""
    number = number_of(tenant_id, phone_number_id)
    filters = {"phone_number_id": number.phone_number_id, "limit": str(limit)}
    found: list[Any] = sandbox.accepted(sandbox.control("GET", "conversations", params=filters))["data"]
    return found


def file(tenant_id: UUID, media_id: str) -> GraphAnswer:
    """A file of the test world: its type and bytes. Raises NotFound."""
    answer = sandbox.control(
        "GET", f"media/{quote(media_id, safe='')}", params={"waba_id": waba_id_of(tenant_id)}
    )
    if answer.status == 404:
        raise NotFound("There is no such file in your test world.")
    if not answer.ok:
        sandbox.accepted(answer)
    return answer


def number_of(tenant_id: UUID, phone_number_id: object) -> PhoneNumber:
    """The number of the test world with this id, the first for None. Raises NotFound for any other."""
    numbers = ensure(tenant_id)
    if phone_number_id is None:
        return numbers[0]
    for number in numbers:
        if number.phone_number_id == phone_number_id:
            return number
    raise NotFound("There is no such number in your test world.")


def _control(tenant_id: UUID, method: str, path: str, *, json: Any) -> GraphAnswer:
    """A control call that a simulator without the world's account answers with 404: then it is made anew, and asked
    again.

    A call that was answered with 404 has changed nothing, so nothing happens twice.
    """
    answer = sandbox.control(method, path, json=json)
    if answer.status != 404:
        return answer
    making.make(tenant_id)
    return sandbox.control(method, path, json=json)


def _numbers(tenant_id: UUID) -> list[PhoneNumber]:
    rows = PhoneNumber.objects.for_tenant(tenant_id).filter(
        environment=ENVIRONMENT, account__waba_id=waba_id_of(tenant_id)
    )
    return list(
        rows.select_related("account").defer("pin", "meta_snapshot", "account__access_token").order_by("id")
    )
