"""OAuth over HTTP: metadata (RFC 8414, RFC 9728), registration (RFC 7591), tokens (RFC 6749), revocation (RFC 7009).

Errors have OAuth's form, `{"error", "error_description"}`, because OAuth clients expect it. The page on which a member
decides belongs to the console (`console/connected_apps.py`); it shows an `AuthorizationRequest`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Self
from urllib.parse import urlencode

import orjson
from allauth.account.adapter import get_adapter
from allauth.core import ratelimit
from django.conf import settings
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, JsonResponse, QueryDict
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST, require_safe

from gateway.roles import KeyScope, known_scopes
from tenants.connected_apps import connections
from tenants.connected_apps.connections import SCOPES, InvalidGrant, Tokens
from tenants.models import ConnectedAppClient
from tenants.names import check_name

MOST_REDIRECT_URIS = 10
LONGEST_REDIRECT_URI = 500
LONGEST_NAME = 100
LONGEST_STATE = 2_000
CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
"""Base64url of a SHA-256, without padding (PKCE, S256)."""
_GRANT_TYPES = ["authorization_code", "refresh_token"]

View = Callable[[HttpRequest], HttpResponse]


class OAuthError(Exception):
    """An error in OAuth's form."""

    def __init__(self, code: str, description: str, status: int = 400) -> None:
        super().__init__(code)
        self.code, self.description, self.status = code, description, status


def resource() -> str:
    """The address of the MCP server, the resource for which tokens are issued."""
    return f"{settings.BASE_URL}/mcp"


def resource_metadata_url() -> str:
    """The address of the resource's metadata, to which a 401 refers (RFC 9728)."""
    return f"{settings.BASE_URL}/.well-known/oauth-protected-resource/mcp"


def _json(body: dict[str, Any], status: int = 200) -> HttpResponse:
    return JsonResponse(body, status=status, headers={"Cache-Control": "no-store"})


def _answers_errors(view: View) -> View:
    @csrf_exempt
    @require_POST
    @wraps(view)
    def answered(request: HttpRequest) -> HttpResponse:
        try:
            return view(request)
        except OAuthError as error:
            return _json({"error": error.code, "error_description": error.description}, error.status)
        except InvalidGrant:
            description = (
                "The code or the token is unknown, already used or expired, or belongs to another client."
            )
            return _json({"error": "invalid_grant", "error_description": description}, 400)

    return answered


