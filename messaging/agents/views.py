"""The view of `/mcp`: streamable HTTP with one JSON answer for each POST, for the credentials of `/v1` and for
connected apps.

Without sessions and streams nothing is held between two calls, so any web process answers any of them.
"""

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt
from rest_framework.exceptions import ParseError
from rest_framework.request import Request

from gateway import process_limits
from gateway.api import call_log
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
from gateway.api.limits import TenantRateThrottle
from gateway.roles import Area
from messaging.agents.api_calls import ApiCalls
from tenants.connected_apps import connections, endpoints
from tenants.credentials.authentication import BearerAuthentication


@csrf_exempt
def mcp(request: HttpRequest) -> HttpResponseBase:
    """A message of an agent's client."""
    try:
        api = _admitted(request)
    except ServiceError as error:
        response = error_response(error, request)
        if error.status == 401:
            response["WWW-Authenticate"] = _challenge(request)
        return response
    # Most processes answer no agent. With the collector on, it would hold up everybody's requests for seconds.
    with process_limits.without_collector():
        from messaging.agents import protocol
    answered = protocol.exchange(request, api)
    # The protocol's package runs the tools in a context of its own.
    call_log.add_upstream_ms(api.upstream_ms)
    return HttpResponse(answered.body, status=answered.status, content_type=answered.content_type)


def _challenge(request: HttpRequest) -> str:
    """Where a client without a token finds out how to get one (RFC 9728, 5.1)."""
    error = 'error="invalid_token", ' if "Authorization" in request.headers else ""
    return f'Bearer {error}resource_metadata="{endpoints.resource_metadata_url()}"'


class AgentAuthentication(BearerAuthentication):
    """The credentials of `/v1`, and the access tokens of connected apps, which open nothing else."""

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
    """Admit the caller by its headers before anything reads the body, then check the form of the body."""
    api_request = Request(request, authenticators=[AgentAuthentication()])
    # A member who only reads may use the tools that read: each call of a tool is checked by its own method and scope.
    caller = caller_of(api_request)
    check_tenant_caller(caller, request.headers.get(TENANT_HEADER), method="GET", scope=None)
    check_role(caller, Area.INTEGRATION, method="GET")
    TenantRateThrottle().allow_request(api_request, None)
    if request.method != "POST":
        raise MethodNotAllowed.of("POST")
    if request.content_type != "application/json":
        raise UnsupportedMediaType
    try:
        # Bounds what the protocol's package takes apart at length: containers and their depth.
        parse_object(request.body)
    except ParseError as error:
        raise InvalidRequest(str(error)) from None
    return ApiCalls(request, caller)
