"""A message template that a member drafts. Converts the draft to Meta's body and back (upstream fact 1.3). Pure
functions.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from messaging.message_templates.parameters import variables

MEDIA_HEADERS = ("IMAGE", "VIDEO", "DOCUMENT")
AUTHENTICATION = "AUTHENTICATION"


@dataclass(frozen=True, slots=True)
class Button:
    """A button. `value` is its link, phone number or coupon code. `example` is a value for the link's variable."""

    kind: str
    text: str
    value: str = ""
    example: str = ""


@dataclass(frozen=True, slots=True)
class Draft:
    """A template to submit. The examples are in the order of the variables in the text."""

    name: str
    language: str
    category: str
    body: str = field(default="", repr=False)
    body_examples: Sequence[str] = ()
    header_format: str = ""
    header_text: str = ""
    header_example: str = ""
    """For a text header, the example of its variable. For a media header, the handle of the uploaded sample."""
    footer: str = ""
    buttons: Sequence[Button] = field(default_factory=list)
    code_minutes: int | None = None
    """How long a one-time code is valid. Only for authentication templates."""

    @property
    def is_named(self) -> bool:
        """Whether the template's variables have names instead of numbers."""
        found = variables(self.body) + (variables(self.header_text) if self.header_format == "TEXT" else [])
        return any(not name.isdecimal() for name in found)

    def document(self) -> dict[str, Any]:
        """The body of the submission."""
        head = {"name": self.name, "language": self.language, "category": self.category}
        if self.category == AUTHENTICATION:
            return {**head, "components": self._authentication()}
        named = {"parameter_format": "NAMED"} if self.is_named else {}
        return {
            **head,
            **named,
            "components": [*self._header(), self._body(), *self._footer(), *self._buttons()],
        }

    def change(self, *, with_category: bool) -> dict[str, Any]:
        """The body of an edit. Name and language cannot change. The category of an approved template cannot change."""
        kept = {"name", "language"} if with_category else {"name", "language", "category"}
        return {name: value for name, value in self.document().items() if name not in kept}

    def _authentication(self) -> list[dict[str, Any]]:
        footer = (
            [{"type": "FOOTER", "code_expiration_minutes": self.code_minutes}] if self.code_minutes else []
        )
        return [
            {"type": "BODY", "add_security_recommendation": True},
            *footer,
            {"type": "BUTTONS", "buttons": [{"type": "OTP", "otp_type": "COPY_CODE"}]},
        ]

    def _header(self) -> list[dict[str, Any]]:
        if self.header_format == "TEXT":
            header: dict[str, Any] = {"type": "HEADER", "format": "TEXT", "text": self.header_text}
            if found := variables(self.header_text):
                header["example"] = (
                    {"header_text_named_params": [{"param_name": found[0], "example": self.header_example}]}
                    if self.is_named
                    else {"header_text": [self.header_example]}
                )
            return [header]
        if self.header_format in MEDIA_HEADERS:
            example = {"header_handle": [self.header_example]}
            return [{"type": "HEADER", "format": self.header_format, "example": example}]
        return []

    def _body(self) -> dict[str, Any]:
        body: dict[str, Any] = {"type": "BODY", "text": self.body}
        if found := variables(self.body):
            pairs = zip(found, self.body_examples, strict=True)
            body["example"] = (
                {
                    "body_text_named_params": [
                        {"param_name": name, "example": example} for name, example in pairs
                    ]
                }
                if self.is_named
                else {"body_text": [list(self.body_examples)]}
            )
        return body

    def _footer(self) -> list[dict[str, Any]]:
        return [{"type": "FOOTER", "text": self.footer}] if self.footer else []

    def _buttons(self) -> list[dict[str, Any]]:
        # Meta requires all quick replies to be next to each other. If they are, the buttons keep their order, because a
        # send names a button by its index.
        ordered = list(self.buttons)
        places = [place for place, button in enumerate(ordered) if button.kind == "QUICK_REPLY"]
        if places and places[-1] - places[0] >= len(places):
            ordered.sort(key=lambda button: button.kind != "QUICK_REPLY")
        return [{"type": "BUTTONS", "buttons": [_button(each) for each in ordered]}] if ordered else []


