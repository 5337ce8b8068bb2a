"""Authentication for REST framework: the caller, and what the caller may use (specification 5).

`tenants.credentials.bearer_tokens` finds the caller of a bearer token. This module defines `Caller` and the permissions
of views. A call with several faults is rejected for the first of these: 401 without a valid credential, 403 for the
wrong kind of caller, 400 for a missing tenant, 404 for an unknown tenant, 403 for another tenant, 403 for the status of
the tenant, 403 for a missing scope.

Known credentials are those that this process verified recently. Their callers are served before unknown callers. Being
known grants no access. A key, a console token or a session becomes known when it is found valid. It is dropped when it
is found invalid, or when another process signals its end. If that signal is lost, the next use drops it.
"""

import hashlib
import time
from dataclasses import dataclass
from datetime import datetime
from threading import Lock
from typing import Any, Literal, TypedDict, cast
from uuid import UUID

import structlog
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from gateway.api.errors import (
    Forbidden,
    InvalidRequest,
    NotFound,
    TenantNotApproved,
    TenantSuspended,
    Unauthorized,
)
from gateway.roles import LIVE_SCOPES, Area, KeyScope, allows

KNOWN_SECONDS = 900.0
"""How long an unused credential stays known."""
MOST_KNOWN = 10_000
"""Maximum number of known credentials. Beyond it, the credential that was verified longest ago is dropped."""

_known: dict[str, tuple[float, str | None]] = {}
"""Expiry and owner of each known credential by digest, in the order of verification."""
_UNKNOWN: tuple[float, str | None] = (0.0, None)
_lock = Lock()


def credential_digest(credential: str) -> str:
    """The SHA-256 of a credential, hex, in the form that is stored for keys and console tokens."""
    return hashlib.sha256(credential.encode()).hexdigest()


def remember_credential(digest: str, *, owner: str | None = None) -> None:
    """Record that a credential was verified now. `owner` names the business or the person of a session."""
    with _lock:
        _known.pop(digest, None)
        if len(_known) >= MOST_KNOWN:
            del _known[next(iter(_known))]
        _known[digest] = time.monotonic() + KNOWN_SECONDS, owner


def drop_credential(digest: str) -> None:
    """Drop a credential that has ended or may have ended."""
    with _lock:
        _known.pop(digest, None)


def is_known(digest: str) -> bool:
    """Whether a credential was verified recently. Each call still checks the credential's access."""
    return _known.get(digest, _UNKNOWN)[0] > time.monotonic()


def owner_of(digest: str) -> str | None:
    """The owner of a known session. None for any other credential."""
    return _known.get(digest, _UNKNOWN)[1]


TENANT_HEADER = "X-Service-Tenant"

Environment = Literal["live", "test"]


@dataclass(frozen=True, slots=True)
class TenantFacts:
    """Facts of a tenant that were loaded with the caller, so that reading them makes no query."""

    id: UUID
    status: str
    sandbox: bool
    app_id: UUID | None


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller. `tenant` is the tenant that it acts on, chosen by the key or by X-Service-Tenant."""

    kind: Literal["tenant_key", "app_key", "console_user", "connected_app", "staff"]
    """The kind of credential. A connected app acts for a member at `/mcp`, limited by the member's role and the
    connection's scopes.
    """
    environment: Environment
    tenant: TenantFacts | None = None
    app_id: UUID | None = None
    key_id: UUID | None = None
    key_prefix: str | None = None
    """The first characters of the key, as lists of keys show them."""
    scopes: frozenset[KeyScope] = frozenset()
    """The scopes of a key or a connected app. A member's console token has a role instead."""
    phone_number_ids: frozenset[str] | None = None
    """The numbers that a key is limited to. None for all numbers of the tenant."""
    expires_at: datetime | None = None
    """When the key expires. None for never."""
    user_id: int | None = None
    role: str | None = None
    """The role of the member who calls, or for whom an app calls (`gateway.roles`). Keys and staff have no role."""
    has_staff_role: bool = False
    """Whether the staff member who calls has a role of staff. Without one, staff see no tenant and no figure."""
    is_authenticated: bool = True

    @property
    def rate_key(self) -> str:
        """The owner of the token bucket for this call: the tenant, else the app or the user."""
        return str(self.tenant.id if self.tenant else self.app_id or f"user:{self.user_id}")

    @property
    def effective_environment(self) -> Environment:
        """The environment of the caller's calls. A sandbox tenant has only `test`, whatever its keys say."""
        return "test" if self.tenant is not None and self.tenant.sandbox else self.environment

    def reaches(self, phone_number_id: str | None) -> bool:
        """Whether the key may use this number. None asks whether the key may use all numbers."""
        return self.phone_number_ids is None or phone_number_id in self.phone_number_ids


def caller_of(request: Request) -> Caller:
    """The caller of a request, after its permission check."""
    return cast("Caller", request.user)


def tenant_of(request: Request) -> TenantFacts:
    """The tenant of a request, after `TenantCaller` has admitted it."""
    tenant = caller_of(request).tenant
    assert tenant is not None  # noqa: S101 - TenantCaller guarantees it
    return tenant


