"""What error codes mean, for people: cause, repair, and the page where it is repaired.

The codes of the service explain themselves. An app that knows the upstream's codes registers its explanation here.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from django.urls import reverse

from gateway.api.errors import error_kinds


class Meaning(NamedTuple):
    """A code in words. `url_name` is the route of the page that repairs it, `button` the text of the link to it."""

    code: str
    cause: str
    fix: str
    button: str | None = None
    url_name: str | None = None
    guide: str = "/docs/errors/"
    others: tuple[tuple[str, str], ...] = ()
    """Further causes that answer with the same code, each with its fix."""

    @property
    def element_id(self) -> str:
        """The id of the drawer with this meaning."""
        return f"error-{self.code}"


_PAGES = {
    "number_not_connected": ("See the numbers", "console_numbers"),
    "webhook_verify_failed": ("See the endpoints", "console_endpoints"),
    "unauthorized": ("See the API keys", "console_api_keys"),
}
"""The pages on which errors of the service are repaired: the button's text and the route."""

Explains = Callable[[str], Meaning | None]

_explains: list[Explains] = []


def explains(function: Explains) -> Explains:
    """Register an app's explanation: code → meaning, None for a code that it does not know."""
    _explains.append(function)
    return function


def meaning_of(code: str) -> Meaning | None:
    """What a code means; None for a code that nobody knows."""
    return next(filter(None, (function(code) for function in _explains)), None)


def meanings_of(codes: Iterable[object]) -> dict[str, Meaning]:
    """The meanings of the codes on a page, each once; empty and unknown codes are left out."""
    found = (meaning_of(code) for code in sorted({str(code) for code in codes if code}))
    return {meaning.code: meaning for meaning in found if meaning is not None}


@explains
def _of_the_service(code: str) -> Meaning | None:
    own = [(kind.message, kind.hint) for kind in error_kinds() if kind.code == code]
    if not own:
        return None
    (cause, fix), *others = dict.fromkeys(own)
    button, url_name = _PAGES.get(code, (None, None))
    guide = f"{reverse('error_page')}#{code}"
    return Meaning(code, cause, fix, button, url_name, guide, tuple(others))
