"""`/v1/admin/*` of the tenants app, for console session tokens of staff.

Every staff role may read. Decisions about tenants and the creation of apps require a permission of the role
(`staff/site.py`).
"""

from uuid import UUID

from django.conf import settings
from django.db.models import Count
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from gateway.api.authentication import StaffCaller, caller_of
from gateway.api.errors import Forbidden, NotFound
from gateway.api.pagination import NewestFirst
from gateway.api.validation import checked
from gateway.api.viewsets import ResourceViewSet
from gateway.monitoring import admin_health
from tenants import mail, platform_apps, tenant_status
from tenants.models import ApiKey, AuditEntry, OutboundMail, PlatformApp, Tenant, User
from tenants.serializers import (
    AdminTenantOut,
    AdminTenantsIn,
    AnyApiKeyIn,
    AnyApiKeyOut,
    ApiKeyOut,
    AppIn,
    AppKeyIn,
    AppKeyOut,
    AppOut,
    ApprovedOut,
    AppWithTenantsOut,
    AuditEntryOut,
    AuditIn,
    LastMailIn,
    LastMailOut,
    ReinstatedOut,
    RejectedOut,
    RejectIn,
    RevokedKeyOut,
    RotatedKeyOut,
    SuspendedOut,
    SuspendIn,
)
from tenants.views import REVOKES, ROTATES, revoked, rotated


def _actor(request: Request, permission: str) -> int:
    """The id of the staff member who acts. Raises Forbidden when the role lacks the permission."""
    user = User.objects.filter(pk=caller_of(request).user_id or 0).first()
    if user is None or not user.has_perm(permission):
        raise Forbidden("Your role may read this, but not change it.")
    return user.pk


class AdminTenantsView(ResourceViewSet):
    """All tenants, and the four decisions of staff about a tenant."""

    tag = "Admin"
    permission_classes = [StaffCaller]

    @extend_schema(
        operation_id="admin_list_tenants",
        summary="List all tenants",
        description="Returns the tenants, newest first, with the data for their review. `status` selects one status.",
        parameters=[AdminTenantsIn],
        responses=AdminTenantOut(many=True),
    )
    def list(self, request: Request) -> Response:
        filters = checked(AdminTenantsIn(data=request.query_params))
        pages = NewestFirst()
        rows = pages.paginate_queryset(Tenant.objects.filter(**filters), request)
        return pages.get_paginated_response(AdminTenantOut(rows, many=True).data)

    @extend_schema(
        operation_id="admin_approve_tenant",
        summary="Approve a tenant",
        description="Lets the tenant use `/v1`, starts its trial, and emails the tenant.",
        request=None,
        responses=ApprovedOut,
    )
    def approve(self, request: Request, tenant_id: UUID) -> Response:
        actor = _actor(request, "tenants.decide_tenant")
        return Response(ApprovedOut(tenant_status.approve(tenant_id=tenant_id, actor_user_id=actor)).data)

    @extend_schema(
        operation_id="admin_reject_tenant",
        summary="Reject a tenant",
        description="The reason is stored and mailed to the applicant.",
        request=RejectIn,
        responses=RejectedOut,
    )
    def reject(self, request: Request, tenant_id: UUID) -> Response:
        actor = _actor(request, "tenants.decide_tenant")
        body = checked(RejectIn(data=request.data))
        return Response(
            RejectedOut(tenant_status.reject(tenant_id=tenant_id, actor_user_id=actor, **body)).data
        )

    @extend_schema(
        operation_id="admin_suspend_tenant",
        summary="Suspend a tenant",
        description="Sending stops. Events are still recorded, and their deliveries wait for the reinstatement.",
        request=SuspendIn,
        responses=SuspendedOut,
    )
    def suspend(self, request: Request, tenant_id: UUID) -> Response:
        actor = _actor(request, "tenants.decide_tenant")
        body = checked(SuspendIn(data=request.data))
        return Response(
            SuspendedOut(tenant_status.suspend(tenant_id=tenant_id, actor_user_id=actor, **body)).data
        )

    @extend_schema(
        operation_id="admin_reinstate_tenant",
        summary="Reinstate a suspended tenant",
        description="The tenant becomes `active`, and its waiting deliveries are sent.",
        request=None,
        responses=ReinstatedOut,
    )
    def reinstate(self, request: Request, tenant_id: UUID) -> Response:
        actor = _actor(request, "tenants.decide_tenant")
        return Response(ReinstatedOut(tenant_status.reinstate(tenant_id=tenant_id, actor_user_id=actor)).data)


class AdminHealthView(ResourceViewSet):
    """The health report: the state of every app (`gateway/monitoring/admin_health.py`)."""

    tag = "Admin"
    permission_classes = [StaffCaller]

    @extend_schema(
        operation_id="admin_health",
        summary="Show the state of the service",
        description="Counts due retries, dead deliveries and open circuits. Shows the state of tokens, "
        "partitions and the key mirror.",
        responses=admin_health.HealthReportOut,
    )
    def retrieve(self, request: Request) -> Response:
        return Response(admin_health.report())


class AdminAuditView(ResourceViewSet):
    """The audit log, newest first."""

    tag = "Admin"
    permission_classes = [StaffCaller]

    @extend_schema(
        operation_id="admin_list_audit",
        summary="List audit entries",
        description="Returns the changes made by staff, members of teams and API keys, newest first.",
        parameters=[AuditIn],
        responses=AuditEntryOut(many=True),
    )
    def list(self, request: Request) -> Response:
        filters = checked(AuditIn(data=request.query_params))
        pages = NewestFirst()
        rows = pages.paginate_queryset(AuditEntry.objects.filter(**filters), request)
        return pages.get_paginated_response(AuditEntryOut(rows, many=True).data)


