"""Recipients as people type them."""

import re

_BETWEEN = re.compile(r"[\s().-]")
_NUMBER = re.compile(r"\+?[1-9][0-9]{6,14}")


def typed_number(text: str) -> str | None:
    """The digits of a typed phone number with its country code; None when it is none."""
    number = _BETWEEN.sub("", text)
    return number.lstrip("+") if _NUMBER.fullmatch(number) else None
