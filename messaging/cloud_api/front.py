"""The front's door: a Graph call becomes the call of `/v1` that does the same, and its answer a Graph answer.

Sends, read marks, uploads and registrations run through `/v1`, so idempotency, pacing, events, permissions and limits
are the same on both. What `/v1` does not have goes to `nodes.py`, which passes it to the upstream.
"""

import re
from typing import Any

import orjson
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.urls import resolve
from django.views.decorators.csrf import csrf_exempt
from rest_framework.exceptions import ParseError
from rest_framework.request import Request

from gateway.api.authentication import TenantCaller
from gateway.api.errors import InvalidRequest, ServiceError, error_response
from gateway.api.json import PARSED, parse_object
from gateway.api.limits.body_size import API_BODY_BYTES, limited_by
from gateway.api.limits.throttling import TenantRateThrottle
from messaging import form_files
from messaging.cloud_api.errors import INVALID, UNKNOWN_PATH, in_graph_form, refusal
from messaging.cloud_api.nodes import KEY_IN_QUERY, DebugTokenView, NodeView, SubscribedAppsView
from messaging.cloud_api.resumable_uploads import UploadSessionsView, UploadSessionView
from messaging.views import MessagesView
from tenants.credentials.authentication import BearerAuthentication

UPLOAD = "upload"
"""In the place of a node: a resumable upload, whose session follows."""
_OPERATIONS = {
    "register": "register",
    "deregister": "deregister",
    "request_code": "request-code",
    "verify_code": "verify-code",
}
"""Edges of a number that are operations of `/v1/numbers/{id}`."""
KNOWN_EDGES = frozenset(
    {
        *_OPERATIONS,
        "content",
        "media",
        "marketing_messages",
        "message_templates",
        "messages",
        "phone_numbers",
        "subscribed_apps",
        "uploads",
        "whatsapp_business_profile",
    }
)
"""Edges that the request log names; a caller may write anything in their place."""
_send = MessagesView.as_view({"post": "create"})
_send_marketing = MessagesView.as_view({"post": "create"}, edge="marketing_messages")
_JSON = re.compile(r"application/(?:[\w.]+\+)?json", re.IGNORECASE)


@limited_by(API_BODY_BYTES)
@csrf_exempt
def graph(
    request: HttpRequest, node: str, edge: str | None = None, version: str | None = None
) -> HttpResponseBase:
    """A call at a path of the Graph API."""
    return _answered(request, _template(edge, version), version, node, edge)


@limited_by(form_files.MAX_REQUEST_BYTES)
@csrf_exempt
def graph_upload(request: HttpRequest, session: str, version: str | None = None) -> HttpResponseBase:
    """A resumable upload that goes on: its bytes are streamed."""
    template = ("/{version}" if version else "") + "/upload:{session}"
    return _answered(request, template, version, UPLOAD, session)


def _answered(
    request: HttpRequest, template: str, version: str | None, node: str, edge: str | None
) -> HttpResponseBase:
    _take_credential(request)
    request.route_template = template  # type: ignore[attr-defined]
    try:
        if node != "oauth":
            _admit(request)
        response = _dispatch(request, node, edge)
    except ServiceError as error:
        response = error_response(error, request)
    return in_graph_form(response, request, version=version or settings.META_GRAPH_VERSION)


def _template(edge: str | None, version: str | None) -> str:
    """The pattern of a Graph path for the request log: without the id, and with an edge's name where it is known."""
    named = edge if edge in KNOWN_EDGES else "{edge}"
    return ("/{version}" if version else "") + "/{node}" + (f"/{named}" if edge else "")


@limited_by(form_files.MAX_REQUEST_BYTES)
@csrf_exempt
def graph_media(
    request: HttpRequest, node: str, edge: str | None = None, version: str | None = None
) -> HttpResponseBase:
    """The same for uploads, whose bodies may be larger."""
    return graph(request, node, edge, version)


