"""A caller's message body as the upstream's: the caller's bytes without `from`, with `messaging_product` added.

Order and number formatting of everything else are kept (decision "Messages"). The gateway checks `from`, `to` or
`recipient`, and `type`; all else is the upstream's judgement.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import msgspec
import orjson

from gateway.api.errors import InvalidRequest

PRODUCT = b'"messaging_product":"whatsapp"'

# Values stay the bytes that they are. Bodies have passed `parse_object`: they are JSON, and not nested too deep.
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

_SENDER = re.compile(rb'"from"[ \t\n\r]*:[ \t\n\r]*"[^"\\]*"[ \t\n\r]*(,?)[ \t\n\r]*')
_ESCAPED_SENDER = re.compile(rb"\\u00(?:66|72|6[fFdD])")
"""An escape of a letter of `from`: no encoder writes one."""


def check_sender(body: dict[str, Any]) -> str:
    """The `from` of a body. Raises InvalidRequest when it is missing or no text (send rule 4)."""
    if missing := missing_sender(body):
        raise InvalidRequest.of(**missing)
    return str(body["from"]).strip()


def problem_of_message(body: dict[str, Any]) -> InvalidRequest | None:
    """What is wrong with a caller's message, if anything."""
    problems = missing_sender(body) | missing_of_message(body)
    return InvalidRequest.of(**problems) if problems else None


def missing_sender(body: dict[str, Any]) -> dict[str, str]:
    """What is wrong with the `from` of a body, by field; empty when nothing is."""
    sender = body.get("from")
    if isinstance(sender, str) and sender.strip():
        return {}
    return {"from": f"{_lacking(sender)}: the phone_number_id or E.164 number to send from."}


def missing_of_message(message: dict[str, Any]) -> dict[str, str]:
    """What a message lacks that the gateway asks for: fields with what is wrong; empty when nothing is."""
    problems = {}
    if not any(isinstance(message.get(field), str) and message[field] for field in ("to", "recipient")):
        lacking = _lacking(message.get("to"))
        problems["to"] = f"{lacking}: `to` (a phone number) or `recipient` (a business-scoped user id)."
    if not isinstance(message.get("type"), str) or not message["type"]:
        problems["type"] = "Required: the type of the message."
    return problems


def _lacking(value: Any) -> str:
    """What a member that must be a text lacks. Phone numbers are often written as JSON numbers."""
    return "Must be a text, in quotes" if type(value) is int else "Required"


def without(raw: bytes, *names: str) -> bytes:
    """A caller's JSON object with members left out; the same bytes when it has none of them."""
    members = _decode_object(raw)
    if not members.keys() & set(names):
        return raw
    return _joined((name, value) for name, value in members.items() if name not in names)


def outgoing(raw: bytes, *, has_product: bool) -> bytes:
    """The upstream's body for a caller's body, a JSON object: without `from`.

    `has_product` says whether it has a `messaging_product` of its own.
    """
    body = less_sender(raw)
    if body is None:
        body = without(raw, "from")
    return body if has_product else with_product(body)


def less_sender(raw: bytes) -> bytes | None:
    """A JSON object that has a text `from`, with that member cut out of its bytes.

    None when its spelling does not tell which bytes these are: `without` knows. That takes a microsecond for each
    member; a cut takes as long for two members as for a thousand.
    """
    if raw.count(b'"from"') != 1 or _ESCAPED_SENDER.search(raw):
        return None
    # It occurs once and the object has it, so this is the member: neither a value nor the member of another object.
    found = _SENDER.search(raw)
    if found is None:
        return None
    before, rest = raw[: found.start()], raw[found.end() :]
    return before + rest if found[1] else before.rstrip().removesuffix(b",") + rest


def with_product(body: bytes) -> bytes:
    """A JSON object with `messaging_product` put before its members, which stay the bytes that they are."""
    members = body.lstrip()[1:].lstrip()
    return b"{" + PRODUCT + b"," * (members != b"}") + members


def _joined(members: Iterable[tuple[str, msgspec.Raw]]) -> bytes:
    return b"{" + b",".join([b"%b:%b" % (_name(name), value) for name, value in members]) + b"}"


@lru_cache(maxsize=1024)
def _name(name: str) -> bytes:
    return orjson.dumps(name)
