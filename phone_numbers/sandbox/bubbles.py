"""Messages of the sandbox in the form in which a customer's phone shows them: the content of each bubble, and the
answers that the customer can tap. Pure functions.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

TICKS = {"accepted": "🕓", "sent": "✓", "delivered": "✓✓", "read": "✓✓", "played": "✓✓", "failed": "⚠"}
FILES = ("image", "video", "audio", "document", "sticker")
_LONGEST = 4_096


@dataclass(frozen=True, slots=True)
class Choice:
    """A button or list row that the customer can tap, and the message that a tap sends."""

    label: str
    says: Mapping[str, Any]
    description: str = ""


@dataclass(frozen=True, slots=True)
class File:
    """A file of the sandbox by its id, or an external file by its link."""

    kind: str
    id: str | None = None
    link: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Bubble:
    """One message on the customer's phone."""

    id: str
    is_mine: bool
    """Whether the customer, as the owner of the phone, wrote the message."""
    at: datetime
    lines: list[str]
    head: str = ""
    foot: str = ""
    file: File | None = None
    links: list[tuple[str, str]] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    quoted: str = ""
    status: str = ""
    ticks: str = ""
    error: str = ""
    reaction: str = ""
    change: str = ""


def bubbles_of(messages: list[Mapping[str, Any]]) -> list[Bubble]:
    """The bubbles of a conversation, oldest first. `messages` are newest first. A reaction has no bubble of its own:
    the message that it refers to shows it.
    """
    gists = {str(message["id"]): gist(message) for message in messages}
    return [
        bubble_of(message, gists)
        for message in reversed(messages)
        if message["body"].get("type") != "reaction"
    ]


def gist(message: Mapping[str, Any]) -> str:
    """A message in one line."""
    if message.get("change") == "deleted":
        return "Deleted"
    drawn = _content(message)
    said = next(filter(None, (*drawn["lines"], drawn["head"])), "")
    return said[:120] or str(message["body"].get("type", "text")).replace("_", " ").capitalize()


def bubble_of(message: Mapping[str, Any], gists: Mapping[str, str]) -> Bubble:
    """The bubble of a message. `gists` has the gist of each message that it may quote, by id."""
    body = message["body"]
    is_mine = message["direction"] == "inbound"
    error = message.get("error") or {}
    common: dict[str, Any] = {
        "id": str(message["id"]),
        "is_mine": is_mine,
        "at": datetime.fromtimestamp(message["timestamp"], UTC),
        "reaction": message.get("reaction") or "",
        "change": message.get("change") or "",
    }
    if message.get("change") == "deleted":
        return Bubble(**common, lines=["This message was deleted."])
    context = body.get("context")
    quoted = str(context.get("id") or context.get("message_id") or "") if isinstance(context, Mapping) else ""
    details = (error.get("error_data") or {}).get("details") or error.get("title") or ""
    return Bubble(
        **common,
        **_content(message),
        quoted=gists.get(quoted, ""),
        status="" if is_mine else str(message["status"]),
        ticks="" if is_mine else TICKS.get(message["status"], ""),
        error=f"{details} (code {error['code']})" if error.get("code") else "",
    )


def _content(message: Mapping[str, Any]) -> dict[str, Any]:
    """The members of a bubble that depend on the message's type and content."""
    body = message["body"]
    kind = str(body.get("type", "text"))
    content = body.get(kind)
    drawn: dict[str, Any] = {"lines": [], "head": "", "foot": "", "file": None, "links": [], "choices": []}
    if kind == "template":
        return drawn | _template(message.get("rendered") or {})
    if kind == "contacts":
        return drawn | {"lines": [line for card in content or () for line in _contact(card)]}
    if not isinstance(content, Mapping):
        return drawn | {"lines": [f"A message of the type {kind}"]}
    if kind == "text":
        return drawn | {"lines": [str(content.get("body", ""))[:_LONGEST]]}
    if kind in FILES:
        return drawn | {"file": _file(kind, content), "lines": _texts(content.get("caption"))}
    if kind == "interactive":
        return drawn | _interactive(content)
    if kind == "button":
        return drawn | {"lines": _texts(content.get("text"))}
    if kind == "location":
        place = f"{content.get('latitude')}, {content.get('longitude')}"
        return drawn | {
            "head": content.get("name") or "Location",
            "lines": _texts(content.get("address"), place),
        }
    if kind == "order":
        return drawn | {
            "head": "Order",
            "lines": [*_items(content.get("product_items")), *_texts(content.get("text"))],
        }
    if kind == "system":
        return drawn | {"lines": _texts(content.get("body"))}
    return drawn | {"lines": [f"A message of the type {kind}"]}


def _texts(*values: Any) -> list[str]:
    return [str(value)[:_LONGEST] for value in values if value]


def _file(kind: str, content: Mapping[str, Any]) -> File:
    name = str(content.get("filename") or "")
    if content.get("id"):
        return File(kind, id=str(content["id"]), name=name)
    return File(kind, link=_web(content.get("link")), name=name)


def _web(url: Any) -> str:
    """The value as a URL to which a page may link. Empty for any other value, such as a script."""
    text = str(url or "")[:_LONGEST]
    return text if text.startswith(("https://", "http://")) else ""


