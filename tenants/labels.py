"""Labels: the words that pages show for columns, codes and values."""

import re

from django.utils.text import capfirst

# --- Values as pages show them: durations and phone numbers.

NOTHING = "–"
"""Shown for an empty value."""


def milliseconds(duration: float) -> str:
    """A duration with its unit, with one decimal for fractions, such as `1,204 ms` or `12.3 ms`. Never `0 ms`."""
    if duration < 1:
        return "< 1 ms"
    return f"{duration:,.1f} ms" if isinstance(duration, float) else f"{duration:,} ms"


def phone_number(name: str) -> str:
    """The name of a customer or a number. Bare digits are a phone number and get a "+"; a user id is unchanged."""
    return f"+{name}" if name.isdecimal() else name


# --- Labels of columns and codes as pages show them: `waba_ids` is "WABA IDs", `past_due` is "Past due".

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
    "sqs": "SQS",
    "tls": "TLS",
    "uid": "UID",
    "upi": "UPI",
    "url": "URL",
    "waba": "WABA",
}


_CODE = re.compile(r"(?!wb_)[a-z]+(_[a-z0-9]+)+|[A-Z]+(_[A-Z0-9]+)+")
"""Matches codes, but neither prefixes of API keys nor public ids, which mix both cases."""


def spelled(text: str) -> str:
    """A text with its acronyms in capitals, such as `last http status` as `last HTTP status`."""
    return " ".join(ACRONYMS.get(word, word) for word in text.split(" "))


def words(code: str | None) -> str:
    """A code as words within a sentence, such as `http_5xx` as `HTTP 5xx`. Empty for none."""
    return spelled((code or "").replace("_", " ").lower())


def label(code: str | None) -> str:
    """A code as a label, such as `NOT_REGISTERED` as `Not registered`. Empty for none."""
    return str(capfirst(words(code)))


def readable(text: str) -> str:
    """A stored text for a page: a code of several words as words, any other text unchanged."""
    return words(text) if _CODE.fullmatch(text) else text
