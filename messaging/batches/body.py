"""Parses the body of a batch, item by item. Limits on memory and time hold for any content.

A body of 32 MiB can hold millions of empty objects, which would take too much time and memory as Python objects. So
msgspec skips the members that are not needed, and parsing ends at the first item beyond the limit.
"""

import hashlib
import re
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import datetime
from typing import NoReturn

import msgspec
import orjson
from msgspec import Raw, Struct

from gateway.api.errors import InvalidRequest
from gateway.api.json import MOST_NESTED, parse_object, values_in
from gateway.api.limits import API_BODY_BYTES
from gateway.api.query import phone_digits
from gateway.api.validation import LONGEST_NAME, SHOWN_PROBLEMS, unknown_member
from messaging.batches import scheduled_messages
from messaging.sending import customer_hours, outbound
from messaging.sending.customer_hours import CustomerHours

MAX_BODY_BYTES = 32 * 1024 * 1024
"""The largest body of a batch, in bytes."""
MEMBERS = ("from", "client_ref", "send_at", "customer_hours", "skip_opted_out", "messages")
MAX_MESSAGES = 10_000
LONGEST_REF = 255
"""The longest `client_ref` or `message_ref`, in characters."""
LONGEST_TEXT = 1024
"""The longest member that is parsed as text, in bytes. Numbers and references are shorter."""
MOST_CONTAINERS = 100 * MAX_MESSAGES
"""Maximum number of objects and arrays in a body: a hundred for each message."""
MOST_BUILT = 500_000
"""Maximum number of values, in all items together, that are parsed to measure how deeply they are nested. Only items
with more than `MOST_NESTED` containers are parsed for this.
"""
MOST_TAKEN_APART = 50_000
"""Maximum number of values, in all items together, that are parsed because a member cannot be cut out of the bytes.
Parsing takes about a microsecond for each value.
"""
MESSAGE_TYPES = frozenset(
    [
        "text",
        "image",
        "video",
        "audio",
        "document",
        "sticker",
        "location",
        "contacts",
        "reaction",
        "interactive",
        "template",
    ]
)
"""Types whose content must be in a member with the type's name. Meta validates all other types."""
_CONTENT = {b'"%b"' % name.encode(): name for name in MESSAGE_TYPES}

