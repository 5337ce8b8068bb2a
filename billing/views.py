"""Views of `/v1/billing*` (specification 4). While billing is off, they answer authenticated requests with 503
`billing_disabled`. Only the list of all tenants' billing, for staff, works while billing is off.
"""

from typing import Any

from django.conf import settings
from django.db.models import Count, OuterRef, Q, Subquery
from django.http import HttpResponseBase
from django.utils.cache import patch_vary_headers
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from billing import buyers, tenant_overview
from billing.invoices import documents
from billing.models import CREDIT_NOTE, INVOICE, BillingSnapshot, CreditNote, Invoice
from billing.payments import bank_transfers, mandates, payment_links
from billing.serializers import (
    AdminBillingOut,
    BillingOut,
    InvoiceOut,
    InvoiceSummaryOut,
    MandateIn,
    NewMandateOut,
    PaymentOut,
    ProfileIn,
    ProfileOut,
    ReturnUrlIn,
)
from gateway.api.authentication import StaffCaller, caller_of, tenant_of
from gateway.api.errors import ServiceError
from gateway.api.limits import waits_for_upstream
from gateway.api.pagination import NewestFirst
from gateway.api.query import by_public_id
from gateway.api.validation import checked
from gateway.api.viewsets import ResourceViewSet
from gateway.clock import now
from gateway.roles import KeyScope
from tenants.models import Tenant


class BillingDisabled(ServiceError):
    """Billing is not switched on (BILLING_ENABLED)."""

    status = 503
    code = "billing_disabled"
    message = "Billing is not switched on. Nothing is charged."
    hint = "Nothing needs to be done: nothing is charged."
    repeat = "no"

    def __init__(self) -> None:
        super().__init__(details={"billing_enabled": False})


class BillingViewSet(ResourceViewSet):
    """A view that answers 503 to every authenticated request while billing is off."""

    scope = KeyScope.BILLING

    def check_permissions(self, request: Request) -> None:
        # This is the first check after the authentication. So the answer does not depend on what the caller may use.
        if not settings.BILLING_ENABLED:
            raise BillingDisabled
        super().check_permissions(request)


class BillingView(BillingViewSet):
    """Plan, numbers, next charge, mandate, and the billing profile."""

    tag = "Billing"

    @extend_schema(
        operation_id="get_billing",
        summary="Get plan, numbers and next charge",
        description="Returns the plan, the active numbers, the next charge, the billing profile and the mandate.",
        responses=BillingOut,
    )
    def retrieve(self, request: Request) -> Response:
        tenant = Tenant.objects.get(pk=tenant_of(request).id)
        return Response(BillingOut(tenant_overview.of(tenant, now())).data)

    @extend_schema(
        operation_id="update_billing_profile",
        summary="Change the billing profile",
        description="The change applies to invoices that are issued from now on. Issued invoices never change.",
        request=ProfileIn,
        responses=ProfileOut,
    )
    @waits_for_upstream
    def update_profile(self, request: Request) -> Response:
        changes = checked(ProfileIn(data=request.data))
        tenant, caller = tenant_of(request), caller_of(request)
        profile = buyers.change(
            tenant_id=tenant.id,
            changes=changes,
            actor_user_id=caller.user_id,
            acting_key_id=caller.key_id,
        )
        bank_transfers.follow_declaration(tenant.id, now())
        return Response(ProfileOut(profile).data)

    @extend_schema(
        operation_id="create_mandate",
        summary="Set up autopay",
        description="Returns a link to the page on which you approve the mandate.",
        request=MandateIn,
        responses={201: NewMandateOut},
    )
    @waits_for_upstream
    def create_mandate(self, request: Request) -> Response:
        body = checked(MandateIn(data=request.data))
        mandate = mandates.ask_for(tenant_id=tenant_of(request).id, at=now(), **body)
        return Response(NewMandateOut(mandate).data, status=201)


class InvoicesView(BillingViewSet):
    """The invoices of a tenant."""

    tag = "Billing"

    @extend_schema(
        operation_id="list_invoices",
        summary="List invoices",
        description="Returns the invoices of the business, newest first.",
        responses=InvoiceSummaryOut(many=True),
    )
    def list(self, request: Request) -> Response:
        pages = NewestFirst()
        rows = pages.paginate_queryset(Invoice.objects.for_tenant(tenant_of(request).id), request)
        return pages.get_paginated_response([InvoiceSummaryOut(invoice).data for invoice in rows])

    @extend_schema(
        operation_id="get_invoice",
        summary="Get an invoice",
        description="Returns a printable HTML page. Returns JSON or a PDF if `Accept` prefers that.",
        responses={
            (200, "text/html"): OpenApiTypes.STR,
            (200, "application/json"): InvoiceOut,
            (200, "application/pdf"): OpenApiTypes.BINARY,
        },
    )
    def retrieve(self, request: Request, invoice_id: str) -> HttpResponseBase:
        invoice = _invoice(request, invoice_id)
        response: HttpResponseBase
        wanted = request._request.get_preferred_type(["text/html", "application/json", "application/pdf"])
        if wanted == "application/json":
            response = Response(InvoiceOut(invoice).data)
        elif wanted == "application/pdf":
            response = documents.pdf_response(invoice)
        else:
            response = documents.html_response(invoice)
        patch_vary_headers(response, ["Accept"])
        return response

    @extend_schema(
        operation_id="pay_invoice",
        summary="Pay an invoice",
        description="Returns a link to the payment page of an open or failed invoice.",
        request=ReturnUrlIn,
        responses=PaymentOut,
    )
    @waits_for_upstream
    def pay(self, request: Request, invoice_id: str) -> Response:
        invoice = _invoice(request, invoice_id)
        body = checked(ReturnUrlIn(data=request.data))
        attempt = payment_links.pay_now(invoice=invoice, at=now(), **body)
        return Response(PaymentOut(attempt).data)


class CreditNotesView(BillingViewSet):
    """A tenant's credit notes."""

    tag = "Billing"

    @extend_schema(
        operation_id="get_credit_note",
        summary="Get a credit note",
        description="Returns the credit note as a PDF. An invoice lists the ids of its credit notes in `credit_notes`.",
        responses={(200, "application/pdf"): OpenApiTypes.BINARY},
    )
    def retrieve(self, request: Request, credit_note_id: str) -> HttpResponseBase:
        own = CreditNote.objects.filter(invoice__tenant_id=tenant_of(request).id).select_related("invoice")
        return documents.pdf_response(by_public_id(own, CREDIT_NOTE, credit_note_id, "credit note"))


class AdminBillingView(ResourceViewSet):
    """All tenants with billing data: those past due first, then by name."""

    tag = "Admin"
    permission_classes = [StaffCaller]

    @extend_schema(
        operation_id="admin_billing",
        summary="Show how every tenant pays",
        description="Returns the tenants by name, those with an overdue invoice first. Also works while billing is "
        "off.",
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


def _invoice(request: Request, invoice_id: str) -> Invoice:
    return by_public_id(Invoice.objects.for_tenant(tenant_of(request).id), INVOICE, invoice_id, "invoice")
