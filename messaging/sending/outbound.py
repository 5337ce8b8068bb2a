"""Outbound messages: checks of the caller's body, the body and call for the upstream, and the `message.outbound` event.

The upstream gets the caller's bytes without `from` and with `messaging_product` added. The order of members and the
form of numbers stay as they are (decision "Messages"). The gateway checks `from`, `to` or `recipient`, and `type`. The
upstream validates everything else.

The event's `data` has the bytes of the request and of the answer, for a single send and for a batch item (specification
6; decision "Events"). Identifiers from the answer pass the same checks as identifiers from a notification. So the
database accepts the event of every answer.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec
import orjson
from django.conf import settings

from gateway import ids
from gateway.api.errors import InvalidRequest, MetaUnreachable
from gateway.upstream import calls
from gateway.upstream.calls import GraphCall
from gateway.upstream.notifications.change import (
    LONGEST_COLUMN,
    MessageFacts,
    Status,
    column,
    content_of,
    error_code_of,
)
from gateway.upstream.notifications.lossless_json import text
from phone_numbers.senders_and_owners import Sender
from webhooks.events.envelope import NewEvent

_BETWEEN = re.compile(r"[\s().-]")
_SHORT = re.compile(r"[0-9]{1,10}")
_NUMBER = re.compile(r"\+?[1-9][0-9]{6,14}")


def typed_number(text: str) -> str | None:
    """The digits of a phone number that somebody typed with its country code. None for other texts."""
    number = _BETWEEN.sub("", text)
    return number.lstrip("+") if _NUMBER.fullmatch(number) else None


def international(digits: str) -> str:
    """The `to` of a full number, such as a wa_id. Without `+`, the upstream would read a short one as a number of the
    business's own country (upstream fact 1.1).
    """
    return f"+{digits}"


def lacks_country_code(text: str) -> bool:
    """Whether a typed number has at most ten digits and no `+`.

    The upstream prepends the country code of the business number to them (upstream fact 1.1), also to a full number of
    a small country. So a full number of this length needs `+`.
    """
    return _SHORT.fullmatch(_BETWEEN.sub("", text)) is not None


PRODUCT = b'"messaging_product":"whatsapp"'

# Keeps the bytes of each value. A body has passed `parse_object`, so it is valid JSON and not nested too deeply.
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

_USER_ID = re.compile(r"[A-Z]{2}\.(?:ENT\.)?[A-Za-z0-9]{1,255}")
"""A business-scoped user id, or a parent user id. The upstream accepts such an id in `to`, but drops the message."""
_WITH_OR_WITHOUT = (
    # Brazil. Only mobile numbers got the 9. Before, they began with 6 to 9.
    (re.compile(r"55\d\d(9?)[6-9]\d{7}"), "9"),
    # Mexico
    (re.compile(r"52(1?)\d{10}"), "1"),
    # Argentina
    (re.compile(r"54(9?)\d{10}"), "9"),
)
"""Phone numbers that WhatsApp may know with or without a digit (the group), and that digit."""


class TextMember:
    """A text member of a JSON object, which `cut` removes from the bytes of the object."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.quoted = b'"%b"' % name.encode()
        space = rb"[ \t\n\r]*"
        self.spelled = re.compile(
            self.quoted + space + b":" + space + rb'"[^"\\]*(?:\\.[^"\\]*)*"' + space + b"(,?)" + space
        )
        codes = b"|".join(b"%x" % letter for letter in sorted(set(name.encode())))
        self.escaped = re.compile(rb"(?i:\\u00(?:%b))" % codes)
        """Matches an escaped letter of the member's name. Encoders do not escape letters, but a caller can."""


SENDER = TextMember("from")
MESSAGE_REF = TextMember("message_ref")


def check_sender(body: dict[str, Any]) -> str:
    """The `from` of a body. Raises InvalidRequest when it is missing or not a string (send rule 4)."""
    if missing := missing_sender(body):
        raise InvalidRequest.of(**missing)
    return str(body["from"]).strip()


SEND_AT = "send_at"
CUSTOMER_HOURS = "customer_hours"
READ_MARK = "This is a read mark: POST /v1/messages/read takes it, with `from` and `message_id`."
NOT_SCHEDULED = "Nothing was sent. Schedule a message with POST /v1/messages/scheduled."


