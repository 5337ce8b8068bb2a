"""`POST /{number}/messages` and related calls: the hot path of the simulated Graph API (upstream fact 1.1).

The checks are in Meta's order (1.1.6). A message that passes is answered with a wamid at once. `statuses.py` sends the
statuses later. Nothing here waits, so a send costs little more than its HTTP request.
"""

import re
import time
from typing import Any

import orjson

from simulator.customer_messages import magic
from simulator.customers import resolve
from simulator.errors import GraphError
from simulator.graph.dispatch import CREDENTIALS, Call, Table
from simulator.graph.groups import owner_of
from simulator.graph.media_checks import check_media_ids, media_problem
from simulator.graph.message_checks import CHECKS, bad, check, missing
from simulator.graph.schema import with_objects
from simulator.message_templates.checks import check_parameters, find_template
from simulator.world.identifiers import message_id
from simulator.world.records import Account, Message, Number

_REACTION_SECONDS = 30 * 86_400
"""How long after a message a reaction to it is possible."""
_USER_ID = re.compile(r"[A-Z]{2}\.(?:ENT\.)?[A-Za-z0-9]+")
_OBJECTS = {
    "": frozenset({*CHECKS, "context", "typing_indicator"}),
    "interactive": frozenset({"action", "body", "footer", "header"}),
    "interactive.action": frozenset({"buttons", "cards", "parameters", "sections"}),
    "template": frozenset({"components", "language"}),
}
"""Members of a message that may be given as JSON text, by their path."""
_NOT_DIGITS = str.maketrans("", "", "+-() .")


async def send(call: Call) -> bytes:
    """POST /{number}/messages: send a message, or mark one as read."""
    number = call.sending_number()
    body = _body(call)
    if body.get("messaging_product") != "whatsapp":
        raise GraphError(100, message="(#100) The parameter messaging_product is required.", details=None)
    if "status" in body:
        return mark_read(call, number, body)
    check(body)
    if is_user_id(body.get("to")) and body.get("recipient_type") != "group":
        return _dropped(call, number, body)
    is_template = body.get("type") == "template"
    if not is_template:
        check_media_ids(call, number, body)
    account = call.sim.state.accounts[number.waba_id]
    if not number.registered:
        raise GraphError(133010)
    if account.locked:
        raise GraphError(131031, "The business account has been locked.")
    call.sim.throttle.take_send(number)
    customer, contact, group = _recipient(call, number, body)
    is_magic = call.sim.settings.recipients.magic and not group
    effect = magic.effect_of(customer, body) if is_magic else magic.ORDINARY
    if effect.refused is not None:
        raise GraphError(effect.refused)
    if not group:
        _check_recipient(call, number, customer)
    category: str = "service"
    rendered: dict[str, Any] | None = None
    if is_template:
        category, rendered = _check_template(call, account, body, recipient_is_id=body.get("to") is None)
        check_media_ids(call, number, body)
    message = Message(
        id=message_id(customer, inbound=False),
        phone_number_id=number.id,
        customer=customer,
        direction="outbound",
        timestamp=time.time(),
        body=body,
        status="accepted",
        rendered=rendered,
    )
    call.message_id = message.id
    call.sim.add_message(message)
    failure = effect.failed or (None if group else _window_failure(call, message))
    if body.get("type") == "reaction" and not failure:
        if _can_react(call, message):
            call.sim.react(body["reaction"])
        else:
            failure = 131009
    wrong_file = media_problem(call, body)
    if not effect.is_silent:
        call.sim.statuses.accepted(
            message,
            category=category,
            failure=131053 if wrong_file else failure,
            details=wrong_file,
            is_read=effect.is_read,
            late_ms=effect.late_ms,
        )
    if not (failure or wrong_file):
        magic.answer(call.sim, message, effect)
    answer: dict[str, Any] = {"id": message.id}
    if group:
        answer["group_id"] = customer
    if rendered is not None:
        answer["message_status"] = "accepted"
    return orjson.dumps({"messaging_product": "whatsapp", "contacts": [contact], "messages": [answer]})


async def send_marketing(call: Call) -> bytes:
    """POST /{number}/marketing_messages: like `messages`, but only for marketing templates."""
    number = call.sending_number()
    body = call.json()
    if body.get("type") != "template":
        raise GraphError(134100)
    check(body)
    if find_template(call.sim.state, number.waba_id, body["template"]).category != "MARKETING":
        raise GraphError(134100)
    return await send(call)


def _body(call: Call) -> dict[str, Any]:
    """The message. Members that were sent as JSON text are parsed."""
    if call.body.lstrip()[:1] == b"{":
        body = call.json()
        if b'"{' not in call.body and b'"[' not in call.body:
            # In nearly all messages no member is JSON text.
            return body
    else:
        body = {
            name: value for name, value in call.params().items() if name not in CREDENTIALS
        } or call.json()
    read: dict[str, Any] = with_objects(body, _OBJECTS)
    return read


