"""Passes a Graph call to the upstream if its path begins with one of the tenant's own ids (`known_nodes.py`).

Only the token is replaced; method and parameters stay. The answer never contains the account's token, and links to
further pages point to the gateway.

A resumable upload (upstream fact 1.4) starts with a session, sends the bytes and ends with a handle. The caller names
its own app in the path, but the session is created at the service's app. The session's id is a secret that Meta
generates, and only the tenant's token can continue the session.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import orjson
from django.conf import settings
from django.http import HttpResponse, HttpResponseBase, QueryDict
from rest_framework import serializers
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.views import APIView

from gateway.api.authentication import TENANT_HEADER, caller_of, check_scope, scope_of, tenant_of
from gateway.api.errors import Forbidden, InvalidRequest, NotFound
from gateway.api.limits import CHUNKED, waits_for_upstream
from gateway.api.validation import checked
from gateway.roles import KeyScope
from gateway.upstream import blocking_client
from gateway.upstream.blocking_client import FileBody, MultipartFile
from gateway.upstream.blocking_client import request as graph_request
from gateway.upstream.calls import (
    GraphAnswer,
    UpstreamUnreachable,
    classify,
    meta_unreachable,
    passed_through,
    platform,
    prepare,
)
from gateway.upstream.media import media_url
from gateway.upstream.templates import TemplateGraph
from messaging import known_nodes
from messaging.cloud_api.overrides import Callback, OverrideIn, callback_urls
from messaging.cloud_api.parameters import CREDENTIALS, DENIED, Parameters
from messaging.known_nodes import Node
from messaging.media import transfer, uploads
from messaging.message_templates import mirror
from messaging.message_templates import template_management as templates
from messaging.message_templates.template_management import AccountChoice
from phone_numbers import onboarding, registration, tokens
from phone_numbers.models import BusinessAccount
from phone_numbers.tokens import Refused
from tenants.audit import Actor
from tenants.credentials.bearer_tokens import caller_for
from tenants.models import ApiKey, Tenant

SCOPES = ("whatsapp_business_management", "whatsapp_business_messaging")
DENIED_EDGES = frozenset(
    {"assigned_users", "marketing_messages", "messages", "messages_encrypted", "media", "owned_pages"}
)
"""Edges that are not passed through. The service itself decides who may use an account, and `/v1` handles sends and
uploads.
"""
TAKE_FILES = frozenset({"flow", "group"})
"""Kinds of nodes that accept a file: a flow accepts its JSON, a group its picture."""
LIBRARY = "message_template_library"
"""A list of the Graph API that belongs to no account. It is the same for all accounts."""
SIGNUPS = "signups"
"""The node that holds the sign-up links of all accounts: `/signups/{id}`."""
GIVEN = "graph_parameters"
"""The request attribute that holds the parsed parameters."""
_OF_TEMPLATES = re.compile(r"template|flow", re.IGNORECASE)
"""Matches kinds, edges and fields that concern templates or flows."""
_EXPANSION = re.compile(r"""(?:\.\w+)?\([^(){}"'\\]*\)|\{[^(){}"'\\]*\}""")
"""Matches an innermost modifier or expansion of a field. Without quotes, because a quoted bracket closes nothing."""
_ACCOUNT = "whatsapp_business_account"
"""The part of a path that leads from an object to its account."""
KEY_IN_QUERY = "key_in_query"
"""The request attribute that holds a key given as `access_token`."""
UNKNOWN_NODE = "The object does not exist, or it is not this business's."
NEVER_NAMED = (
    "Flows, groups, catalogs and sign-up links are known once a list of their account, or a notification, named "
    "them; media by the message that brought them, or with phone_number_id."
)
_FOREIGN_PART = re.compile(r"(?!whatsapp_business_)\w*business\w*", re.IGNORECASE)
"""Matches a part of a path that leads to the business portfolio."""
_TO_ANOTHER_OBJECT = frozenset({_ACCOUNT, "phone_numbers"})
"""Parts of a path that lead from an object to an account or to a number."""


def given_in(request: Request) -> Parameters:
    """The parsed parameters of a request."""
    given: Parameters = getattr(request._request, GIVEN)
    return given


class GraphView(APIView):
    """A view that returns the upstream's rejections as they are. Without `scope`, the view checks the scope itself."""

    scope: KeyScope | None = None

    def handle_exception(self, exc: Exception) -> Any:
        if isinstance(exc, Refused):
            return passed_through(exc.answer, exc.verdict)
        if isinstance(exc, UpstreamUnreachable):
            return super().handle_exception(meta_unreachable(exc))
        return super().handle_exception(exc)


class NodeView(GraphView):
    """Graph API calls on the tenant's own nodes, if `/v1` has no operation for the call."""

    parser_classes = [*GraphView.parser_classes, MultiPartParser]

    def get(self, request: Request, node: str, edge: str | None) -> HttpResponseBase:
        return self._call(request, node=node, edge=edge)

    def post(self, request: Request, node: str, edge: str | None) -> HttpResponseBase:
        return self._call(request, node=node, edge=edge)

    def delete(self, request: Request, node: str, edge: str | None) -> HttpResponseBase:
        return self._call(request, node=node, edge=edge)

    @waits_for_upstream
    def _call(self, request: Request, node: str, edge: str | None) -> HttpResponseBase:
        given, scope = given_in(request), scope_of(request)
        if node == LIBRARY:
            found: Node | None = Node(node, AccountChoice(**scope).any_account(), "template library")
        elif node == SIGNUPS:
            link = known_nodes.find_node(edge or "", **scope)
            found = replace(link, id=SIGNUPS) if link is not None and link.kind == "signup" else None
        else:
            found = known_nodes.find_node(node, **scope)
        if found is None:
            return _media(request, node, edge, given)
        parts = edge.lower().split("/") if edge else []
        if denied := DENIED_EDGES.intersection(parts):
            raise Forbidden(
                f"This call of {min(denied)} is not passed on: {settings.BASE_URL}/docs/cloud-api/ says which are."
            )
        if any(_FOREIGN_PART.fullmatch(part) for part in parts[:-1]):
            raise Forbidden("Requests about the business portfolio are not passed on.")
        if request.method not in {"GET", "HEAD"} and _TO_ANOTHER_OBJECT.intersection(parts[:-1]):
            # The service's own operations, such as that of `subscribed_apps`, are at these paths.
            raise Forbidden("A change is passed on only if its path begins with the object that it changes.")
        _check_scope(request, found, edge, given)
        if uri := given.values.get("endpoint_uri"):
            _require_own_endpoint(uri, found.account)
        if found.kind == "number" and edge is None and request.method == "POST":
            if "webhook_url" in given.values:
                raise InvalidRequest.of(
                    webhook_url="Set webhook_configuration: Meta's callback is the gateway's."
                )
            if "webhook_configuration" in given.values:
                check_scope(caller_of(request), KeyScope.WEBHOOKS, method="POST")
                return _configured(request, node, given)
        answer = _sent_on(request, found, edge, given)
        verdict = classify(answer)
        if verdict.token_problem:
            tokens.question(waba_id=found.account.waba_id, token=found.account.access_token)
        if verdict.ok and request.method not in {"GET", "HEAD"} and "template" in f"{found.kind} {edge}":
            mirror.reread_soon(found.account)
        if verdict.ok and found.kind in {"account", "number"}:
            known_nodes.learn_nodes(found.account, edge, answer.json())
        response = passed_through(answer, verdict)
        content = _without_token(answer, response.content, found.account.access_token, request)
        if verdict.ok and found.kind in {"account", "number"} and b'"webhook_configuration"' in content:
            content = _with_own_callbacks(content, request, found)
        response.content = content
        return response


def _require_own_endpoint(uri: Any, account: BusinessAccount) -> None:
    """Raise InvalidRequest for a Flow of the sandbox that would call anything but the gateway. The simulator is in our
    own network, and has no guard of addresses as the gateway's calls to tenants have.
    """
    own = rf"{re.escape(settings.BASE_URL)}/upstream/flows/[0-9a-f]{{32}}"
    if account.environment == ApiKey.Environment.TEST and not re.fullmatch(own, str(uri)):
        path = "PUT /v1/numbers/{phone_number_id}/flow-endpoint"
        raise InvalidRequest.of(
            endpoint_uri=f"In the sandbox, give the `endpoint_uri` that `{path}` answers."
        )


def _check_scope(request: Request, found: Node, edge: str | None, given: Parameters) -> None:
    """Require the scopes for an object. A key limited to certain numbers must include the object's number."""
    caller, kind = caller_of(request), found.kind
    _, through, rest = (edge or "").lower().rpartition(_ACCOUNT)
    if through:
        kind, edge = "account", rest.strip("/") or None
    for scope in _scopes(request, kind, edge, given.values.get("fields") or ""):
        check_scope(caller, scope, method=request.method or "")
    if not caller.reaches(found.id if kind == "number" else None):
        raise NotFound(UNKNOWN_NODE)


def _scopes(request: Request, kind: str, edge: str | None, fields: str | list[str]) -> list[KeyScope]:
    """The scopes that a call needs: that of its kind and edge and, for a read, that of templates if a field names
    templates or flows. A read of an account or number that names nothing else needs only the latter.
    """
    if _OF_TEMPLATES.search(f"{kind} {edge or ''}"):
        return [KeyScope.TEMPLATES]
    named = fields if isinstance(fields, str) else ",".join(fields)
    if request.method not in {"GET", "HEAD"} or not _OF_TEMPLATES.search(named):
        return [KeyScope.NUMBERS]
    is_whole = edge is None and kind in {"account", "number"}
    if is_whole and all(map(_OF_TEMPLATES.search, _names(named))):
        return [KeyScope.TEMPLATES]
    return [KeyScope.TEMPLATES, KeyScope.NUMBERS]


def _names(fields: str) -> list[str]:
    """The names in `fields`, without what their objects are expanded to."""
    outer, expanded = fields, ""
    while outer != expanded:
        expanded, outer = outer, _EXPANSION.sub("", outer)
    return re.findall(r"\w+", outer)


def _sent_on(request: Request, found: Node, edge: str | None, given: Parameters) -> GraphAnswer:
    """Make the same call at the upstream with the account's token. Raises Refused.

    A command that changes data of the service runs the service's own operation, which also updates that data.
    """
    account, number = found.account, found.number
    path = f"{found.id}/{edge}" if edge else found.id
    if request.method == "POST":
        if files := request._request.FILES:
            if found.kind not in TAKE_FILES:
                raise InvalidRequest.of(**dict.fromkeys(files, "This request takes no file."))
            return _sent_with_file(request, account, path, given)
        if found.kind == "account" and edge == "message_templates":
            # Stores the template at once. Callers will use its id soon, and an unknown id is rejected.
            return templates.create(account, body=given.body or b"{}", members=given.values)
        asked: dict[str, Any] = {"actor": Actor.of(request), "body": given.body or b"{}"}
        if found.kind == "account" and edge == "phone_numbers":
            cc, digits = given.text("cc") or "", given.text("phone_number") or ""
            return registration.add(account, cc=cc, phone_number=digits, **asked)
        if number is not None:
            if edge == "register":
                return registration.register(number, pin=given.text("pin"), **asked)
            if edge == "deregister":
                return registration.deregister(number, **asked)
            if edge is None and (pin := _pin_in(given)):
                return registration.set_two_step_pin(number, pin=pin, **asked)
    in_body = request.method == "POST" or (request.method == "DELETE" and given.has_body)
    return graph_request(
        environment=account.environment,
        # HEAD becomes GET, because the empty answer to a HEAD would look like an interrupted answer.
        method="GET" if request.method == "HEAD" else str(request.method),
        path=path,
        token=account.access_token,
        params=None if in_body else given.query(),
        body=(given.body or None) if in_body else None,
    )


def _pin_in(given: Parameters) -> str | None:
    """The two-step PIN that a change of a number sets. None without a PIN. Raises InvalidRequest for several PINs, and
    for a PIN that is neither a string nor an integer.
    """
    data = given.values.get("whatsapp_business_api_data")
    said = [given.values.get("pin"), data.get("pin") if isinstance(data, dict) else None]
    pins = [pin for pin in said if pin is not None and pin != ""]
    if len(pins) > 1 or not all(isinstance(pin, str) or type(pin) is int for pin in pins):
        raise InvalidRequest.of(pin="Give the PIN once, as a string.")
    return str(pins[0]) if pins else None


def _sent_with_file(request: Request, account: BusinessAccount, path: str, given: Parameters) -> GraphAnswer:
    """Send a form with one file, such as a flow's JSON or a group's picture. Raises UpstreamUnreachable."""
    field, *more = request._request.FILES
    if more:
        raise InvalidRequest.of(**dict.fromkeys(more, "A call can upload only one file."))
    values = given.query()
    file = uploads.upload_of(request, values, default_name="file", field=field)
    body = MultipartFile(
        values, file.content, length=file.length, name=file.name, mime_type=file.mime_type, field=field
    )
    call = prepare(environment=account.environment, method="POST", path=path, token=account.access_token)
    headers = {**call.headers, "Content-Type": body.content_type}
    return blocking_client.send(replace(call, headers=headers, body=body))


class SubscribedAppsView(GraphView):
    """The service's own subscription to an account's notifications. It can be read and repaired, but not removed."""

    scope = KeyScope.NUMBERS

    def get(self, request: Request, node: str) -> HttpResponse:
        account = _account(request, node)
        app: dict[str, Any] = {
            "whatsapp_business_api_data": {
                "id": platform(account.environment).app_id,
                "name": settings.SERVICE_NAME,
            }
        }
        if endpoint := _callback(request, node).endpoint():
            app["override_callback_uri"] = endpoint.url
        return _json({"data": [app] if account.subscribed else []})

    @waits_for_upstream
    def post(self, request: Request, node: str) -> HttpResponse:
        account, asked = _account(request, node), given_in(request).values
        sets_callback = bool(asked.get("override_callback_uri"))
        if sets_callback:
            check_scope(caller_of(request), KeyScope.WEBHOOKS, method="POST")
        onboarding.subscribe(account)
        return _json(_set(_callback(request, node), asked) if sets_callback else {"success": True})

    def delete(self, request: Request, node: str) -> HttpResponse:
        _account(request, node)
        check_scope(caller_of(request), KeyScope.WEBHOOKS, method="DELETE")
        if not _callback(request, node).remove():
            raise Forbidden(
                "The gateway's subscription cannot be removed here, because it receives every event of the account."
            )
        return _json({"success": True})


def _configured(request: Request, node: str, given: Parameters) -> HttpResponse:
    """Set a number's callback. An empty URL removes the callback."""
    if others := given.less_product("webhook_configuration"):
        raise InvalidRequest.of(**dict.fromkeys(others, "Send webhook_configuration on its own."))
    asked = given.values["webhook_configuration"]
    body = asked if isinstance(asked, dict) else {}
    callback = _callback(request, node, is_number=True)
    if body.get("override_callback_uri") == "":
        callback.remove()
        return _json({"success": True})
    return _json(_set(callback, body))


def _set(callback: Callback, body: dict[str, Any]) -> dict[str, Any]:
    given = checked(OverrideIn(data=body), is_open=True)
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
    """`debug_token` for a key of the same tenant. Reports it as valid, with both scopes for the tenant's accounts."""

    scope = None

    def get(self, request: Request) -> HttpResponse:
        caller, tenant = caller_of(request), tenant_of(request)
        token = given_in(request).text("input_token") or ""
        asked = caller_for(token, request.headers.get(TENANT_HEADER))
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
            "expires_at": int(asked.expires_at.timestamp()) if asked.expires_at else 0,
            "scopes": list(SCOPES),
            "granular_scopes": granular,
        }
        return _json({"data": data})


class MeView(GraphView):
    """`me`: the owner of the key. No nodes exist below `me`."""

    def get(self, request: Request, edge: str | None) -> HttpResponse:
        if edge is not None:
            raise NotFound(UNKNOWN_NODE)
        tenant = Tenant.objects.only("name").get(pk=tenant_of(request).id)
        return _json({"id": str(tenant.id.int), "name": tenant.name})


def _account(request: Request, waba_id: str) -> BusinessAccount:
    account = (
        BusinessAccount.objects.for_tenant(tenant_of(request).id)
        .filter(waba_id=waba_id, environment=caller_of(request).effective_environment)
        .first()
    )
    if account is None:
        raise NotFound("There is no such business account.")
    return account


def _media(request: Request, media_id: str, edge: str | None, given: Parameters) -> HttpResponseBase:
    """Describe a media file, with the gateway's own URL for its bytes, or delete it. Answers 404 for other ids."""
    check_scope(caller_of(request), KeyScope.MESSAGES, method=request.method or "")
    scope, named = scope_of(request), given.text("phone_number_id")
    is_media = edge is None and (named or known_nodes.number_of_media(media_id=media_id, **scope))
    if not is_media or request.method not in {"GET", "HEAD", "DELETE"}:
        raise NotFound(UNKNOWN_NODE, hint=NEVER_NAMED)
    within = caller_of(request).phone_number_ids
    asked: dict[str, Any] = {**scope, "media_id": media_id, "from_": named, "within": within}
    if request.method == "DELETE":
        return transfer.delete(**asked)
    try:
        response = transfer.info(**asked)
    except NotFound:
        raise NotFound(UNKNOWN_NODE) from None
    if response.status_code == 200:
        response.content = orjson.dumps({**orjson.loads(response.content), "url": media_url(media_id, named)})
    return response


def _without_token(answer: GraphAnswer, content: bytes, token: str, request: Request) -> bytes:
    """The answer's bytes without the token. Links to other pages point to the gateway, at any depth."""
    if b'"paging"' in content and any(_links_in(row) for row in _rows_with("paging", answer.json())):
        # Uses Python's own parser, because it keeps integers of any size.
        body = json.loads(content)
        for row in _rows_with("paging", body):
            for direction, url in _links_in(row).items():
                # An expanded list has pages of its own, below the object that holds it.
                path = request._request.path if row is body else urlsplit(url).path
                row["paging"][direction] = _link(request, path, url)
        content = _compact(body)
    return content.replace(token.encode(), b"") if token else content


def _compact(body: Any) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def _with_own_callbacks(content: bytes, request: Request, found: Node) -> bytes:
    """Replace the gateway's callback with the tenant's callbacks in each number's `webhook_configuration`."""
    body, account_id = json.loads(content), found.account.waba_id
    configured = {str(row.get("id", found.id)): row for row in _rows_with("webhook_configuration", body)}
    urls = callback_urls([account_id, *configured], **scope_of(request))
    for number_id, row in configured.items():
        own = {"whatsapp_business_account": urls.get(account_id), "phone_number": urls.get(number_id)}
        row["webhook_configuration"] = {name: url for name, url in own.items() if url is not None}
    return _compact(body)


def _rows_with(member: str, value: Any) -> Iterator[dict[str, Any]]:
    """All objects that have a member, at any depth of an answer."""
    if isinstance(value, dict):
        if member in value:
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _rows_with(member, each)


def _links_in(row: dict[str, Any]) -> dict[str, str]:
    """The links of a list to its other pages, by their names in `paging`."""
    paging = row["paging"]
    if not isinstance(paging, dict):
        return {}
    return {direction: str(paging[direction]) for direction in ("next", "previous") if direction in paging}


def _link(request: Request, path: str, upstream_url: str) -> str:
    """The URL of another page at the gateway, with the upstream's cursor."""
    kept = {
        name: value
        for name, value in parse_qsl(urlsplit(upstream_url).query)
        if name not in DENIED.union(CREDENTIALS)
    }
    if key := getattr(request._request, KEY_IN_QUERY, None):
        # A caller that sent its key in the query can follow the link without a header.
        kept["access_token"] = key
    return f"{settings.BASE_URL}{path}?{urlencode(kept)}"


def _json(body: dict[str, Any]) -> HttpResponse:
    return HttpResponse(orjson.dumps(body), content_type="application/json")


class SessionIn(serializers.Serializer[dict[str, Any]]):
    """The parameters of a new session, from the query or the body."""

    file_name = serializers.CharField(max_length=255, required=False, default="file")
    file_length = serializers.IntegerField(min_value=1)
    file_type = serializers.CharField(max_length=127)


class UploadSessionsView(GraphView):
    """`POST /{app}/uploads`: open a session."""

    scope = KeyScope.TEMPLATES

    @waits_for_upstream
    def post(self, request: Request, node: str) -> HttpResponseBase:
        # Validated as a query, because a query may contain numbers as texts.
        given = checked(SessionIn(data=QueryDict(urlencode(given_in(request).query()))))
        account = _account_of_upload(request)
        return _answer(
            account,
            _graph(account).start_upload(
                name=given["file_name"], length=given["file_length"], mime_type=given["file_type"]
            ),
        )


class UploadSessionView(GraphView):
    """`/upload:…`: GET reports how many bytes the upstream has, POST sends more."""

    scope = KeyScope.TEMPLATES

    @waits_for_upstream
    def get(self, request: Request, session: str) -> HttpResponseBase:
        account = _account_of_upload(request)
        return _answer(account, _graph(account).upload_offset(_signed(request, session)))

    @waits_for_upstream
    def post(self, request: Request, session: str) -> HttpResponseBase:
        http = request._request
        length = http.META.get("CONTENT_LENGTH") or ""
        if CHUNKED in http.META or not length.isdigit():
            raise InvalidRequest("An upload needs the header Content-Length.")
        account = _account_of_upload(request)
        graph, signed = _graph(account), _signed(request, session)
        offset = http.META.get("HTTP_FILE_OFFSET")
        if offset is None:
            # Servers and proxies drop headers with an underscore, such as `file_offset`. So the offset comes from the
            # upstream.
            answer = graph.upload_offset(signed)
            if not classify(answer).ok:
                return _answer(account, answer)
            offset = str(answer.json().get("file_offset"))
        if not offset.isdecimal():
            raise InvalidRequest.of(file_offset="Must be a number of bytes.")
        body = FileBody(http, length=int(length))  # type: ignore[arg-type]
        return _answer(account, graph.continue_upload(signed, body, offset=int(offset)))


def _account_of_upload(request: Request) -> BusinessAccount:
    return AccountChoice(tenant_of(request).id, caller_of(request).effective_environment).any_account()


def _graph(account: BusinessAccount) -> TemplateGraph:
    return TemplateGraph(account.environment, account.access_token)


def _signed(request: Request, session: str) -> str:
    """A session's id, with its signature, as the upstream issued it."""
    signature = request.query_params.get("sig")
    if signature is not None and not signature.replace("-", "").replace("_", "").isalnum():
        raise InvalidRequest.of(sig="Must be the signature of the session's id.")
    return f"upload:{session}?sig={signature}" if signature else f"upload:{session}"


def _answer(account: BusinessAccount, answer: GraphAnswer) -> HttpResponseBase:
    verdict = classify(answer)
    if verdict.token_problem:
        tokens.question(waba_id=account.waba_id, token=account.access_token)
    return passed_through(answer, verdict)
