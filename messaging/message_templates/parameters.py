"""Parameters of a message template, the message built from their values, and the check of a batch.

Reads Meta's description of a template and writes the `template` member of a send (upstream fact 1.3).

Before a batch is stored, the language of each template, the count of its parameters and their texts are checked against
the mirror. Meta would reject each of up to ten thousand wrong messages (132000, 132001, 131008, 132018); the check
reports the error once. It rejects the batch only if the mirror was read within FRESH and no hint of a change came
since. Otherwise it warns, and also if the batch is sent later, because its templates may be created or changed until
then. Templates with parameters that cannot be counted, such as carousels, are not checked.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec
import orjson
from msgspec import Struct

from gateway.api.errors import InvalidRequest
from gateway.api.validation import SHOWN_PROBLEMS
from gateway.clock import now
from messaging.message_templates.mirror import language_of
from messaging.models import MessageTemplate, TemplateMirror

Kind = Literal["text", "image", "video", "document", "coupon_code"]

_VARIABLE = re.compile(r"\{\{\s*([A-Za-z0-9_]{1,64})\s*\}\}")
BREAKS = re.compile(r"[\n\r\t]| {5}")
"""What the text of a parameter must not contain (132018)."""
_MEDIA: dict[str, Kind] = {"IMAGE": "image", "VIDEO": "video", "DOCUMENT": "document"}
_WITHOUT_PARAMETERS = {"QUICK_REPLY", "PHONE_NUMBER", "VOICE_CALL", "CALL_REQUEST", "REQUEST_CONTACT_INFO"}


class CannotBeFilled(Exception):
    """Raised for a template with parameters that are not single values, such as a carousel."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One value that a send fills in.

    `key` is its name in forms and files: `header`, `body_1`, `body_name`, `button_0`.
    """

    key: str
    component: Literal["header", "body", "button"]
    kind: Kind
    variable: str | None = None
    """The variable's name between the braces. None for media and coupon codes."""
    index: int = 0
    """The position of the button that has the parameter."""

    @property
    def label(self) -> str:
        if self.component == "button":
            return f"Button {self.index + 1}: {'coupon code' if self.kind == 'coupon_code' else 'end of the link'}"
        if self.kind != "text":
            return f"Header: link of the {self.kind}"
        return f"{self.component.capitalize()} {{{{{self.variable}}}}}"


def parameters_of(document: Mapping[str, Any]) -> list[Parameter]:
    """A template's parameters in order. Raises CannotBeFilled."""
    return [found for component in _components(document) for found in _of_component(component)]


def message(
    document: Mapping[str, Any], values: Mapping[str, str], wanted: Sequence[Parameter] | None = None
) -> dict[str, Any]:
    """Build the `template` member of a send. `values` has one value for each parameter's key.

    To build many messages, pass `parameters_of(document)` as `wanted`. The document is then parsed only once.
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
    """The values in a sent `template` member, by the parameters' keys. The inverse of `message`."""
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
            if isinstance(value, dict):
                # A file has a link; a currency and a time have the text that customers read.
                value = value.get("link") or value.get("fallback_value", "")
            values[key] = str(value)
    return values


