"""Resumable uploads: create a session, send the bytes, get a handle for a template sample or a profile picture
(upstream fact 1.4).
"""

import secrets
from base64 import urlsafe_b64encode
from typing import Any

from aiohttp import web

from simulator.errors import GraphError, invalid_parameter, no_such_object
from simulator.graph.dispatch import Call, Table, require_app, text_of
from simulator.parts import SIMULATOR
from simulator.world.records import Upload

TYPES = ("application/pdf", "image/jpeg", "image/jpg", "image/png", "video/mp4")
_LARGEST = 100 * 1024 * 1024


async def create_upload(call: Call) -> dict[str, str]:
    """POST /{app}/uploads?file_name=&file_length=&file_type=: create a session. The answer has its id."""
    require_app(call)
    params = call.params()
    length, kind = text_of(params, "file_length"), text_of(params, "file_type")
    if not length.isdigit() or not 0 < int(length) <= _LARGEST:
        raise invalid_parameter("Param file_length must be a positive number of bytes")
    if kind not in TYPES:
        raise invalid_parameter(f"Param file_type must be one of {{{', '.join(TYPES)}}}")
    key = urlsafe_b64encode(b"attachment:" + secrets.token_hex(16).encode()).decode().rstrip("=")
    upload = Upload(
        key=key,
        file_name=str(params.get("file_name", ""))[:255],
        file_type=kind,
        length=int(length),
        owner=next(iter(call.token.waba_ids or ()), ""),
    )
    call.sim.state.add_upload(upload)
    return {"id": f"upload:{key}?sig={upload.signature}"}


async def continue_upload(call: Call) -> dict[str, str]:
    """POST /upload:…: receive bytes from `file_offset` on. When all bytes have arrived, the answer has the handle."""
    upload = _upload(call)
    offset = call.request.headers.get("file_offset", "")
    if not offset.isdigit() or int(offset) != len(upload.data):
        raise invalid_parameter(f"The file_offset must be {len(upload.data)}")
    async for block in call.request.content.iter_chunked(256 * 1024):
        upload.data += block
        if len(upload.data) > upload.length:
            upload.data.clear()
            raise invalid_parameter("More bytes came than file_length announced")
    if len(upload.data) < upload.length:
        raise GraphError(100, message="(#100) The upload is not complete.", details=None)
    upload.handle = (
        f"4::{urlsafe_b64encode(upload.file_type.encode()).decode()}:AR{secrets.token_urlsafe(24)}"
    )
    call.sim.state.handles[upload.handle] = upload
    return {"h": upload.handle}


async def get_upload(call: Call) -> dict[str, Any]:
    """GET /upload:…: report the number of received bytes."""
    upload = _upload(call)
    return {"id": f"upload:{upload.key}?sig={upload.signature}", "file_offset": len(upload.data)}


def _upload(call: Call) -> Upload:
    upload = call.sim.state.uploads.get(call.node.removeprefix("upload:"))
    if upload is None or call.request.query.get("sig") != upload.signature:
        raise no_such_object(call.node, call.request.method)
    return upload


async def show(request: web.Request) -> web.Response:
    """GET /sim/uploads/{key}: serve a profile picture. The profile has this URL."""
    upload = request.app[SIMULATOR].state.uploads.get(request.match_info["key"])
    if upload is None:
        return web.Response(status=404, text="Not Found")
    return web.Response(body=bytes(upload.data), content_type=upload.file_type)


def register(table: Table) -> None:
    """Register these routes in the table."""
    table.edge("POST", "uploads", create_upload)
    table.node("POST", lambda _, node: node.startswith("upload:"), continue_upload)
    table.node("GET", lambda _, node: node.startswith("upload:"), get_upload)


def add_routes(app: web.Application) -> None:
    """Register the picture host in the application."""
    app.router.add_get("/sim/uploads/{key}", show)
