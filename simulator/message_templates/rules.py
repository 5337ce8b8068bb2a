"""Rules for new and edited templates before review (upstream fact 1.3): code 100 with subcodes."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from simulator.errors import GraphError, invalid_parameter
from simulator.message_templates.checks import variables
from simulator.world.state import State

CATEGORIES = ("AUTHENTICATION", "MARKETING", "UTILITY")
LANGUAGES = frozenset(
    re.findall(
        r"\w+",
        """
    af sq ar ar_AE ar_EG ar_LB ar_MA ar_QA az be_BY bn bn_IN bg ca zh_CN zh_HK zh_TW hr cs da prs_AF nl nl_BE en en_AE
    en_AU en_CA en_GB en_GH en_IE en_IN en_JM en_MY en_NZ en_QA en_SG en_UG en_US en_ZA et fil fi fr fr_BE fr_CA fr_CH
    fr_CI fr_MA ka de de_AT de_CH el gu ha he hi hu id ga it ja kn kk ko ky_KG lo lv lt mk ms ml mr nb ps_AF fa pl pt_BR
    pt_PT pa ro ru rw_RW sr si_LK sk sl es es_AR es_CL es_CO es_CR es_DO es_EC es_ES es_HN es_MX es_PA es_PE es_UY sw sv
    ta te th tr uk ur uz vi zu
    """,
    )
)
_NAME = re.compile(r"[a-z0-9_]{1,512}")
_MEDIA = {"IMAGE", "VIDEO", "DOCUMENT", "GIF"}
_FORMATS = {"TEXT", "LOCATION", "PRODUCT", *_MEDIA}
_BUTTON_MOST = {"URL": 2, "PHONE_NUMBER": 1, "COPY_CODE": 1, "OTP": 1, "FLOW": 1, "CATALOG": 1, "MPM": 1}
_BUTTONS = {
    "QUICK_REPLY", "SPM", "VOICE_CALL", "CALL_REQUEST", "ORDER_DETAILS", "REQUEST_CONTACT_INFO", "APP",
    *_BUTTON_MOST,
}  # fmt: skip
_COMPONENTS = {
    "HEADER",
    "BODY",
    "FOOTER",
    "BUTTONS",
    "CAROUSEL",
    "LIMITED_TIME_OFFER",
    "CALL_PERMISSION_REQUEST",
}
_TTL = {"AUTHENTICATION": (30, 900), "UTILITY": (30, 43_200), "MARKETING": (43_200, 2_592_000)}

LENGTH, FORMAT, BODY_FORMAT, FOOTER, MISSING, EDGE_VARIABLE, MANY_VARIABLES = (
    2388040,
    2388047,
    2388072,
    2388073,
    2388043,
    2388299,
    2388293,
)
BAD_HANDLE = 2494102


def refuse(what: str, subcode: int, title: str = "Template cannot be created") -> GraphError:
    """The error for an invalid template: code 100 with a subcode and a text for the user."""
    return invalid_parameter(what, subcode=subcode, title=title)


def check_name(name: str) -> None:
    """Check a name: at most 512 lower-case letters, digits and underscores."""
    if not _NAME.fullmatch(name):
        raise invalid_parameter(
            "Param name can only have lowercase letters, digits and underscores, at most 512"
        )


def check_language(language: str) -> None:
    """Check the language of a template, such as `en_US`."""
    if language not in LANGUAGES:
        raise invalid_parameter(
            f"Param language must be one of {{{', '.join(sorted(LANGUAGES))}}} - got {language!r}"
        )


def check_category(category: str) -> str:
    """Check a category, and return it in upper case."""
    if category.upper() not in CATEGORIES:
        raise invalid_parameter(
            f"Param category must be one of {{{', '.join(CATEGORIES)}}} - got {category!r}"
        )
    return category.upper()


def check_ttl(category: str, seconds: Any) -> None:
    """Check the validity period for the category. -1 means 30 days for authentication and utility."""
    if seconds is None or (seconds == -1 and category != "MARKETING"):
        return
    low, high = _TTL[category]
    if not isinstance(seconds, int) or not low <= seconds <= high:
        raise invalid_parameter(f"Param message_send_ttl_seconds must be {low} to {high} for {category}")


def check_components(state: State, category: str, named: bool, components: Any) -> list[dict[str, Any]]:
    """Check the components, and return them in the form of Meta's responses. Raises error 100 with the reason."""
    if not isinstance(components, list) or not all(isinstance(item, dict) for item in components):
        raise invalid_parameter("Param components must be an array of objects")
    kinds = [str(item.get("type", "")).upper() for item in components]
    unknown = set(kinds) - _COMPONENTS
    if unknown:
        raise invalid_parameter(f"Param components holds an unknown type: {min(unknown)}")
    if len(set(kinds)) != len(kinds):
        raise refuse("A component may appear once only", FORMAT)
    if "BODY" not in kinds:
        raise refuse("The component of type BODY is missing", MISSING)
    return [_CHECKS[kind](state, category, named, item) for kind, item in zip(kinds, components, strict=True)]


