"""Authentication for REST framework: who calls, and what that caller may use (specification 5).

`tenants.credentials.authentication` finds the caller of a bearer token; here are its shape and the permissions that
views name. The order of refusals: 401, 403 of the kind of caller, 400 and 404 of the chosen tenant, 403 of the tenant's
status.
"""

from dataclasses import dataclass
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
    TenantMoving,
    TenantNotApproved,
    TenantSuspended,
    Unauthorized,
)
from gateway.roles import Area, allows

TENANT_HEADER = "X-Service-Tenant"

Environment = Literal["live", "test"]


@dataclass(frozen=True, slots=True)
class TenantFacts:
    """Facts of a tenant that the hot path needs, without a query."""

    id: UUID
    status: str
    sandbox: bool
    app_id: UUID | None


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller. `tenant` is the business it acts on, chosen by the key or by X-Service-Tenant."""

    kind: Literal["tenant_key", "app_key", "console_user", "staff"]
    environment: Environment
    tenant: TenantFacts | None = None
    app_id: UUID | None = None
    key_id: UUID | None = None
    key_prefix: str | None = None
    """The key's first characters, as lists of keys show them."""
    user_id: int | None = None
    role: str | None = None
    """The role of a business's person (`gateway.roles`); None for keys and staff, which have none."""
    is_authenticated: bool = True

    @property
    def rate_key(self) -> str:
        """The owner of the token bucket that a call is taken from: the tenant's, else the app's or the person's."""
        return str(self.tenant.id if self.tenant else self.app_id or f"user:{self.user_id}")

    @property
    def effective_environment(self) -> Environment:
        """Where calls go: a sandbox tenant is wholly on the simulator, whatever its keys."""
        return "test" if self.tenant is not None and self.tenant.sandbox else self.environment


def caller_of(request: Request) -> Caller:
    """The caller of a request that passed its permission."""
    return cast("Caller", request.user)


def tenant_of(request: Request) -> TenantFacts:
    """The tenant that a request acts on, after `TenantCaller` let it pass."""
    tenant = caller_of(request).tenant
    assert tenant is not None  # noqa: S101 - TenantCaller guarantees it
    return tenant


UPSTREAM_TOKEN_PREFIX = "EAA"
LONGEST_TOKEN = 200
ON_A_MOVE = frozenset({"moving", "arriving", "moved"})
"""Statuses of a tenant that is not served by this cell, now or any more."""
NOT_A_KEY = "This is not an API key: keys begin with wb_live_ or wb_test_ and have 48 characters."


def bearer_token(authorization: str) -> str:
    """The token of an `Authorization` header. Raises Unauthorized."""
    if not authorization.strip():
        raise Unauthorized("No credentials were sent.")
    scheme, _, token = authorization.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer":
        raise Unauthorized("The Authorization header does not begin with the word Bearer.")
    if not token:
        raise Unauthorized("The Authorization header holds no key after the word Bearer.")
    if token.startswith(UPSTREAM_TOKEN_PREFIX):
        raise Unauthorized(
            "This is an access token of Meta, not an API key of this service.",
            hint="Send a key that begins with wb_live_ or wb_test_: the console and POST /v1/api-keys make them.",
        )
    if len(token) > LONGEST_TOKEN or not token.isascii():
        raise Unauthorized(NOT_A_KEY)
    return token


class Scope(TypedDict):
    """What a caller reaches: the rows of one tenant in one environment."""

    tenant_id: UUID
    environment: Environment


def scope_of(request: Request) -> Scope:
    """The scope of a request, after `TenantCaller` let it pass: pass it on with `**`."""
    return {"tenant_id": tenant_of(request).id, "environment": caller_of(request).effective_environment}


class BearerTokens(BaseAuthentication):
    """`Authorization: Bearer <token>`; subclasses find the caller behind a token."""

    def authenticate(self, request: Request) -> tuple[Caller, None]:
        credentials = request.headers.get("Authorization", ""), request.headers.get(TENANT_HEADER)
        # The Cloud API front judges a call before the view of /v1 that it hands the call to.
        judged: tuple[Any, Caller] | None = getattr(request._request, "judged_caller", None)
        if judged is not None and judged[0] == credentials:
            return judged[1], None
        token = bearer_token(credentials[0])
        caller = self.caller_for(token, credentials[1])
        if caller is None:
            raise self.refusal(token)
        if caller.tenant is not None:
            structlog.contextvars.bind_contextvars(tenant_id=str(caller.tenant.id))
        request._request.judged_caller = credentials, caller  # type: ignore[attr-defined]
        return caller, None

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"

    def refusal(self, token: str) -> Unauthorized:
        """The reason why a token has no caller."""
        return Unauthorized()

    def caller_for(self, token: str, chosen_tenant: str | None) -> Caller | None:
        """The caller behind a token, or None when the token is unknown, expired or revoked.

        `chosen_tenant` is what X-Service-Tenant says.
        """
        raise NotImplementedError


def _caller(request: Request) -> Caller:
    if not isinstance(request.user, Caller):
        raise Unauthorized
    return request.user


def check_tenant_caller(
    caller: Caller,
    chosen: str | None,
    *,
    method: str,
    area: Area = Area.INTEGRATION,
    open_to_any_status: bool = False,
) -> None:
    """Let a caller pass that acts on one tenant in good standing and, if it is a person, whose role allows it.

    `chosen` is what X-Service-Tenant says; `method` and `area` are what the role is asked for.
    Raises Forbidden, InvalidRequest, NotFound, TenantSuspended, TenantMoving or TenantNotApproved.
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
        raise Forbidden("This key belongs to another tenant.")
    if caller.kind == "console_user" and not allows(caller.role or "", area, method):
        raise Forbidden("Your role in this business does not allow this operation.")
    if caller.tenant.status in ON_A_MOVE:
        raise TenantMoving
    if not open_to_any_status:
        match caller.tenant.status:
            case "active":
                pass
            case "suspended":
                raise TenantSuspended
            case _:
                raise TenantNotApproved


class TenantCaller(BasePermission):
    """A caller that acts on one tenant in good standing.

    A view with `open_to_any_status` skips the check of the status. A view's `area` is what a person's role is asked
    for; without one it is the integration.
    """

    def has_permission(self, request: Request, view: Any) -> bool:
        check_tenant_caller(
            _caller(request),
            request.headers.get(TENANT_HEADER),
            method=request.method or "",
            area=getattr(view, "area", Area.INTEGRATION),
            open_to_any_status=getattr(view, "open_to_any_status", False),
        )
        return True


class AppCaller(BasePermission):
    """A platform (app) key."""

    def has_permission(self, request: Request, view: Any) -> bool:
        if _caller(request).kind != "app_key":
            raise Forbidden("This operation needs a platform key.")
        return True


class ConsoleCaller(BasePermission):
    """A console session token, of staff or of a tenant's user in any standing."""

    def has_permission(self, request: Request, view: Any) -> bool:
        if _caller(request).kind not in {"staff", "console_user"}:
            raise Forbidden("This operation needs a console session token.")
        return True


class StaffCaller(BasePermission):
    """A console session token of a staff member."""

    def has_permission(self, request: Request, view: Any) -> bool:
        if _caller(request).kind != "staff":
            raise Forbidden("This operation is for service staff.")
        return True
