"""The sandbox of a tenant: its account and numbers, its customers and their messages, and decisions of Meta.

A sandbox is an account of the simulator with a ready number, connected like any other account. Its ids are derived from
the tenant's id, so repeated and simultaneous creations create one sandbox. A task creates it after the confirmation of
a sign-up, for a new sandbox tenant of a platform, and when a test key is created. A periodic task retries failures, and
the first use creates the parts that are still missing (decision "Sandbox"). The numbers of a sandbox are connected
without an endpoint, because their events can also be read with the event stream, the event log or `GET
/v1/test/conversations`.

Magic recipients and texts cause fixed behaviour. The acts of customers and of Meta are calls to the simulator
(`call_simulator`). The simulator answers only callers that know `SANDBOX_CONTROL_TOKEN`.
"""

import random
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode
from uuid import UUID

import orjson
import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Q

from gateway import ids
from gateway.api.errors import InvalidRequest, NotFound, ServiceError
from gateway.api.validation import unknown_members
from gateway.clock import now
from gateway.database.transactions import concerns_all
from gateway.task_queue import enqueue
from gateway.upstream import blocking_client
from gateway.upstream.calls import GraphAnswer, GraphCall, UpstreamUnreachable
from phone_numbers import onboarding, tokens
from phone_numbers.connection import state
from phone_numbers.models import BusinessAccount, PhoneNumber, sandbox_number_id_of, sandbox_waba_id_of
from tenants.audit import Actor
from tenants.models import Tenant


def call_simulator(
    method: str, path: str, *, json: Any = None, params: Mapping[str, str] | None = None
) -> GraphAnswer:
    """Call `/sim/{path}` of the simulator. Raises UpstreamUnreachable when the simulator does not answer, and when the
    sandbox is off.
    """
    if not settings.SANDBOX_GRAPH_URL:
        raise UpstreamUnreachable("sandbox_off", 0.0, is_unsent=True)
    headers = {"Accept": "application/json", "User-Agent": settings.SERVICE_NAME}
    if settings.SANDBOX_CONTROL_TOKEN:
        headers["Authorization"] = f"Bearer {settings.SANDBOX_CONTROL_TOKEN}"
    body = None
    if json is not None:
        headers["Content-Type"] = "application/json"
        body = orjson.dumps(json)
    url = f"{settings.SANDBOX_GRAPH_URL}/sim/{path}"
    if params:
        url += "?" + urlencode(params)
    return blocking_client.send(GraphCall(method, url, headers, body))


def accepted_object(answer: GraphAnswer) -> dict[str, Any]:
    """The object in an answer. Raises InvalidRequest for a 400, and UpstreamUnreachable for any other error."""
    if answer.status == 400:
        raise InvalidRequest(str(answer.json().get("error")))
    if not answer.ok:
        raise UpstreamUnreachable(f"sandbox_{answer.status}", answer.ms, is_unsent=False)
    return answer.json()


log = structlog.get_logger(__name__)

ENVIRONMENT = "test"
SOUGHT = timedelta(days=7)
"""How long after a tenant's creation the periodic task creates a missing sandbox. Later, only the
first use creates it.
"""
FAILURES = (*tokens.FAILURES, ServiceError)
"""Errors of a creation: the simulator is unavailable or answers with an error."""
MOST_AT_ONCE = 50
MOST_FAILURES = 3
"""A round ends after this many failures. The simulator is then probably unavailable, and each attempt can take the
whole time-out.
"""


def is_made(tenant_id: UUID) -> bool:
    """Whether the tenant's sandbox is complete in the database: its account is subscribed and has a number."""
    accounts = BusinessAccount.objects.for_tenant(tenant_id).filter(waba_id=sandbox_waba_id_of(tenant_id))
    return accounts.filter(subscribed=True, numbers__isnull=False).exists()


