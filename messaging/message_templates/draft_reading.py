"""A message template as the upstream describes it, read back into the draft that a person edits. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from messaging.message_templates.draft import AUTHENTICATION, MEDIA_HEADERS, Button, Draft

_COMPONENT_MEMBERS = {"type", "format", "text", "example", "buttons"}
_BUTTON_MEMBERS = {
    "QUICK_REPLY": {"type", "text"},
    "URL": {"type", "text", "url", "example"},
    "PHONE_NUMBER": {"type", "text", "phone_number"},
    "COPY_CODE": {"type", "text", "example"},
}


class CannotBeDrafted(Exception):
    """A template with parts that no draft has: an edit from a draft would lose them."""


def draft_of(document: Mapping[str, Any]) -> Draft:
    """The draft that makes this template, without the sample of a media header. Raises CannotBeDrafted."""
    head: dict[str, Any] = {name: str(document.get(name) or "") for name in ("name", "language", "category")}
    components = [each for each in document.get("components") or [] if isinstance(each, Mapping)]
    if head["category"] == AUTHENTICATION:
        return Draft(**head, code_minutes=_minutes(components))
    parts: dict[str, Any] = {}
    for component in components:
        kind = component.get("type")
        if component.keys() - _COMPONENT_MEMBERS or kind not in _PARTS:
            raise CannotBeDrafted
        parts |= _PARTS[kind](component)
    return Draft(**head, **parts)


def _header(component: Mapping[str, Any]) -> dict[str, Any]:
    header_format = component.get("format")
    if header_format in MEDIA_HEADERS:
        return {"header_format": header_format}
    if header_format != "TEXT":
        raise CannotBeDrafted
    example = next(iter(_examples(component, "header_text")), "")
    return {"header_format": "TEXT", "header_text": component.get("text", ""), "header_example": example}


def _body(component: Mapping[str, Any]) -> dict[str, Any]:
    return {"body": component.get("text", ""), "body_examples": _examples(component, "body_text")}


def _footer(component: Mapping[str, Any]) -> dict[str, Any]:
    return {"footer": component.get("text", "")}


def _buttons(component: Mapping[str, Any]) -> dict[str, Any]:
    return {"buttons": list(map(_button, component.get("buttons") or []))}


_PARTS = {"HEADER": _header, "BODY": _body, "FOOTER": _footer, "BUTTONS": _buttons}


def _button(button: Mapping[str, Any]) -> Button:
    kind = str(button.get("type"))
    if kind not in _BUTTON_MEMBERS or button.keys() - _BUTTON_MEMBERS[kind]:
        raise CannotBeDrafted
    example = button.get("example") or ""
    example = str(example[0] if isinstance(example, list) else example)
    if kind == "COPY_CODE":
        return Button(kind, "", example)
    value = button.get("url") or button.get("phone_number") or ""
    return Button(kind, str(button.get("text", "")), str(value), example)


def _examples(component: Mapping[str, Any], name: str) -> list[str]:
    """The examples of a text's variables: by position (a list, of a body a list of lists) or by name."""
    example = component.get("example") or {}
    named = example.get(f"{name}_named_params")
    if named:
        return [str(each.get("example", "")) for each in named]
    return list(_flat(example.get(name) or []))


def _flat(values: Any) -> Iterator[str]:
    for value in values:
        if isinstance(value, list):
            yield from _flat(value)
        else:
            yield str(value)


def _minutes(components: list[Mapping[str, Any]]) -> int | None:
    return next(
        (each["code_expiration_minutes"] for each in components if "code_expiration_minutes" in each), None
    )
