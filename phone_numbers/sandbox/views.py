"""`/v1/test/*`: the test world of a business, for test keys alone (decision "Sandbox")."""

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema, inline_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from gateway.api import query
from gateway.api.authentication import caller_of, tenant_of
from gateway.api.errors import InvalidRequest
from gateway.api.in_flight import waits_for_upstream
from gateway.api.pagination import limit_of
from phone_numbers.sandbox import world
from phone_numbers.sandbox.making import ENVIRONMENT
from phone_numbers.sandbox.recipients import RECIPIENTS
from phone_numbers.serializers import NumberOut
from phone_numbers.views import UpstreamCallsView


class RecipientOut(serializers.Serializer[Any]):
    to = serializers.CharField()
    behaviour = serializers.CharField()
    code = serializers.IntegerField(allow_null=True, help_text="The upstream's code, if it fails.")


INBOUND = inline_serializer(
    "TestInboundIn",
    {
        "from": serializers.CharField(help_text="The customer's phone number or business-scoped user id."),
        "phone_number_id": serializers.CharField(required=False, help_text="The first number if left out."),
        "type": serializers.CharField(required=False, help_text="`text` if left out."),
    },
)


class InboundOut(serializers.Serializer[Any]):
    id = serializers.CharField(help_text="The message id that the event carries as `wamid`.")
    phone_number_id = serializers.CharField()
    customer = serializers.CharField()


class TestMessageOut(serializers.Serializer[Any]):
    id = serializers.CharField()
    phone_number_id = serializers.CharField()
    customer = serializers.CharField()
    direction = serializers.CharField(help_text="`inbound` or `outbound`.")
    status = serializers.CharField(allow_null=True, help_text="As the customer's phone shows it.")


class SandboxView(UpstreamCallsView):
    """The caller's test world."""

    is_paged = False

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if caller_of(request).effective_environment != ENVIRONMENT:
            raise InvalidRequest("The test world takes a test key.", hint="Make one: POST /v1/api-keys.")

    @extend_schema(
        operation_id="list_test_recipients",
        summary="List the magic recipients",
        description="Recipients in the test world whose messages show one behaviour each, by their last four digits.",
        tags=["Test world"],
        responses=RecipientOut(many=True),
    )
    def recipients(self, request: Request) -> Response:
        return Response({"data": [recipient._asdict() for recipient in RECIPIENTS]})

    @extend_schema(
        operation_id="create_test_number",
        summary="Add a number to the test world",
        description="The first exists already. A number of the test world is connected at once and needs no endpoint.",
        tags=["Test world"],
        request=None,
        responses={201: NumberOut},
    )
    @waits_for_upstream
    def numbers(self, request: Request) -> Response:
        return Response(NumberOut(world.add_number(tenant_of(request).id)).data, status=201)

    @extend_schema(
        operation_id="send_test_inbound",
        summary="Let a customer write to the test world",
        description="A customer of the test world writes to one of its numbers; the events come as they do live. "
        "`from` is a phone number or a business-scoped user id, `type` any message type with its object in the "
        "upstream's form; a text may be a plain string, and each type has a default.",
        tags=["Test world"],
        request=INBOUND,
        responses={201: InboundOut},
    )
    @waits_for_upstream
    def inbound(self, request: Request) -> Response:
        if not isinstance(request.data, dict) or not isinstance(request.data.get("from"), str):
            raise InvalidRequest.of(**{"from": "Required: the customer's phone number or user id."})
        return Response(InboundOut(world.write(tenant_of(request).id, request.data)).data, status=201)

    @extend_schema(
        operation_id="list_test_conversations",
        summary="Read the test world's messages",
        description="The messages of one number of the test world in both directions, as its customers see them, "
        "newest first.",
        tags=["Test world"],
        parameters=[
            OpenApiParameter("phone_number_id", str, description="The first number if left out."),
            OpenApiParameter("customer", str, description="One customer's conversation."),
            OpenApiParameter("limit", int, description="1 to 200, default 50."),
        ],
        responses=TestMessageOut(many=True),
    )
    @waits_for_upstream
    def conversations(self, request: Request) -> Response:
        found = world.conversations(
            tenant_of(request).id,
            phone_number_id=query.text(request, "phone_number_id", longest=64),
            customer=query.text(request, "customer", longest=64),
            limit=limit_of(request),
        )
        return Response({"data": TestMessageOut(found, many=True).data})
