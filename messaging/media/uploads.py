"""Uploads in multipart forms: checks files for media and template samples, and uploads media files.

A file is streamed to the upstream; the service stores no file (specification 1).
"""

import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any
from uuid import UUID

import structlog
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpResponse
from rest_framework.request import Request

from gateway.api.errors import InvalidRequest, PayloadTooLarge
from gateway.database.statements import run
from gateway.database.transactions import error_fields, is_outage
from gateway.upstream.calls import passed_through
from messaging import known_nodes
from messaging.media.transfer import graph_of, verdict_of
from phone_numbers.senders_and_owners import Sender

MAX_FILE_BYTES = 100 * 1024 * 1024
"""The largest media file or sample for a template's header, in bytes."""
MAX_REQUEST_BYTES = MAX_FILE_BYTES + 1024 * 1024
"""The largest form with such a file, in bytes."""

MIME_TYPES = {
    "aac": "audio/aac",
    "amr": "audio/amr",
    "m4a": "audio/mp4",
    "mp3": "audio/mpeg",
    "oga": "audio/ogg",
    "ogg": "audio/ogg",
    "opus": "audio/ogg",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "png": "image/png",
    "webp": "image/webp",
    "3gp": "video/3gpp",
    "mp4": "video/mp4",
    "doc": "application/msword",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "pdf": "application/pdf",
    "ppt": "application/vnd.ms-powerpoint",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "txt": "text/plain",
    "xls": "application/vnd.ms-excel",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}
"""The media types that WhatsApp takes, by suffix. What `mimetypes` knows depends on the system: in a slim container it
does not know half of these.
"""
UNTYPED = "application/octet-stream"
"""The media type of a file whose type nobody knows."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Upload:
    """A file of a multipart form. The file has been checked, but not read yet."""

    content: IO[bytes]
    length: int
    name: str
    mime_type: str


def form_of(request: Request) -> dict[str, str]:
    """The form's text fields."""
    return {name: value for name, value in request.POST.items() if isinstance(value, str)}


def upload_of(request: Request, form: Mapping[str, str], *, default_name: str, field: str = "file") -> Upload:
    """Check the file in the form. Raises InvalidRequest, and PayloadTooLarge for a file that is too large.

    The media type comes from the field `type`, else from the file itself.
    """
    file = request.FILES.get(field)
    if not isinstance(file, UploadedFile) or file.file is None:
        raise InvalidRequest.of(**{field: "Required: the file, as a file part of a multipart form."})
    if not file.size:
        raise InvalidRequest.of(**{field: "The file is empty."})
    if file.size > MAX_FILE_BYTES:
        raise PayloadTooLarge(details={"limit_bytes": MAX_FILE_BYTES})
    mime_type = form.get("type") or media_type_of(file)
    if not mime_type:
        raise InvalidRequest.of(type="Required: the file's media type, e.g. image/jpeg.")
    return Upload(file.file, file.size, file.name or default_name, mime_type)


def media_type_of(file: "UploadedFile[Any]") -> str:
    """The media type of a file: from its part's header, else from its name. Empty if neither shows it.

    HTTP libraries and browsers write `application/octet-stream` for a file whose type they do not know, so then the
    name goes first.
    """
    name = file.name or ""
    of_part = file.content_type
    if of_part and of_part != UNTYPED:
        return of_part
    return MIME_TYPES.get(name.rpartition(".")[2].lower()) or mimetypes.guess_type(name)[0] or of_part or ""


def upload(tenant_id: UUID, number: Sender, file: Upload, others: Mapping[str, str]) -> HttpResponse:
    """Send a file to the upstream, with the other fields of its form. Returns the upstream's answer verbatim.

    Raises UpstreamUnreachable.
    """
    answer = graph_of(number).upload(
        file.content, length=file.length, name=file.name, mime_type=file.mime_type, others=others
    )
    response = passed_through(answer, verdict_of(number, answer))
    media_id = answer.json().get("id")
    if answer.ok and isinstance(media_id, str) and known_nodes.MEDIA_ID.fullmatch(media_id):
        try:
            run(
                known_nodes.record_media(
                    [known_nodes.Media(tenant_id, number.environment, media_id, number.phone_number_id)]
                )
            )
        except Exception as error:
            if not is_outage(error):
                raise
            # The upload has succeeded. The record is not essential, because a caller can name the number with `from`.
            log.warning("media_not_noted", **error_fields(error))
    return response
