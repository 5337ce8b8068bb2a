"""`/v1/tenant`, `/v1/tenants*`, `/v1/api-keys*`, `/v1/platform-keys*` and `/v1/console/sessions` (specification 4).

A console session returns a console token (decision "Authentication"). The log-in page and this route share one count of
failures: 5 per account and 20 per address in 15 minutes.
"""

from typing import Any, ClassVar
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from gateway.api import query
from gateway.api.authentication import AppCaller, ConsoleCaller, caller_of, tenant_of
from gateway.api.errors import Forbidden, NotFound, Unauthorized
from gateway.api.pagination import NewestFirst
from gateway.api.validation import checked
from gateway.api.viewsets import ResourceViewSet
from gateway.roles import KeyScope
from tenants import platform_apps, tenant_settings
from tenants.credentials import api_keys, bearer_tokens
from tenants.credentials.api_keys import Grant
from tenants.credentials.bearer_tokens import BearerAuthentication
from tenants.credentials.log_in import identify
from tenants.models import ApiKey, ConsoleSession, Tenant
from tenants.serializers import (
    ApiKeyIn,
    ApiKeyOut,
    ConsoleSessionIn,
    ConsoleSessionOut,
    NewApiKeyOut,
    NewConsoleSessionOut,
    RevokedKeyOut,
    RotatedKeyOut,
    TenantChangeIn,
    TenantCreateIn,
    TenantOut,
)

REVOKES = "The key stops working at once, or within 10 seconds during an outage."
ROTATES = (
    "Makes a new key with the old key's scopes, numbers and expiry. The old key works for 24 more hours."
)
"""Descriptions of the operations that call `revoked` and `rotated`."""


class TenantView(ResourceViewSet):
    """The caller's own tenant. Reading is allowed in every status."""

    tag = "Tenant"
    scope = KeyScope.SETTINGS
    action_scopes: ClassVar = {"retrieve": None}

    @property
    def open_to_any_status(self) -> bool:
        return self.request.method in {"GET", "HEAD"}

    @extend_schema(
        operation_id="get_tenant",
        summary="Get the tenant",
        description="Returns the tenant with its checklist. Works in every status of the tenant.",
        responses=TenantOut,
    )
    def retrieve(self, request: Request) -> Response:
        tenant = Tenant.objects.get(pk=tenant_of(request).id)
        return Response(TenantOut(tenant).data)

    @extend_schema(
        operation_id="update_tenant",
        summary="Change the tenant",
        description="Changes the name, the billing e-mail or the retention.",
        request=TenantChangeIn,
        responses=TenantOut,
    )
    def partial_update(self, request: Request) -> Response:
        tenant = tenant_settings.change(
            tenant_id=tenant_of(request).id,
            changes=checked(TenantChangeIn(data=request.data)),
            **_actor(request),
        )
        return Response(TenantOut(tenant).data)


class TenantsView(ResourceViewSet):
    """The tenants that a platform app created."""

    tag = "Tenants"
    permission_classes = [AppCaller]

    @extend_schema(
        operation_id="list_tenants",
        summary="List the tenants of the platform",
        description="Returns the tenants of the platform, newest first. With a live key, `external_ref` finds only "
        "live tenants. A test key sees only sandbox tenants.",
        parameters=[OpenApiParameter("external_ref", str)],
        responses=TenantOut(many=True),
    )
    def list(self, request: Request) -> Response:
        created = _own_tenants(request)
        if external_ref := query.text(request, "external_ref"):
            # A program that finds its live tenant by this must not get a sandbox tenant of its tests: messages to the
            # simulator look sent.
            created = created.filter(external_ref=external_ref, sandbox=_is_test(request))
        pages = NewestFirst()
        rows = pages.paginate_queryset(created, request)
        return pages.get_paginated_response(TenantOut(rows, many=True).data)

    @extend_schema(
        operation_id="create_tenant",
        summary="Create a tenant",
        description="The tenant is active at once.",
        request=TenantCreateIn,
        responses={201: TenantOut},
    )
    def create(self, request: Request) -> Response:
        tenant = platform_apps.create_for_app(
            app_id=_app_id(request),
            sandbox=_is_test(request),
            acting_key_id=caller_of(request).key_id,
            **checked(TenantCreateIn(data=request.data)),
        )
        return Response(TenantOut(tenant).data, status=201)

    @extend_schema(
        operation_id="get_tenant_by_id",
        summary="Get a tenant of the platform",
        description="The answer is 404 for a tenant of another platform.",
        responses=TenantOut,
    )
    def retrieve(self, request: Request, tenant_id: UUID) -> Response:
        tenant = _own_tenants(request).filter(pk=tenant_id).first()
        if tenant is None:
            raise NotFound("There is no such tenant.")
        return Response(TenantOut(tenant).data)


