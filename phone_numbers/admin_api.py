"""`/v1/admin/numbers`: every tenant's numbers, for service staff."""

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from gateway.api.authentication import StaffCaller
from gateway.api.pagination import whole_list
from gateway.api.validation import checked
from gateway.api.viewsets import ResourceViewSet
from phone_numbers.models import PhoneNumber
from phone_numbers.serializers import AdminNumberOut, AdminNumbersIn


class AdminNumbersView(ResourceViewSet):
    """All numbers, newest first, optionally of one connection state."""

    permission_classes = [StaffCaller]
    is_paged = False

    @extend_schema(
        operation_id="admin_list_numbers",
        summary="List the numbers of all tenants",
        description="Newest first, optionally of one connection state.",
        tags=["Admin"],
        parameters=[AdminNumbersIn],
        responses=AdminNumberOut(many=True),
    )
    def list(self, request: Request) -> Response:
        query = checked(AdminNumbersIn(data=request.query_params))
        rows = (
            PhoneNumber.objects.filter(**query)
            .select_related("tenant")
            .only(*AdminNumberOut.COLUMNS)
            .order_by("-id")
        )
        return whole_list(AdminNumberOut(rows, many=True).data)
