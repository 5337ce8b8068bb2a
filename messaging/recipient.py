"""Recipients as people type them."""

import re

_BETWEEN = re.compile(r"[\s().-]")
_INDIAN_MOBILE = re.compile(r"[6-9][0-9]{9}")
_NUMBER = re.compile(r"\+?[1-9][0-9]{6,14}")


def typed_number(text: str) -> str | None:
    """The digits of a typed phone number with its country code; None when it is none."""
    number = _BETWEEN.sub("", text)
    return number.lstrip("+") if _NUMBER.fullmatch(number) else None


def lacks_country_code(text: str) -> bool:
    """Whether a typed number is ten digits as Indian mobiles have them, without `+`.

    Its first digits would be taken for a country: 98… is Iran. Numbers of other countries that have this form need `+`.
    """
    return _INDIAN_MOBILE.fullmatch(_BETWEEN.sub("", text)) is not None