def _own_tenants(request: Request) -> QuerySet[Tenant]:
    """The tenants that a platform key can access: the tenants of its app. A test key can access only the sandbox
    tenants among them.
    """
    created = Tenant.objects.for_app(_app_id(request))
    return created.filter(sandbox=True) if _is_test(request) else created


def _is_test(request: Request) -> bool:
    return caller_of(request).environment == "test"


def _app_id(request: Request) -> UUID:
    app_id = caller_of(request).app_id
    assert app_id is not None  # noqa: S101 - AppCaller guarantees it
    return app_id


class ApiKeysView(ResourceViewSet):
    """The API keys of a tenant. Only the response that creates a key contains the full key."""

    tag = "API keys"
    scope = KeyScope.KEYS

    @property
    def action_scopes(self) -> dict[str, None]:
        """The scopes that an action needs. A key that revokes itself needs no scope."""
        key_id = self.kwargs.get("key_id")
        is_own = key_id is not None and caller_of(self.request).key_id == key_id
        return {"destroy": None} if is_own else {}

    @extend_schema(
        operation_id="list_api_keys",
        summary="List API keys",
        description="Returns the keys of the caller's environment. Each key is shown by its prefix, never in full.",
        responses=ApiKeyOut(many=True),
    )
    def list(self, request: Request) -> Response:
        keys = _tenant_keys(request)
        # A sandbox tenant has only one environment, whatever its keys say.
        return _key_page(request, keys if tenant_of(request).sandbox else _of_own_environment(request, keys))

    @extend_schema(
        operation_id="create_api_key",
        summary="Create an API key",
        description="Only this answer shows the full key. A key cannot create a key with scopes or numbers that it "
        "lacks itself, or a key that expires after it does: the answer is 403.",
        request=ApiKeyIn,
        responses={201: NewApiKeyOut},
    )
    def create(self, request: Request) -> Response:
        body = checked(ApiKeyIn(data=request.data))
        own = caller_of(request).environment
        if body.setdefault("environment", own) == "live" and own == "test":
            raise Forbidden(
                "A test key creates test keys only.",
                hint="Make live keys with a live key, or in the console.",
            )
        tenant = Tenant.objects.get(pk=tenant_of(request).id)
        new = api_keys.create(tenant=tenant, within=_grant(request), **_actor(request), **body)
        return Response(_with_key(ApiKeyOut(new.row).data, new), status=201)

    @extend_schema(
        operation_id="revoke_api_key",
        summary="Revoke an API key",
        description=f"{REVOKES} A key may revoke itself, even without the scope `keys`.",
        responses={200: RevokedKeyOut},
    )
    def destroy(self, request: Request, key_id: UUID) -> Response:
        return revoked(_tenant_keys(request), key_id, **_actor(request))

    @extend_schema(
        operation_id="rotate_api_key",
        summary="Rotate an API key",
        description=ROTATES,
        request=None,
        responses={201: RotatedKeyOut},
    )
    def rotate(self, request: Request, key_id: UUID) -> Response:
        return rotated(_tenant_keys(request), key_id, within=_grant(request), **_actor(request))


class PlatformKeysView(ResourceViewSet):
    """Keys that belong to the platform app itself. The gateway's staff create the first key. After that the platform
    rotates and revokes its keys.
    """

    tag = "Tenants"
    permission_classes = [AppCaller]

    @extend_schema(
        operation_id="list_platform_keys",
        summary="List the platform's own keys",
        description="Returns the keys of the caller's environment. Each key is shown by its prefix, never in full.",
        responses=ApiKeyOut(many=True),
    )
    def list(self, request: Request) -> Response:
        return _key_page(request, _of_own_environment(request, _platform_keys(request)))

    @extend_schema(
        operation_id="revoke_platform_key",
        summary="Revoke one of the platform's own keys",
        description=REVOKES,
        responses={200: RevokedKeyOut},
    )
    def destroy(self, request: Request, key_id: UUID) -> Response:
        return revoked(_platform_keys(request), key_id, **_actor(request))

    @extend_schema(
        operation_id="rotate_platform_key",
        summary="Rotate one of the platform's own keys",
        description=ROTATES,
        request=None,
        responses={201: RotatedKeyOut},
    )
    def rotate(self, request: Request, key_id: UUID) -> Response:
        return rotated(_platform_keys(request), key_id, within=_grant(request), **_actor(request))