@csrf_exempt
def no_such_path(request: HttpRequest) -> HttpResponseBase:
    """A path below a version that the Graph API does not have, or that the gateway does not serve."""
    answer = refusal(UNKNOWN_PATH, "Unknown path components.", request, gateway_code="not_found")
    return in_graph_form(answer, request, version=settings.META_GRAPH_VERSION)


def _take_credential(request: HttpRequest) -> None:
    """Put a key that comes as `X-API-Key` or `access_token` where every view looks for it; it is in no log."""
    in_query: list[str] = []
    if request.META.get("QUERY_STRING"):
        query = request.GET.copy()
        in_query = query.pop("access_token", [])
        _set_query(request, query)
    setattr(request, KEY_IN_QUERY, in_query[0] if in_query else None)
    key = request.headers.get("X-API-Key") or (in_query[0] if in_query else None)
    scheme, _, credential = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
    if scheme == "OAuth":
        # What the upstream asks for in resumable uploads, and takes everywhere.
        key = credential
    if key and ("HTTP_AUTHORIZATION" not in request.META or scheme == "OAuth"):
        request.META["HTTP_AUTHORIZATION"] = f"Bearer {key}"
        # `headers` is computed once.
        request.__dict__.pop("headers", None)


def _admit(request: HttpRequest) -> None:
    """Judge the caller by its headers, before anything reads the body: credentials, standing, rate."""
    judged = Request(request, authenticators=[BearerAuthentication()])
    TenantCaller().has_permission(judged, None)
    TenantRateThrottle().allow_request(judged, None)


def _dispatch(request: HttpRequest, node: str, edge: str | None) -> HttpResponseBase:
    if node == "debug_token":
        return _called(DebugTokenView.as_view(), request)
    if node == "oauth":
        return refusal(
            INVALID,
            "The gateway exchanges no codes: connect an account with POST /v1/numbers/connect.",
            request,
            gateway_code="invalid_request",
        )
    if node == UPLOAD:
        return _called(UploadSessionView.as_view(), request, session=edge)
    if edge == "uploads" and request.method == "POST":
        _as_json(request)
        return _called(UploadSessionsView.as_view(), request)
    if edge == "subscribed_apps":
        _as_json(request)
        return _called(SubscribedAppsView.as_view(), request, waba_id=node)
    if request.method == "POST":
        return _post(request, node, edge)
    if edge == "content":
        return _v1(request, f"/v1/media/{node}")
    return _called(NodeView.as_view(), request, node=node, edge=edge)


def _post(request: HttpRequest, node: str, edge: str | None) -> HttpResponseBase:
    """A POST at a number, or at a node that the views of the front know."""
    if edge == "media":
        return _upload(request, node)
    body = {} if edge == "assets" else _as_json(request)
    if edge == "messages":
        return _message(request, node, body)
    if edge == "marketing_messages":
        return _marketing_message(request, node, body)
    if edge in _OPERATIONS:
        return _v1(request, f"/v1/numbers/{node}/{_OPERATIONS[edge]}", _registration(body))
    if edge == "whatsapp_business_profile":
        return _v1(request, f"/v1/numbers/{node}/business-profile", body)
    if edge is None and set(_less_product(body)) == {"pin"}:
        return _v1(request, f"/v1/numbers/{node}/two-step", _registration(body))
    return _called(NodeView.as_view(), request, node=node, edge=edge)


def _message(request: HttpRequest, number: str, body: dict[str, Any]) -> HttpResponseBase:
    """A send or a read mark: the caller's bytes with `from`, and `type` where a text leaves it out."""
    added: dict[str, Any] = {"from": number}
    if body.get("status") == "read":
        return _v1(request, "/v1/messages/read", {**_less_product(body, "status"), **added})
    if "type" not in body and "text" in body:
        added["type"] = "text"
    _set_body(request, _with(added, body, request.body), {**body, **added})
    if request.META.get("QUERY_STRING"):
        _set_query(request, QueryDict())
    request.path = request.path_info = "/v1/messages"
    return _called(_send, request)


