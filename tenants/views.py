"""`/v1/tenant`, `/v1/tenants*`, `/v1/api-keys*` and `/v1/platform-keys*`: tenants and API keys (specification 4)."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from gateway.api import query
from gateway.api.authentication import AppCaller, caller_of, tenant_of
from gateway.api.errors import Forbidden, NotFound
from gateway.api.pagination import NewestFirst
from gateway.api.validation import checked
from gateway.api.viewsets import ResourceViewSet
from gateway.roles import Area
from tenants import lifecycle
from tenants.credentials import api_keys
from tenants.models import ApiKey, Tenant
from tenants.serializers import (
    ApiKeyIn,
    ApiKeyOut,
    NewApiKeyOut,
    RevokedKeyOut,
    RotatedKeyOut,
    TenantChangeIn,
    TenantCreateIn,
    TenantOut,
)


class TenantView(ResourceViewSet):
    """The caller's own tenant; reading is open to every status."""

    area = Area.SETTINGS

    @property
    def open_to_any_status(self) -> bool:
        return self.request.method == "GET"

    @extend_schema(
        operation_id="get_tenant",
        summary="Get the tenant",
        description="With its checklist. Answers in every status of the tenant.",
        tags=["Tenant"],
        responses=TenantOut,
    )
    def retrieve(self, request: Request) -> Response:
        tenant = Tenant.objects.get(pk=tenant_of(request).id)
        return Response(TenantOut(tenant).data)

    @extend_schema(
        operation_id="update_tenant",
        summary="Change the tenant",
        description="Name, billing e-mail and retention.",
        tags=["Tenant"],
        request=TenantChangeIn,
        responses=TenantOut,
    )
    def partial_update(self, request: Request) -> Response:
        tenant = lifecycle.change(
            tenant_id=tenant_of(request).id,
            changes=checked(TenantChangeIn(data=request.data)),
            **_actor(request),
        )
        return Response(TenantOut(tenant).data)


class TenantsView(ResourceViewSet):
    """The tenants that a platform app created."""

    permission_classes = [AppCaller]

    @extend_schema(
        operation_id="list_tenants",
        summary="List the tenants of the platform",
        description="Newest first, optionally by `external_ref`.",
        tags=["Tenants"],
        parameters=[OpenApiParameter("external_ref", str)],
        responses=TenantOut(many=True),
    )
    def list(self, request: Request) -> Response:
        created = _own_tenants(request)
        if external_ref := query.text(request, "external_ref"):
            created = created.filter(external_ref=external_ref)
        pages = NewestFirst()
        rows = pages.paginate_queryset(created, request)
        return pages.get_paginated_response(TenantOut(rows, many=True).data)

    @extend_schema(
        operation_id="create_tenant",
        summary="Create a tenant",
        description="The tenant is active at once.",
        tags=["Tenants"],
        request=TenantCreateIn,
        responses={201: TenantOut},
    )
    def create(self, request: Request) -> Response:
        tenant = lifecycle.create_for_app(
            app_id=_app_id(request),
            sandbox=caller_of(request).environment == "test",
            acting_key_id=caller_of(request).key_id,
            **checked(TenantCreateIn(data=request.data)),
        )
        return Response(TenantOut(tenant).data, status=201)

    @extend_schema(
        operation_id="get_tenant_by_id",
        summary="Get a tenant of the platform",
        description="404 for a tenant of another platform.",
        tags=["Tenants"],
        responses=TenantOut,
    )
    def retrieve(self, request: Request, tenant_id: UUID) -> Response:
        tenant = _own_tenants(request).filter(pk=tenant_id).first()
        if tenant is None:
            raise NotFound("There is no such tenant.")
        return Response(TenantOut(tenant).data)


def _own_tenants(request: Request) -> QuerySet[Tenant]:
    """The tenants that a platform key sees: its app's, and with a test key the sandbox ones alone."""
    created = Tenant.objects.for_app(_app_id(request))
    return created.filter(sandbox=True) if caller_of(request).environment == "test" else created


def _app_id(request: Request) -> UUID:
    app_id = caller_of(request).app_id
    assert app_id is not None  # noqa: S101 - AppCaller guarantees it
    return app_id


