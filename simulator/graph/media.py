"""Media: upload, info, download and deletion. A download URL of the simulator is valid for five minutes (upstream fact
1.2).
"""

import time
from typing import Any
from urllib.parse import quote

from aiohttp import BodyPartReader, web

from simulator.errors import GraphError, invalid_parameter, no_such_object, trace_id
from simulator.graph.dispatch import Call, Table, find_token
from simulator.media_urls import media_url, url_hash
from simulator.parts import SIMULATOR
from simulator.world.records import Media

UPLOAD_DAYS = 30
_MEGABYTE = 1024 * 1024
DOCUMENT_LIMIT = 100 * _MEGABYTE
LIMITS: dict[str, int] = {
    **dict.fromkeys(
        ("audio/aac", "audio/mp4", "audio/mpeg", "audio/amr", "audio/ogg", "audio/opus"), 16 * _MEGABYTE
    ),
    **dict.fromkeys(
        (
            "application/vnd.ms-powerpoint",
            "application/msword",
            "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
            "application/vnd.openxmlformats-officedocument.presentationml.presentation",
            "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
            "application/pdf",
            "text/plain",
            "application/vnd.ms-excel",
        ),
        DOCUMENT_LIMIT,
    ),
    **dict.fromkeys(("image/jpeg", "image/png"), 5 * _MEGABYTE),
    "image/webp": 500 * 1024,
    **dict.fromkeys(("video/mp4", "video/3gpp"), 16 * _MEGABYTE),
}
"""The largest size in bytes of a file, by MIME type. Meta refuses every other type at the upload."""
_EXECUTABLE_NAMES = (".exe", ".dll", ".bat", ".com", ".msi", ".scr")


def limit_of(mime_type: str) -> int:
    """The largest size in bytes of a file of a MIME type. Raises error 100 for an unsupported type."""
    base = mime_type.partition(";")[0].strip().lower()
    limit = LIMITS.get(base)
    if limit is None:
        raise invalid_parameter(
            f"Param file must be a file with one of the following types: {', '.join(LIMITS)}. "
            f"Received file of type '{base}'."
        )
    return limit


async def upload(call: Call) -> dict[str, str]:
    """POST /{number}/media: upload a file, as a multipart form with messaging_product, type and file."""
    number = call.sending_number()
    if call.request.content_type != "multipart/form-data":
        raise invalid_parameter("The parameter file is required.")
    values: dict[str, str] = {}
    data: bytes | None = None
    filename, part_type = None, ""
    try:
        async for part in await call.request.multipart():
            if not isinstance(part, BodyPartReader):
                raise invalid_parameter("Nested multipart bodies are not supported")
            if part.name == "file":
                filename, part_type = part.filename, part.headers.get("Content-Type", "")
                data = await _content(part, DOCUMENT_LIMIT)
            elif part.name:
                values[part.name] = (await _content(part, 64 * 1024)).decode(errors="replace")
    except (ValueError, AssertionError):
        raise invalid_parameter("The body is not a readable multipart form") from None
    if values.get("messaging_product") != "whatsapp":
        raise invalid_parameter("The parameter messaging_product is required.")
    if data is None:
        raise invalid_parameter("The parameter file is required.")
    mime_type = values.get("type") or part_type
    if "/" not in mime_type:
        mime_type = part_type
    if filename and filename.lower().endswith(_EXECUTABLE_NAMES):
        mime_type = "application/x-msdownload"
    if len(data) > limit_of(mime_type):
        raise GraphError(131053, f"The file is larger than {limit_of(mime_type)} bytes.")
    media = call.sim.state.media.store(
        number, data=data, mime_type=mime_type, filename=filename, days=UPLOAD_DAYS
    )
    return {"id": media.id}


async def _content(part: BodyPartReader, limit: int) -> bytes:
    content = bytearray()
    while block := await part.read_chunk(256 * 1024):
        content += block
        if len(content) > limit:
            raise GraphError(131053, f"The file is larger than {limit} bytes.")
    return bytes(content)


async def get_media(call: Call) -> dict[str, Any]:
    """GET /{media}: create a URL that works for five minutes. `sha256` is hex here, but base64 in notifications."""
    media = _media(call)
    return {
        "messaging_product": "whatsapp",
        "url": media_url(call.sim, media),
        "mime_type": media.mime_type,
        "sha256": media.sha256.hex(),
        "file_size": str(len(media.data)),
        "id": media.id,
    }


async def delete_media(call: Call) -> dict[str, bool]:
    """DELETE /{media}: delete a file."""
    call.sim.state.media.drop(_media(call).id)
    return {"success": True}


def _media(call: Call) -> Media:
    media = call.sim.state.media.get(call.node)
    asked_for = call.request.query.get("phone_number_id")
    if media is None or not call.token.opens(media.waba_id):
        raise no_such_object(call.node, call.request.method)
    if asked_for and media.is_received:
        # Meta compares the number with the one that uploaded the file.
        raise invalid_parameter("Param phone_number_id is not a valid whatsapp business phone number id ID")
    if asked_for and asked_for != media.phone_number_id:
        raise no_such_object(call.node, call.request.method)
    return media


async def download(request: web.Request) -> web.StreamResponse:
    """GET /whatsapp_business/attachments/: download a file. Requires the token and a signed, unexpired URL."""
    sim = request.app[SIMULATOR]
    query = request.query
    scheme, _, value = request.headers.get("Authorization", "").partition(" ")
    try:
        if scheme != "Bearer":
            raise GraphError(104)
        token = find_token(sim, value)
    except GraphError as error:
        return web.json_response(error.body(trace_id()), status=401)
    media = sim.state.media.get(query.get("mid", ""))
    expires = int(query["ext"]) if query.get("ext", "").isdigit() else 0
    if (
        media is None
        or expires < time.time()
        or query.get("hash") != url_hash(sim, media.id, expires)
        or not token.opens(media.waba_id)
    ):
        return web.Response(status=404, text="Not Found")
    return await send_bytes(request, media)


async def send_bytes(request: web.Request, media: Media) -> web.StreamResponse:
    """Send a file, or the requested range of it, with the file's type, length and name."""
    try:
        asked = request.http_range
    except ValueError:
        asked = slice(None)
    start, stop, _ = asked.indices(len(media.data))
    if start >= stop:
        raise web.HTTPRequestRangeNotSatisfiable(headers={"Content-Range": f"bytes */{len(media.data)}"})
    response = web.StreamResponse(headers={"Content-Type": media.mime_type, "Accept-Ranges": "bytes"})
    if "Range" in request.headers and (asked.start is not None or asked.stop is not None):
        response.set_status(206)
        response.headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(media.data)}"
    if media.filename:
        response.headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(media.filename)}"
    response.content_length = stop - start
    await response.prepare(request)
    for place in range(start, stop, 256 * 1024):
        await response.write(media.data[place : min(stop, place + 256 * 1024)])
    await response.write_eof()
    return response


def register(table: Table) -> None:
    """Register these routes in the table."""
    table.edge("POST", "media", upload)
    table.node("GET", lambda sim, node: node in sim.state.media, get_media)
    table.node("DELETE", lambda sim, node: node in sim.state.media, delete_media)


def add_routes(app: web.Application) -> None:
    """Register the file host in the application."""
    app.router.add_get("/whatsapp_business/attachments/", download)
