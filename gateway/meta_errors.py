"""Meta's error codes: those that the service treats specially, and the explanation of every known code.

`meta_errors.yaml` explains each code: its cause, how to fix it, and whether the call may be repeated. Explanations are
shown at `/errors/131047` and in the guides, beside `source` in responses of `/v1`, in the look-up of a message, in the
console, and to agents. Bodies on the Cloud API's own paths never contain them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import orjson
import yaml
from django.conf import settings

SHORT_THROTTLES = frozenset({4, 17, 32, 613, 80007, 80008, 130429, 131056})
LONG_THROTTLES = frozenset({131048, 131064, 133016})
"""Codes that Meta also classes as throttling. A wait of seconds does not help against them."""
LONG_THROTTLE_SECONDS = 3600
PAIR_RATE = 131056
PAIR_RATE_SECONDS = 6
"""How long to wait after an error of the pair rate limit, which allows one message to a customer every six seconds."""
THROUGHPUT = 130429
"""The code for a message beyond the number's throughput. The message was certainly not sent."""
TOKEN_PROBLEMS = frozenset({0, 102, 190})
MAINTENANCE = 131057
INVALID_PARAMETER = 100

Retry = Literal["corrected", "later", "check", "never"]
RETRY: Mapping[Retry, str] = {
    "corrected": "after correcting it",
    "later": "yes, later",
    "check": "only once you know that the first call did nothing",
    "never": "no",
}
MARK = b'"source":"meta"'
"""The member that `/v1` inserts at the beginning of Meta's errors (`gateway/upstream/calls.py`)."""
_WORDS = re.compile(rb'(?:,"hint":"(?:[^"\\]|\\.)*","doc_url":"[^"]*")?,"request_id":(?:"[^"]*"|null)')
"""The members that `explained` adds."""


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """One of Meta's codes, or a range of codes with one name."""

    name: str
    """The name by which to search for the code, such as `131047` or `200-299`."""
    first: int
    last: int
    title: str
    cause: str
    repair: str
    retry: Retry
    page: str
    """The code's page in Meta's documentation."""

    @property
    def hint(self) -> str:
        """The cause, and how to fix it, as one text."""
        return f"{self.cause} {self.repair}"

    @property
    def again(self) -> str:
        """A sentence that says whether to repeat the call."""
        return RETRY[self.retry]

    @property
    def doc_url(self) -> str:
        """The service's page about the code."""
        return f"{settings.BASE_URL}/errors/{self.name}"


@cache
def catalogue() -> tuple[ErrorCode, ...]:
    """All known codes, in numerical order."""
    # The parser in C, if available, because the first error of a process waits for the parsing.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = Path(__file__).with_name("meta_errors.yaml").read_text()
    source: dict[str, Any] = yaml.load(text, Loader=loader)  # noqa: S506 - both are safe loaders
    found = []
    for key, entry in source["codes"].items():
        first, _, last = str(key).partition("-")
        page = source["pages"][entry.pop("page", "codes")]
        found.append(ErrorCode(str(key), int(first), int(last or first), page=page, **entry))
    return tuple(sorted(found, key=lambda code: (code.first, code.last)))


@cache
def _by_number() -> dict[int, ErrorCode]:
    return {number: code for code in catalogue() for number in range(code.first, code.last + 1)}


def error_code(code: object, subcode: object = None) -> ErrorCode | None:
    """The entry of the subcode if there is one, else that of the code. None for an unknown code."""
    known = _by_number()
    for number in (subcode, code):
        if type(number) is int and number in known:
            return known[number]
    return None


def explained(body: bytes, request_id: str | None) -> bytes:
    """An error of Meta in the form of `/v1`: with `hint` and `doc_url` if its code is known, and the `request_id`.

    The added members stand beside `source`. Meta's own bytes are unchanged.
    """
    start = _after_mark(body)
    if start is None:
        return body
    error = orjson.loads(body).get("error")
    error = error if isinstance(error, dict) else {}
    known = error_code(error.get("code"), error.get("error_subcode"))
    beside = {"hint": known.hint, "doc_url": known.doc_url} if known else {}
    return b"%b,%b%b" % (body[:start], orjson.dumps({**beside, "request_id": request_id})[1:-1], body[start:])


def in_metas_form(body: bytes) -> bytes:
    """Meta's error as Meta sent it, without `source` and the explanation."""
    start = _after_mark(body)
    if start is None:
        return body
    words = _WORDS.match(body, start)
    rest = body[words.end() if words else start :]
    return body[: start - len(MARK)] + rest.removeprefix(b",")


def _after_mark(body: bytes) -> int | None:
    """The position after the mark in an error that the service marked as Meta's. None for other bodies."""
    start = body.find(b"{") + 1
    return start + len(MARK) if body.startswith(MARK, start) else None