class ApiKeysView(ResourceViewSet):
    """A tenant's API keys; the full key is in the answer that makes it, and nowhere else."""

    @extend_schema(
        operation_id="list_api_keys",
        summary="List API keys",
        description="Keys are listed by prefix; the full key is never shown again.",
        tags=["API keys"],
        responses=ApiKeyOut(many=True),
    )
    def list(self, request: Request) -> Response:
        return _key_page(request, _tenant_keys(request))

    @extend_schema(
        operation_id="create_api_key",
        summary="Create an API key",
        description="The full key is in this answer and nowhere else.",
        tags=["API keys"],
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
        new = api_keys.create(tenant=Tenant.objects.get(pk=tenant_of(request).id), **_actor(request), **body)
        return Response(_with_key(ApiKeyOut(new.row).data, new), status=201)

    @extend_schema(
        operation_id="revoke_api_key",
        summary="Revoke an API key",
        description="The key stops working everywhere within 30 seconds. A key may revoke itself.",
        tags=["API keys"],
        responses={200: RevokedKeyOut},
    )
    def destroy(self, request: Request, key_id: UUID) -> Response:
        return revoked(_tenant_keys(request), key_id, **_actor(request))

    @extend_schema(
        operation_id="rotate_api_key",
        summary="Rotate an API key",
        description="Makes a key in the place of this one, which keeps working for 24 hours.",
        tags=["API keys"],
        request=None,
        responses={201: RotatedKeyOut},
    )
    def rotate(self, request: Request, key_id: UUID) -> Response:
        return rotated(_tenant_keys(request), key_id, **_actor(request))


class PlatformKeysView(ResourceViewSet):
    """A platform app's own keys. Staff make the first one; the platform rotates and revokes."""

    permission_classes = [AppCaller]

    @extend_schema(
        operation_id="list_platform_keys",
        summary="List the platform's own keys",
        tags=["Tenants"],
        responses=ApiKeyOut(many=True),
    )
    def list(self, request: Request) -> Response:
        return _key_page(request, _platform_keys(request))

    @extend_schema(
        operation_id="revoke_platform_key",
        summary="Revoke one of the platform's own keys",
        tags=["Tenants"],
        responses={200: RevokedKeyOut},
    )
    def destroy(self, request: Request, key_id: UUID) -> Response:
        return revoked(_platform_keys(request), key_id, **_actor(request))

    @extend_schema(
        operation_id="rotate_platform_key",
        summary="Rotate one of the platform's own keys",
        tags=["Tenants"],
        request=None,
        responses={201: RotatedKeyOut},
    )
    def rotate(self, request: Request, key_id: UUID) -> Response:
        return rotated(_platform_keys(request), key_id, **_actor(request))


def _tenant_keys(request: Request) -> QuerySet[ApiKey]:
    return _of_own_world(request, ApiKey.objects.for_tenant(tenant_of(request).id))


def _platform_keys(request: Request) -> QuerySet[ApiKey]:
    return _of_own_world(request, ApiKey.objects.for_app(_app_id(request)))


def _of_own_world(request: Request, keys: QuerySet[ApiKey]) -> QuerySet[ApiKey]:
    """A test key sees and changes test keys only; a live key manages both kinds."""
    return keys.filter(environment="test") if caller_of(request).environment == "test" else keys


def _actor(request: Request) -> dict[str, Any]:
    caller = caller_of(request)
    return {"actor_user_id": caller.user_id, "acting_key_id": caller.key_id}


def _key_page(request: Request, keys: QuerySet[ApiKey]) -> Response:
    pages = NewestFirst()
    rows = pages.paginate_queryset(keys, request)
    return pages.get_paginated_response(ApiKeyOut(rows, many=True).data)


def revoked(keys: QuerySet[ApiKey], key_id: UUID, **actor: Any) -> Response:
    """Revoke one of `keys`: the answer."""
    return Response(RevokedKeyOut(api_keys.revoke(keys=keys, key_id=key_id, **actor)).data)


def rotated(keys: QuerySet[ApiKey], key_id: UUID, **actor: Any) -> Response:
    """Rotate one of `keys`: the answer with the new key."""
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
    """The key's members with the full key after its prefix."""
    members: dict[str, Any] = {}
    for name, value in shown.items():
        members[name] = value
        if name == "prefix":
            members["key"] = new.key
    return members
