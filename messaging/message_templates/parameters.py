"""Parameters of a message template: what a send must fill in, and the message that it makes. Pure.

Reads the upstream's description of a template and writes what a send says of it (upstream fact 1.3).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["text", "image", "video", "document", "coupon_code"]

_VARIABLE = re.compile(r"\{\{\s*([A-Za-z0-9_]{1,64})\s*\}\}")
_MEDIA: dict[str, Kind] = {"IMAGE": "image", "VIDEO": "video", "DOCUMENT": "document"}
_WITHOUT_PARAMETERS = {"QUICK_REPLY", "PHONE_NUMBER", "VOICE_CALL", "CALL_REQUEST", "REQUEST_CONTACT_INFO"}


class CannotBeFilled(Exception):
    """A template whose parameters are no single values, e.g. a carousel."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One value that a send fills in.

    `key` names it in forms and files: `header`, `body_1`, `body_name`, `button_0`.
    """

    key: str
    component: Literal["header", "body", "button"]
    kind: Kind
    variable: str | None = None
    """The name between the braces; None for media and coupon codes."""
    index: int = 0
    """The place of its button."""

    @property
    def label(self) -> str:
        if self.component == "button":
            return f"Button {self.index + 1}: {'coupon code' if self.kind == 'coupon_code' else 'end of the link'}"
        if self.kind != "text":
            return f"Header: link of the {self.kind}"
        return f"{self.component.capitalize()} {{{{{self.variable}}}}}"


def parameters_of(document: Mapping[str, Any]) -> list[Parameter]:
    """The parameters in their order. Raises CannotBeFilled."""
    return [found for component in _components(document) for found in _of_component(component)]


def message(
    document: Mapping[str, Any], values: Mapping[str, str], wanted: Sequence[Parameter] | None = None
) -> dict[str, Any]:
    """The `template` member of a send. `values` has one for each parameter's key.

    Who makes many messages gives the document's parameters as `wanted`, so that they are not read for each.
    """
    named = document.get("parameter_format") == "NAMED"
    parts: list[dict[str, Any]] = []
    for found in parameters_of(document) if wanted is None else wanted:
        head: dict[str, Any] = {"type": found.component}
        if found.component == "button":
            head |= {
                "sub_type": "copy_code" if found.kind == "coupon_code" else "url",
                "index": str(found.index),
            }
        if not parts or {name: parts[-1].get(name) for name in head} != head:
            parts.append({**head, "parameters": []})
        parts[-1]["parameters"].append(_filled(found, values[found.key], named=named))
    template = {"name": document["name"], "language": {"code": document["language"]}}
    return {**template, "components": parts} if parts else template


def values_of(template: Mapping[str, Any]) -> dict[str, str]:
    """The values of a sent `template` member by the parameters' keys: what `message` wrote."""
    values = {}
    for part in _mappings(template.get("components")):
        component = str(part.get("type", "")).lower()
        for place, parameter in enumerate(_mappings(part.get("parameters")), 1):
            kind = str(parameter.get("type", ""))
            if component == "body":
                key = f"body_{parameter.get('parameter_name', place)}"
            else:
                key = "header" if component == "header" else f"{component}_{part.get('index')}"
            value = parameter.get(kind)
            values[key] = str(value.get("link", "") if isinstance(value, dict) else value)
    return values


def as_read(document: Mapping[str, Any], values: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
    """What the customer reads: (`header`, `body`, `footer` or `button`, text). Without values, with the variables."""
    shown = []
    for component in _components(document):
        kind = str(component.get("type", "")).lower()
        if kind == "buttons":
            shown += [("button", str(button.get("text", ""))) for button in _buttons(component)]
        elif kind == "header" and component.get("format") != "TEXT":
            shown.append(("header", f"[{str(component.get('format', '')).lower()}]"))
        elif kind in {"header", "body", "footer"}:
            shown.append((kind, _with_values(str(component.get("text", "")), kind, values)))
    return shown


def variables(text: str) -> list[str]:
    """The variables of a text, each once: numbered ones by their numbers, named ones as they come."""
    found = dict.fromkeys(_VARIABLE.findall(text))
    return sorted(found, key=int) if all(name.isdecimal() for name in found) else list(found)


def _with_values(text: str, component: str, values: Mapping[str, str] | None) -> str:
    if values is None:
        return text

    def value(found: re.Match[str]) -> str:
        return values.get("header" if component == "header" else f"body_{found[1]}", found[0])

    return _VARIABLE.sub(value, text)


def _of_component(component: Mapping[str, Any]) -> Iterator[Parameter]:
    kind = component.get("type")
    if kind == "HEADER":
        yield from _of_header(component)
    elif kind == "BODY":
        for name in variables(str(component.get("text", ""))):
            yield Parameter(f"body_{name}", "body", "text", name)
    elif kind == "BUTTONS":
        for index, button in enumerate(_buttons(component)):
            yield from _of_button(index, button)
    elif kind != "FOOTER":
        raise CannotBeFilled(f"A template with a {_words(kind)} can only be sent with the API.")


def _of_header(component: Mapping[str, Any]) -> Iterator[Parameter]:
    form = component.get("format")
    if form == "TEXT":
        for name in variables(str(component.get("text", ""))):
            yield Parameter("header", "header", "text", name)
    elif form in _MEDIA:
        yield Parameter("header", "header", _MEDIA[form])
    else:
        raise CannotBeFilled(f"A template with a {_words(form)} header can only be sent with the API.")


def _of_button(index: int, button: Mapping[str, Any]) -> Iterator[Parameter]:
    kind = button.get("type")
    if kind == "COPY_CODE":
        yield Parameter(f"button_{index}", "button", "coupon_code", None, index)
    elif kind == "OTP":
        yield Parameter(f"button_{index}", "button", "text", "1", index)
    elif kind == "URL":
        if found := variables(str(button.get("url", ""))):
            yield Parameter(f"button_{index}", "button", "text", found[0], index)
    elif kind not in _WITHOUT_PARAMETERS:
        raise CannotBeFilled(f"A template with a {_words(kind)} button can only be sent with the API.")


def _filled(parameter: Parameter, value: str, *, named: bool) -> dict[str, Any]:
    if parameter.kind in {"image", "video", "document"}:
        return {"type": parameter.kind, parameter.kind: {"link": value}}
    filled = {"type": parameter.kind, parameter.kind: value}
    if named and parameter.component != "button":
        filled["parameter_name"] = str(parameter.variable)
    return filled


def _components(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return _mappings(document.get("components"))


def _buttons(component: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return _mappings(component.get("buttons"))


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    """The objects of a list that the upstream wrote; nothing when it is none."""
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _words(kind: object) -> str:
    return str(kind).lower().replace("_", " ")
