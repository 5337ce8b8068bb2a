"""`/v1/numbers/{phone_number_id}/flow-endpoint`: the tenant's server that answers data requests of a number's Flows."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from gateway.api.limits import waits_for_upstream
from gateway.api.validation import checked
from gateway.roles import KeyScope
from messaging.flows import endpoints
from messaging.models import FlowEndpoint
from phone_numbers.views import UpstreamCallsView, number_in
from tenants.audit import Actor
from webhooks.serializers import UrlField


class FlowEndpointIn(serializers.Serializer[dict[str, Any]]):
    url = UrlField(help_text="The address of your server. Data requests are forwarded to it as signed JSON.")


class FlowEndpointOut(serializers.Serializer[FlowEndpoint]):
    """Where the data requests of a number's Flows are answered."""

    phone_number_id = serializers.CharField(source="number.phone_number_id")
    url = serializers.CharField(help_text="The address of your server.")
    endpoint_uri = serializers.CharField(
        help_text="The address that WhatsApp calls. Set it as the `endpoint_uri` of your Flows."
    )
    secret_prefix = serializers.CharField()
    previous_secret_expires_at = serializers.DateTimeField(allow_null=True)
    key_uploaded_at = serializers.DateTimeField(
        allow_null=True,
        help_text="When the public key was uploaded to WhatsApp, ISO 8601 in UTC; null while WhatsApp has none.",
    )
    last_request_at = serializers.DateTimeField(
        allow_null=True,
        help_text="When the last data request came, ISO 8601 in UTC; null before the first. Pings do not count.",
    )
    last_error = serializers.CharField(
        allow_null=True,
        help_text="Why your answer to the last data request could not be used; null when it could be used.",
    )
    created_at = serializers.DateTimeField()
    secret = serializers.CharField(
        source="new_secret",
        required=False,
        help_text="The secret that signs the forwarded requests. Only the answer that creates the secret has it.",
    )


class DeletedFlowEndpointOut(serializers.Serializer[dict[str, Any]]):
    phone_number_id = serializers.CharField()
    deleted = serializers.BooleanField()


class FlowEndpointView(UpstreamCallsView):
    """The Flow endpoint of a number."""

    tag = "Flows"
    scope = KeyScope.NUMBERS

    @extend_schema(
        operation_id="get_flow_endpoint",
        summary="Get a number's Flow endpoint",
        description="Returns your URL, the address to set in your Flows, and the result of the last data request.",
        responses=FlowEndpointOut,
    )
    def retrieve(self, request: Request, phone_number_id: str) -> Response:
        return Response(FlowEndpointOut(endpoints.find(number_in(request, phone_number_id))).data)

    @extend_schema(
        operation_id="set_flow_endpoint",
        summary="Set a number's Flow endpoint",
        description="Sets the URL to which data requests are forwarded. The first call also creates a key pair, "
        "uploads the public key to WhatsApp, and returns the signing secret. Later calls change only the URL.",
        request=FlowEndpointIn,
        responses=FlowEndpointOut,
    )
    @waits_for_upstream
    def update(self, request: Request, phone_number_id: str) -> Response:
        number = number_in(request, phone_number_id)
        body = checked(FlowEndpointIn(data=request.data))
        endpoint = endpoints.set_url(number, **body, actor=Actor.of(request))
        return Response(FlowEndpointOut(endpoint).data)

    @extend_schema(
        operation_id="delete_flow_endpoint",
        summary="Delete a number's Flow endpoint",
        description="Deletes the Flow endpoint and its keys. From then on, the number's Flows fail when they request "
        "data.",
        responses={200: DeletedFlowEndpointOut},
    )
    def destroy(self, request: Request, phone_number_id: str) -> Response:
        endpoints.delete(number_in(request, phone_number_id), actor=Actor.of(request))
        return Response({"phone_number_id": phone_number_id, "deleted": True})

    @extend_schema(
        operation_id="rotate_flow_endpoint_key",
        summary="Rotate the key pair of a Flow endpoint",
        description="Creates a new key pair and uploads the public key to WhatsApp. This is also needed after the "
        "number was registered again, and when WhatsApp reports `public-key-missing`.",
        request=None,
        responses=FlowEndpointOut,
    )
    @waits_for_upstream
    def rotate_key(self, request: Request, phone_number_id: str) -> Response:
        endpoint = endpoints.upload_new_key(number_in(request, phone_number_id), actor=Actor.of(request))
        return Response(FlowEndpointOut(endpoint).data)

    @extend_schema(
        operation_id="rotate_flow_endpoint_secret",
        summary="Rotate the signing secret of a Flow endpoint",
        description="Creates a new signing secret and returns it. For 24 hours, the old secret also signs requests.",
        request=None,
        responses=FlowEndpointOut,
    )
    def rotate_secret(self, request: Request, phone_number_id: str) -> Response:
        endpoint = endpoints.rotate_secret(number_in(request, phone_number_id), actor=Actor.of(request))
        return Response(FlowEndpointOut(endpoint).data)
