"""Why a message was not delivered, in one sentence, with what repairs it. Pure."""

from typing import NamedTuple

from messaging.message_log.detail import Detail
from tenants.console.request_pages import UpstreamMeaning, explains


class Explanation(NamedTuple):
    """A sentence about a message, and the page that repairs it: a route's name with the button's text, or None."""

    text: str
    level: str
    button: str | None = None
    url_name: str | None = None


_CODES: dict[int, tuple[str, str | None, str | None]] = {
    100: ("A parameter is wrong: the answer's details name it.", None, None),
    190: (
        "The token of the number's account is no longer taken. Connect it again.",
        "See the numbers",
        "console_numbers",
    ),
    131008: ("A parameter is missing: the answer's details name it.", None, None),
    131009: ("A parameter has a wrong value: the answer's details name it.", None, None),
    131021: ("The number cannot write to itself.", None, None),
    131026: ("The phone cannot get it: no WhatsApp on this number, or an old version.", None, None),
    131047: (
        "The customer has not written for more than 24 hours, so only a template can be sent.",
        "Send a template",
        "console_send",
    ),
    131049: (
        "The platform held it back so that the customer does not get too many marketing messages.",
        None,
        None,
    ),
    131050: ("The customer has stopped marketing messages from you.", None, None),
    131030: ("The number may only write to its list of test recipients.", None, None),
    130472: (
        "The customer takes part in an experiment of the platform and gets no marketing messages.",
        None,
        None,
    ),
    131042: (
        "The business account has a payment problem on the platform. Repair it in the platform's manager.",
        None,
        None,
    ),
    131056: ("Too many messages went to this customer in a short time. Send it again later.", None, None),
    130429: ("The number sent faster than its throughput. A batch keeps the pace by itself.", None, None),
    132000: (
        "The template got another number of variables than it has.",
        "See the templates",
        "console_templates",
    ),
    132001: (
        "The template does not exist in this language, or is not approved.",
        "See the templates",
        "console_templates",
    ),
    132015: ("The template is paused because of its quality.", "See the templates", "console_templates"),
    132016: (
        "The template was disabled for good because of its quality.",
        "See the templates",
        "console_templates",
    ),
    133010: ("The number is not registered.", "See the numbers", "console_numbers"),
}
"""Codes of the upstream (upstream fact 2.7) in words."""


@explains
def of_code(code: str) -> UpstreamMeaning | None:
    """What a code of the upstream means."""
    known = _CODES.get(int(code)) if code.isascii() and code.isdecimal() else None
    return UpstreamMeaning(*known) if known else None


def explained(found: Detail) -> Explanation:
    """What became of a message."""
    row = found.row
    if row.direction == "inbound":
        return Explanation("A customer sent it.", "ok")
    if row.status in {"read", "delivered"}:
        return Explanation(f"It was {row.status}.", "ok")
    if row.status == "failed" or found.error is not None:
        code = found.error.code if found.error else row.error_code
        known = _CODES.get(code or 0)
        if known is not None:
            text, button, url_name = known
            return Explanation(f"{text} (code {code})", "bad", button, url_name)
        said = (found.error.details or found.error.message or found.error.title) if found.error else None
        return Explanation(
            f"It was not delivered: {said or 'the platform gave no reason'} (code {code})", "bad"
        )
    if row.status == "sent":
        return Explanation(
            "The platform sent it. The phone has not confirmed it yet: it may be off or without a network.",
            "warn",
        )
    return Explanation("The platform accepted it. No status has come yet.", "warn")
