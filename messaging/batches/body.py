"""The body of a batch, read item by item: memory and time are bounded, whatever the body holds.

A body of 32 MiB can hold eleven million empty objects: as Python objects they took 16 seconds and 1.3 GB. So msgspec
passes over what nothing here asks for, and reading ends at the first item beyond the limit.
"""

import re
from collections.abc import Iterator
from contextvars import ContextVar
from typing import NoReturn

import msgspec
import orjson
from msgspec import Raw, Struct

from gateway.api.errors import InvalidRequest
from gateway.api.json import MOST_NESTED, parse_object, values_in
from gateway.api.limits.body_size import API_BODY_BYTES
from gateway.api.validation import SHOWN_PROBLEMS
from messaging.sending import upstream_body

MAX_BODY_BYTES = 32 * 1024 * 1024
"""The largest body of a batch."""
MAX_MESSAGES = 10_000
LONGEST_CLIENT_REF = 255
LONGEST_TEXT = 1024
"""Bytes of a member that is read as a text here; no number or reference is longer."""
MOST_CONTAINERS = 100 * MAX_MESSAGES
"""Objects and arrays of the whole body: a hundred for each message."""
MOST_BUILT = 500_000
"""Values of all items that are built to see how deep they are nested: those with more than `MOST_NESTED` containers."""
MOST_TAKEN_APART = 50_000
"""Values of all items whose `from` cannot be cut out by its spelling: each member costs a microsecond."""

# How msgspec names the place of what is wrong.
_PLACE = re.compile(r"\$\.messages\[(\d+)\]")
_MEMBER = re.compile(r"\$\.|required field")


class Item(Struct, gc=False, rename={"from_": "from"}):
    """What is asked of one message. Raw members are not looked into."""

    to: Raw = Raw()
    recipient: Raw = Raw()
    type: Raw = Raw()
    from_: Raw = Raw()
    messaging_product: Raw = Raw()

    def __post_init__(self) -> None:
        _problems.get().note(self)


class Body(Struct, rename={"from_": "from"}):
    """What a batch says of itself."""

    messages: list[Item]
    from_: Raw = Raw()
    client_ref: Raw = Raw()

    @property
    def sender(self) -> str:
        """The `from` of the batch. Raises InvalidRequest."""
        return upstream_body.check_sender({"from": _text(self.from_)})

    @property
    def reference(self) -> str | None:
        """The `client_ref`. Raises InvalidRequest."""
        if not self.client_ref or bytes(self.client_ref) == b"null":
            return None
        value = _text(self.client_ref)
        if value is None or not 1 <= len(value) <= LONGEST_CLIENT_REF or "\0" in value:
            raise InvalidRequest.of(client_ref=f"Must be a text of 1 to {LONGEST_CLIENT_REF} characters.")
        return value

    def check_item_senders(self, own: set[str]) -> None:
        """An item may repeat the batch's `from`; another number would be ignored, so it is refused."""
        problems = Problems()
        for idx, item in enumerate(self.messages):
            if item.from_ and (_text(item.from_) or "").strip() not in own:
                problems.add(idx, {"from": "A batch is sent from one number: leave it out."})
        problems.refuse()


class _Items(Struct):
    messages: list[Raw]


class Problems:
    """What is wrong with the items, in their order; at the twentieth it is refused."""

    def __init__(self) -> None:
        self._count = 0
        self._found: dict[int, dict[str, list[str]]] = {}

    def note(self, item: Item | None) -> None:
        """Count an item, None for what is no object, and note what it lacks. Raises InvalidRequest beyond limits."""
        idx = self._count
        self._count += 1
        if self._count > MAX_MESSAGES:
            raise InvalidRequest.of(messages=f"At most {MAX_MESSAGES} messages fit into a batch.")
        if item is None:
            self._add(idx, {f"messages[{idx}]": ["Must be an object."]})
            return
        missing = upstream_body.missing_of_message(
            {name: "given" if _is_text(getattr(item, name)) else None for name in ("to", "recipient", "type")}
        )
        if missing:
            self.add(idx, missing)

    def add(self, idx: int, fields: dict[str, str]) -> None:
        """Note what is wrong with the fields of an item."""
        self._add(idx, {f"messages[{idx}].{field}": [what] for field, what in fields.items()})

    def _add(self, idx: int, fields: dict[str, list[str]]) -> None:
        self._found[idx] = fields
        if len(self._found) == SHOWN_PROBLEMS:
            self.refuse()

    def refuse(self) -> None:
        """Raise InvalidRequest that names the items' problems, if there are any."""
        if self._found:
            fields = {name: what for found in self._found.values() for name, what in found.items()}
            raise InvalidRequest(
                f"Some messages are not valid: nothing was queued. The first {SHOWN_PROBLEMS} are named.",
                details={"fields": fields, "indexes": list(self._found)},
            )


_problems: ContextVar[Problems] = ContextVar("problems of the batch that is being read")
_decode_body = msgspec.json.Decoder(Body).decode
_decode_item = msgspec.json.Decoder(Item).decode
_decode_items = msgspec.json.Decoder(_Items).decode


def read(raw: bytes) -> Body:
    """The body of a batch. Raises InvalidRequest for what is not JSON, and with the places of bad items."""
    if raw.count(b"{") + raw.count(b"[") > MOST_CONTAINERS:
        raise InvalidRequest.of(messages=f"At most {MOST_CONTAINERS:,} objects and arrays: split the batch.")
    problems = Problems()
    token = _problems.set(problems)
    try:
        body = _decode_body(raw)
    except msgspec.ValidationError as error:
        if place := _PLACE.search(str(error)):
            _look_on(raw, int(place[1]), problems)
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
    """Refuse a batch whose item `idx` is no object, and name the bad items after it where there are few values."""
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


def outgoing(raw: bytes, body: Body) -> Iterator[bytes]:
    """The upstream's bodies for the items of a batch that `read` took, one after another.

    Raises InvalidRequest or ParseError for an item that is not UTF-8, or nested too deep.
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
        if item.from_:
            cut = upstream_body.less_sender(content)
            if cut is None:
                taken_apart += values_in(content)
                if taken_apart > MOST_TAKEN_APART:
                    what = "Too large: leave `from` out of the messages, or split the batch."
                    raise InvalidRequest.of(**{f"messages[{idx}]": what})
                cut = upstream_body.without(content, "from")
            content = cut
        yield content if item.messaging_product else upstream_body.with_product(content)


def _text(raw: Raw) -> str | None:
    """A member that is a text of at most `LONGEST_TEXT` bytes; None for anything else."""
    if not _is_text(raw) or len(memoryview(raw)) > LONGEST_TEXT:
        return None
    try:
        value = orjson.loads(memoryview(raw))
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, str) else None


def _is_text(raw: Raw) -> bool:
    """Whether a member is a text of one character or more."""
    content = memoryview(raw)
    return len(content) > 2 and content[0] == ord('"')


def _no_json(error: Exception) -> InvalidRequest:
    return InvalidRequest(f"The body is not valid JSON: {error}.")


def _no_array() -> InvalidRequest:
    return InvalidRequest.of(messages="Required: an array of 1 to 10,000 messages.")
