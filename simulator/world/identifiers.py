"""Ids, numbers, names and times in Meta's forms: pure functions."""

import base64
import hashlib
import os
import random
import time
from functools import lru_cache

_COUNTRIES = {"1": "US", "44": "GB", "49": "DE", "52": "MX", "55": "BR", "91": "IN", "971": "AE", "65": "SG"}
_NAMES = (
    "Asha Rao",
    "Ravi Kumar",
    "Meera Iyer",
    "Arjun Singh",
    "Divya Nair",
    "Kabir Khan",
    "Leela Das",
    "Nikhil Shah",
)


def digits_of(number: str) -> str:
    """The digits of a phone number in any notation."""
    return "".join(character for character in number if character.isdigit())


def display_form(digits: str) -> str:
    """A number in Meta's notation: `+91 98000 00001`."""
    if digits.startswith("91") and len(digits) == 12:
        return f"+91 {digits[2:7]} {digits[7:]}"
    if digits.startswith("1") and len(digits) == 11:
        return f"+1 {digits[1:4]}-{digits[4:7]}-{digits[7:]}"
    return f"+{digits}"


@lru_cache(maxsize=100_000)
def business_scoped_id(business_id: str, digits: str) -> str:
    """The user id of a customer in a business portfolio. The same customer and portfolio always give the same id."""
    country = next((_COUNTRIES[digits[:n]] for n in (3, 2, 1) if digits[:n] in _COUNTRIES), "IN")
    number = int.from_bytes(hashlib.sha256(f"{business_id}:{digits}".encode()).digest()[:10], "big")
    return f"{country}.{number % 10**20:020d}"


@lru_cache(maxsize=100_000)
def customer_name(customer: str) -> str:
    """A made-up profile name for a customer without a name."""
    return _NAMES[sum(customer.encode()) % len(_NAMES)]


def message_id(party: str, *, inbound: bool, of: str | None = None) -> str:
    """A wamid in Meta's form (upstream fact 1.1): a readable beginning and a unique end. The same `of` always gives the
    same end.
    """
    unique = os.urandom(10) if of is None else hashlib.sha256(of.encode()).digest()
    tail = unique[: 10 if inbound else 9].hex().upper().encode()
    who = party.encode()[:120]
    raw = b"\x1c\x18%c%b\x15\x02\x00%c\x18%c%b\x00" % (
        len(who),
        who,
        0x12 if inbound else 0x11,
        len(tail),
        tail,
    )
    return "wamid." + base64.b64encode(raw).decode()


def new_id(prefix: str) -> str:
    """A numeric id of 15 digits that begins with `prefix`, which shows the kind of object."""
    return prefix + "".join(random.choices("0123456789", k=15 - len(prefix)))


def graph_time(seconds: float | None = None) -> str:
    """A time in the Graph API's form: `2026-10-01T08:00:00+0000`."""
    return time.strftime(
        "%Y-%m-%dT%H:%M:%S+0000", time.gmtime(seconds if seconds is not None else time.time())
    )
