"""Answers to what never became a request: a server's own refusals, in the service's form."""

from gateway import ids
from gateway.api.errors import ServiceError, error_reply
from gateway.api.middleware import service_headers


def refusal(error: ServiceError, status_line: bytes) -> bytes:
    """The bytes of a whole answer that closes the connection. `status_line` ends with a line break."""
    request_id = ids.encode(ids.REQUEST, ids.uuid7())
    reply = error_reply(error, request_id)
    headers = {
        **service_headers(request_id, own_ms=0.0, meta_ms=0.0),
        **reply.headers,
        "Content-Length": str(len(reply.body)),
        "Connection": "close",
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return status_line + lines.encode("latin-1") + b"\r\n" + reply.body
