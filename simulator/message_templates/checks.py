"""Checks of a template send against the stored template, and the text that the customer reads (upstream fact 1.1.3).

The checks have Meta's order and codes: 132001 for an unknown template, 132015 for a paused one, 132016 for a disabled
one, 132000 for a wrong number of parameters, 132012 for a wrong kind of parameter, 132018 for a line break in a text.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from simulator.errors import GraphError
from simulator.world.records import Template
from simulator.world.state import State

_VARIABLE = re.compile(r"{{\s*(\w+)\s*}}")
_HEADER_MEDIA = {"IMAGE": "image", "VIDEO": "video", "DOCUMENT": "document", "GIF": "gif"}
_BREAKS = re.compile(r"[\n\r\t]| {5}")
_LONGEST_BODY = 4096
_LONGEST_COUPON = 15


def variables(text: str) -> list[str]:
    """The distinct variables of a text, in order: `Hi {{1}}` → [`1`]."""
    return list(dict.fromkeys(_VARIABLE.findall(text)))


def find_template(state: State, waba_id: str, source: Mapping[str, Any]) -> Template:
    """The template that a send names. Raises an error if it may not be sent."""
    name, language = source["name"], source["language"]["code"]
    template = state.template_index.get((waba_id, name, language))
    if template is None or template.status in {"PENDING", "REJECTED", "PENDING_DELETION", "IN_APPEAL"}:
        raise GraphError(132001, f"template name ({name}) does not exist in {language}")
    if template.status == "PAUSED":
        raise GraphError(132015, f"template ({name}) is paused due to low quality")
    if template.status == "DISABLED":
        raise GraphError(132016, f"template ({name}) is disabled")
    return template


def check_parameters(template: Template, components: Sequence[Any]) -> dict[str, Any]:
    """Compare the components of a send with the template's. Returns the content that the customer reads.

    The result is {header?: a parameter, body, footer?, buttons: [{type, text, url?, payload?, code?}]}.
    """
    given = _by_kind(components)
    rendered: dict[str, Any] = {"body": "", "buttons": []}
    for component in template.components:
        kind = str(component.get("type", "")).upper()
        if kind == "HEADER":
            rendered["header"] = _check_header(component, given.get("header", []))
        elif kind == "BODY":
            rendered["body"] = _check_body(template, component, given.get("body", []))
        elif kind == "FOOTER":
            rendered["footer"] = component.get("text")
        elif kind == "BUTTONS":
            rendered["buttons"] = _check_buttons(component, components)
    kinds = {str(component.get("type", "")).lower() for component in template.components}
    for kind in {"header", "body"} - kinds:
        _count(kind, 0, len(given.get(kind, [])))
    if "buttons" not in kinds:
        _check_buttons({}, components)
    if len(rendered["body"]) > _LONGEST_BODY:
        raise GraphError(132005, "body: the filled text is too long")
    return rendered


def _by_kind(components: Sequence[Any]) -> dict[str, list[dict[str, Any]]]:
    given: dict[str, list[dict[str, Any]]] = {}
    for component in components:
        if not isinstance(component, dict):
            raise GraphError(131009, "template['components'] must hold objects")
        parameters = component.get("parameters") or []
        if not isinstance(parameters, list) or not all(isinstance(item, dict) for item in parameters):
            raise GraphError(131009, "parameters must be a list of objects")
        given.setdefault(str(component.get("type", "")).lower(), []).extend(parameters)
    return given


def _count(where: str, expected: int, given: int) -> None:
    if expected != given:
        raise GraphError(
            132000,
            f"{where}: number of localizable_params ({given}) does not match the expected number of params "
            f"({expected})",
        )


def _check_header(component: Mapping[str, Any], parameters: list[dict[str, Any]]) -> dict[str, Any]:
    form = str(component.get("format", "TEXT")).upper()
    if form == "TEXT":
        text = str(component.get("text", ""))
        names = variables(text)
        _count("header", len(names), len(parameters))
        values = dict(zip(names, map(_text_of, parameters), strict=True))
        return {"type": "text", "text": _filled(text, values)}
    _count("header", 1, len(parameters))
    expected = _HEADER_MEDIA.get(form, form.lower())
    if str(parameters[0].get("type", "")).lower() != expected:
        raise GraphError(
            132012, f"header: Format mismatch, expected {form}, received {parameters[0].get('type')}"
        )
    file = parameters[0].get(expected)
    if expected in _HEADER_MEDIA.values() and not (
        isinstance(file, dict) and (file.get("id") or file.get("link"))
    ):
        raise GraphError(131008, f"header: Parameter of type {expected} is missing id or link")
    return parameters[0]


def _check_body(template: Template, component: Mapping[str, Any], parameters: list[dict[str, Any]]) -> str:
    text = str(component.get("text") or "")
    if template.category == "AUTHENTICATION":
        text = text or "*{{1}}* is your verification code."
    names = variables(text)
    _count("body", len(names), len(parameters))
    values: dict[str, str] = {}
    for position, (name, parameter) in enumerate(zip(names, parameters, strict=True)):
        if template.parameter_format == "NAMED":
            key = str(parameter.get("parameter_name", ""))
            if key not in names:
                raise GraphError(132012, f"body: Parameter name is missing or empty, expected {name}")
        else:
            key = names[position]
        values[key] = _text_of(parameter)
        if template.category == "AUTHENTICATION" and len(values[key]) > 15:
            raise GraphError(132005, "body: the code must be at most 15 characters")
    return _filled(text, values)


def _filled(text: str, values: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda match: values.get(match.group(1), match.group(0)), text)


def _text_of(parameter: Mapping[str, Any]) -> str:
    kind = str(parameter.get("type", "")).lower()
    if kind == "text":
        if not isinstance(parameter.get("text"), str) or not parameter["text"]:
            raise GraphError(131008, "Parameter of type text is missing text value")
        if _BREAKS.search(parameter["text"]):
            raise GraphError(
                132018, "Param text cannot have new-line/tab characters or more than 4 consecutive spaces"
            )
        return str(parameter["text"])
    if kind in {"currency", "date_time"}:
        holder = parameter.get(kind)
        if not isinstance(holder, dict) or not holder.get("fallback_value"):
            raise GraphError(131008, f"Parameter of type {kind} is missing fallback_value")
        return str(holder["fallback_value"])
    raise GraphError(132012, f"body: Parameter type {kind or 'unknown'} does not fit a text variable")


def _check_buttons(component: Mapping[str, Any], components: Sequence[Any]) -> list[dict[str, Any]]:
    sent: dict[int, Mapping[str, Any]] = {}
    for item in components:
        if str(item.get("type", "")).lower() == "button":
            position = str(item.get("index", "0"))
            if not position.isdigit():
                raise GraphError(131009, "button index is not a number")
            sent[int(position)] = item
    rendered = []
    for index in sent.keys() - range(len(component.get("buttons") or [])):
        _count(f"button at index {index}", 0, len(sent[index].get("parameters") or []))
    for index, button in enumerate(component.get("buttons") or []):
        kind = str(button.get("type", "")).upper()
        parameters = sent.get(index, {}).get("parameters") or []
        if kind == "COPY_CODE" or (kind == "URL" and variables(str(button.get("url", "")))):
            _check_button(index, kind, sent.get(index, {}), parameters)
        elif kind == "URL":
            _count(f"button at index {index}", 0, len(parameters))
        parameter = parameters[0] if parameters else {}
        shown = {"type": kind, "text": button.get("text")}
        if kind == "URL":
            shown["url"] = _filled(str(button.get("url")), {"1": str(parameter.get("text", ""))})
        elif kind == "QUICK_REPLY":
            shown["payload"] = parameter.get("payload") or button.get("text")
        elif kind == "COPY_CODE":
            shown["code"] = parameter.get("coupon_code")
        rendered.append(shown)
    return rendered


def _check_button(
    index: int, kind: str, sent: Mapping[str, Any], parameters: Sequence[Mapping[str, Any]]
) -> None:
    """Check the one parameter that a link with a variable or a coupon button needs."""
    if len(parameters) != 1:
        raise GraphError(131008, f"Button at index {index} of type {kind.title()} requires a parameter")
    where = f"button at index {index}"
    sub_type = str(sent.get("sub_type") or "").upper()
    if not sub_type:
        raise GraphError(131008, f"{where}: sub_type is required")
    if sub_type != kind:
        raise GraphError(132012, f"{where}: Format mismatch, expected {kind}, received {sub_type}")
    expected = "coupon_code" if kind == "COPY_CODE" else "text"
    if str(parameters[0].get("type", "")).lower() != expected:
        raise GraphError(132012, f"{where}: Format mismatch, expected {expected}")
    value = parameters[0].get(expected)
    if not isinstance(value, str) or not value:
        raise GraphError(131008, f"{where}: Parameter of type {expected} is missing its value")
    if kind == "COPY_CODE" and len(value) > _LONGEST_COUPON:
        raise GraphError(131009, f"{where}: the coupon code must be at most {_LONGEST_COUPON} characters")