def as_read(document: Mapping[str, Any], values: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
    """The texts that the customer reads, as pairs of a part (`header`, `body`, `footer`, `button`) and its text.
    Without values, the texts contain the variables.
    """
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
    """The variables in a text, each once. Numbered variables are sorted by number. Named variables are in the order of
    the text.
    """
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
    """The objects in a list from Meta. Empty for other values."""
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _words(kind: object) -> str:
    return str(kind).lower().replace("_", " ")


FRESH = timedelta(minutes=10)
"""A mirror is fresh if it was read within this time and no hint of a change came since."""

LONGEST_NAME = 512
"""The longest name of a template at Meta."""
_WITH_FIXED_PARAMETERS = {"URL", "COPY_CODE", "OTP"}
_WORDS = {"header": "the header", "body": "the body"}


class _Language(Struct):
    code: str


class _Parameter(Struct):
    text: Any = None


class _Component(Struct):
    type: str
    parameters: list[_Parameter] = []
    index: int | str = 0


class _Template(Struct):
    name: str
    language: _Language
    components: list[_Component] = []


_decode = msgspec.json.Decoder(_Template).decode


@dataclass(slots=True)
class TemplateWarning:
    """An error for which Meta would probably reject messages, and the positions of these messages."""

    message: str
    indexes: list[int] = field(default_factory=list)
    """The positions of the first twenty messages."""
    count: int = 0

    def note(self, idx: int) -> None:
        """Count a message with this error."""
        self.count += 1
        if self.count <= SHOWN_PROBLEMS:
            self.indexes.append(idx)


def check_sends(
    contents: Sequence[tuple[int, bytes]], *, waba_id: str, send_at: datetime | None
) -> list[TemplateWarning]:
    """Check template messages against an account's mirror. Each message is a pair: its position and its `template`
    member. Returns warnings.

    If the mirror is fresh and the messages are sent at once, errors raise InvalidRequest instead.
    """
    if not contents:
        return []
    read = [(idx, _read(content)) for idx, content in contents]
    mirrored = _Mirrored(waba_id, {template.name for _, template in read if template is not None})
    warnings: dict[str, TemplateWarning] = {}
    for idx, template in read:
        if template is None or not (problem := mirrored.problem(template)):
            continue
        if problem in warnings or len(warnings) < SHOWN_PROBLEMS:
            warnings.setdefault(problem, TemplateWarning(problem)).note(idx)
    if warnings and send_at is None and mirrored.is_fresh():
        places = sorted((idx, found.message) for found in warnings.values() for idx in found.indexes)
        raise InvalidRequest(
            f"{next(iter(warnings))} Nothing was queued. The first {SHOWN_PROBLEMS} messages are named.",
            details={
                "fields": {f"messages[{idx}].template": [what] for idx, what in places[:SHOWN_PROBLEMS]},
                "indexes": [idx for idx, _ in places[:SHOWN_PROBLEMS]],
            },
        )
    return list(warnings.values())


class _Mirrored:
    """The templates with these names in an account's mirror."""

    def __init__(self, waba_id: str, names: set[str]) -> None:
        self.waba_id = waba_id
        rows = MessageTemplate.objects.filter(
            account__waba_id=waba_id, name__in=names, deleted_at__isnull=True
        )
        self._rows: dict[str, dict[str, MessageTemplate]] = {}
        for row in rows:
            self._rows.setdefault(row.name, {})[row.language] = row
        self._counts: dict[tuple[str, str], Counter[str] | None] = {}

    def problem(self, template: _Template) -> str | None:
        """The error in a message's template. None without an error."""
        languages = self._rows.get(template.name)
        if languages is None:
            return f"There is no template {template.name} (Meta would refuse it with 132001)."
        language = language_of(template.language.code)
        if language not in languages:
            known = ", ".join(sorted(languages))
            return f"The template {template.name} has no language {language}, only {known} (132001)."
        wanted = self._wanted(template.name, language)
        if wanted is None:
            return None
        given: Counter[str] = Counter()
        for component in template.components:
            given[_part(component.type.lower(), component.index)] += len(component.parameters)
        for part in sorted(wanted):
            if wanted[part] != given[part]:
                where = _WORDS.get(part, part)
                plural = "" if wanted[part] == 1 else "s"
                code = 131008 if part.startswith("button") and given[part] < wanted[part] else 132000
                return (
                    f"The template {template.name} ({language}) takes {wanted[part]} parameter{plural} in {where}, "
                    f"not {given[part]} ({code})."
                )
        texts = [each.text for component in template.components for each in component.parameters]
        if any(isinstance(text, str) and BREAKS.search(text) for text in texts):
            return (
                f"A value for the template {template.name} ({language}) has a line break, a tab or more than four "
                "blanks in a row (132018)."
            )
        return None

    def is_fresh(self) -> bool:
        """Whether the account's mirror was read within FRESH and no hint of a change came since."""
        moment = now()
        return TemplateMirror.objects.filter(
            account__waba_id=self.waba_id,
            account__token_invalid_at__isnull=True,
            read_at__gte=moment - FRESH,
            next_sync_at__gt=moment + FRESH,
            failures=0,
        ).exists()

    def _wanted(self, name: str, language: str) -> Counter[str] | None:
        """How many parameters each part takes. None for a template whose parameters cannot be counted."""
        if (name, language) not in self._counts:
            self._counts[name, language] = _counted(orjson.loads(self._rows[name][language].document))
        return self._counts[name, language]


def _counted(document: Mapping[str, Any]) -> Counter[str] | None:
    """How many parameters each part of a template takes. None when the number is unknown.

    Leaves out parts with optional parameters: other buttons and the tap target. Meta itself writes the body of an
    authentication template, so its text is unknown until the next read.
    """
    try:
        wanted = parameters_of(document)
    except CannotBeFilled:
        return None
    bodies = [part for part in document.get("components", []) if part.get("type") == "BODY"]
    if not all(isinstance(body.get("text"), str) for body in bodies):
        return None
    counts = Counter(dict.fromkeys(("header", "body"), 0))
    for component in _components(document):
        for index, button in enumerate(_buttons(component)):
            if button.get("type") in _WITH_FIXED_PARAMETERS:
                counts[_part("button", index)] = 0
    counts.update(_part(each.component, each.index) for each in wanted)
    return counts


def _part(component: str, index: int | str) -> str:
    return f"button {index}" if component == "button" else component


def _read(content: bytes) -> _Template | None:
    """Parse a message's template. None for a form that only Meta can validate."""
    try:
        template = _decode(content)
    except msgspec.MsgspecError:
        return None
    return template if len(template.name) <= LONGEST_NAME else None
