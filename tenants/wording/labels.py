"""Labels of columns and words of codes, as pages show them: `waba_ids` is "WABA IDs", `past_due` is "Past due"."""

import re

from django.utils.text import capfirst

ACRONYMS = {
    "api": "API",
    "dns": "DNS",
    "gstin": "GSTIN",
    "http": "HTTP",
    "id": "ID",
    "ids": "IDs",
    "ip": "IP",
    "irn": "IRN",
    "pan": "PAN",
    "pin": "PIN",
    "sha256": "SHA-256",
    "tls": "TLS",
    "upi": "UPI",
    "url": "URL",
    "waba": "WABA",
}


_CODE = re.compile(r"(?!wb_)[a-z]+(_[a-z0-9]+)+|[A-Z]+(_[A-Z0-9]+)+")
"""Never the prefix of an API key, nor a public id: they mix both cases."""


def spelled(text: str) -> str:
    """A text with its acronyms in capitals, e.g. `last http status` as `last HTTP status`."""
    return " ".join(ACRONYMS.get(word, word) for word in text.split(" "))


def words(code: str | None) -> str:
    """A code as the words inside of a sentence, e.g. `http_5xx` as `HTTP 5xx`; empty for none."""
    return spelled((code or "").replace("_", " ").lower())


def label(code: str | None) -> str:
    """A code as words of its own, e.g. `NOT_REGISTERED` as `Not registered`; empty for none."""
    return str(capfirst(words(code)))


def readable(text: str) -> str:
    """A stored text: a code of several words as words, anything else as it is."""
    return words(text) if _CODE.fullmatch(text) else text
