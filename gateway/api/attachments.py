"""Answers that carry a stranger's file: a browser saves it, or shows it in a sandbox, and runs nothing of it.

The file's type is its sender's word. Without these headers a HTML document would run at the console's own address.
"""

import re
from email.message import Message

from django.http import HttpResponseBase
from django.utils.http import content_disposition_header

_NO_NAME = re.compile(
    r'[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff"\\/:*?<>|]+'
)
"""Characters that a file system rejects, or that show a name otherwise than it is."""
_LONGEST_NAME = 200


def attach(response: HttpResponseBase, disposition: str | None) -> None:
    """Make a file an attachment, named as the `Content-Disposition` that it came with says."""
    isolate(response)
    response["Content-Disposition"] = (
        content_disposition_header(True, _file_name(disposition)) or "attachment"
    )


def isolate(response: HttpResponseBase) -> None:
    """Let a browser run nothing of a file, and take it for nothing but the type that is said."""
    response["Content-Security-Policy"] = "sandbox"
    response["X-Content-Type-Options"] = "nosniff"


def _file_name(disposition: str | None) -> str:
    if not disposition:
        return ""
    parsed = Message()
    parsed["Content-Disposition"] = disposition
    try:
        name = parsed.get_filename("")
    except (LookupError, ValueError):
        return ""
    return _NO_NAME.sub("_", name).strip(" .")[:_LONGEST_NAME]