def _button(button: Button) -> dict[str, Any]:
    if button.kind == "URL":
        example = {"example": [button.example]} if variables(button.value) else {}
        return {"type": "URL", "text": button.text, "url": button.value, **example}
    if button.kind == "PHONE_NUMBER":
        return {"type": "PHONE_NUMBER", "text": button.text, "phone_number": button.value}
    if button.kind == "COPY_CODE":
        return {"type": "COPY_CODE", "example": button.value}
    return {"type": "QUICK_REPLY", "text": button.text}


def examples(document: dict[str, Any]) -> dict[str, str]:
    """The examples of a document by the keys of its parameters, for the preview."""
    values: dict[str, str] = {}
    for component in document["components"]:
        given = component.get("example", {})
        if component["type"] == "HEADER" and component["format"] == "TEXT" and given:
            [(_, example)] = given.items()
            values["header"] = example[0]["example"] if isinstance(example[0], dict) else example[0]
        elif component["type"] == "BODY" and given:
            named = given.get("body_text_named_params")
            if named:
                values |= {f"body_{each['param_name']}": each["example"] for each in named}
            else:
                found = variables(component["text"])
                values |= {
                    f"body_{name}": value for name, value in zip(found, given["body_text"][0], strict=True)
                }
    return values


_COMPONENT_MEMBERS = {"type", "format", "text", "example", "buttons"}
_CODE_MEMBERS = {"add_security_recommendation", "code_expiration_minutes"}
_BUTTON_MEMBERS = {
    "QUICK_REPLY": {"type", "text"},
    "URL": {"type", "text", "url", "example"},
    "PHONE_NUMBER": {"type", "text", "phone_number"},
    "COPY_CODE": {"type", "text", "example"},
}


class CannotBeDrafted(Exception):
    """Raised for a template with parts that a draft cannot express, because an edit would lose them."""


def draft_of(document: Mapping[str, Any]) -> Draft:
    """The draft of an existing template. The sample of a media header is missing. Raises CannotBeDrafted."""
    head: dict[str, Any] = {name: str(document.get(name) or "") for name in ("name", "language", "category")}
    components = [each for each in document.get("components") or [] if isinstance(each, Mapping)]
    if head["category"] == AUTHENTICATION:
        kinds = {each.get("type") for each in components}
        if not (kinds >= {"BODY", "BUTTONS"} and all(map(_is_of_drafted_code, components))):
            raise CannotBeDrafted
        return Draft(**head, code_minutes=_minutes(components))
    parts: dict[str, Any] = {}
    for component in components:
        kind = component.get("type")
        if component.keys() - _COMPONENT_MEMBERS or kind not in _PARTS:
            raise CannotBeDrafted
        parts |= _PARTS[kind](component)
    return Draft(**head, **parts)


def _is_of_drafted_code(component: Mapping[str, Any]) -> bool:
    """Whether a component of an authentication template is as `Draft` writes it: the body with the security advice, the
    footer with the minutes, and one button that copies the code. Meta returns this button as a link.
    """
    if component.keys() - _COMPONENT_MEMBERS - _CODE_MEMBERS:
        return False
    match component:
        case {"type": "BODY", "add_security_recommendation": True}:
            return True
        case {"type": "FOOTER", "code_expiration_minutes": int()}:
            return True
        case {"type": "BUTTONS", "buttons": [{"type": "OTP", "otp_type": otp_type}]}:
            return bool(otp_type == "COPY_CODE")
        case {"type": "BUTTONS", "buttons": [{"type": "URL", "url": str(url)}]}:
            return parse_qs(urlsplit(url).query).get("otp_type") == ["COPY_CODE"]
    return False


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
    return {"buttons": list(map(_button_of, component.get("buttons") or []))}


_PARTS = {"HEADER": _header, "BODY": _body, "FOOTER": _footer, "BUTTONS": _buttons}


def _button_of(button: Mapping[str, Any]) -> Button:
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
    """The examples of a text's variables, in the order of the variables. Meta lists them by position (for a body, in a
    list of lists) or by name.
    """
    example = component.get("example") or {}
    named = example.get(f"{name}_named_params")
    if named:
        by_name = {each.get("param_name"): str(each.get("example", "")) for each in named}
        return [by_name.get(variable, "") for variable in variables(component.get("text", ""))]
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
