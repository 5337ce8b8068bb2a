"""Checks of message bodies, one function per `type` (upstream facts 1.1.1 and 1.1.2).

`messages.py` calls `check`, which raises `GraphError` with Meta's codes: 100 for a wrong form, 131008 for a missing
member, 131009 for an invalid value. `message_templates/checks.py` compares a template send with the stored template.
"""

from collections.abc import Callable, Mapping
from typing import Any

from simulator.errors import GraphError
from simulator.world.records import MEDIA_TYPES

Body = Mapping[str, Any]
_INTERACTIVE_NEEDS = {
    "cta_url": "cta_url",
    "location_request_message": "send_location",
    "flow": "flow",
    "catalog_message": "catalog_message",
    "address_message": "address_message",
    "call_permission_request": "call_permission_request",
    "contact_request": "request_contact_info",
    "request_contact_info": "request_contact_info",
    "order_details": "review_and_pay",
    "order_status": "review_order",
    "voice_call": "voice_call",
}
_LONGEST_CALL_BUTTON = 43_200
"""The maximum time for which a call button may be shown, in minutes (30 days)."""


def missing(path: str) -> GraphError:
    """The error for a missing required member."""
    return GraphError(131008, f"The parameter {path} is required.")


def bad(path: str, why: str) -> GraphError:
    """The error for a member with a value that Meta does not accept."""
    return GraphError(131009, f"Parameter {path} {why}")


def check(body: Body) -> None:
    """Check the body of a send. Checks that need stored data are in other modules."""
    kind = body.get("type", "text")
    checker = CHECKS.get(kind) if isinstance(kind, str) else None
    if checker is None:
        names = ", ".join(sorted(CHECKS)).upper()
        raise GraphError(
            100, message=f"(#100) Param type must be one of {{{names}}}", details=f"got {kind!r}"
        )
    content = body.get(kind)
    if content is None:
        raise missing(kind)
    if not isinstance(content, list if kind == "contacts" else dict):
        raise bad(kind, "has the wrong type")
    checker(content)
    if kind == "pin" and body.get("recipient_type") != "group":
        raise bad("recipient_type", "must be group to pin a message")
    opaque = body.get("biz_opaque_callback_data")
    if opaque is not None and (not isinstance(opaque, str) or len(opaque) > 512):
        raise bad("biz_opaque_callback_data", "must be at most 512 characters")
    context = body.get("context")
    if context is not None and (
        not isinstance(context, dict) or not isinstance(context.get("message_id"), str)
    ):
        raise missing("context['message_id']")


def _text(holder: Body, name: str, path: str, limit: int, *, required: bool = True) -> None:
    value = holder.get(name)
    if value is None or value == "":
        if required:
            raise missing(f"{path}['{name}']")
    elif not isinstance(value, str):
        raise bad(f"{path}['{name}']", "must be a string")
    elif len(value) > limit:
        raise bad(f"{path}['{name}']", f"must be at most {limit} characters")


def _object(holder: Body, name: str, path: str) -> dict[str, Any]:
    value = holder.get(name)
    if value is None:
        raise missing(f"{path}['{name}']")
    if not isinstance(value, dict):
        raise bad(f"{path}['{name}']", "must be an object")
    return value


def _items(holder: Body, name: str, path: str, least: int, most: int) -> list[dict[str, Any]]:
    value = holder.get(name)
    if value is None:
        raise missing(f"{path}['{name}']")
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise bad(f"{path}['{name}']", "must be a list of objects")
    if not least <= len(value) <= most:
        raise bad(f"{path}['{name}']", f"must have {least} to {most} items")
    return value


def _kind(holder: Body, path: str) -> str:
    value = holder.get("type")
    if not isinstance(value, str):
        raise bad(f"{path}['type']", "must be a string")
    return value


def _check_text(text: Body) -> None:
    _text(text, "body", "text", 4096)


def _check_media(kind: str) -> Callable[[Body], None]:
    def checker(media: Body) -> None:
        has_id, link = media.get("id") is not None, media.get("link")
        if not has_id and link is None:
            raise missing(f"{kind}['id'] or {kind}['link']")
        if not has_id and (not isinstance(link, str) or not link.startswith(("https://", "http://"))):
            raise bad(f"{kind}['link']", "is not a valid URI")
        if "caption" in media and kind in {"audio", "sticker"}:
            raise bad(f"{kind}['caption']", "is not allowed for this type")
        _text(media, "caption", kind, 1024, required=False)

    return checker


def _check_location(location: Body) -> None:
    for name, bound in (("latitude", 90.0), ("longitude", 180.0)):
        value = location.get(name)
        if value is None:
            raise missing(f"location['{name}']")
        try:
            inside = abs(float(value)) <= bound
        except (TypeError, ValueError):
            inside = False
        if not inside:
            raise bad(f"location['{name}']", "is not a coordinate")


def _check_contacts(contacts: Any) -> None:
    if not 1 <= len(contacts) <= 257:
        raise bad("contacts", "must have 1 to 257 items")
    for index, contact in enumerate(contacts):
        path = f"contacts[{index}]"
        if not isinstance(contact, dict):
            raise bad(path, "must be an object")
        name = _object(contact, "name", path)
        _text(name, "formatted_name", f"{path}['name']", 1024)
        if not any(name.get(part) for part in ("first_name", "last_name", "middle_name", "prefix", "suffix")):
            raise missing(f"{path}['name']['first_name'] or another part of the name")


def _check_reaction(reaction: Body) -> None:
    _text(reaction, "message_id", "reaction", 512)
    if not isinstance(reaction.get("emoji"), str):
        raise missing("reaction['emoji']")
    if len(reaction["emoji"]) > 16:
        raise bad("reaction['emoji']", "must be one emoji")


