"""The front's views: they turn a Graph call into the equivalent call of `/v1`, and its answer into a Graph answer.

Sends, read marks and uploads run through `/v1`, so idempotency, pacing, events, permissions and limits are the same
in both APIs. All other calls go to `nodes.py`, which passes them to the upstream.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlencode

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.urls import resolve
from django.views.decorators.csrf import csrf_exempt
from rest_framework.request import Request

from gateway.api.authentication import TENANT_HEADER, caller_of, check_role, check_tenant_caller
from gateway.api.errors import PayloadTooLarge, as_service_error, error_response
from gateway.api.limits import API_BODY_BYTES, DEFAULT_BODY_BYTES, TenantRateThrottle, limited_by
from gateway.roles import Area
from messaging.cloud_api import parameters
from messaging.cloud_api.errors import INVALID, NO_SUCH_REQUEST, UNKNOWN_PATH, in_graph_form, refusal
from messaging.cloud_api.nodes import (
    GIVEN,
    KEY_IN_QUERY,
    DebugTokenView,
    MeView,
    NodeView,
    SubscribedAppsView,
    UploadSessionsView,
    UploadSessionView,
)
from messaging.cloud_api.parameters import Parameters, form_fields
from messaging.media import uploads
from tenants.credentials.bearer_tokens import BearerAuthentication

View = TypeVar("View", bound=Callable[..., HttpResponseBase])

UPLOAD = "upload"
"""The path segment that replaces the node in a resumable upload. The session's id follows it."""
KNOWN_EDGES = frozenset(
    {
        "assets", "block_users", "calls", "content", "conversational_automation", "deregister", "flows",
        "groups", "invite_link", "join_requests", "marketing_messages", "media", "message_qrdls",
        "message_template_library", "message_templates", "messages", "participants", "phone_numbers", "publish",
        "register", "request_code", "settings", "subscribed_apps", "uploads", "verify_code",
        "whatsapp_business_profile",
    }
)  # fmt: skip
"""Edges that the request log shows. It omits other edges, because a caller can write any text there."""


def _graph_view(limit: int) -> Callable[[View], View]:
    """Decorate a view that answers everything in the Graph API's form, a body over its limit too."""

    def decorate(view: View) -> View:
        view.refuses_large_bodies = True  # type: ignore[attr-defined]
        return limited_by(limit)(csrf_exempt(view))

    return decorate


@_graph_view(API_BODY_BYTES)
def graph(
    request: HttpRequest, node: str, edge: str | None = None, version: str | None = None
) -> HttpResponseBase:
    """Answer a call at a path of the Graph API."""
    return _answered(request, _template(edge, version), version, node, edge)


@_graph_view(uploads.MAX_REQUEST_BYTES)
def graph_upload(request: HttpRequest, session: str, version: str | None = None) -> HttpResponseBase:
    """Continue a resumable upload, streaming its bytes."""
    template = ("/{version}" if version else "") + "/upload:{session}"
    return _answered(request, template, version, UPLOAD, session)


def _answered(
    request: HttpRequest, template: str, version: str | None, node: str, edge: str | None
) -> HttpResponseBase:
    request.route_template = template  # type: ignore[attr-defined]
    try:
        _take_credential(request)
        if node != "oauth":
            _admit(request)
        too_large: PayloadTooLarge | None = getattr(request, "too_large", None)
        if too_large is not None:
            raise too_large
        response = _dispatch(request, node, edge)
    except Exception as exception:  # noqa: BLE001 - every exception becomes an answer; unexpected ones are logged
        response = error_response(as_service_error(exception), request)
    return in_graph_form(response, request, version=version or settings.META_GRAPH_VERSION)


def _template(edge: str | None, version: str | None) -> str:
    """The pattern of a Graph path for the request log, without the id. Only a known edge is named."""
    first, _, deeper = (edge or "").partition("/")
    named = f"/{first if first in KNOWN_EDGES else '{edge}'}" if edge else ""
    return ("/{version}" if version else "") + "/{node}" + named + ("/{id}" if deeper else "")


@_graph_view(uploads.MAX_REQUEST_BYTES)
def graph_media(
    request: HttpRequest, node: str, edge: str | None = None, version: str | None = None
) -> HttpResponseBase:
    """Like `graph`, but for calls with a file, such as a group's picture, which may have larger bodies."""
    return graph(request, node, edge, version)


@_graph_view(DEFAULT_BODY_BYTES)
def no_such_path(request: HttpRequest) -> HttpResponseBase:
    """Answer 404 for a versioned path that the Graph API does not have or the gateway does not serve."""
    answer = refusal(UNKNOWN_PATH, "Unknown path components.", request, gateway_code="not_found")
    return in_graph_form(answer, request, version=settings.META_GRAPH_VERSION)


@_graph_view(API_BODY_BYTES)
def graph_root(
    request: HttpRequest, node: str = "", edge: str | None = None, version: str | None = None
) -> HttpResponseBase:
    """Answer a call without a node, or with a name such as `me`, which replaces a node's id in the Graph API."""
    template = ("/{version}" if version else "") + f"/{node}" + ("/{edge}" if edge else "")
    return _answered(request, template, version, node, edge)


