"""Responses with a file from a customer. A browser saves or shows the file, and runs none of its code.

The sender declares the type of the file. Without the headers set here, an HTML document would run in the console's own
origin.
"""

import re
from email.message import Message

from django.http import HttpResponseBase
from django.utils.http import content_disposition_header

_NO_NAME = re.compile(
    r'[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff"\\/:*?<>|]+'
)
"""Characters that a file system rejects, or that disguise a name."""
_LONGEST_NAME = 200


def attach(response: HttpResponseBase, disposition: str | None) -> None:
    """Make a response an attachment. The file's received `Content-Disposition` gives the file name."""
    isolate(response)
    response["Content-Disposition"] = (
        content_disposition_header(True, _file_name(disposition)) or "attachment"
    )


def isolate(response: HttpResponseBase) -> None:
    """Forbid browsers to run a file's code. Every response forbids them to guess its type."""
    response["Content-Security-Policy"] = "sandbox"


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