def _check_template(template: Body) -> None:
    _text(template, "name", "template", 512)
    language = _object(template, "language", "template")
    _text(language, "code", "template['language']", 20)
    if not isinstance(template.get("components", []), list):
        raise bad("template['components']", "must be a list")


def _check_interactive(interactive: Body) -> None:
    kind = _kind(interactive, "interactive")
    action = _object(interactive, "action", "interactive")
    if kind != "product":
        body = _object(interactive, "body", "interactive")
        _text(body, "text", "interactive['body']", 4096 if kind == "list" else 1024)
    footer = interactive.get("footer")
    if isinstance(footer, dict):
        _text(footer, "text", "interactive['footer']", 60)
    _check_header(interactive.get("header"))
    if kind == "button":
        _check_buttons(action)
    elif kind == "list":
        _check_list(action)
    elif kind == "product":
        _text(action, "catalog_id", "interactive['action']", 256)
        _text(action, "product_retailer_id", "interactive['action']", 256)
    elif kind == "product_list":
        _object(interactive, "header", "interactive")
        sections = _items(action, "sections", "interactive['action']", 1, 10)
        products = sum(len(_items(section, "product_items", "section", 1, 30)) for section in sections)
        if not 1 <= products <= 30:
            raise bad("interactive['action']['sections']", "must hold 1 to 30 products")
    elif kind == "carousel":
        cards = _items(action, "cards", "interactive['action']", 2, 10)
        if len({str(card.get("type")) for card in cards}) != 1:
            raise bad("interactive['action']['cards']", "must all be of the same type")
    elif kind in _INTERACTIVE_NEEDS:
        _check_named_action(kind, action)
    else:
        raise bad("interactive['type']", "is not supported")


def _check_header(header: Any) -> None:
    if header is None:
        return
    if not isinstance(header, dict):
        raise bad("interactive['header']", "must be an object")
    kind = _kind(header, "interactive['header']")
    if kind == "text":
        _text(header, "text", "interactive['header']", 60)
    elif kind in {"image", "video", "document"}:
        _check_media(kind)(_object(header, kind, "interactive['header']"))
    else:
        raise bad("interactive['header']['type']", "is not supported")


def _check_buttons(action: Body) -> None:
    buttons = _items(action, "buttons", "interactive['action']", 1, 3)
    for button in buttons:
        reply = _object(button, "reply", "interactive['action']['buttons'][]")
        _text(reply, "id", "reply", 256)
        _text(reply, "title", "reply", 20)
    for name in ("id", "title"):
        if len({button["reply"][name] for button in buttons}) != len(buttons):
            raise bad("interactive['action']['buttons']", f"must have a different {name} each")


def _check_list(action: Body) -> None:
    _text(action, "button", "interactive['action']", 20)
    sections = _items(action, "sections", "interactive['action']", 1, 10)
    rows = 0
    for section in sections:
        _text(section, "title", "section", 24, required=len(sections) > 1)
        for row in _items(section, "rows", "section", 1, 10):
            rows += 1
            _text(row, "id", "row", 200)
            _text(row, "title", "row", 24)
            _text(row, "description", "row", 72, required=False)
    if rows > 10:
        raise bad("interactive['action']['sections']", "must have at most 10 rows in total")


def _check_named_action(kind: str, action: Body) -> None:
    if action.get("name") != _INTERACTIVE_NEEDS[kind]:
        raise bad("interactive['action']['name']", f"must be {_INTERACTIVE_NEEDS[kind]}")
    if kind == "voice_call":
        _check_call_button(action.get("parameters"))
    if kind not in {"cta_url", "flow", "order_details", "order_status", "address_message"}:
        return
    parameters = _object(action, "parameters", "interactive['action']")
    if kind == "cta_url":
        _text(parameters, "display_text", "parameters", 20)
        _text(parameters, "url", "parameters", 2000)
    elif kind == "flow":
        _text(parameters, "flow_cta", "parameters", 30)
        if not parameters.get("flow_id") and not parameters.get("flow_name"):
            raise missing("parameters['flow_id']")
    elif kind in {"order_details", "order_status"}:
        _text(parameters, "reference_id", "parameters", 60)
        _object(parameters, "order", "parameters")


def _check_call_button(parameters: Any) -> None:
    """Check the parameters of a call button. Each parameter is optional."""
    if parameters is None:
        return
    if not isinstance(parameters, dict):
        raise bad("interactive['action']['parameters']", "must be an object")
    _text(parameters, "display_text", "parameters", 20, required=False)
    _text(parameters, "payload", "parameters", 512, required=False)
    minutes = parameters.get("ttl_minutes", 1)
    if type(minutes) is not int or not 1 <= minutes <= _LONGEST_CALL_BUTTON:
        raise bad("parameters['ttl_minutes']", f"must be 1 to {_LONGEST_CALL_BUTTON}")


def _check_pin(pin: Body) -> None:
    if pin.get("type") not in {"pin", "unpin"}:
        raise bad("pin['type']", "must be pin or unpin")
    _text(pin, "message_id", "pin", 512)
    if pin["type"] == "pin":
        days = str(pin.get("expiration_days") or "")
        if not days:
            raise missing("pin['expiration_days']")
        if not days.isdigit() or not 1 <= int(days) <= 30:
            raise bad("pin['expiration_days']", "must be 1 to 30")


CHECKS: dict[str, Callable[[Any], None]] = {
    "text": _check_text,
    **{kind: _check_media(kind) for kind in MEDIA_TYPES},
    "location": _check_location,
    "contacts": _check_contacts,
    "reaction": _check_reaction,
    "pin": _check_pin,
    "template": _check_template,
    "interactive": _check_interactive,
}