def _contact(card: Any) -> Iterator[str]:
    if isinstance(card, Mapping):
        yield str((card.get("name") or {}).get("formatted_name") or "Contact")
        for phone in card.get("phones") or ():
            yield str(phone.get("phone") or "")


def _items(items: Any) -> list[str]:
    return [
        f"{item.get('quantity')} × {item.get('product_retailer_id')}, {item.get('item_price')} {item.get('currency')}"
        for item in items or ()
        if isinstance(item, Mapping)
    ]


def _header(header: Any) -> dict[str, Any]:
    if not isinstance(header, Mapping):
        return {}
    kind = str(header.get("type", "")).lower()
    if kind == "text":
        return {"head": str(header.get("text", ""))}
    content = header.get(kind)
    return {"file": _file(kind, content)} if kind in FILES and isinstance(content, Mapping) else {}


def _template(rendered: Mapping[str, Any]) -> dict[str, Any]:
    buttons = [button for button in rendered.get("buttons") or () if isinstance(button, Mapping)]
    return {
        **_header(rendered.get("header")),
        "lines": _texts(rendered.get("body")),
        "foot": str(rendered.get("footer") or ""),
        "links": [
            (str(button.get("text")), _web(button.get("url")))
            for button in buttons
            if button.get("type") == "URL" and _web(button.get("url"))
        ],
        "choices": [
            Choice(
                str(button.get("text")),
                {
                    "type": "button",
                    "button": {
                        "payload": button.get("payload") or button.get("text"),
                        "text": button.get("text"),
                    },
                },
            )
            for button in buttons
            if button.get("type") == "QUICK_REPLY"
        ],
    }


def _interactive(content: Mapping[str, Any]) -> dict[str, Any]:
    kind = str(content.get("type"))
    chosen = content.get("button_reply") or content.get("list_reply")
    if isinstance(chosen, Mapping):
        return {"lines": _texts(chosen.get("title"), chosen.get("description"))}
    if isinstance(content.get("nfm_reply"), Mapping):
        return {
            "lines": _texts(
                content["nfm_reply"].get("body") or "Sent", content["nfm_reply"].get("response_json")
            )
        }
    if kind == "call_permission_reply":
        return {"lines": [f"Calls: {(content.get(kind) or {}).get('response')}"]}
    action = content.get("action") or {}
    parameters = action.get("parameters") or {}
    drawn = {
        **_header(content.get("header")),
        "lines": _texts((content.get("body") or {}).get("text")),
        "foot": str((content.get("footer") or {}).get("text") or ""),
        "choices": _choices(kind, action, parameters),
    }
    if kind == "cta_url" and (url := _web(parameters.get("url"))):
        drawn["links"] = [(str(parameters.get("display_text") or url), url)]
    return drawn


def _choices(kind: str, action: Mapping[str, Any], parameters: Mapping[str, Any]) -> list[Choice]:
    """The customer's possible answers to an interactive message."""

    def says(value: Mapping[str, Any]) -> dict[str, Any]:
        return {"type": "interactive", "interactive": value}

    def form(name: str, response: str) -> dict[str, Any]:
        reply = {"name": name, "body": "Sent", "response_json": response}
        return says({"type": "nfm_reply", "nfm_reply": reply})

    match kind:
        case "button":
            replies = [button["reply"] for button in action.get("buttons") or ()]
            return [
                Choice(one["title"], says({"type": "button_reply", "button_reply": one})) for one in replies
            ]
        case "list":
            rows = [row for section in action.get("sections") or () for row in section.get("rows") or ()]
            return [
                Choice(
                    row["title"],
                    says({"type": "list_reply", "list_reply": row}),
                    str(row.get("description") or ""),
                )
                for row in rows
            ]
        case "location_request_message":
            return [Choice("Send location", {"type": "location"})]
        case "contact_request":
            return [Choice("Share my number", {"type": "contacts"})]
        case "flow":
            return [Choice(str(parameters.get("flow_cta") or "Open"), form("flow", '{"answer":"yes"}'))]
        case "address_message":
            address = '{"values":{"name":"Asha Rao","in_pin_code":"560001","city":"Bengaluru"}}'
            return [Choice("Give address", form("address_message", address))]
        case "call_permission_request":
            return [
                Choice(
                    label,
                    says(
                        {
                            "type": "call_permission_reply",
                            "call_permission_reply": {"response": response, "response_source": "user_action"},
                        }
                    ),
                )
                for response, label in (("accept", "Allow calls"), ("reject", "Do not allow"))
            ]
        case "product" | "product_list" | "catalog_message":
            listed = [
                item
                for section in action.get("sections") or ()
                for item in section.get("product_items") or ()
            ]
            ids = [item["product_retailer_id"] for item in listed] or [
                action.get("product_retailer_id") or "SKU-1"
            ]
            bought = [
                {"product_retailer_id": one, "quantity": 1, "item_price": 100, "currency": "INR"}
                for one in ids
            ]
            order = {"catalog_id": action.get("catalog_id") or "1", "text": "", "product_items": bought}
            return [Choice("Order", {"type": "order", "order": order})]
    return []
