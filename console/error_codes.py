"""Error codes in words: the cause, the fix, and the page on which the cause can be fixed."""

from collections.abc import Iterable
from typing import NamedTuple

from django.urls import reverse

from gateway.api.errors import error_kinds
from gateway.meta_errors import error_code
from phone_numbers.tokens import Refused

_REPAIRED_ON = {
    "number_not_connected": ("See the numbers", "console_numbers"),
    "webhook_verify_failed": ("See the endpoints", "console_endpoints"),
    "unauthorized": ("See the API keys", "console_api_keys"),
}
"""For each error of the service itself, the page on which its cause can be fixed: the button's text and the route."""
Link = tuple[str, str]
"""The text of a link, and the name of its route."""
NUMBERS: Link = ("See the numbers", "console_numbers")
TEMPLATES: Link = ("See the templates", "console_templates")
SEND_TEMPLATE: Link = ("Send a template", "console_send")
BATCHES: Link = ("Make a batch", "console_csv_upload")
UNREACHABLE = "Meta did not answer. Try again in a minute."


class Meaning(NamedTuple):
    """The meaning of an error code. `url_name` is the route of the page on which the cause can be fixed. `button` is
    the text of the link to that page.
    """

    code: str
    cause: str
    fix: str
    button: str | None = None
    url_name: str | None = None
    guide: str = "/docs/errors/"
    others: tuple[tuple[str, str], ...] = ()
    """Further causes of the same code, each with its fix."""

    @property
    def element_id(self) -> str:
        """The id of the drawer that shows this meaning."""
        return f"error-{self.code}"


def meaning_of(code: str) -> Meaning | None:
    """The meaning of a code. None for an unknown code."""
    return _service_meaning(code) or upstream_meaning(code)


def meanings_of(codes: Iterable[object]) -> dict[str, Meaning]:
    """The meanings of the codes on a page, by code. Empty and unknown codes are left out."""
    found = (meaning_of(code) for code in sorted({str(code) for code in codes if code}))
    return {meaning.code: meaning for meaning in found if meaning is not None}


def _service_meaning(code: str) -> Meaning | None:
    own = [(kind.message, kind.hint) for kind in error_kinds() if kind.code == code]
    if not own:
        return None
    (cause, fix), *others = dict.fromkeys(own)
    button, url_name = _REPAIRED_ON.get(code, (None, None))
    guide = f"{reverse('error_page')}#{code}"
    return Meaning(code, cause, fix, button, url_name, guide, tuple(others))


_UPSTREAM: dict[int, Link] = {
    **dict.fromkeys(
        (0, 3, 10, 33, 102, 190, 200, 368, 131005, 131030, 131031, 131037, 131042, 131044, 131045, 131048),
        NUMBERS,
    ),
    **dict.fromkeys((133000, 133005, 133006, 133010, 133016), NUMBERS),
    **dict.fromkeys((131063, 131064, 132000, 132001, 132005, 132007, 132008, 132012), TEMPLATES),
    **dict.fromkeys((132015, 132016, 132018, 132068, 132069), TEMPLATES),
    130429: BATCHES,
    131047: SEND_TEMPLATE,
}
"""For each WhatsApp error, the page on which its cause can be fixed. The key is the first code of the error's entry in
the catalogue.
"""


def upstream_meaning(code: str) -> Meaning | None:
    """The catalogue's meaning of a WhatsApp code. None for an unknown code."""
    known = error_code(int(code)) if code.isascii() and code.isdecimal() and len(code) < 10 else None
    if known is None:
        return None
    button, url_name = _UPSTREAM.get(known.first, (None, None))
    guide = reverse("meta_error_page", args=[known.name])
    return Meaning(code, known.cause, known.repair, button, url_name, guide)


def refusal_text(refusal: Refused) -> str:
    """Meta's own explanation of a refused call."""
    error = refusal.answer.json().get("error")
    words = error if isinstance(error, dict) else {}
    return str(words.get("error_user_msg") or words.get("message") or "Meta refused it.")
