"""`/v1/admin/*` of the tenants app: console session tokens of staff only."""

from uuid import UUID

from django.db.models import Count
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from gateway.api.authentication import StaffCaller, caller_of
from tenants import platform_apps
from tenants.models import PlatformApp
from tenants.serializers import ApiKeyIn, AppIn, AppKeyOut, AppOut, AppWithTenantsOut


class AdminAppsView(ViewSet):
    """Platform apps and their keys."""

    permission_classes = [StaffCaller]

    @extend_schema(operation_id="admin_list_apps", tags=["Admin"], responses=AppWithTenantsOut(many=True))
    def list(self, request: Request) -> Response:
        rows = PlatformApp.objects.annotate(tenant_count=Count("tenants")).order_by("-id")
        return Response({"data": AppWithTenantsOut(rows, many=True).data})

    @extend_schema(operation_id="admin_create_app", tags=["Admin"], request=AppIn, responses={201: AppOut})
    def create(self, request: Request) -> Response:
        body = AppIn(data=request.data)
        body.is_valid(raise_exception=True)
        app = platform_apps.create_app(actor_user_id=caller_of(request).user_id, **body.validated_data)
        return Response(AppOut(app).data, status=201)

    @extend_schema(
        operation_id="admin_create_app_key", tags=["Admin"], request=ApiKeyIn, responses={201: AppKeyOut}
    )
    def create_key(self, request: Request, app_id: UUID) -> Response:
        body = ApiKeyIn(data=request.data)
        body.is_valid(raise_exception=True)
        new = platform_apps.create_app_key(
            app_id=app_id, actor_user_id=caller_of(request).user_id, **body.validated_data
        )
        return Response(
            {"id": new.row.id, "app_id": new.row.app_id, "prefix": new.row.prefix, "key": new.key}, status=201
        )
