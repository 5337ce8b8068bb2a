"""`GET /v1/admin/billing`: the billing status of every tenant; also while billing is off."""

from typing import Any

from django.conf import settings
from django.db.models import Count, OuterRef, Q, Subquery
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from billing.models import BillingSnapshot, Invoice
from billing.serializers import AdminBillingOut
from gateway.api.authentication import StaffCaller
from gateway.api.viewsets import ResourceViewSet
from tenants.models import Tenant


class AdminBillingView(ResourceViewSet):
    """All tenants that billing knows: those past due first, then by name."""

    permission_classes = [StaffCaller]

    @extend_schema(
        operation_id="admin_billing",
        summary="Show how every tenant pays",
        description="Tenants past due first, then by name. Answers while billing is off, too.",
        tags=["Admin"],
        responses=AdminBillingOut,
    )
    def retrieve(self, request: Request) -> Response:
        newest = BillingSnapshot.objects.filter(tenant=OuterRef("pk")).order_by("-period").values("id")[:1]
        tenants = (
            Tenant.objects.filter(billing_status__isnull=False)
            .annotate(
                open_invoices=Count("invoices", filter=Q(invoices__status__in=Invoice.UNPAID)),
                last_snapshot_id=Subquery(newest),
            )
            .order_by("past_due_since", "name", "id")
        )
        rows: list[Any] = list(tenants)
        snapshots = BillingSnapshot.objects.in_bulk(
            [row.last_snapshot_id for row in rows if row.last_snapshot_id]
        )
        for row in rows:
            row.last_snapshot = snapshots.get(row.last_snapshot_id)
        return Response(AdminBillingOut({"billing_enabled": settings.BILLING_ENABLED, "tenants": rows}).data)
