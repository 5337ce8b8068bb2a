"""Labels: the words that pages use for columns, codes and values."""

import re

from django.utils.text import capfirst

# --- Values as pages show them: durations and phone numbers.

NOTHING = "–"
"""Shown for an empty value."""


def milliseconds(duration: float) -> str:
    """A duration with its unit, such as `1,204 ms`. A fraction has one decimal, such as `12.3 ms`. A shorter duration
    than 1 ms is `< 1 ms`.
    """
    if duration < 1:
        return "< 1 ms"
    return f"{duration:,.1f} ms" if isinstance(duration, float) else f"{duration:,} ms"


def phone_number(name: str) -> str:
    """The display name of a customer or a number. A phone number in digits gets a "+". A user id stays unchanged."""
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
"""Matches codes. Prefixes of API keys do not match, nor do public ids, which mix upper and lower case."""


def spelled(text: str) -> str:
    """A text with its acronyms in capitals: `last http status` is `last HTTP status`."""
    return " ".join(ACRONYMS.get(word, word) for word in text.split(" "))


def words(code: str | None) -> str:
    """A code as words within a sentence: `http_5xx` is `HTTP 5xx`. Empty for None."""
    return spelled((code or "").replace("_", " ").lower())


def label(code: str | None) -> str:
    """A code as a label: `NOT_REGISTERED` is `Not registered`. Empty for None."""
    return str(capfirst(words(code)))


def readable(text: str) -> str:
    """A stored text for a page. A code of several words is shown as words; any other text stays unchanged."""
    return words(text) if _CODE.fullmatch(text) else text
