"""Magic recipients and magic texts: a recipient's last digits, or the last line of a message, decide the outcome.

A magic text is a last line such as `#fail 131049`. Other lines are ordinary text. `docs/sandbox.md` lists the magic
recipients and texts, and `phone_numbers/sandbox/control.py` explains them to tenants.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from simulator.customer_messages.inbound import receive
from simulator.errors import CATALOGUE
from simulator.parts import Simulator
from simulator.world.records import Message

_REFUSED = {"0030": 131030, "0429": 130429, "0015": 132015}
_FAILED = {"0026": 131026, "0047": 131047, "0050": 131050}
_UNREAD, _SLOW = "0001", "0008"
_SLOW_SECONDS = 10
_MOST_SECONDS = 600
_ANSWER_MS = 400
"""The time between the delivery of a message and the customer's reply."""
_ANSWER_TYPES = frozenset({"image", "video", "audio", "document", "sticker", "location", "contacts", "order"})

Answer = Callable[[Simulator, Message], None]


class Effect(NamedTuple):
    """The outcome of a message: a refusal with a code, or an acceptance with its statuses and the customer's reply."""

    refused: int | None = None
    failed: int | None = None
    is_read: bool = True
    is_silent: bool = False
    late_ms: int = 0
    answer: Answer | None = None


ORDINARY = Effect()


def effect_of(customer: str, body: Mapping[str, Any]) -> Effect:
    """The effect of a magic recipient or, for any other recipient, of the last line of the text."""
    last = customer[-4:]
    if last in _REFUSED:
        return Effect(refused=_REFUSED[last])
    if last in _FAILED:
        return Effect(failed=_FAILED[last])
    if last == _UNREAD:
        return Effect(is_read=False)
    if last == _SLOW:
        return Effect(late_ms=_SLOW_SECONDS * 1000)
    return _of_text(_text_of(body).rpartition("\n")[2].strip(), body)


def answer(sim: Simulator, message: Message, effect: Effect) -> None:
    """After the message is delivered, send the customer's reply that the magic text of the message requests."""
    if effect.answer is not None:
        sim.statuses.after_delivery(effect.late_ms + _ANSWER_MS, effect.answer, sim, message)


def _text_of(body: Mapping[str, Any]) -> str:
    """The text of a message: its body, a file's caption, or the text above buttons."""
    kind = body.get("type", "text")
    content = body.get(kind) if isinstance(kind, str) else None
    if not isinstance(content, Mapping):
        return ""
    inner = content.get("body") if kind == "interactive" else content
    value = (
        inner.get("text" if kind == "interactive" else "body" if kind == "text" else "caption")
        if isinstance(inner, Mapping)
        else None
    )
    return value if isinstance(value, str) else ""


def _of_text(line: str, body: Mapping[str, Any]) -> Effect:
    if not line.startswith("#"):
        return ORDINARY
    command, _, said = line[1:].partition(" ")
    number = int(said) if said.isascii() and said.isdigit() and len(said) <= 9 else None
    if command == "refuse" and number in CATALOGUE:
        return Effect(refused=number)
    if command == "fail" and number in CATALOGUE:
        return Effect(failed=number)
    if command == "unread" and not said:
        return Effect(is_read=False)
    if command == "silent" and not said:
        return Effect(is_silent=True)
    if command == "late" and number is not None:
        return Effect(late_ms=min(number, _MOST_SECONDS) * 1000)
    if command == "reply" and said:
        return Effect(answer=_says({"type": "text", "text": said}))
    if command == "react" and said:
        return Effect(answer=_reacts(said))
    if command in _ANSWER_TYPES and not said:
        return Effect(answer=_says({"type": command}))
    if command in {"edit", "delete"} and not said:
        return Effect(answer=_thinks_again(command))
    if command == "tap" and (choice := _choice(body, number if said else 1)):
        return Effect(answer=_says({"type": "interactive", "interactive": choice}))
    return ORDINARY


def _choice(body: Mapping[str, Any], place: int | None) -> dict[str, Any] | None:
    """The reply of a customer who taps a button or list row. `place` is its position, counted from 1."""
    interactive = body.get("interactive")
    if not isinstance(interactive, Mapping) or place is None:
        return None
    action = interactive.get("action") or {}
    if interactive.get("type") == "button":
        choices = [button["reply"] for button in action.get("buttons", ())]
        kind = "button_reply"
    elif interactive.get("type") == "list":
        choices = [row for section in action.get("sections", ()) for row in section.get("rows", ())]
        kind = "list_reply"
    else:
        return None
    return {"type": kind, kind: dict(choices[place - 1])} if 1 <= place <= len(choices) else None


def _says(source: Mapping[str, Any]) -> Answer:
    def answer(sim: Simulator, message: Message) -> None:
        _receive(sim, message, {**source, "context": message.id})

    return answer


def _reacts(emoji: str) -> Answer:
    def answer(sim: Simulator, message: Message) -> None:
        _receive(
            sim, message, {"type": "reaction", "reaction": {"message_id": message.id, "emoji": emoji[:16]}}
        )

    return answer


def _thinks_again(command: str) -> Answer:
    def answer(sim: Simulator, message: Message) -> None:
        first = _receive(sim, message, {"type": "text", "text": "Helo"})
        if first is None:
            return
        if command == "edit":
            changed = {"type": "edit", "edit": {"original_message_id": first.id}, "text": "Hello"}
        else:
            changed = {"type": "revoke", "revoke": {"original_message_id": first.id}}
        sim.statuses.later(_ANSWER_MS, _receive, sim, message, changed)

    return answer


def _receive(sim: Simulator, message: Message, source: Mapping[str, Any]) -> Message | None:
    """Send a message to the business from the recipient of `message`. None when the number no longer exists."""
    if message.phone_number_id not in sim.state.numbers:
        return None
    return receive(sim, {**source, "phone_number_id": message.phone_number_id, "from": message.customer})