def make(tenant_id: UUID) -> None:
    """Create the sandbox or its missing parts. If the simulator has lost the sandbox, create it there again. Raises one
    of `FAILURES`.
    """
    account = (
        BusinessAccount.objects.for_tenant(tenant_id).filter(waba_id=sandbox_waba_id_of(tenant_id)).first()
    )
    numbers = list(PhoneNumber.objects.filter(account=account).order_by("id")) if account else []
    known = [
        {"phone_number_id": number.phone_number_id, "display_phone_number": number.display_phone_number}
        for number in numbers
    ]
    made = accepted_object(
        call_simulator(
            "POST",
            "accounts",
            json={
                "waba_id": sandbox_waba_id_of(tenant_id),
                "name": "Sandbox",
                "numbers": known or [{"phone_number_id": sandbox_number_id_of(tenant_id)}],
                # If the simulator has lost its state, this makes it accept the stored token again.
                "access_token": account.access_token if account else None,
            },
        )
    )
    connect(tenant_id, str(made["access_token"]))


def connect(tenant_id: UUID, token: str) -> None:
    """Connect the sandbox's account with all its numbers. Raises the errors of `onboarding.connect`."""
    waba_id = sandbox_waba_id_of(tenant_id)
    onboarding.connect(
        tenant_id=tenant_id, environment=ENVIRONMENT, waba_id=waba_id, actor=Actor(), access_token=token
    )
    state.recompute(tenant_id=tenant_id, waba_id=waba_id)


def make_after_commit(*, tenant_id: UUID, **_: object) -> None:
    """Receiver of `tenants.signals.sandbox_wanted`. After the commit of the current transaction, enqueues the creation
    of a missing sandbox.
    """
    if settings.SANDBOX_GRAPH_URL and not is_made(tenant_id):
        transaction.on_commit(lambda: enqueue("phone_numbers.tasks.make_sandbox", tenant_id=str(tenant_id)))


def make_missing() -> int:
    """Create the missing sandboxes of tenants younger than `SOUGHT`. Returns the number of created sandboxes.

    The order is random, so sandboxes that can never be created do not block the others.
    """
    missing = _missing() if settings.SANDBOX_GRAPH_URL else []
    random.shuffle(missing)
    made = failures = 0
    for tenant_id in missing[:MOST_AT_ONCE]:
        if try_to_make(tenant_id):
            made += 1
        elif (failures := failures + 1) >= MOST_FAILURES:
            break
    return made


def try_to_make(tenant_id: UUID) -> bool:
    """Create the sandbox. Returns whether this succeeded. A failure is logged, and the next round or the first use
    retries.
    """
    try:
        make(tenant_id)
    except FAILURES as error:
        log.warning("sandbox_not_made", tenant_id=str(tenant_id), error=str(error))
        return False
    except Exception as error:
        if concerns_all(error):
            raise
        log.exception("sandbox_not_made", tenant_id=str(tenant_id))
        return False
    return True


def _missing() -> list[UUID]:
    tenants = Tenant.objects.filter(
        Q(created_via="signup") | Q(sandbox=True),
        id__gte=ids.first_at(now() - SOUGHT),
        status__in=(Tenant.Status.PENDING_APPROVAL, Tenant.Status.ACTIVE),
    )
    by_waba_id = {
        sandbox_waba_id_of(tenant_id): tenant_id for tenant_id in tenants.values_list("id", flat=True)
    }
    complete = BusinessAccount.objects.filter(
        waba_id__in=by_waba_id, subscribed=True, numbers__isnull=False
    ).values_list("waba_id", flat=True)
    return [by_waba_id[waba_id] for waba_id in by_waba_id.keys() - set(complete)]


MOST_NUMBERS = 5
INBOUND_MEMBERS = frozenset(
    """from type text image video audio document sticker location contacts interactive button reaction order edit
    revoke system unsupported name username identity context referral errors""".split()  # noqa: SIM905
)
"""Members of an inbound message that a caller may set."""
_SET_HERE = frozenset({"id", "timestamp", "from_user_id"})
"""Members of WhatsApp's message that the sandbox itself sets. They are ignored in a request."""