def _dropped(call: Call, number: Number, body: dict[str, Any]) -> bytes:
    """Accept a message with a business-scoped user id in `to`, and drop it silently, as Meta does."""
    to = str(body["to"])
    message = Message(
        id=message_id("0", inbound=False),
        phone_number_id=number.id,
        customer=to,
        direction="outbound",
        timestamp=time.time(),
        body=body,
        status="accepted",
    )
    call.message_id = message.id
    call.sim.add_message(message)
    contact = {"input": to, "wa_id": to}
    return orjson.dumps(
        {"messaging_product": "whatsapp", "contacts": [contact], "messages": [{"id": message.id}]}
    )


def mark_read(call: Call, number: Number, body: dict[str, Any]) -> bytes:
    """Mark an inbound message and all earlier ones as read. Show the typing indicator if requested (upstream fact
    1.1.4).
    """
    if body["status"] != "read":
        raise bad("status", "must be read")
    wanted = body.get("message_id")
    if not isinstance(wanted, str) or not wanted:
        raise missing("message_id")
    typing = body.get("typing_indicator")
    if typing is not None and (not isinstance(typing, dict) or typing.get("type") != "text"):
        raise bad("typing_indicator['type']", "must be text")
    target = call.sim.state.messages.get(wanted)
    if target is None or target.direction != "inbound" or target.phone_number_id != number.id:
        raise GraphError(131009, "Message ID is invalid or too old.")
    for message in call.sim.state.messages.between(number.id, target.customer):
        if (
            message.direction == "inbound"
            and message.timestamp <= target.timestamp
            and message.status != "read"
        ):
            message.status = "read"
            call.sim.message_changed(message)
    if typing and call.sim.chats:
        call.sim.chats.say({"typing": {"phone_number_id": number.id, "customer": target.customer}})
    return b'{"success":true}'


def _recipient(call: Call, number: Number, body: dict[str, Any]) -> tuple[str, dict[str, str], bool]:
    """The recipient of a message, the `contacts` entry of the answer, and whether the recipient is a group."""
    to = body.get("to")
    if isinstance(to, int) and not isinstance(to, bool):
        to = str(to)
    if to is None:
        user_id = body.get("recipient")
        if user_id is None:
            raise missing("to")
        if not isinstance(user_id, str) or "." not in user_id:
            raise bad("recipient", "is not a business-scoped user ID")
        customer = resolve(call.sim.state, call.sim.state.accounts[number.waba_id], user_id)
        return customer, {"input": user_id, "user_id": user_id}, False
    if not isinstance(to, str) or not to:
        raise bad("to", "is not a valid recipient")
    if body.get("recipient_type", "individual") == "group":
        if owner_of(call.sim, to) is not number:
            raise GraphError(131041)
        return to, {"input": to, "wa_id": to}, True
    digits = to.translate(_NOT_DIGITS)
    if not digits.isdigit() or not digits.isascii() or digits.startswith("0") or not 5 <= len(digits) <= 15:
        # An international number has no leading 0.
        raise GraphError(131009, "Recipient phone number is not valid.")
    if len(digits) <= 10 and not to.startswith("+"):
        digits = number.digits[: len(number.digits) - 10] + digits
    return digits, {"input": to, "wa_id": digits}, False


def is_user_id(to: Any) -> bool:
    """Whether a recipient is a business-scoped user id (upstream fact 0.5)."""
    return isinstance(to, str) and _USER_ID.fullmatch(to) is not None


def _check_recipient(call: Call, number: Number, customer: str) -> None:
    call.sim.throttle.take_pair(number, customer)
    if customer == number.digits:
        raise GraphError(131021, "Sender and recipient are the same number.")
    if customer in call.sim.state.objects.get(f"{number.id}/block_users", {}):
        raise GraphError(130403)
    if number.allowed_recipients is not None and customer not in number.allowed_recipients:
        raise GraphError(131030)


def _check_template(
    call: Call, account: Account, body: dict[str, Any], *, recipient_is_id: bool
) -> tuple[str, dict[str, Any]]:
    source = body["template"]
    template = find_template(call.sim.state, account.waba_id, source)
    if recipient_is_id and template.category == "AUTHENTICATION":
        raise GraphError(131062)
    rendered = check_parameters(template, source.get("components") or [])
    return template.category.lower(), rendered


def _window_failure(call: Call, message: Message) -> int | None:
    if not call.sim.settings.recipients.window or message.body.get("type") == "template":
        return None
    is_open = call.sim.state.messages.is_open(message.phone_number_id, message.customer, message.timestamp)
    return None if is_open else 131047


def _can_react(call: Call, reaction: Message) -> bool:
    """Whether the message to which a message reacts is in the same chat, and neither old, deleted nor a reaction."""
    target = call.sim.state.messages.get(str(reaction.body["reaction"]["message_id"]))
    return (
        target is not None
        and (target.phone_number_id, target.customer) == (reaction.phone_number_id, reaction.customer)
        and target.change != "deleted"
        and target.body.get("type") != "reaction"
        and reaction.timestamp - target.timestamp <= _REACTION_SECONDS
    )


def register(table: Table) -> None:
    """Register these routes in the table."""
    table.edge("POST", "messages", send)
    table.edge("POST", "marketing_messages", send_marketing)
