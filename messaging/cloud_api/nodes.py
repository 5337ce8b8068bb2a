"""Pass-through of Graph calls below a tenant's own ids: the token is exchanged, method, query and body stay.

A node is the tenant's number, account, template or flow, else a media; nobody else's is ever called. The answer never
holds the account's token: pages are linked at the gateway's own address.
"""

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit
from uuid import UUID

import orjson
from django.conf import settings
from django.http import HttpResponse, HttpResponseBase
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.views import APIView

from gateway.api.authentication import TENANT_HEADER, caller_of, scope_of, tenant_of
from gateway.api.errors import Forbidden, InvalidRequest, NotFound
from gateway.api.json import object_of
from gateway.api.limits.in_flight import waits_for_upstream
from gateway.api.validation import checked
from gateway.upstream.calls import GraphAnswer, UpstreamUnreachable, platform
from gateway.upstream.client import request as graph_request
from gateway.upstream.judging import judge, passed_through, unreachable
from gateway.upstream.media_address import media_url
from messaging import form_files
from messaging.cloud_api import flows
from messaging.cloud_api.overrides import Callback, OverrideIn
from messaging.media import transfer
from messaging.message_templates import mirror, operations
from messaging.message_templates.models import MessageTemplate
from phone_numbers import onboarding, tokens
from phone_numbers.graph_calls import Refused
from phone_numbers.models import BusinessAccount, PhoneNumber
from tenants.actors import Actor
from tenants.credentials.authentication import caller_for

SCOPES = ("whatsapp_business_management", "whatsapp_business_messaging")
DENIED_EDGES = frozenset({"assigned_users", "marketing_messages", "messages", "media", "owned_pages"})
"""Who may use the account is the service's to say; what sends or uploads goes through `/v1` alone."""
FLOW_EDGES = frozenset({None, "assets", "deprecate", "publish"})
"""What is asked of a flow by its own id."""
DENIED_QUERY = frozenset({"batch", "ids", "include_headers", "method"})
KEY_IN_QUERY = "key_in_query"
"""The attribute of a request that holds the key that came as `access_token`."""
UNKNOWN_NODE = "The object does not exist, or it is not this business's."
LEFT_OUT_QUERY = frozenset({"access_token", "appsecret_proof", "appsecret_time"})
"""Proof of the caller's key, which the upstream does not know: the service adds its own."""
_OUTSIDE = re.compile(r"\b(?!whatsapp_business_profile\b)\w*business\w*\s*[{.(]", re.IGNORECASE)
"""A field that would be expanded into another object than the node: the portfolio and what belongs to it."""


@dataclass(frozen=True, slots=True)
class Node:
    """One of the tenant's own objects, with the account whose token opens it."""

    id: str
    account: BusinessAccount
    kind: str


class GraphView(APIView):
    """A view whose refusals by the upstream pass through."""

    def handle_exception(self, exc: Exception) -> Any:
        if isinstance(exc, Refused):
            return passed_through(exc.answer, exc.verdict)
        if isinstance(exc, UpstreamUnreachable):
            return super().handle_exception(unreachable(exc))
        return super().handle_exception(exc)


class NodeView(GraphView):
    """Everything below the tenant's own ids that `/v1` has no operation for."""

    parser_classes = [*GraphView.parser_classes, MultiPartParser]

    def get(self, request: Request, node: str, edge: str | None) -> HttpResponseBase:
        return self._call(request, node=node, edge=edge)

    def post(self, request: Request, node: str, edge: str | None) -> HttpResponseBase:
        return self._call(request, node=node, edge=edge)

    def delete(self, request: Request, node: str, edge: str | None) -> HttpResponseBase:
        return self._call(request, node=node, edge=edge)

    @waits_for_upstream
    def _call(self, request: Request, node: str, edge: str | None) -> HttpResponseBase:
        scope = scope_of(request)
        found = _own(scope["tenant_id"], scope["environment"], node)
        if found is None:
            # A plain reading is of a media nearly always; what changes something must know what it changes.
            if request.method == "GET" and edge is None and "fields" not in request.query_params:
                with suppress(NotFound):
                    described = _media(request, node, edge)
                    if described.status_code != 400:
                        return described
            owner = flows.owner_of(node, **scope) if edge in FLOW_EDGES else None
            if owner is None:
                return _media(request, node, edge)
            found = Node(node, owner, "flow")
        if edge in DENIED_EDGES:
            raise Forbidden(f"{edge} is not passed on.")
        body = object_of(request) if request.method == "POST" and edge != "assets" else None
        if body is not None and found.kind == "number" and "webhook_configuration" in body:
            return _configured(request, node, body["webhook_configuration"])
        if found.kind == "account" and edge == "message_templates" and body is not None:
            # Into the mirror at once: software asks for what it made by its id alone.
            made = operations.create(found.account, body=request._request.body, members=body)
            return passed_through(made)
        answer = _sent_on(request, found, node=node, edge=edge, has_body=bool(body))
        verdict = judge(answer)
        if verdict.token_problem:
            tokens.question(waba_id=found.account.waba_id, token=found.account.access_token)
        if verdict.ok and request.method != "GET" and "template" in f"{found.kind} {edge}":
            mirror.reread_soon(found.account)
        response = passed_through(answer, verdict)
        content = _without_token(answer, response.content, found.account.access_token, request)
        if verdict.ok and found.kind == "number" and b'"webhook_configuration"' in content:
            content = _with_own_callbacks(content, request, found)
        response.content = content
        return response