def problem_of_message(body: dict[str, Any]) -> InvalidRequest | None:
    """The error of a caller's message, or None. A time for sending is an error here, because the message would be sent
    at once.
    """
    problems = missing_sender(body) | missing_of_message(body)
    if problems and body.get("status") == "read":
        return InvalidRequest.of(status=READ_MARK)
    problems |= dict.fromkeys({SEND_AT, CUSTOMER_HOURS} & body.keys(), NOT_SCHEDULED)
    return InvalidRequest.of(**problems) if problems else None


def missing_sender(body: dict[str, Any]) -> dict[str, str]:
    """The error of a body's `from`, by field. Empty when `from` is valid."""
    sender = body.get("from")
    if isinstance(sender, str) and sender.strip():
        return {}
    return {"from": f"{_lacking(sender)}: the phone_number_id or E.164 number to send from."}


def missing_of_message(message: dict[str, Any]) -> dict[str, str]:
    """The errors of a message's recipient and type, by field. Empty when both are valid."""
    problems = {}
    to, recipient = message.get("to"), message.get("recipient")
    if not any(
        (isinstance(name, str) and name) or (type(name) is int and name > 0) for name in (to, recipient)
    ):
        problems["to"] = (
            "Must be one recipient, as text. Send to many with POST /v1/messages/batch."
            if isinstance(to, list | dict)
            else "Required: `to` (a phone number) or `recipient` (a business-scoped user id)."
        )
    elif is_user_id(to) and recipient:
        problems["to"] = "This is a business-scoped user id: send it as `recipient`, without `to`."
    if not isinstance(message.get("type"), str) or not message["type"]:
        problems["type"] = (
            'Required: the type of the message. A text has "type": "text" and "text": {"body": "…"}.'
        )
    return problems


def _lacking(value: Any) -> str:
    """The error of a member that must be a text. Callers often write phone numbers as JSON numbers."""
    return "Must be a string, in quotes" if type(value) is int else "Required"


def without(raw: bytes, *names: str) -> bytes:
    """A caller's JSON object without the named members. The same bytes when it has none of these members."""
    members = _decode_object(raw)
    if not members.keys() & set(names):
        return raw
    return _joined((name, value) for name, value in members.items() if name not in names)


def is_user_id(to: Any) -> bool:
    """Whether a recipient is a business-scoped user id (upstream fact 0.5)."""
    return isinstance(to, str) and _USER_ID.fullmatch(to) is not None


def wa_ids_of(digits: str) -> set[str]:
    """The wa_ids that the customer with a phone number may have. WhatsApp knows some numbers of Brazil without the 9
    after the area code, some of Mexico with a 1 and some of Argentina with a 9 after the country code (upstream
    fact 1.1).
    """
    for form, digit in _WITH_OR_WITHOUT:
        if found := form.fullmatch(digits):
            begin, end = found.span(1)
            return {digits, digits[:begin] + ("" if found[1] else digit) + digits[end:]}
    return {digits}


def outgoing(raw: bytes, members: Mapping[str, Any]) -> bytes:
    """The upstream's body for a caller's body `raw`, without `from`. `members` is `raw`, parsed.

    A business-scoped user id in `to` moves to `recipient`.
    """
    body = cut(raw, SENDER)
    if body is None:
        body = without(raw, "from")
    if is_user_id(members.get("to")):
        body = to_recipient(body)
    return body if "messaging_product" in members else with_product(body)


def to_recipient(body: bytes) -> bytes:
    """A JSON object with its member `to` renamed to `recipient`."""
    members = _decode_object(body).items()
    return _joined(("recipient" if name == "to" else name, value) for name, value in members)


def cut(raw: bytes, member: TextMember) -> bytes | None:
    """Cut a member out of the bytes of a JSON object that has this member.

    Returns None when the bytes do not show clearly where the member is. Then use `without`, which is slower because it
    parses every member.
    """
    if raw.count(member.quoted) != 1 or member.escaped.search(raw):
        return None
    # The object has this member, and its name occurs only once. So the name found is the member's, not a value or the
    # name of a nested member.
    found = member.spelled.search(raw)
    if found is None:
        return None
    before, rest = raw[: found.start()], raw[found.end() :]
    return before + rest if found[1] else before.rstrip().removesuffix(b",") + rest


def with_product(body: bytes) -> bytes:
    """Add `messaging_product` before the members of a JSON object. The members keep their bytes."""
    members = body.lstrip()[1:].lstrip()
    return b"{" + PRODUCT + b"," * (members != b"}") + members


