"""`/v1/customers/{customer_id}/data`, `/v1/erasures*` and `/v1/exports*`: for customers' rights under data-protection
law.
"""

import re
from typing import Any, ClassVar
from uuid import UUID

from django.http import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from gateway.api.authentication import caller_of, scope_of
from gateway.api.errors import NotFound
from gateway.api.pagination import NewestFirst
from gateway.api.validation import checked
from gateway.api.viewsets import ResourceViewSet
from gateway.roles import KeyScope
from messaging import data_export, erasure
from messaging.data_export import JSON_LINES
from messaging.models import Erasure
from tenants.audit import Actor
from tenants.models import Export

CUSTOMER_ID = re.compile(r"\+?[0-9]{5,20}|[A-Z]{2}\.[A-Za-z0-9.]{1,128}")
"""A wa_id, or a business-scoped user id (upstream fact 1.4)."""


class ErasedOut(serializers.Serializer[dict[str, int]]):
    """How many rows of each kind were erased."""

    scheduled_messages = serializers.IntegerField()
    opt_outs = serializers.IntegerField()
    events = serializers.IntegerField()
    media = serializers.IntegerField()
    idempotency_answers = serializers.IntegerField()
    read_marks = serializers.IntegerField()
    export_files = serializers.IntegerField()
    uploaded_files = serializers.IntegerField()


class ErasureOut(serializers.ModelSerializer[Erasure]):
    """The receipt of an erasure. It does not name the customer."""

    status = serializers.ChoiceField(choices=["pending", "completed"])
    created_at = serializers.DateTimeField()
    erased = serializers.SerializerMethodField()

    class Meta:
        model = Erasure
        fields = ["id", "status", "created_at", "completed_at", "customer_hash", "erased"]

    @extend_schema_field(ErasedOut(allow_null=True))
    def get_erased(self, row: Erasure) -> dict[str, int] | None:
        # Earlier receipts lack the member.
        return None if row.receipt is None else {"uploaded_files": 0, **row.receipt}


class ExportIn(serializers.Serializer[dict[str, Any]]):
    customer_id = serializers.RegexField(
        rf"\A(?:{CUSTOMER_ID.pattern})\Z",
        required=False,
    )


class ExportOut(serializers.ModelSerializer[Export]):
    """A file that is written in the background and kept for 7 days."""

    status = serializers.SerializerMethodField()
    kind = serializers.ChoiceField(choices=["account", "customer"])
    lines = serializers.IntegerField(source="rows", allow_null=True)

    class Meta:
        model = Export
        fields = ["id", "kind", "status", "lines", "created_at"]

    @extend_schema_field({"type": "string", "enum": ["pending", "completed"]})
    def get_status(self, export: Export) -> str:
        return "pending" if export.rows is None else "completed"


class ErasuresView(ResourceViewSet):
    """Erasures of customers' data in both environments, and their receipts."""

    tag = "Customer data"
    scope = KeyScope.SETTINGS
    pagination_class: ClassVar = NewestFirst

    @extend_schema(
        operation_id="erase_customer",
        summary="Erase a customer's data",
        description="Erases everything that is stored about one customer, in both environments. The path names the "
        "customer by wa_id or user_id. The erasure runs in the background and cannot be undone. `GET "
        "/v1/erasures/{erasure_id}` returns the receipt.",
        responses={202: ErasureOut},
    )
    def destroy(self, request: Request, customer_id: str) -> Response:
        if not CUSTOMER_ID.fullmatch(customer_id):
            raise NotFound("This is not a customer's id.")
        row = erasure.request(
            tenant_id=scope_of(request)["tenant_id"], customer_id=customer_id, actor=Actor.of(request)
        )
        return Response(ErasureOut(row).data, status=202)

    @extend_schema(
        operation_id="list_erasures",
        summary="List erasures",
        description="Returns the receipts of erasures, newest first.",
        responses=ErasureOut(many=True),
    )
    def list(self, request: Request) -> Response:
        pages = NewestFirst()
        found = pages.paginate_queryset(Erasure.objects.for_tenant(scope_of(request)["tenant_id"]), request)
        return pages.get_paginated_response(ErasureOut(found, many=True).data)

    @extend_schema(
        operation_id="get_erasure",
        summary="Get the receipt of an erasure",
        description="Returns the receipt, which shows what was erased once the erasure is completed.",
        responses=ErasureOut,
    )
    def retrieve(self, request: Request, erasure_id: UUID) -> Response:
        row = erasure.find(tenant_id=scope_of(request)["tenant_id"], erasure_id=erasure_id)
        return Response(ErasureOut(row).data)


class ExportsView(ResourceViewSet):
    """Files with one customer's data, or with the data of the whole account."""

    tag = "Customer data"
    scope = KeyScope.EVENTS

    @extend_schema(
        operation_id="create_export",
        summary="Export data",
        description="Writes a file in the background, with one JSON object in each line. The file has one customer's "
        "data, or all data of the business in the key's environment.",
        request=ExportIn,
        responses={202: ExportOut},
    )
    def create(self, request: Request) -> Response:
        body = checked(ExportIn(data=request.data))
        export = data_export.request(
            **scope_of(request),
            customer_id=body.get("customer_id"),
            user_id=caller_of(request).user_id,
            actor=Actor.of(request),
        )
        return Response(ExportOut(export).data, status=202)

    @extend_schema(
        operation_id="get_export",
        summary="Get the state of an export",
        description="Returns the export, whose status says whether the file can be downloaded.",
        responses=ExportOut,
    )
    def retrieve(self, request: Request, export_id: UUID) -> Response:
        return Response(ExportOut(data_export.find(**scope_of(request), export_id=export_id)).data)

    @extend_schema(
        operation_id="download_export",
        summary="Download an export",
        description='Returns the file. Each line is a JSON object such as `{"kind": …, "data": {…}}`. While the file '
        "is being written, the answer is 404.",
        responses={
            (200, JSON_LINES): OpenApiResponse(
                OpenApiTypes.STR, description="The file, with one JSON object in each line."
            )
        },
    )
    def file(self, request: Request, export_id: UUID) -> HttpResponseBase:
        export = data_export.find(**scope_of(request), export_id=export_id)
        if export.rows is None:
            raise NotFound("The file is not written yet.")
        return data_export.file_of(export)