class AdminMailView(ResourceViewSet):
    """The last mail to an address. Available only with EMAIL_MODE log."""

    tag = "Admin"
    permission_classes = [StaffCaller]

    @extend_schema(
        operation_id="admin_last_mail",
        summary="Read the last mail to an address",
        description="Works only if the setting `EMAIL_MODE` is `log`. Otherwise the answer is 404.",
        parameters=[OpenApiParameter("email", str, required=True)],
        responses=LastMailOut,
    )
    def retrieve(self, request: Request) -> Response:
        if settings.EMAIL_MODE != "log":
            raise NotFound("Mails are kept only where EMAIL_MODE is log.")
        email = checked(LastMailIn(data=request.query_params))["email"]
        last = OutboundMail.objects.filter(to=email.lower()).order_by("-id").first()
        if last is None:
            raise NotFound("No mail went to this address.")
        return Response(
            {
                "to": last.to,
                "subject": last.subject,
                "links": mail.links_in(last.text),
                "sent_at": last.sent_at or last.created_at,
            }
        )


class AdminAppsView(ResourceViewSet):
    """Platform apps."""

    tag = "Admin"
    permission_classes = [StaffCaller]

    @extend_schema(
        operation_id="admin_list_apps",
        summary="List platform apps",
        description="Returns every platform app with the count of its tenants.",
        responses=AppWithTenantsOut(many=True),
    )
    def list(self, request: Request) -> Response:
        pages = NewestFirst()
        rows = pages.paginate_queryset(PlatformApp.objects.annotate(tenant_count=Count("tenants")), request)
        return pages.get_paginated_response(AppWithTenantsOut(rows, many=True).data)

    @extend_schema(
        operation_id="admin_create_app",
        summary="Create a platform app",
        description="A platform app acts for many tenants. It has no key yet: create one with a separate call.",
        request=AppIn,
        responses={201: AppOut},
    )
    def create(self, request: Request) -> Response:
        actor = _actor(request, "tenants.add_platformapp")
        app = platform_apps.create_app(actor_user_id=actor, **checked(AppIn(data=request.data)))
        return Response(AppOut(app).data, status=201)


class AdminAppKeysView(ResourceViewSet):
    """The keys of one platform app."""

    tag = "Admin"
    permission_classes = [StaffCaller]

    @extend_schema(
        operation_id="admin_list_app_keys",
        summary="List a platform app's keys",
        description="Returns the app's keys, newest first. Each key is shown by its prefix, never in full.",
        responses=ApiKeyOut(many=True),
    )
    def list(self, request: Request, app_id: UUID) -> Response:
        pages = NewestFirst()
        rows = pages.paginate_queryset(ApiKey.objects.for_app(platform_apps.find(app_id).id), request)
        return pages.get_paginated_response(ApiKeyOut(rows, many=True).data)

    @extend_schema(
        operation_id="admin_create_app_key",
        summary="Create a key of a platform app",
        description="Only this answer shows the full key.",
        request=AppKeyIn,
        responses={201: AppKeyOut},
    )
    def create(self, request: Request, app_id: UUID) -> Response:
        actor = _actor(request, "tenants.add_platformapp")
        body = {"environment": "live"} | checked(AppKeyIn(data=request.data))
        new = platform_apps.create_app_key(app_id=app_id, actor_user_id=actor, **body)
        return Response(
            {"id": new.row.id, "app_id": new.row.app_id, "prefix": new.row.prefix, "key": new.key}, status=201
        )

    @extend_schema(
        operation_id="admin_revoke_app_key",
        summary="Revoke a platform app's key",
        description=REVOKES,
        responses={200: RevokedKeyOut},
    )
    def destroy(self, request: Request, app_id: UUID, key_id: UUID) -> Response:
        actor = _actor(request, "tenants.add_platformapp")
        return revoked(ApiKey.objects.for_app(app_id), key_id, actor_user_id=actor)

    @extend_schema(
        operation_id="admin_rotate_app_key",
        summary="Rotate a platform app's key",
        description=ROTATES,
        request=None,
        responses={201: RotatedKeyOut},
    )
    def rotate(self, request: Request, app_id: UUID, key_id: UUID) -> Response:
        actor = _actor(request, "tenants.add_platformapp")
        return rotated(ApiKey.objects.for_app(app_id), key_id, actor_user_id=actor)


class AdminApiKeysView(ResourceViewSet):
    """The keys of all tenants and apps. Staff find a key by owner or prefix, and revoke a key that has leaked."""

    tag = "Admin"
    permission_classes = [StaffCaller]

    @extend_schema(
        operation_id="admin_list_api_keys",
        summary="Find API keys of all tenants and platforms",
        description="Returns the keys that pass the filters, newest first. Each key is shown by its prefix, "
        "never in full.",
        parameters=[AnyApiKeyIn],
        responses=AnyApiKeyOut(many=True),
    )
    def list(self, request: Request) -> Response:
        filters = checked(AnyApiKeyIn(data=request.query_params))
        pages = NewestFirst()
        rows = pages.paginate_queryset(ApiKey.objects.filter(**filters), request)
        return pages.get_paginated_response(AnyApiKeyOut(rows, many=True).data)

    @extend_schema(
        operation_id="admin_revoke_api_key",
        summary="Revoke any API key",
        description=REVOKES,
        responses={200: RevokedKeyOut},
    )
    def destroy(self, request: Request, key_id: UUID) -> Response:
        actor = _actor(request, "tenants.revoke_apikey")
        return revoked(ApiKey.objects.all(), key_id, actor_user_id=actor)
