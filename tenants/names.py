"""Names that users type: what they may contain, and how mails quote them."""

import re

from django.core.exceptions import ValidationError

SHOWN_CHARACTERS = 80
"""The maximum number of characters of a name that a mail shows."""

# Control characters, line and paragraph separators, and marks that change the direction of the text around them.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_LINK = re.compile(r"://|\bwww\.", re.IGNORECASE)


def check_name(text: str) -> None:
    """Raise ValidationError for a name with control characters or a link, because mails to others show the name."""
    if _CONTROL.search(text):
        raise ValidationError("This must be one line of text without control characters.")
    if _LINK.search(text):
        raise ValidationError("This must not contain a link.")


def quoted(text: str) -> str:
    """A name for use within a mail: one line in quotation marks, cut to `SHOWN_CHARACTERS`."""
    line = " ".join(_CONTROL.sub(" ", text).split())
    return f"“{line if len(line) <= SHOWN_CHARACTERS else line[: SHOWN_CHARACTERS - 1] + '…'}”"
