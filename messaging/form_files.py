"""Files uploaded in multipart forms: checks for media and template samples."""

import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO

from django.core.files.uploadedfile import UploadedFile
from rest_framework.request import Request

from gateway.api.errors import InvalidRequest, PayloadTooLarge

MAX_FILE_BYTES = 100 * 1024 * 1024
"""The largest media file or header sample, in bytes."""
MAX_REQUEST_BYTES = MAX_FILE_BYTES + 1024 * 1024
"""The largest form with such a file."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A checked file of a multipart form, not read yet."""

    content: IO[bytes]
    length: int
    name: str
    mime_type: str


def form_of(request: Request) -> dict[str, str]:
    """The form's text fields."""
    return {name: value for name, value in request.POST.items() if isinstance(value, str)}


def upload_of(request: Request, form: Mapping[str, str], *, default_name: str, field: str = "file") -> Upload:
    """Check the file in the form. Raises InvalidRequest.

    Its media type is the field `type`, else the type of the part, else the type of the file name.
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