def ensure(tenant_id: UUID) -> list[PhoneNumber]:
    """The numbers of a tenant's sandbox. A missing sandbox is created first. Raises one of `FAILURES`."""
    if not is_made(tenant_id):
        make(tenant_id)
    return _numbers(tenant_id)


def add_number(tenant_id: UUID, *, coexistence: bool = False) -> PhoneNumber:
    """Add a number to the sandbox. With `coexistence`, the number is also in the WhatsApp Business app. Raises
    InvalidRequest at the limit.

    The simulator keeps the numbers that the tenant released. They come back first, and count.
    """
    make(tenant_id)
    if len(_numbers(tenant_id)) >= MOST_NUMBERS:
        raise InvalidRequest(f"A sandbox has at most {MOST_NUMBERS} numbers.")
    account = BusinessAccount.objects.get(waba_id=sandbox_waba_id_of(tenant_id))
    asked = {"coexistence": True} if coexistence else {}
    added = _control(tenant_id, f"accounts/{account.waba_id}/phone_numbers", asked)
    connect(tenant_id, account.access_token)
    return next(number for number in _numbers(tenant_id) if number.phone_number_id == added["id"])


def write(tenant_id: UUID, message: Mapping[str, Any]) -> dict[str, Any]:
    """Send a message as a customer of the sandbox. Raises NotFound for a number outside of the sandbox, and
    InvalidRequest.
    """
    number = number_of(tenant_id, message.get("phone_number_id"))
    given = [name for name in message if name not in _SET_HERE]
    if problems := unknown_members(given, INBOUND_MEMBERS | {"phone_number_id"}):
        raise InvalidRequest(details={"fields": problems})
    said = {name: value for name, value in message.items() if name in INBOUND_MEMBERS}
    return _control(tenant_id, "inbound", {**said, "phone_number_id": number.phone_number_id})


def echo(tenant_id: UUID, *, to: str, text: str, phone_number_id: str | None = None) -> dict[str, Any]:
    """Write as the business in the WhatsApp Business app. Raises NotFound, and InvalidRequest for a number that is not
    in the app.
    """
    number = _in_app(number_of(tenant_id, phone_number_id))
    return _control(tenant_id, "echoes", {"phone_number_id": number.phone_number_id, "to": to, "text": text})


def prefer(
    tenant_id: UUID, *, customer: str, value: str, phone_number_id: str | None = None
) -> dict[str, Any]:
    """Stop or resume marketing messages as a customer of the sandbox. Raises NotFound and InvalidRequest."""
    number = number_of(tenant_id, phone_number_id)
    said = {"from": customer, "value": value, "phone_number_id": number.phone_number_id}
    return _control(tenant_id, "preferences", said)


def call_business(tenant_id: UUID, *, phone_number_id: str | None, **caller: Any) -> dict[str, Any]:
    """Call a number of the sandbox as a customer. Raises NotFound and InvalidRequest."""
    number = number_of(tenant_id, phone_number_id)
    if number.coexistence:
        raise InvalidRequest.of(phone_number_id="This number's calls ring only in the WhatsApp Business app.")
    return _control(tenant_id, "calls", {**caller, "phone_number_id": number.phone_number_id})


def calls(tenant_id: UUID, *, phone_number_id: str | None) -> list[Any]:
    """The ringing and active calls of a number. Raises NotFound."""
    return _listed(tenant_id, "calls", phone_number_id)


def act_on_call(tenant_id: UUID, *, call_id: str, action: str) -> dict[str, Any]:
    """Act on a call as the customer. Raises NotFound for a call of another sandbox, and InvalidRequest."""
    return _decide(tenant_id, f"calls/{quote(call_id, safe='')}", {"action": action}, "call")