def _sent_on(request: Request, found: Node, *, node: str, edge: str | None, has_body: bool) -> GraphAnswer:
    """The upstream's answer to the same call with the account's own token."""
    path = f"{node}/{edge}" if edge else node
    if found.kind == "flow" and edge == "assets" and request.method == "POST":
        form = form_files.form_of(request)
        file = form_files.upload_of(request, form, default_name="flow.json")
        return flows.send_asset(found.account, path, form, file)
    return graph_request(
        environment=found.account.environment,
        method=str(request.method),
        path=path,
        token=found.account.access_token,
        params=_query(request),
        body=request._request.body if has_body else None,
    )


class SubscribedAppsView(GraphView):
    """The service's own subscription to an account's notifications: shown, repaired, never taken away."""

    def get(self, request: Request, waba_id: str) -> HttpResponse:
        account = _account(request, waba_id)
        app: dict[str, Any] = {
            "whatsapp_business_api_data": {
                "id": platform(account.environment).app_id,
                "name": settings.SERVICE_NAME,
            }
        }
        if endpoint := _callback(request, waba_id).endpoint():
            app["override_callback_uri"] = endpoint.url
        return _json({"data": [app] if account.subscribed else []})

    @waits_for_upstream
    def post(self, request: Request, waba_id: str) -> HttpResponse:
        account, body = _account(request, waba_id), object_of(request)
        onboarding.subscribe(account)
        if not body.get("override_callback_uri"):
            return _json({"success": True})
        return _json(_set(_callback(request, waba_id), body))

    def delete(self, request: Request, waba_id: str) -> HttpResponse:
        _account(request, waba_id)
        if not _callback(request, waba_id).remove():
            raise Forbidden(
                "The gateway's subscription is not removed here: it brings every event of the account."
            )
        return _json({"success": True})


def _configured(request: Request, node: str, asked: Any) -> HttpResponse:
    """A number's callback; an empty one removes it."""
    body = asked if isinstance(asked, dict) else {}
    callback = _callback(request, node, is_number=True)
    if body.get("override_callback_uri") == "":
        callback.remove()
        return _json({"success": True})
    return _json(_set(callback, body))


def _set(callback: Callback, body: dict[str, Any]) -> dict[str, Any]:
    given = checked(OverrideIn(data=body))
    return callback.set(url=given["override_callback_uri"], verify_token=given["verify_token"])


def _callback(request: Request, node: str, *, is_number: bool = False) -> Callback:
    return Callback(
        tenant_id=tenant_of(request).id,
        environment=caller_of(request).effective_environment,
        node=node,
        is_number=is_number,
        actor=Actor.of(request),
    )


class DebugTokenView(APIView):
    """`debug_token` of a key of the same tenant: valid, with both scopes for the tenant's accounts."""

    def get(self, request: Request) -> HttpResponse:
        caller, tenant = caller_of(request), tenant_of(request)
        asked = caller_for(request.query_params.get("input_token", ""), request.headers.get(TENANT_HEADER))
        app_id = platform(caller.effective_environment).app_id
        if asked is None or asked.tenant is None or asked.tenant.id != tenant.id:
            error = {"code": 190, "message": "The token is not valid for this business."}
            return _json({"data": {"app_id": app_id, "is_valid": False, "scopes": [], "error": error}})
        accounts = BusinessAccount.objects.for_tenant(tenant.id).filter(
            environment=asked.effective_environment
        )
        ids = list(accounts.values_list("waba_id", flat=True))
        granular = [{"scope": scope, "target_ids": ids} for scope in SCOPES]
        data = {
            "app_id": app_id,
            "type": "SYSTEM_USER",
            "application": settings.SERVICE_NAME,
            "is_valid": True,
            "expires_at": 0,
            "scopes": list(SCOPES),
            "granular_scopes": granular,
        }
        return _json({"data": data})