# Matches the part of msgspec's error that names the invalid item.
_PLACE = re.compile(r"\$\.messages\[(\d+)\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MEMBER = re.compile(r"\$\.|required field")


class Item(Struct, gc=False, rename={"from_": "from"}):
    """The members of one message that are checked. A `Raw` member keeps its bytes and is not parsed."""

    to: Raw = Raw()
    recipient: Raw = Raw()
    type: Raw = Raw()
    from_: Raw = Raw()
    messaging_product: Raw = Raw()
    message_ref: Raw = Raw()
    send_at: Raw = Raw()
    customer_hours: Raw = Raw()
    text: Raw = Raw()
    image: Raw = Raw()
    video: Raw = Raw()
    audio: Raw = Raw()
    document: Raw = Raw()
    sticker: Raw = Raw()
    location: Raw = Raw()
    contacts: Raw = Raw()
    reaction: Raw = Raw()
    interactive: Raw = Raw()
    template: Raw = Raw()

    @property
    def reference(self) -> str | None:
        """The `message_ref` of a valid item. None without one."""
        return _text(self.message_ref)

    @property
    def is_template(self) -> bool:
        """Whether the item is a template message."""
        return bytes(self.type) == b'"template"'

    def __post_init__(self) -> None:
        _problems.get().note(self)


class Body(Struct, rename={"from_": "from"}, forbid_unknown_fields=True):
    """The members of a batch."""

    messages: list[Item]
    from_: Raw = Raw()
    client_ref: Raw = Raw()
    send_at: Raw = Raw()
    customer_hours: Raw = Raw()
    skip_opted_out: Raw = Raw()

    @property
    def sender(self) -> str:
        """The `from` of the batch. Raises InvalidRequest."""
        return outbound.check_sender({"from": _text(self.from_)})

    @property
    def reference(self) -> str | None:
        """The `client_ref`. None without a `client_ref`. Raises InvalidRequest."""
        if not _is_given(self.client_ref):
            return None
        value = _text(self.client_ref)
        if value is None or not _is_reference(value):
            raise InvalidRequest.of(client_ref=_NO_REFERENCE)
        return value

    def moment(self) -> datetime | None:
        """The `send_at`. None without a `send_at`. Raises InvalidRequest."""
        return scheduled_messages.moment_of(_text(self.send_at)) if _is_given(self.send_at) else None

    @property
    def hours(self) -> CustomerHours | None:
        """The `customer_hours`, without time zones yet. None without `customer_hours`. Raises InvalidRequest."""
        if not _is_given(self.customer_hours):
            return None
        written = bytes(self.customer_hours) if len(memoryview(self.customer_hours)) <= LONGEST_TEXT else b""
        try:
            return customer_hours.hours_of(orjson.loads(written))
        except orjson.JSONDecodeError:
            return customer_hours.hours_of(None)

    @property
    def skips_opted_out(self) -> bool:
        """The `skip_opted_out`. Raises InvalidRequest."""
        written = bytes(self.skip_opted_out) if len(memoryview(self.skip_opted_out)) <= LONGEST_TEXT else b"?"
        if written not in {b"", b"null", b"true", b"false"}:
            raise InvalidRequest.of(skip_opted_out="Must be true or false.")
        return written == b"true"

    def check_item_senders(self, own: set[str]) -> None:
        """Reject items with the `from` of another number, because the batch is sent from one number."""
        problems = Problems()
        for idx, item in enumerate(self.messages):
            if item.from_ and (_text(item.from_) or "").strip() not in own:
                problems.add(idx, {"from": "A batch is sent from one number: leave it out."})
        problems.refuse()


class _Items(Struct):
    messages: list[Raw]


class _Recipient(Struct):
    to: Raw = Raw()
    recipient: Raw = Raw()
    recipient_type: Raw = Raw()


class _Messages(Struct):
    messages: Raw


class Problems:
    """The errors of a batch's items, in the order of items. Raises InvalidRequest at `SHOWN_PROBLEMS` invalid items."""

    def __init__(self) -> None:
        self._count = 0
        self._found: dict[int, dict[str, list[str]]] = {}

    def note(self, item: Item | None) -> None:
        """Check the next item and record its errors. None represents a value that is not an object. Raises
        InvalidRequest if there are too many items or errors.
        """
        idx = self._count
        self._count += 1
        if self._count > MAX_MESSAGES:
            raise InvalidRequest.of(messages=f"At most {MAX_MESSAGES} messages may be in a batch.")
        if item is None:
            self._add(idx, {f"messages[{idx}]": ["Must be an object."]})
            return
        problems = outbound.missing_of_message(
            {
                "to": _user_id(item.to) or ("given" if _is_text(item.to) or _is_number(item.to) else None),
                "recipient": "given" if _is_text(item.recipient) else None,
                "type": "given" if _is_text(item.type) else None,
            }
        )
        content = _CONTENT.get(bytes(item.type)) if len(memoryview(item.type)) <= LONGEST_TEXT else None
        if content is not None:
            kind, opening = ("a list", b"[") if content == "contacts" else ("an object", b"{")
            if bytes(memoryview(getattr(item, content))[:1]) != opening:
                problems[content] = f"Required: the content of a message of the type {content}, {kind}."
        if _is_given(item.message_ref) and not _is_reference(_text(item.message_ref) or ""):
            problems["message_ref"] = _NO_REFERENCE
        for own, given in ((outbound.SEND_AT, item.send_at), (outbound.CUSTOMER_HOURS, item.customer_hours)):
            if given:
                problems[own] = "A batch has one time: set it beside `messages`, not in a message."
        if problems:
            self.add(idx, problems)

    def add(self, idx: int, fields: dict[str, str]) -> None:
        """Record errors in an item's fields. Raises InvalidRequest at `SHOWN_PROBLEMS` invalid items."""
        self._add(idx, {f"messages[{idx}].{field}": [what] for field, what in fields.items()})

    def _add(self, idx: int, fields: dict[str, list[str]]) -> None:
        self._found[idx] = fields
        if len(self._found) == SHOWN_PROBLEMS:
            self.refuse()

    def refuse(self) -> None:
        """Raise InvalidRequest with the recorded errors. Does nothing without errors."""
        if self._found:
            fields = {name: what for found in self._found.values() for name, what in found.items()}
            raise InvalidRequest(
                f"Some messages are not valid: nothing was queued. The first {SHOWN_PROBLEMS} are named.",
                details={"fields": fields, "indexes": list(self._found)},
            )


_problems: ContextVar[Problems] = ContextVar("problems of the batch that is being read")
_decode_body = msgspec.json.Decoder(Body).decode
_decode_item = msgspec.json.Decoder(Item).decode
_decode_recipient = msgspec.json.Decoder(_Recipient).decode
_decode_items = msgspec.json.Decoder(_Items).decode
_decode_messages = msgspec.json.Decoder(_Messages).decode


def read(raw: bytes) -> Body:
    """Parse the body of a batch. Raises InvalidRequest for invalid JSON and for invalid items, which it names."""
    if raw.count(b"{") + raw.count(b"[") > MOST_CONTAINERS:
        raise InvalidRequest.of(messages=f"At most {MOST_CONTAINERS:,} objects and arrays: split the batch.")
    problems = Problems()
    token = _problems.set(problems)
    try:
        body = _decode_body(raw)
    except msgspec.ValidationError as error:
        if place := _PLACE.search(str(error)):
            _look_on(raw, int(place[1]), problems)
        if unknown := _UNKNOWN.search(str(error)):
            name = unknown[1][:LONGEST_NAME]
            raise InvalidRequest.of(**{name: unknown_member(name, MEMBERS)}) from None
        if not _MEMBER.search(str(error)):
            raise InvalidRequest("The body must be a JSON object.") from None
        raise _no_array() from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise _no_json(error) from None
    finally:
        _problems.reset(token)
    if not body.messages:
        raise _no_array()
    problems.refuse()
    return body


def _look_on(raw: bytes, idx: int, problems: Problems) -> NoReturn:
    """Reject a batch in which item `idx` is not an object. Also check the later items, unless the body has too many
    values.
    """
    problems.note(None)
    if values_in(raw) <= MOST_BUILT:
        try:
            items = _decode_items(raw).messages
        except (msgspec.DecodeError, RecursionError) as error:
            raise _no_json(error) from None
        for written in items[idx + 1 :]:
            if memoryview(written)[0] == ord("{"):
                _decode_item(written)
            else:
                problems.note(None)
    problems.refuse()
    raise AssertionError


def recipient_of(content: bytes) -> str | None:
    """The recipient in a body made by `outgoing`, as the caller wrote it. None for a group."""
    return _written(_decode_recipient(content))


def _written(to: _Recipient) -> str | None:
    if to.recipient_type and bytes(to.recipient_type) == b'"group"':
        return None
    if not _is_given(to.to):
        return _text(to.recipient)
    return _text(to.to) or bytes(to.to).decode(errors="ignore")[:LONGEST_TEXT]


def customers_of(content: bytes, *, country_code: str) -> set[str]:
    """The possible ids of the customer of a body made by `outgoing`: digits, a business-scoped user id, or both. Empty
    for a group.

    A phone number without `+` may lack the business number's `country_code`, so the result has both forms. Each also
    has its form in WhatsApp (`wa_ids_of`).
    """
    to = _decode_recipient(content)
    written = _written(to)
    if written is None:
        return set()
    beside = _text(to.recipient) or written
    user_ids = {name for name in (written, beside) if outbound.is_user_id(name)}
    digits = phone_digits(written)
    if digits is None:
        return user_ids
    numbers = {digits} if written.lstrip().startswith("+") else {digits, country_code + digits}
    return user_ids.union(*map(outbound.wa_ids_of, numbers))


def messages_hash(raw: bytes) -> bytes:
    """SHA-256 of the messages in a valid batch, as written but without white space between values.

    Raises InvalidRequest if they are nested too deeply.
    """
    try:
        written = msgspec.json.format(memoryview(_decode_messages(raw).messages), indent=-1)
    except RecursionError as error:
        raise _no_json(error) from None
    return hashlib.sha256(written).digest()


def outgoing(raw: bytes, body: Body) -> Iterator[bytes]:
    """Make the upstream's body for each item of a valid batch.

    Raises InvalidRequest or ParseError for an item that is not UTF-8 or is nested too deeply.
    """
    built = taken_apart = 0
    for idx, (item, written) in enumerate(zip(body.messages, _decode_items(raw).messages, strict=True)):
        content = bytes(written)
        if len(content) > API_BODY_BYTES:
            what = f"A message may hold at most {API_BODY_BYTES} bytes."
            raise InvalidRequest.of(**{f"messages[{idx}]": what})
        try:
            content.decode()
        except UnicodeDecodeError:
            raise InvalidRequest("The body is not valid JSON: it is not UTF-8.") from None
        if content.count(b"[") + content.count(b"{") > MOST_NESTED:
            built += values_in(content)
            if built > MOST_BUILT:
                raise InvalidRequest.of(**{f"messages[{idx}]": "Too many large messages: split the batch."})
            parse_object(content)
        for own, written_own in (
            (outbound.SENDER, item.from_),
            (outbound.MESSAGE_REF, item.message_ref),
        ):
            if not written_own:
                continue
            cut = outbound.cut(content, own)
            if cut is None:
                taken_apart += values_in(content)
                if taken_apart > MOST_TAKEN_APART:
                    what = f"Too large: leave `{own.name}` out of the messages, or split the batch."
                    raise InvalidRequest.of(**{f"messages[{idx}]": what})
                cut = outbound.without(content, own.name)
            content = cut
        if _user_id(item.to):
            taken_apart += values_in(content)
            if taken_apart > MOST_TAKEN_APART:
                what = "Too large: send a business-scoped user id as `recipient`, or split the batch."
                raise InvalidRequest.of(**{f"messages[{idx}].to": what})
            content = outbound.to_recipient(content)
        yield content if item.messaging_product else outbound.with_product(content)


_NO_REFERENCE = f"Must be a string of 1 to {LONGEST_REF} characters."


def _is_given(raw: Raw) -> bool:
    """Whether a member is present and not null."""
    return bool(raw) and bytes(memoryview(raw)[:5]) != b"null"


def _is_reference(value: str) -> bool:
    """Whether a text is a valid `client_ref` or `message_ref`."""
    return 1 <= len(value) <= LONGEST_REF and "\0" not in value


def _text(raw: Raw) -> str | None:
    """The text of a member. None for other values, and for members longer than `LONGEST_TEXT` bytes."""
    if not _is_text(raw) or len(memoryview(raw)) > LONGEST_TEXT:
        return None
    try:
        value = orjson.loads(memoryview(raw))
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, str) else None


def _is_text(raw: Raw) -> bool:
    """Whether a member is a text with at least one character."""
    content = memoryview(raw)
    return len(content) > 2 and content[0] == ord('"')


def _is_number(raw: Raw) -> bool:
    """Whether a member is an integer above zero."""
    content = bytes(raw) if len(memoryview(raw)) <= LONGEST_TEXT else b""
    return content.isdigit() and not content.startswith(b"0")


def _user_id(raw: Raw) -> str | None:
    """A member that is a business-scoped user id. None for other values."""
    # Nearly every `to` begins with a digit and so needs no parsing.
    if memoryview(raw)[1:2].tobytes().isalpha() and outbound.is_user_id(to := _text(raw)):
        return to
    return None


def _no_json(error: Exception) -> InvalidRequest:
    return InvalidRequest(f"The body is not valid JSON: {error}.")


def _no_array() -> InvalidRequest:
    return InvalidRequest.of(messages="Required: an array of 1 to 10,000 messages.")
