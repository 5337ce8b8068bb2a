"""Errors in the form of the Graph API, for software written against it.

Errors from the upstream stay as they are, without the members that `/v1` adds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase

from gateway.api.errors import Reply
from gateway.meta_errors import in_metas_form


@dataclass(frozen=True, slots=True)
class GraphCode:
    """The Graph API's error for one of the service's codes."""

    status: int
    code: int
    type: str = "OAuthException"
    subcode: int | None = None
    transient: bool = False


INVALID = GraphCode(400, 100)
UNKNOWN_NODE = GraphCode(400, 100, "GraphMethodException", subcode=33)
UNKNOWN_PATH = GraphCode(400, 2500)
NO_SUCH_REQUEST = GraphCode(400, 100, "GraphMethodException")
_MISSING = GraphCode(400, 131008)
_TOKEN = GraphCode(401, 190)
_UNREGISTERED = GraphCode(400, 133010)
_LOCKED = GraphCode(403, 131031)
_FAILED = GraphCode(500, 1, transient=True)

CODES: Mapping[str, GraphCode] = {
    "unauthorized": _TOKEN,
    "forbidden": GraphCode(403, 10),
    "tenant_not_approved": _LOCKED,
    "tenant_suspended": _LOCKED,
    "invalid_request": INVALID,
    "not_found": UNKNOWN_NODE,
    "conflict": INVALID,
    "method_not_allowed": UNKNOWN_PATH,
    "payload_too_large": GraphCode(413, 100),
    "unsupported_media_type": INVALID,
    "number_not_connected": _UNREGISTERED,
    "rate_limited": GraphCode(429, 130429, transient=True),
    "too_many_in_flight": GraphCode(429, 130429, transient=True),
    "meta_unreachable": GraphCode(502, 131000),
    "webhook_verify_failed": GraphCode(400, 2200),
    "service_unavailable": GraphCode(503, 2, transient=True),
    "internal_error": _FAILED,
}
_CONNECTION = {
    "token_invalid": _TOKEN,
    "account_removed": _LOCKED,
    "account_restricted": _LOCKED,
}
"""Graph errors by the `connection_detail` of a number that is not connected. The default is "not registered"."""
_MISSING_WORDS = ("Required", "This field is required")
_HEADERS = ("Retry-After", "Idempotent-Replayed")


def graph_reply(reply: Reply, *, request_id: str, version: str) -> Reply:
    """Convert an answer of `/v1` into the form of the Graph API."""
    source = reply.headers.get("X-Service-Error-Source")
    if source == "meta":
        reply = Reply(reply.status, reply.headers, in_metas_form(reply.body))
    elif source is not None:
        reply = _of_the_service(reply, request_id)
    headers = {**reply.headers, "facebook-api-version": version, "x-fb-request-id": request_id}
    if reply.status >= 400:
        headers.setdefault("X-Service-Error-Source", settings.SERVICE_NAME)
    return Reply(reply.status, headers, reply.body)


def in_graph_form(response: HttpResponseBase, request: HttpRequest, *, version: str) -> HttpResponseBase:
    """`graph_reply` for Django's responses."""
    request_id = _id_of(request)
    if isinstance(response, HttpResponse):
        reply = Reply(response.status_code, dict(response.items()), response.content)
        return graph_reply(reply, request_id=request_id, version=version).as_response()
    response["facebook-api-version"] = version
    response["x-fb-request-id"] = request_id
    return response


def refusal(graph_code: GraphCode, message: str, request: HttpRequest, *, gateway_code: str) -> HttpResponse:
    """An error from the front itself."""
    reply = _answer(
        graph_code, message, details=message, gateway_code=gateway_code, request_id=_id_of(request)
    )
    return reply.as_response()


def _of_the_service(reply: Reply, request_id: str) -> Reply:
    error: dict[str, Any] = orjson.loads(reply.body)["error"]
    code, details = str(error["code"]), error["details"] or {}
    graph_code = _graph_code(code, details, reply.status)
    answer = _answer(
        graph_code,
        str(error["message"]),
        details=_sentence(str(error["message"]), details),
        gateway_code=code,
        request_id=request_id,
    )
    kept = {name: reply.headers[name] for name in _HEADERS if name in reply.headers}
    return Reply(answer.status, {**answer.headers, **kept}, answer.body)


def _graph_code(code: str, details: Mapping[str, Any], status: int) -> GraphCode:
    if code == "number_not_connected":
        return _CONNECTION.get(str(details.get("connection_detail")), _UNREGISTERED)
    if code == "invalid_request":
        fields = details.get("fields") or {}
        if "from" in fields:
            return UNKNOWN_NODE
        problems = [str(problem) for each in fields.values() for problem in each]
        return _MISSING if any(problem.startswith(_MISSING_WORDS) for problem in problems) else INVALID
    if code == "idempotency_conflict":
        return GraphCode(status, 100)
    return CODES.get(code, GraphCode(status, 1))


def _sentence(message: str, details: Mapping[str, Any]) -> str:
    """The service's field errors, joined into one text. The service's message if no field has an error."""
    fields = details.get("fields") or {}
    named = [f"{name}: {' '.join(map(str, problems))}" for name, problems in fields.items() if name != "from"]
    return "; ".join(named) or message


def _answer(
    graph_code: GraphCode, message: str, *, details: str, gateway_code: str, request_id: str
) -> Reply:
    error: dict[str, Any] = {
        "message": f"(#{graph_code.code}) {message}",
        "type": graph_code.type,
        "code": graph_code.code,
        **({"error_subcode": graph_code.subcode} if graph_code.subcode is not None else {}),
        "is_transient": graph_code.transient,
        "error_data": {
            "messaging_product": "whatsapp",
            "details": details,
            "gateway_code": gateway_code,
        },
        "fbtrace_id": request_id,
    }
    headers = {"Content-Type": "application/json"}
    if graph_code.status == 401:
        headers["WWW-Authenticate"] = "OAuth"
    return Reply(graph_code.status, headers, orjson.dumps({"error": error}))


def _id_of(request: HttpRequest) -> str:
    return str(getattr(request, "request_id", ""))