def has_flow(tenant_id: UUID, message_id: str) -> bool:
    """Whether the sandbox has the Flow of a sent message and the Flow's screens."""
    try:
        flow_step(tenant_id, message_id, probe=True)
    except NotFound:
        return False
    return True


def flow_step(tenant_id: UUID, message_id: str, **step: Any) -> dict[str, Any]:
    """Open the Flow of a message, or press the button of the given `screen`. The result is the next screen, `closed`,
    or the reason why the Flow `failed`.

    Raises NotFound for a message of another sandbox or a Flow without screens, and InvalidRequest.
    """
    return _decide(tenant_id, f"messages/{quote(message_id, safe='')}/flow", step, "Flow")


def messages(tenant_id: UUID, *, phone_number_id: str | None, customer: str | None, limit: int) -> list[Any]:
    """Messages of the sandbox as its customers see them, newest first. Raises NotFound."""
    filters = {} if customer is None else {"customer": customer}
    return _listed(tenant_id, "messages", phone_number_id, limit=str(limit), **filters)


def customers(tenant_id: UUID, *, phone_number_id: str, limit: int) -> list[Any]:
    """The customers of a number with their last message, newest first. Raises NotFound."""
    return _listed(tenant_id, "conversations", phone_number_id, limit=str(limit))


def file(tenant_id: UUID, media_id: str) -> GraphAnswer:
    """A file of the sandbox: its type and bytes. Raises NotFound."""
    answer = call_simulator(
        "GET", f"media/{quote(media_id, safe='')}", params={"waba_id": sandbox_waba_id_of(tenant_id)}
    )
    if answer.status == 404:
        raise NotFound("There is no such file in your sandbox.")
    if not answer.ok:
        accepted_object(answer)
    return answer


def number_of(tenant_id: UUID, phone_number_id: object) -> PhoneNumber:
    """The sandbox's number with this id, or its first number for None. Raises NotFound for any other id."""
    numbers = ensure(tenant_id)
    if phone_number_id is None:
        return numbers[0]
    for number in numbers:
        if number.phone_number_id == phone_number_id:
            return number
    raise NotFound("There is no such number in your sandbox.")


def _in_app(number: PhoneNumber) -> PhoneNumber:
    """Return the number. Raises InvalidRequest for a number that is not in the WhatsApp Business app."""
    if not number.coexistence:
        raise InvalidRequest.of(phone_number_id="This number is not in the WhatsApp Business app.")
    return number