def _passed(_: State, __: str, ___: bool, component: Mapping[str, Any]) -> dict[str, Any]:
    return {**component, "type": str(component["type"]).upper()}


def _check_header(state: State, _: str, named: bool, component: Mapping[str, Any]) -> dict[str, Any]:
    form = str(component.get("format", "")).upper()
    if form not in _FORMATS:
        raise refuse("The header's format is not supported", FORMAT)
    example = component.get("example") or {}
    if form == "TEXT":
        text = _text(component, "The header", 60)
        found = variables(text)
        if len(found) > 1:
            raise refuse("A header has at most one variable", FORMAT)
        key = "header_text_named_params" if named else "header_text"
        if found and not example.get(key):
            raise refuse(f"The header has a variable but no example.{key}", MISSING)
    elif form in _MEDIA:
        handles = example.get("header_handle")
        if not isinstance(handles, list) or not handles:
            raise refuse("A media header needs example.header_handle", MISSING)
        if str(handles[0]).strip() not in state.handles:
            raise refuse("The handle in example.header_handle is not valid or has expired", BAD_HANDLE)
    return {**component, "type": "HEADER", "format": form}


def _check_body(_: State, category: str, named: bool, component: Mapping[str, Any]) -> dict[str, Any]:
    if category == "AUTHENTICATION":
        advice = (
            " For your security, do not share this code."
            if component.get("add_security_recommendation")
            else ""
        )
        text = f"*{{{{1}}}}* is your verification code.{advice}"
        return {**component, "type": "BODY", "text": text, "example": {"body_text": [["123456"]]}}
    text = _text(component, "The body", 1024)
    found = variables(text)
    if named and any(name.isdigit() for name in found):
        raise refuse("Named variables are lowercase words", BODY_FORMAT)
    if not named and found != [str(number) for number in range(1, len(found) + 1)]:
        raise refuse("Variables must be numbered {{1}}, {{2}}, … in order", BODY_FORMAT)
    stripped = text.strip()
    if found and (stripped.startswith("{{") or stripped.endswith("}}")):
        raise refuse("A variable can be neither at the start nor at the end of the body", EDGE_VARIABLE)
    if "}}{{" in text:
        raise refuse("Variables need text between them", MANY_VARIABLES)
    example = component.get("example") or {}
    given = example.get("body_text_named_params") if named else (example.get("body_text") or [[]])[0]
    if len(given or ()) < len(found):
        raise refuse("The body has variables but not as many examples", MISSING)
    return {**component, "type": "BODY"}


def _check_footer(_: State, category: str, __: bool, component: Mapping[str, Any]) -> dict[str, Any]:
    if category == "AUTHENTICATION":
        minutes = component.get("code_expiration_minutes")
        if not isinstance(minutes, int) or not 1 <= minutes <= 90:
            raise refuse("code_expiration_minutes must be 1 to 90", FOOTER)
        return {**component, "type": "FOOTER", "text": f"This code expires in {minutes} minutes."}
    if variables(_text(component, "The footer", 60)):
        raise refuse("A footer has no variables", FOOTER)
    return {**component, "type": "FOOTER"}


