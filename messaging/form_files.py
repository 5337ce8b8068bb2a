"""Files that callers upload in multipart forms: the checks that media and template samples share."""

import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO

from django.core.files.uploadedfile import UploadedFile
from rest_framework.request import Request

from gateway.api.errors import InvalidRequest, PayloadTooLarge

MAX_FILE_BYTES = 100 * 1024 * 1024
"""The largest file of media, or sample of a template's header."""
MAX_REQUEST_BYTES = MAX_FILE_BYTES + 1024 * 1024
"""The file and the form around it."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A checked file of a multipart form, still to be read."""

    content: IO[bytes]
    length: int
    name: str
    mime_type: str


def form_of(request: Request) -> dict[str, str]:
    """The form's text fields."""
    return {name: value for name, value in request.POST.items() if isinstance(value, str)}


def upload_of(request: Request, form: Mapping[str, str], *, default_name: str, field: str = "file") -> Upload:
    """The form's file. Raises InvalidRequest.

    Its media type is the field `type`, else what the part says, else the type of its file name.
    """
    file = request.FILES.get(field)
    if not isinstance(file, UploadedFile) or file.file is None:
        raise InvalidRequest.of(**{field: "Required: the file, as a file part of a multipart form."})
    if not file.size:
        raise InvalidRequest.of(**{field: "The file is empty."})
    if file.size > MAX_FILE_BYTES:
        raise PayloadTooLarge(details={"limit_bytes": MAX_FILE_BYTES})
    mime_type = form.get("type") or file.content_type or mimetypes.guess_type(file.name or "")[0]
    if not mime_type:
        raise InvalidRequest.of(type="Required: the file's media type, e.g. image/jpeg.")
    return Upload(file.file, file.size, file.name or default_name, mime_type)