def _control(tenant_id: UUID, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """POST to the simulator. A 404 means that the simulator has lost the sandbox. The sandbox is then created again,
    and the call is repeated.

    A call that got a 404 has changed nothing, so no act happens twice.
    """
    answer = call_simulator("POST", path, json=body)
    if answer.status == 404:
        make(tenant_id)
        answer = call_simulator("POST", path, json=body)
    return accepted_object(answer)


def _listed(tenant_id: UUID, path: str, phone_number_id: str | None, **filters: str) -> list[Any]:
    """The simulator's list for a number. Raises NotFound for a number outside of the sandbox."""
    number = number_of(tenant_id, phone_number_id)
    answer = call_simulator("GET", path, params={"phone_number_id": number.phone_number_id, **filters})
    found: list[Any] = accepted_object(answer)["data"]
    return found


def _numbers(tenant_id: UUID) -> list[PhoneNumber]:
    rows = PhoneNumber.objects.for_environment(tenant_id, ENVIRONMENT).filter(
        account__waba_id=sandbox_waba_id_of(tenant_id)
    )
    return list(
        rows.select_related("account").defer("pin", "meta_snapshot", "account__access_token").order_by("id")
    )


# --- Magic recipients and magic texts for the documentation. The simulator implements their behaviour.
class Recipient(NamedTuple):
    """A recipient that causes one behaviour."""

    to: str
    behaviour: str
    code: int | None


class Text(NamedTuple):
    """A text that causes one behaviour when it is the last line of a message."""

    text: str
    behaviour: str


RECIPIENTS = (
    Recipient(
        "+919800000100", "Accepted, then `sent`, `delivered` and `read`; so is every other number.", None
    ),
    Recipient("+919800000001", "Delivered, but never read.", None),
    Recipient("+919800000008", "Accepted; its statuses come ten seconds late.", None),
    Recipient("+919800000026", "Accepted, then `failed`: the message cannot be delivered.", 131026),
    Recipient(
        "+919800000047", "Accepted, then `failed`: more than 24 hours since the customer wrote.", 131047
    ),
    Recipient("+919800000050", "Accepted, then `failed`: the customer stopped marketing messages.", 131050),
    Recipient("+919800000030", "Refused: the recipient is not in the allowed list.", 131030),
    Recipient("+919800000015", "Refused: the template is paused.", 132015),
    Recipient("+919800000429", "Refused: throttled; 429 with `Retry-After`.", 130429),
)
TEXTS = (
    Text("#reply Thank you", "The customer answers with this text."),
    Text("#image", "The customer answers with a picture."),
    Text("#video", "The customer answers with a video."),
    Text("#audio", "The customer answers with a voice message."),
    Text("#document", "The customer answers with a PDF."),
    Text("#sticker", "The customer answers with a sticker."),
    Text("#location", "The customer answers with a location."),
    Text("#contacts", "The customer answers with a contact card."),
    Text("#order", "The customer answers with an order."),
    Text("#react 👍", "The customer reacts to the message."),
    Text("#tap 2", "The customer chooses the second button or list row; without a number the first."),
    Text("#edit", "The customer writes a message and corrects it."),
    Text("#delete", "The customer writes a message and deletes it."),
    Text("#unread", "Delivered, but never read."),
    Text("#silent", "Accepted; no status ever comes."),
    Text("#late 30", "Its statuses come 30 seconds late; at most 600."),
    Text("#fail 131049", "Accepted, then `failed` with this code."),
    Text("#refuse 131031", "Refused with this code."),
)


# --- Decisions of Meta in a sandbox: statuses of messages, templates, numbers.
#
# The simulator gets the tenant's account with each decision, and rejects objects of other accounts.
def set_status(tenant_id: UUID, *, message_id: str, status: str, code: int | None = None) -> dict[str, Any]:
    """Set the status of a sent message. Raises NotFound for a message of another sandbox, and InvalidRequest."""
    if code is not None and status != "failed":
        raise InvalidRequest.of(code="Goes only with the status `failed`.")
    body: dict[str, Any] = {"status": status} | ({} if code is None else {"code": code})
    return _decide(tenant_id, f"messages/{quote(message_id, safe='')}/status", body, "sent message")


def decide_template(tenant_id: UUID, *, template_id: str, **decision: str) -> dict[str, Any]:
    """Decide about a template. Raises NotFound for a template of another sandbox."""
    return _decide(tenant_id, f"templates/{quote(template_id, safe='')}", decision, "template")


def decide_number(tenant_id: UUID, *, event: str, phone_number_id: str | None = None) -> dict[str, Any]:
    """Decide about a number. Raises NotFound for a number of another sandbox. Raises InvalidRequest for an event of the
    WhatsApp Business app when the number is not in the app.
    """
    number = number_of(tenant_id, phone_number_id)
    if event.startswith("APP_"):
        _in_app(number)
    return _decide(tenant_id, f"phone_numbers/{number.phone_number_id}/events", {"event": event}, "number")


def _decide(tenant_id: UUID, path: str, body: Mapping[str, Any], what: str) -> dict[str, Any]:
    answer = call_simulator("POST", path, json={**body, "waba_id": sandbox_waba_id_of(tenant_id)})
    if answer.status == 404:
        raise NotFound(f"There is no such {what} in your sandbox.")
    return accepted_object(answer)