def _own(tenant_id: UUID, environment: str, node: str) -> Node | None:
    """The tenant's number, account or template of that id in the caller's environment."""
    number = (
        PhoneNumber.objects.for_tenant(tenant_id)
        .select_related("account")
        .filter(phone_number_id=node, environment=environment)
        .first()
    )
    if number is not None:
        return Node(node, number.account, "number")
    account = (
        BusinessAccount.objects.for_tenant(tenant_id).filter(waba_id=node, environment=environment).first()
    )
    if account is not None:
        return Node(node, account, "account")
    template = (
        MessageTemplate.objects.for_tenant(tenant_id)
        .select_related("account")
        .filter(template_id=node, environment=environment)
        .first()
    )
    return Node(node, template.account, "template") if template is not None else None


def _account(request: Request, waba_id: str) -> BusinessAccount:
    account = (
        BusinessAccount.objects.for_tenant(tenant_of(request).id)
        .filter(waba_id=waba_id, environment=caller_of(request).effective_environment)
        .first()
    )
    if account is None:
        raise NotFound("There is no such business account.")
    return account


def _media(request: Request, media_id: str, edge: str | None) -> HttpResponseBase:
    """A media: described with the gateway's own address of its bytes, or deleted."""
    if edge is not None:
        raise NotFound(UNKNOWN_NODE)
    asked: dict[str, Any] = {
        "tenant_id": tenant_of(request).id,
        "environment": caller_of(request).effective_environment,
        "media_id": media_id,
        "from_": request.query_params.get("phone_number_id"),
    }
    if request.method == "DELETE":
        return transfer.delete(**asked)
    if request.method != "GET":
        raise NotFound(UNKNOWN_NODE)
    try:
        response = transfer.info(**asked)
    except NotFound:
        raise NotFound(UNKNOWN_NODE) from None
    if response.status_code == 200:
        response.content = orjson.dumps({**orjson.loads(response.content), "url": media_url(media_id)})
    return response


def _query(request: Request) -> dict[str, str]:
    """The caller's query for the upstream. Raises InvalidRequest for what leads away from the node."""
    query = request.query_params.dict()
    if denied := DENIED_QUERY & set(query):
        raise InvalidRequest.of(**dict.fromkeys(denied, "This query parameter is not passed on."))
    if _OUTSIDE.search(str(query.get("fields", ""))):
        raise InvalidRequest.of(fields="Fields of the business portfolio are not expanded.")
    return {name: str(value) for name, value in query.items() if name not in LEFT_OUT_QUERY}


def _without_token(answer: GraphAnswer, content: bytes, token: str, request: Request) -> bytes:
    """The answer's bytes, with links to further pages at the gateway, and the token nowhere."""
    paging = answer.json().get("paging")
    if isinstance(paging, dict) and {"next", "previous"} & paging.keys():
        # Python's own parser keeps integers of any size.
        body = json.loads(content)
        for direction in {"next", "previous"} & paging.keys():
            body["paging"][direction] = _link(request, str(paging[direction]))
        content = _compact(body)
    return content.replace(token.encode(), b"") if token else content


def _compact(body: Any) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def _with_own_callbacks(content: bytes, request: Request, found: Node) -> bytes:
    """A number's `webhook_configuration` with the tenant's callbacks in the place of the gateway's own at Meta."""
    body = json.loads(content)
    if not isinstance(body, dict) or "webhook_configuration" not in body:
        return content
    callbacks = {
        "whatsapp_business_account": _callback(request, found.account.waba_id).endpoint(),
        "phone_number": _callback(request, found.id, is_number=True).endpoint(),
    }
    body["webhook_configuration"] = {name: each.url for name, each in callbacks.items() if each is not None}
    return _compact(body)


def _link(request: Request, upstream_url: str) -> str:
    """A page's address at the gateway, with the upstream's cursor."""
    kept = {
        name: value
        for name, value in parse_qsl(urlsplit(upstream_url).query)
        if name not in LEFT_OUT_QUERY | DENIED_QUERY
    }
    if key := getattr(request._request, KEY_IN_QUERY, None):
        # A caller that gave its key so follows the link as it is.
        kept["access_token"] = key
    return f"{settings.BASE_URL}{request._request.path}?{urlencode(kept)}"


def _json(body: dict[str, Any]) -> HttpResponse:
    return HttpResponse(orjson.dumps(body), content_type="application/json")