def _check_buttons(_: State, category: str, __: bool, component: Mapping[str, Any]) -> dict[str, Any]:
    buttons = component.get("buttons")
    if (
        not isinstance(buttons, list)
        or not 1 <= len(buttons) <= 10
        or not all(isinstance(b, dict) for b in buttons)
    ):
        raise refuse("A template has 1 to 10 buttons", FORMAT)
    kinds = [str(button.get("type", "")).upper() for button in buttons]
    for kind in kinds:
        if kind not in _BUTTONS:
            raise refuse(f"The button type {kind or 'none'} is not supported", FORMAT)
        if kinds.count(kind) > _BUTTON_MOST.get(kind, 10):
            raise refuse(f"There are too many buttons of the type {kind}", FORMAT)
    if "OTP" in kinds and category != "AUTHENTICATION":
        raise refuse("OTP buttons belong to authentication templates", FORMAT)
    if _groups(kind == "QUICK_REPLY" for kind in kinds) > 1:
        raise refuse("Quick replies must stand together", FORMAT)
    return {"type": "BUTTONS", "buttons": [_button(k, b) for k, b in zip(kinds, buttons, strict=True)]}


def _button(kind: str, button: Mapping[str, Any]) -> dict[str, Any]:
    if kind == "OTP":
        otp_type = str(button.get("otp_type", "")).upper()
        if otp_type not in {"COPY_CODE", "ONE_TAP", "ZERO_TAP"}:
            raise refuse("otp_type must be COPY_CODE, ONE_TAP or ZERO_TAP", FORMAT)
        # In Meta's responses and in sends, an OTP button is a URL button (upstream fact 1.1.3).
        url = f"https://www.whatsapp.com/otp/code/?otp_type={otp_type}&code=otp{{{{1}}}}"
        text = str(button.get("text") or "Copy code")
        return {"type": "URL", "text": text, "url": url, "example": [url.replace("{{1}}", "123456")]}
    if kind == "COPY_CODE":
        if not button.get("example"):
            raise refuse("A copy-code button needs an example", MISSING)
        return {**button, "type": kind, "text": button.get("text") or "Copy offer code"}
    label = button.get("text")
    if kind not in {"MPM", "SPM", "CATALOG", "ORDER_DETAILS"} and (not isinstance(label, str) or not label):
        raise refuse("A button needs a text", MISSING)
    if isinstance(label, str) and len(label) > 25:
        raise refuse("A button's text has at most 25 characters", LENGTH)
    if kind == "URL":
        url = str(button.get("url", ""))
        if not url.startswith(("https://", "http://")) or "wa.me/" in url:
            raise refuse("The button's url is not allowed", FORMAT)
        if variables(url) and not button.get("example"):
            raise refuse("A url with a variable needs an example", MISSING)
    if kind == "PHONE_NUMBER" and not button.get("phone_number"):
        raise refuse("A call button needs a phone_number", MISSING)
    return {**button, "type": kind}


def _text(component: Mapping[str, Any], what: str, limit: int) -> str:
    text = component.get("text")
    if not isinstance(text, str) or not text.strip():
        raise refuse(f"{what} needs a text", MISSING)
    if len(text) > limit:
        raise refuse(f"{what} has at most {limit} characters", LENGTH)
    return text


def _groups(flags: Iterable[bool]) -> int:
    count, before = 0, False
    for flag in flags:
        count += flag and not before
        before = flag
    return count


_CHECKS = {
    "HEADER": _check_header,
    "BODY": _check_body,
    "FOOTER": _check_footer,
    "BUTTONS": _check_buttons,
    "CAROUSEL": _passed,
    "LIMITED_TIME_OFFER": _passed,
    "CALL_PERMISSION_REQUEST": _passed,
}