BEARER = "bearer"
UPSTREAM_TOKEN_PREFIX = "EAA"
LONGEST_TOKEN = 200
NOT_A_KEY = "This is not an API key: keys begin with wb_live_ or wb_test_ and have 48 characters."


def bearer_token(authorization: str) -> str:
    """The token of an `Authorization` header. Raises Unauthorized."""
    if not authorization.strip():
        raise Unauthorized("The request has no Authorization header.")
    scheme, _, token = authorization.partition(" ")
    token = token.strip()
    if scheme.lower() != BEARER:
        raise Unauthorized("The Authorization header does not begin with the word Bearer.")
    if not token:
        raise Unauthorized("The Authorization header has no key after the word Bearer.")
    if token.startswith(UPSTREAM_TOKEN_PREFIX):
        raise Unauthorized(
            "This is an access token of Meta, not an API key of this service.",
            hint="Send a key that begins with wb_live_ or wb_test_: the console and POST /v1/api-keys make them.",
        )
    if len(token) > LONGEST_TOKEN or not token.isascii():
        raise Unauthorized(NOT_A_KEY)
    return token


class Scope(TypedDict):
    """The rows that a caller can reach: those of one tenant in one environment."""

    tenant_id: UUID
    environment: Environment


def scope_of(request: Request) -> Scope:
    """The scope of a request, after `TenantCaller` has admitted it. Pass it on with `**`."""
    return {"tenant_id": tenant_of(request).id, "environment": caller_of(request).effective_environment}


class Reach(Scope):
    """The scope of an admitted caller, and the numbers from which its key may send."""

    phone_number_ids: frozenset[str] | None


def reach_of(caller: Caller) -> Reach:
    """The reach of an admitted caller. Pass it on with `**`."""
    assert caller.tenant is not None  # noqa: S101 - an admitted caller acts on a tenant
    return {
        "tenant_id": caller.tenant.id,
        "environment": caller.effective_environment,
        "phone_number_ids": caller.phone_number_ids,
    }


def limited_scope_of(request: Request) -> dict[str, Any]:
    """The scope of a request, with the numbers of its key as `within`. Pass it on with `**`."""
    return {**scope_of(request), "within": caller_of(request).phone_number_ids}


class BearerTokens(BaseAuthentication):
    """`Authorization: Bearer <token>`. Subclasses find the caller of a token."""

    def authenticate(self, request: Request) -> tuple[Caller, None]:
        credentials = request.headers.get("Authorization", ""), request.headers.get(TENANT_HEADER)
        # The Cloud API front authenticates a call before it passes the call to a view of /v1.
        admitted: tuple[Any, Caller] | None = getattr(request._request, "admitted_caller", None)
        if admitted is not None and admitted[0] == credentials:
            return admitted[1], None
        token = bearer_token(credentials[0])
        caller = self.caller_for(token, credentials[1])
        if caller is None:
            raise self.refusal(token)
        if caller.tenant is not None:
            structlog.contextvars.bind_contextvars(tenant_id=str(caller.tenant.id))
        request._request.admitted_caller = credentials, caller  # type: ignore[attr-defined]
        return caller, None

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"

    def refusal(self, token: str) -> Unauthorized:
        """The error for a token that has no caller."""
        return Unauthorized()

    def caller_for(self, token: str, chosen_tenant: str | None) -> Caller | None:
        """The caller of a token, or None when the token is unknown, expired or revoked.

        `chosen_tenant` is the value of X-Service-Tenant.
        """
        raise NotImplementedError


def _caller(request: Request) -> Caller:
    if not isinstance(request.user, Caller):
        raise Unauthorized
    return request.user


def check_scope(caller: Caller, scope: KeyScope | None, *, method: str) -> None:
    """Require that a caller may use a method of an operation with this scope. None means that it needs no scope.

    A member's role must include the scope's area. A key must have the scope, and the `LIVE_SCOPES` require a live key.
    A connected app needs the role and the scope. Raises Forbidden, whose `details` name what is missing.
    """
    if scope is None:
        return
    check_role(caller, scope.area, method=method)
    if caller.kind == "console_user":
        return
    if caller.kind == "connected_app" and scope not in caller.scopes:
        raise Forbidden(
            f"This app was not granted the scope {scope}.",
            hint="Connect the app again, and tick this scope on the page of the console that the app opens.",
            details={"scope": scope, "scopes": sorted(caller.scopes)},
        )
    if scope not in caller.scopes:
        raise Forbidden(
            f"This key does not have the scope {scope}.",
            hint="Use a key with this scope. Keys are made with it in the console or with POST /v1/api-keys.",
            details={"scope": scope, "scopes": sorted(caller.scopes)},
        )
    shares = caller.tenant is not None and not caller.tenant.sandbox
    if scope in LIVE_SCOPES and caller.environment == "test" and shares:
        raise Forbidden(
            f"A test key changes nothing outside the sandbox: {scope} takes a live key.",
            hint="Use a live key with this scope.",
            details={"scope": scope, "environment": "live"},
        )


_MEMBERS = {"console_user", "connected_app"}
"""Kinds of callers that act for a member. The member's role limits them."""


