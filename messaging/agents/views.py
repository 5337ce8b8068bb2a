"""The view of `/mcp`: streamable HTTP with one JSON answer to each POST. It accepts the credentials of `/v1` and the
access tokens of connected apps.

There are no sessions and no streams, so no state outlives a call. Any web process can answer any call.
"""

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt
from rest_framework.exceptions import ParseError
from rest_framework.request import Request

from gateway import process_limits
from gateway.api import access_log
from gateway.api.authentication import TENANT_HEADER, Caller, caller_of, check_role, check_tenant_caller
from gateway.api.errors import (
    InvalidRequest,
    MethodNotAllowed,
    ServiceError,
    Unauthorized,
    UnsupportedMediaType,
    error_response,
)
from gateway.api.json import parse_object
from gateway.api.limits import API_BODY_BYTES, TenantRateThrottle, limited_by
from gateway.roles import Area
from messaging.agents.api_calls import ApiCalls
from tenants.connected_apps import connections, views
from tenants.credentials.bearer_tokens import BearerAuthentication


@limited_by(API_BODY_BYTES)
@csrf_exempt
def mcp(request: HttpRequest) -> HttpResponseBase:
    """Answer a message from an agent's client."""
    try:
        api = _admitted(request)
    except ServiceError as error:
        response = error_response(error, request)
        if error.status == 401:
            response["WWW-Authenticate"] = _challenge(request)
        return response
    # Imported here because most processes never serve an agent. The garbage collector is off meanwhile, because a
    # collection during the import would delay all requests of the process for seconds.
    with process_limits.without_collector():
        from messaging.agents import protocol
    answered = protocol.exchange(request, api)
    # The package runs the tools in another context, so the request log does not see how long they waited for Meta.
    access_log.add_upstream_ms(api.upstream_ms)
    return HttpResponse(answered.body, status=answered.status, content_type=answered.content_type)


def _challenge(request: HttpRequest) -> str:
    """The header that names the authorisation server to a client without a valid token (RFC 9728, 5.1)."""
    error = 'error="invalid_token", ' if "Authorization" in request.headers else ""
    return f'Bearer {error}resource_metadata="{views.resource_metadata_url()}"'


class AgentAuthentication(BearerAuthentication):
    """Accepts the credentials of `/v1`, and the access tokens of connected apps, which are valid only here."""

    def caller_for(self, token: str, chosen_tenant: str | None) -> Caller | None:
        if token.startswith(connections.ACCESS_PREFIX):
            return connections.caller_for(token)
        return super().caller_for(token, chosen_tenant)

    def refusal(self, token: str) -> Unauthorized:
        if token.startswith(connections.ACCESS_PREFIX):
            return Unauthorized(
                "This access token is unknown or has ended.",
                hint="Refresh it, or connect the app again. It is listed in the console under Connected apps.",
            )
        return super().refusal(token)


def _admitted(request: HttpRequest) -> ApiCalls:
    """Authenticate the caller by the headers before the body is read, then check the body."""
    api_request = Request(request, authenticators=[AgentAuthentication()])
    # Read-only members may use some tools, so the right to GET is enough here. Each call of a tool is checked again.
    caller = caller_of(api_request)
    check_tenant_caller(caller, request.headers.get(TENANT_HEADER), method="GET", scope=None)
    check_role(caller, Area.INTEGRATION, method="GET")
    TenantRateThrottle().allow_request(api_request, None)
    if request.method != "POST":
        raise MethodNotAllowed.of("POST")
    if request.content_type != "application/json":
        raise UnsupportedMediaType
    try:
        # Rejects deep nesting and too many containers, because the protocol's package parses them slowly.
        parse_object(request.body)
    except ParseError as error:
        raise InvalidRequest(str(error)) from None
    return ApiCalls(request, caller)