def _marketing_message(request: HttpRequest, number: str, body: dict[str, Any]) -> HttpResponseBase:
    """A send by the upstream's marketing edge; its idempotency keys are its own."""
    added = {"from": number}
    _set_body(request, _with(added, body, request.body), {**body, **added})
    request.path = request.path_info = "/marketing_messages"
    return _called(_send_marketing, request)


def _with(added: dict[str, Any], body: dict[str, Any], raw: bytes) -> bytes:
    """A body with members before its own, which stay as they were written."""
    if "from" in body:
        return orjson.dumps({**body, **added})
    rest = raw.lstrip()[1:]
    return orjson.dumps(added)[:-1] + (b"" if rest.lstrip() == b"}" else b",") + rest


def _upload(request: HttpRequest, number: str) -> HttpResponseBase:
    """A file: `type` may be a kind (`image`) or stand in the query, and the part's own type then counts."""
    request.path = request.path_info = "/v1/media"
    form = request.POST.copy()
    form["from"] = number
    kind = form.get("type") or request.GET.get("type") or ""
    form.pop("type", None)
    if "/" in kind:
        form["type"] = kind
    _set_query(request, QueryDict())
    request.POST = form  # type: ignore[assignment]
    return _called(resolve("/v1/media").func, request)


def _v1(request: HttpRequest, path: str, body: dict[str, Any] | bytes | None = None) -> HttpResponseBase:
    """The answer of `/v1` to the same caller, with a body of its own."""
    request.path = request.path_info = path
    if request.META.get("QUERY_STRING"):
        _set_query(request, QueryDict())
    if body is not None:
        _set_body(request, body if isinstance(body, bytes) else orjson.dumps(body))
    found = resolve(path)
    return _called(found.func, request, **found.kwargs)


def _called(view: Any, request: HttpRequest, **named: Any) -> HttpResponseBase:
    response: HttpResponseBase = view(request, **named)
    if isinstance(response, HttpResponse) and hasattr(response, "render"):
        response = response.render()
    return response


def _as_json(request: HttpRequest) -> dict[str, Any]:
    """The body as an object; a form becomes JSON. Raises InvalidRequest for what is no JSON object."""
    content_type = request.content_type or ""
    if content_type in {"application/x-www-form-urlencoded", "multipart/form-data"}:
        form = {name: value for name, value in request.POST.items() if isinstance(value, str)}
        _set_body(request, orjson.dumps(form))
        return dict(form)
    if not request.body.strip():
        _set_body(request, b"{}")
        return {}
    if not _JSON.match(content_type):
        # Several libraries send JSON as text/plain.
        request.META["CONTENT_TYPE"] = "application/json"
    try:
        body = parse_object(request.body)
    except ParseError as error:
        raise InvalidRequest(str(error.detail)) from None
    setattr(request, PARSED, body)
    return body


def _set_body(request: HttpRequest, body: bytes, parsed: dict[str, Any] | None = None) -> None:
    request._body = body
    setattr(request, PARSED, parsed)
    request.META["CONTENT_TYPE"] = "application/json"
    request.META["CONTENT_LENGTH"] = str(len(body))
    request.content_type = "application/json"
    request.__dict__.pop("headers", None)


def _set_query(request: HttpRequest, query: QueryDict) -> None:
    request.GET = query  # type: ignore[assignment]
    request.META["QUERY_STRING"] = query.urlencode()


def _less_product(body: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in {"messaging_product", *names}}


def _registration(body: dict[str, Any]) -> dict[str, Any]:
    """The body of a registration's step. The Graph API also takes a PIN or a code that is written as a number."""
    return {name: str(value) if type(value) is int else value for name, value in _less_product(body).items()}