def _joined(members: Iterable[tuple[str, msgspec.Raw]]) -> bytes:
    return b"{" + b",".join([b"%b:%b" % (_name(name), value) for name, value in members]) + b"}"


@lru_cache(maxsize=1024)
def _name(name: str) -> bytes:
    return orjson.dumps(name)


def message_call(number: Sender, outgoing: bytes, *, edge: str = "messages") -> GraphCall:
    """Build the POST of a message (upstream fact 1.1), for any transport."""
    return calls.prepare(
        environment=number.environment,
        method="POST",
        path=f"{number.phone_number_id}/{edge}",
        token=number.token,
        body=outgoing,
    )


OUTCOME_UNKNOWN = "outcome_unknown"


def outbound_event(
    *,
    number: Sender,
    sent: bytes,
    response: bytes,
    http_status: int | None,
    id: UUID | None = None,  # noqa: A002 - named like the event's column
    dedupe_key: str | None = None,
    batch_id: UUID | None = None,
    idx: int | None = None,
    service_ms: float | None = None,
    upstream_ms: float | None = None,
) -> NewEvent:
    """The event of a message that was sent, or may have been sent.

    `response` is JSON. If it has no message id, the dedupe key is made from the event's id.
    """
    value, message = object_in(response), object_in(sent)
    event_id = id or ids.uuid7()
    contact = _first(value, "contacts")
    wamid = text(_first(value, "messages").get("id"))
    batch = ids.encode(ids.BATCH, batch_id) if batch_id else None
    tail = orjson.dumps({"http_status": http_status, "batch_id": batch, "idx": idx})
    kind, template, language = content_of(message)
    return NewEvent(
        id=event_id,
        type="message.outbound",
        environment=number.environment,
        dedupe_key=dedupe_key or _dedupe_key(wamid, event_id),
        data=b'{"request":%b,"response":%b,%b' % (sent, response, tail[1:]),
        waba_id=number.waba_id or None,
        phone_number_id=number.phone_number_id,
        display_phone_number=number.digits or None,
        wamid=column(wamid),
        wa_id=column(text(contact.get("wa_id"))),
        user_id=column(text(contact.get("user_id"))),
        message=MessageFacts(
            direction="outbound",
            status=_status(wamid, value),
            is_message=True,
            type=kind,
            template=template,
            template_language=language,
            error_code=error_code_of(value),
            batch_id=batch_id,
            idx=idx,
            service_ms=_whole(service_ms),
            upstream_ms=_whole(upstream_ms),
            is_group=message.get("recipient_type") == "group" or None,
        ),
    )


def outcome_unknown(details: Mapping[str, Any]) -> bytes:
    """The response recorded when the upstream's answer is unknown (decision "Batches")."""
    message = "WhatsApp's answer is not known: watch for a message.status event before sending again."
    return service_error(OUTCOME_UNKNOWN, message, details)


def not_sent(details: Mapping[str, Any]) -> bytes:
    """The response recorded when the upstream could not be reached, so that nothing was sent."""
    return service_error(MetaUnreachable.code, "WhatsApp could not be reached. Nothing was sent.", details)


def service_error(code: str, message: str, details: Mapping[str, Any]) -> bytes:
    """The response recorded when the service itself rejects a message, with the service's reason."""
    error = {"code": code, "message": message, "details": details}
    return orjson.dumps({"source": settings.SERVICE_NAME, "error": error})


def _status(wamid: str | None, value: dict[str, Any]) -> Status:
    """The status of a message by the upstream's answer: accepted with a message id, failed with an error, else unknown.

    The service's own error OUTCOME_UNKNOWN means unknown.
    """
    if wamid is not None:
        return "accepted"
    error = value.get("error")
    return "failed" if isinstance(error, dict) and error.get("code") != OUTCOME_UNKNOWN else "unknown"


def _whole(milliseconds: float | None) -> int | None:
    return None if milliseconds is None else max(0, round(milliseconds))


def object_in(content: bytes) -> dict[str, Any]:
    """Parse a JSON object. Returns an empty object for anything else."""
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _dedupe_key(wamid: str | None, event_id: UUID) -> str:
    key = f"out:{wamid or event_id}"
    return key if len(key) <= LONGEST_COLUMN else f"out:{hashlib.sha256(key.encode()).hexdigest()}"


def _first(value: dict[str, Any], name: str) -> dict[str, Any]:
    items = value.get(name)
    first = items[0] if isinstance(items, list) and items else None
    return first if isinstance(first, dict) else {}