def check_role(caller: Caller, area: Area, *, method: str) -> None:
    """Require that a member's role allows a method in an area. Keys have no role. Raises Forbidden."""
    if caller.kind in _MEMBERS and not allows(caller.role or "", area, method):
        raise Forbidden("Your role in this business does not allow this operation.")


def check_numbers(caller: Caller, view: Any) -> None:
    """Require that a limited key names one of its numbers, or calls an action that filters by its numbers.

    A view lists such actions in `limited_actions`. Raises NotFound for another number, otherwise Forbidden.
    """
    if caller.phone_number_ids is None:
        return
    phone_number_id = view.kwargs.get("phone_number_id")
    if phone_number_id is not None:
        if not caller.reaches(phone_number_id):
            raise NotFound("There is no such number.")
    elif getattr(view, "action", None) not in getattr(view, "limited_actions", ()):
        raise Forbidden(
            "This key is limited to numbers, and this operation concerns the whole business.",
            hint="Use a key without a list of numbers.",
            details={"phone_number_ids": sorted(caller.phone_number_ids)},
        )


def filtered_number(caller: Caller, asked: str | None) -> str | None:
    """The number to filter a list by: `asked`, or the single number of a limited key.

    Raises InvalidRequest for a number outside the key's limit, or for None when the key has several numbers.
    """
    if caller.phone_number_ids is None:
        return asked
    if asked is None and len(caller.phone_number_ids) == 1:
        return next(iter(caller.phone_number_ids))
    if asked not in caller.phone_number_ids:
        numbers = ", ".join(sorted(caller.phone_number_ids))
        raise InvalidRequest.of(phone_number_id=f"This key is limited to numbers: name one of {numbers}.")
    return asked


def declared_scope(view: Any) -> KeyScope | None:
    """The scope that a view declares for the called action: `action_scopes`, else `scope`.

    A view without either raises AttributeError, so an operation without a declared scope is closed.
    """
    exceptions: dict[str, KeyScope | None] = getattr(view, "action_scopes", {})
    action = getattr(view, "action", None)
    if action in exceptions:
        return exceptions[action]
    scope: KeyScope | None = view.scope
    return scope


def check_tenant_caller(
    caller: Caller,
    chosen: str | None,
    *,
    method: str,
    scope: KeyScope | None,
    open_to_any_status: bool = False,
) -> None:
    """Admit a caller that acts on one tenant in good standing and may use operations with this scope.

    `chosen` is the value of X-Service-Tenant. Raises Forbidden, InvalidRequest, NotFound, TenantSuspended
    or TenantNotApproved.
    """
    if caller.kind == "staff":
        raise Forbidden
    if caller.kind == "app_key":
        if chosen is None:
            raise InvalidRequest(
                f"A platform key acts on one tenant per request: send {TENANT_HEADER}.",
                details={"fields": {TENANT_HEADER: ["This header is required with a platform key."]}},
            )
        if caller.tenant is None:
            raise NotFound("There is no such tenant.")
    if caller.tenant is None:
        raise Forbidden
    if caller.kind != "app_key" and chosen is not None and chosen.lower() != str(caller.tenant.id):
        raise Forbidden(
            "This key belongs to another tenant.",
            hint=f"Leave {TENANT_HEADER} out: it is for platform keys.",
        )
    if not open_to_any_status:
        match caller.tenant.status:
            case "active":
                pass
            case "suspended":
                raise TenantSuspended
            case _:
                raise TenantNotApproved
    check_scope(caller, scope, method=method)


class TenantCaller(BasePermission):
    """A caller that acts on one tenant in good standing and may use the view's scope (`declared_scope`).

    A view with `open_to_any_status` skips the check of the tenant's status.
    """

    def has_permission(self, request: Request, view: Any) -> bool:
        caller, scope = _caller(request), declared_scope(view)
        check_tenant_caller(
            caller,
            request.headers.get(TENANT_HEADER),
            method=request.method or "",
            scope=scope,
            open_to_any_status=getattr(view, "open_to_any_status", False),
        )
        if scope is not None:
            check_numbers(caller, view)
        return True


class AppCaller(BasePermission):
    """A caller with a platform (app) key."""

    def has_permission(self, request: Request, view: Any) -> bool:
        if _caller(request).kind != "app_key":
            raise Forbidden("This operation needs a platform key.")
        return True


class ConsoleCaller(BasePermission):
    """A caller with a console session token, of staff or of a member of a tenant in any status."""

    def has_permission(self, request: Request, view: Any) -> bool:
        if _caller(request).kind not in {"staff", "console_user"}:
            raise Forbidden("This operation needs a console session token.")
        return True


class StaffCaller(BasePermission):
    """A caller with a console session token of a staff member who has a role."""

    def has_permission(self, request: Request, view: Any) -> bool:
        caller = _caller(request)
        if caller.kind != "staff":
            raise Forbidden("This operation is for service staff.")
        if not caller.has_staff_role:
            raise Forbidden(
                "You have no role yet.", hint="A superuser gives you one in the admin, under People."
            )
        return True
