"""The views of `/v1/media*` (specification 4)."""

from typing import Any

from django.http import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request

from gateway.api import query
from gateway.api.authentication import caller_of, scope_of, tenant_of
from gateway.api.limits import limited_by, waits_for_upstream
from gateway.roles import KeyScope
from messaging.media import transfer, uploads
from messaging.sending import outbound
from phone_numbers import senders_and_owners
from phone_numbers.views import VERBATIM, UpstreamCallsView

FROM = OpenApiParameter("from", str, description="The number that sent, received or uploaded the file.")


class MediaIn(serializers.Serializer[object]):
    file = serializers.FileField()
    type = serializers.CharField(
        required=False, help_text="The media type. Required when the file part has no `Content-Type`."
    )

    def get_fields(self) -> dict[str, serializers.Field]:  # type: ignore[type-arg]
        """Rename the field to `from`, which is a keyword of Python."""
        return {**super().get_fields(), "from": serializers.CharField()}


@limited_by(uploads.MAX_REQUEST_BYTES)
class MediaView(UpstreamCallsView):
    """Files for messages, streamed to the upstream and from it."""

    tag = "Media"
    scope = KeyScope.MESSAGES
    limited_actions = frozenset({"create", "retrieve", "destroy"})
    parser_classes = [MultiPartParser]

    @extend_schema(
        operation_id="upload_media",
        summary="Upload a media file",
        description="Uploads the file to WhatsApp and returns the media id, which a message can name.",
        request={"multipart/form-data": MediaIn},
        responses={200: VERBATIM},
    )
    @waits_for_upstream
    def create(self, request: Request) -> HttpResponseBase:
        form = uploads.form_of(request)
        from_ = outbound.check_sender(form)
        upload = uploads.upload_of(request, form, default_name="file")
        number = senders_and_owners.connected_sender(
            tenant_id=tenant_of(request).id,
            environment=caller_of(request).effective_environment,
            from_=from_,
            within=caller_of(request).phone_number_ids,
        )
        others = {name: value for name, value in form.items() if name not in {"from", "type"}}
        return uploads.upload(tenant_of(request).id, number, upload, others)

    @extend_schema(
        operation_id="get_media",
        summary="Download a media file",
        description="Returns the bytes of a file that a customer sent or that you uploaded. With `meta=true` it "
        "returns WhatsApp's description of the file as JSON.",
        parameters=[
            FROM,
            OpenApiParameter(
                "meta", bool, description="Whether to return WhatsApp's description instead of the bytes."
            ),
        ],
        responses={
            (200, "application/octet-stream"): OpenApiResponse(
                OpenApiTypes.BINARY, description="The bytes of the file."
            )
        },
    )
    @waits_for_upstream
    def retrieve(self, request: Request, media_id: str) -> HttpResponseBase:
        from_, within = query.text(request, "from", longest=100), caller_of(request).phone_number_ids
        asked: dict[str, Any] = {**scope_of(request), "media_id": media_id, "from_": from_, "within": within}
        if query.flag(request, "meta"):
            return transfer.info(**asked)
        return transfer.download(**asked, range_=request.headers.get("Range"))

    @extend_schema(
        operation_id="delete_media",
        summary="Delete an uploaded media file",
        description="Deletes the file from WhatsApp's servers.",
        parameters=[FROM],
        responses={200: VERBATIM},
    )
    @waits_for_upstream
    def destroy(self, request: Request, media_id: str) -> HttpResponseBase:
        return transfer.delete(
            tenant_id=tenant_of(request).id,
            environment=caller_of(request).effective_environment,
            media_id=media_id,
            from_=query.text(request, "from", longest=100),
            within=caller_of(request).phone_number_ids,
        )