def _take_credential(request: HttpRequest) -> None:
    """Move a key from `X-API-Key` or `access_token` to the `Authorization` header, so that no log contains the key."""
    in_query: list[str] = []
    if request.META.get("QUERY_STRING"):
        query = request.GET.copy()
        in_query = query.pop("access_token", [])
        _set_query(request, query)
    setattr(request, KEY_IN_QUERY, in_query[0] if in_query else None)
    key = request.headers.get("X-API-Key") or (in_query[0] if in_query else None)
    scheme, _, credential = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
    if scheme == "OAuth":
        # Meta requires this scheme for resumable uploads, and accepts it everywhere.
        key = credential
    elif not (scheme or key) and 0 < int(request.META.get("CONTENT_LENGTH") or 0) <= DEFAULT_BODY_BYTES:
        # The caller is not authenticated yet, so only bodies up to the default limit are read.
        key = _given(request).access_token
    if key and (not scheme or scheme == "OAuth"):
        request.META["HTTP_AUTHORIZATION"] = f"Bearer {key}"
        # Django caches `headers`, so the cached value is removed.
        request.__dict__.pop("headers", None)


def _admit(request: HttpRequest) -> None:
    """Authenticate the caller by its headers, before the body is read: credentials, status, rate."""
    api_request = Request(request, authenticators=[BearerAuthentication()])
    caller, method = caller_of(api_request), request.method or ""
    # The view that handles the call checks the scope.
    check_tenant_caller(caller, request.headers.get(TENANT_HEADER), method=method, scope=None)
    check_role(caller, Area.INTEGRATION, method=method)
    TenantRateThrottle().allow_request(api_request, None)


def _given(request: HttpRequest) -> Parameters:
    """Parse the request's parameters once. Raises InvalidRequest."""
    given: Parameters | None = getattr(request, GIVEN, None)
    if given is None:
        form = None
        if request.content_type == parameters.MULTIPART:
            if request.method == "POST":
                form = [(name, value) for name, value in request.POST.items() if isinstance(value, str)]
            else:
                # Django parses a form only in a POST, but Meta's Java SDK also sends one with DELETE.
                form = form_fields(request.META["CONTENT_TYPE"], request.body)
        given = parameters.read(
            query=request.META.get("QUERY_STRING", ""),
            content_type=request.content_type or "",
            body=request.body if form is None else b"",
            form=form,
        )
        setattr(request, GIVEN, given)
    return given


def _dispatch(request: HttpRequest, node: str, edge: str | None) -> HttpResponseBase:
    if node == "":
        return refusal(NO_SUCH_REQUEST, "Unsupported request.", request, gateway_code="not_found")
    if node == "oauth":
        return refusal(
            INVALID,
            "The gateway does not exchange codes: connect an account with POST /v1/numbers/connect.",
            request,
            gateway_code="invalid_request",
        )
    if node == UPLOAD:
        # Reads the file as bytes, whatever content type the caller declares.
        request.content_type = request.META["CONTENT_TYPE"] = "application/octet-stream"
        return _called(UploadSessionView.as_view(), request, session=edge)
    given = _given(request)
    if node == "debug_token":
        return _called(DebugTokenView.as_view(), request)
    if node == "me":
        return _called(MeView.as_view(), request, edge=edge)
    if edge == "uploads" and request.method == "POST":
        return _called(UploadSessionsView.as_view(), request, node=node)
    if edge == "subscribed_apps":
        return _called(SubscribedAppsView.as_view(), request, node=node)
    if request.method == "POST" and edge == "media":
        return _upload(request, node, given)
    if edge == "content" and request.method != "POST":
        number = given.text("phone_number_id")
        return _v1(request, f"/v1/media/{node}", {"from": number} if number else {})
    return _called(NodeView.as_view(), request, node=node, edge=edge)


def _upload(request: HttpRequest, number: str, given: Parameters) -> HttpResponseBase:
    """Upload a file. If `type` is only a kind of media such as `image`, the part's own content type is used."""
    form = QueryDict(mutable=True)
    form.update({**given.query(), "from": number})
    form.pop("type", None)
    if "/" in (kind := given.text("type") or ""):
        form["type"] = kind
    request.POST = form  # type: ignore[assignment]
    return _v1(request, "/v1/media")


def _v1(request: HttpRequest, path: str, query: Mapping[str, str] | None = None) -> HttpResponseBase:
    """Call `/v1` as the same caller."""
    request.path = request.path_info = path
    _set_query(request, QueryDict(urlencode(query or {})))
    found = resolve(path)
    return _called(found.func, request, **found.kwargs)


def _called(view: Any, request: HttpRequest, **named: Any) -> HttpResponseBase:
    response: HttpResponseBase = view(request, **named)
    if isinstance(response, HttpResponse) and hasattr(response, "render"):
        response = response.render()
    return response


def _set_query(request: HttpRequest, query: QueryDict) -> None:
    if query or request.META.get("QUERY_STRING"):
        request.GET = query  # type: ignore[assignment]
        request.META["QUERY_STRING"] = query.urlencode()