@require_safe
def server_metadata(request: HttpRequest) -> HttpResponse:
    """The metadata of the authorization server (RFC 8414)."""
    base = settings.BASE_URL
    return JsonResponse(
        {
            "issuer": base,
            "authorization_endpoint": f"{settings.APP_URL}/console/connect-app",
            "token_endpoint": f"{base}/oauth/token",
            "registration_endpoint": f"{base}/oauth/register",
            "revocation_endpoint": f"{base}/oauth/revoke",
            "scopes_supported": list(SCOPES),
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": _GRANT_TYPES,
            "token_endpoint_auth_methods_supported": ["none"],
            "revocation_endpoint_auth_methods_supported": ["none"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
            "service_documentation": f"{base}/docs/agents/",
        },
        headers={"Access-Control-Allow-Origin": "*"},
    )


@require_safe
def resource_metadata(request: HttpRequest) -> HttpResponse:
    """The metadata of the MCP server, a protected resource (RFC 9728)."""
    return JsonResponse(
        {
            "resource": resource(),
            "resource_name": settings.SERVICE_NAME,
            "authorization_servers": [settings.BASE_URL],
            "scopes_supported": list(SCOPES),
            "bearer_methods_supported": ["header"],
            "resource_documentation": f"{settings.BASE_URL}/docs/agents/",
        },
        headers={"Access-Control-Allow-Origin": "*"},
    )


@_answers_errors
def register(request: HttpRequest) -> HttpResponse:
    """Register a client from its own metadata (RFC 7591). As the RFC requires, unknown members are ignored."""
    _bound(request, "app_registration")
    try:
        asked = orjson.loads(request.body)
    except orjson.JSONDecodeError:
        asked = None
    if not isinstance(asked, dict):
        raise OAuthError("invalid_client_metadata", "The body must be a JSON object.")
    client = connections.register(
        name=_name(asked.get("client_name", "An app without a name")),
        redirect_uris=_redirect_uris(asked.get("redirect_uris")),
        ip=get_adapter().get_client_ip(request),
    )
    return _json(
        {
            "client_id": str(client.id),
            "client_id_issued_at": int(client.created_at.timestamp()),
            "client_name": client.name,
            "redirect_uris": client.redirect_uris,
            "grant_types": _GRANT_TYPES,
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            "scope": " ".join(SCOPES),
        },
        201,
    )


def _name(name: object) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
        raise OAuthError("invalid_client_metadata", f"client_name must have 1 to {LONGEST_NAME} characters.")
    try:
        check_name(name)
    except ValidationError as error:
        raise OAuthError("invalid_client_metadata", f"client_name: {error.message}") from None
    return name


def _redirect_uris(uris: object) -> list[str]:
    if not isinstance(uris, list) or not 0 < len(uris) <= MOST_REDIRECT_URIS:
        raise OAuthError(
            "invalid_redirect_uri", f"redirect_uris must name 1 to {MOST_REDIRECT_URIS} addresses."
        )
    for uri in uris:
        if not isinstance(uri, str) or len(uri) > LONGEST_REDIRECT_URI or not connections.is_acceptable(uri):
            raise OAuthError(
                "invalid_redirect_uri",
                "A redirect URI is https, http on 127.0.0.1 or localhost, or an app's own scheme with a domain in its "
                f"name; without a fragment, at most {LONGEST_REDIRECT_URI} characters.",
            )
    return uris


@_answers_errors
def token(request: HttpRequest) -> HttpResponse:
    """Exchange a code or a refresh token for tokens."""
    _bound(request, "app_token")
    client_id = _one(request.POST, "client_id")
    grant_type = _one(request.POST, "grant_type")
    _check_resource(request.POST)
    try:
        if grant_type == "authorization_code":
            tokens = connections.redeem_code(
                client_id=client_id,
                code=_one(request.POST, "code"),
                redirect_uri=_one(request.POST, "redirect_uri"),
                verifier=_one(request.POST, "code_verifier"),
            )
        elif grant_type == "refresh_token":
            tokens = connections.refresh(client_id=client_id, token=_one(request.POST, "refresh_token"))
        else:
            raise OAuthError("unsupported_grant_type", f"grant_type is one of {', '.join(_GRANT_TYPES)}.")
    except InvalidGrant:
        if connections.find_client(client_id) is not None:
            raise
        # At this error a client registers again. At `invalid_grant` it asks a member again, with the id of its deleted
        # registration.
        raise OAuthError(
            "invalid_client", "The client is not registered, or its registration was deleted.", 401
        ) from None
    return _json(_token_response(tokens))


def _token_response(tokens: Tokens) -> dict[str, Any]:
    return {
        "access_token": tokens.access,
        "token_type": "Bearer",
        "expires_in": int(tokens.lifetime.total_seconds()),
        "refresh_token": tokens.refresh,
        "scope": " ".join(tokens.scopes),
    }


@_answers_errors
def revoke(request: HttpRequest) -> HttpResponse:
    """End the connection of a token. The response is the same for an unknown token (RFC 7009)."""
    _bound(request, "app_token")
    connections.revoke_token(client_id=_one(request.POST, "client_id"), token=_one(request.POST, "token"))
    return _json({})


def _bound(request: HttpRequest, action: str) -> None:
    """Limit the requests of one IP address (`ACCOUNT_RATE_LIMITS`). Raises OAuthError."""
    if not ratelimit.consume(request, action=action):
        raise OAuthError(
            "temporarily_unavailable", "Too many requests from this address. Try again later.", 429
        )


def _one(given: QueryDict, name: str) -> str:
    """The value of a parameter. Raises OAuthError when the parameter is missing, repeated or too long."""
    values = given.getlist(name)
    if len(values) != 1 or not values[0] or len(values[0]) > LONGEST_STATE or "\0" in values[0]:
        raise OAuthError("invalid_request", f"The parameter {name} must be given exactly once.")
    return values[0]


def _check_resource(given: QueryDict) -> None:
    """Raise OAuthError when the client names a resource (RFC 8707) other than the MCP server."""
    if {each.rstrip("/") for each in given.getlist("resource")} - {resource(), settings.BASE_URL}:
        raise OAuthError("invalid_target", f"Tokens are issued only for {resource()}.")


class UnknownClient(Exception):
    """The client or the redirect URI of an authorization request is unknown, so the browser must not be redirected."""


@dataclass(frozen=True, slots=True)
class AuthorizationRequest:
    """A client's request for authorization, with a valid client and redirect URI."""

    client: ConnectedAppClient
    redirect_uri: str
    state: str | None
    code_challenge: str
    scopes: frozenset[KeyScope]

    @classmethod
    def read(cls, given: QueryDict) -> Self:
        """Read the parameters of RFC 6749 (4.1.1) and RFC 7636.

        Raises UnknownClient for an error that must not be sent to the redirect URI, and Redirected for one that is sent
        there.
        """
        client = connections.find_client(given.get("client_id", ""))
        redirect_uri = given.get("redirect_uri", "")
        if client is None or redirect_uri not in client.redirect_uris:
            raise UnknownClient
        state = given.get("state")
        if state is not None and len(state) > LONGEST_STATE:
            raise UnknownClient
        try:
            _check_resource(given)
            if _one(given, "response_type") != "code":
                raise OAuthError("unsupported_response_type", "response_type must be code.")
            challenge = _one(given, "code_challenge")
            if _one(given, "code_challenge_method") != "S256" or not CHALLENGE.fullmatch(challenge):
                raise OAuthError(
                    "invalid_request",
                    "code_challenge_method must be S256, and code_challenge 43 characters of base64url.",
                )
        except OAuthError as error:
            raise Redirected(
                reply_to(redirect_uri, state, error=error.code, error_description=error.description)
            ) from None
        asked = known_scopes(given.get("scope", "").split()) & set(SCOPES)
        return cls(client, redirect_uri, state, challenge, frozenset(asked or SCOPES))

    def reply(self, **parameters: str) -> str:
        """The redirect URI with the parameters of the answer."""
        return reply_to(self.redirect_uri, self.state, **parameters)


class Redirected(Exception):
    """An error that the client receives at its redirect URI."""

    def __init__(self, address: str) -> None:
        super().__init__("redirected")
        self.address = address


def reply_to(redirect_uri: str, state: str | None, **parameters: str) -> str:
    """The redirect URI with the parameters of an answer. `iss` names the issuer (RFC 9207)."""
    answer = {**parameters, **({"state": state} if state is not None else {}), "iss": settings.BASE_URL}
    return f"{redirect_uri}{'&' if '?' in redirect_uri else '?'}{urlencode(answer)}"