def _tenant_keys(request: Request) -> QuerySet[ApiKey]:
    return _manageable(request, ApiKey.objects.for_tenant(tenant_of(request).id))


def _platform_keys(request: Request) -> QuerySet[ApiKey]:
    return _manageable(request, ApiKey.objects.for_app(_app_id(request)))


def _manageable(request: Request, keys: QuerySet[ApiKey]) -> QuerySet[ApiKey]:
    """The keys that the caller may revoke and rotate. For a live key, these include test keys, because a live key can
    create test keys.
    """
    return keys.filter(environment="test") if caller_of(request).environment == "test" else keys


def _of_own_environment(request: Request, keys: QuerySet[ApiKey]) -> QuerySet[ApiKey]:
    return keys.filter(environment=caller_of(request).environment)


def _actor(request: Request) -> dict[str, Any]:
    caller = caller_of(request)
    return {"actor_user_id": caller.user_id, "acting_key_id": caller.key_id}


def _grant(request: Request) -> Grant:
    return Grant.of_caller(caller_of(request))


def _key_page(request: Request, keys: QuerySet[ApiKey]) -> Response:
    pages = NewestFirst()
    rows = pages.paginate_queryset(keys, request)
    return pages.get_paginated_response(ApiKeyOut(rows, many=True).data)


def revoked(keys: QuerySet[ApiKey], key_id: UUID, **actor: Any) -> Response:
    """Revoke one of `keys` and return the response."""
    return Response(RevokedKeyOut(api_keys.revoke(keys=keys, key_id=key_id, **actor)).data)


def rotated(keys: QuerySet[ApiKey], key_id: UUID, **actor: Any) -> Response:
    """Rotate one of `keys` and return the response with the new key."""
    new = api_keys.rotate(keys=keys, key_id=key_id, **actor)
    old = new.row.replaces
    assert old is not None  # noqa: S101 - a rotated key replaces one
    return Response(
        {
            "id": new.row.id,
            "name": new.row.name,
            "environment": new.row.environment,
            "prefix": new.row.prefix,
            "key": new.key,
            "replaces": old.id,
            "old_key_expires_at": old.expires_at,
        },
        status=201,
    )


def _with_key(shown: dict[str, Any], new: api_keys.NewKey) -> dict[str, Any]:
    """The shown members of a key, with the full key inserted after the prefix."""
    members: dict[str, Any] = {}
    for name, value in shown.items():
        members[name] = value
        if name == "prefix":
            members["key"] = new.key
    return members


class ConsoleSessionsView(ResourceViewSet):
    """Log in with e-mail and password, and with a code if the user has a second factor."""

    tag = "Console sessions"
    authentication_classes: list[Any] = []
    permission_classes: list[type[BasePermission]] = []
    throttle_classes: list[Any] = []

    @extend_schema(
        operation_id="create_console_session",
        summary="Log in",
        description="Accepts the email address, the password and, with a second factor, `otp`. The console token is "
        "valid for 12 hours.",
        auth=[],
        request=ConsoleSessionIn,
        responses={201: NewConsoleSessionOut},
    )
    def create(self, request: Request) -> Response:
        user = identify(request._request, **checked(ConsoleSessionIn(data=request.data)))
        new = bearer_tokens.open_session(user)
        return Response({"token": new.token, **_shown(new.row)}, status=201)


class CurrentConsoleSessionView(ResourceViewSet):
    """The session of the console token in the request."""

    tag = "Console sessions"
    authentication_classes = [BearerAuthentication]
    permission_classes = [ConsoleCaller]

    @extend_schema(
        operation_id="get_console_session",
        summary="Get the current console session",
        description="Returns the person to whom the console token of this request belongs.",
        responses=ConsoleSessionOut,
    )
    def retrieve(self, request: Request) -> Response:
        return Response(_shown(_current(request)))

    @extend_schema(
        operation_id="end_console_session",
        summary="Log out",
        description="Ends the session: the console token of this request stops working.",
        responses={204: None},
    )
    def destroy(self, request: Request) -> Response:
        bearer_tokens.close_session(_current(request))
        return Response(status=204)


def _current(request: Request) -> ConsoleSession:
    session = bearer_tokens.session_for(request.headers["Authorization"].partition(" ")[2].strip())
    if session is None:
        raise Unauthorized
    return session


def _shown(session: ConsoleSession) -> dict[str, Any]:
    user = session.user
    return {
        "expires_at": session.expires_at,
        "user": {"id": user.pk, "email": user.email, "is_staff": user.is_staff},
        "tenant_id": user.tenant_id,
    }
