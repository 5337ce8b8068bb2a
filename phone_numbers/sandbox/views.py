"""`/v1/test/*`: the test world of a business, for test keys alone (decision "Sandbox")."""

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from gateway.api import query
from gateway.api.authentication import caller_of, tenant_of
from gateway.api.errors import InvalidRequest
from gateway.api.limits.in_flight import waits_for_upstream
from gateway.api.pagination import limit_of, whole_list
from gateway.api.validation import checked
from phone_numbers.sandbox import decisions, world
from phone_numbers.sandbox.magic import RECIPIENTS, TEXTS
from phone_numbers.sandbox.making import ENVIRONMENT
from phone_numbers.sandbox.serializers import (
    TestInboundIn,
    TestInboundOut,
    TestMessageOut,
    TestNumberEventIn,
    TestNumberEventOut,
    TestRecipientOut,
    TestStatusIn,
    TestStatusOut,
    TestTemplateIn,
    TestTemplateOut,
    TestTextOut,
)
from phone_numbers.serializers import NumberOut
from phone_numbers.views import UpstreamCallsView


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
        responses=TestRecipientOut(many=True),
    )
    def recipients(self, request: Request) -> Response:
        return whole_list([recipient._asdict() for recipient in RECIPIENTS])

    @extend_schema(
        operation_id="list_test_texts",
        summary="List the magic texts",
        description="Last lines of messages in the test world that say what becomes of the message, or how its "
        "customer answers.",
        tags=["Test world"],
        responses=TestTextOut(many=True),
    )
    def texts(self, request: Request) -> Response:
        return whole_list([text._asdict() for text in TEXTS])

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
        "upstream's form; a text may be a plain string, and most types have a default.",
        tags=["Test world"],
        request=TestInboundIn,
        responses={201: TestInboundOut},
    )
    @waits_for_upstream
    def inbound(self, request: Request) -> Response:
        if not isinstance(request.data, dict) or not isinstance(request.data.get("from"), str):
            raise InvalidRequest.of(**{"from": "Required: the customer's phone number or user id."})
        return Response(TestInboundOut(world.write(tenant_of(request).id, request.data)).data, status=201)

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
        found = world.messages(
            tenant_of(request).id,
            phone_number_id=query.text(request, "phone_number_id", longest=64),
            customer=query.text(request, "customer", longest=64),
            limit=limit_of(request),
        )
        return whole_list(TestMessageOut(found, many=True).data)

    @extend_schema(
        operation_id="set_test_status",
        summary="Set a message's status in the test world",
        description="The status of a message that a number of the test world sent, now and whatever went before: its "
        "event comes as it does live. It may also contradict what came before, to try that.",
        tags=["Test world"],
        request=TestStatusIn,
        responses={201: TestStatusOut},
    )
    @waits_for_upstream
    def statuses(self, request: Request) -> Response:
        asked = checked(TestStatusIn(data=request.data))
        found = decisions.set_status(tenant_of(request).id, **asked)
        return Response(TestStatusOut(found).data, status=201)

    @extend_schema(
        operation_id="decide_test_template",
        summary="Decide about a template of the test world",
        description="What the upstream's review would decide: exactly one of `event` (with `reason`), `quality`, "
        "`category` and `correct_category`. The event comes as it does live.",
        tags=["Test world"],
        request=TestTemplateIn,
        responses={201: TestTemplateOut},
    )
    @waits_for_upstream
    def templates(self, request: Request) -> Response:
        asked = checked(TestTemplateIn(data=request.data))
        found = decisions.decide_template(tenant_of(request).id, **asked)
        return Response(TestTemplateOut(found).data, status=201)

    @extend_schema(
        operation_id="decide_test_number",
        summary="Decide about a number of the test world",
        description="What the upstream would decide: quality and messaging limit, throughput, display name, PIN. The "
        "event comes as it does live.",
        tags=["Test world"],
        request=TestNumberEventIn,
        responses={201: TestNumberEventOut},
    )
    @waits_for_upstream
    def number_events(self, request: Request) -> Response:
        asked = checked(TestNumberEventIn(data=request.data))
        found = decisions.decide_number(tenant_of(request).id, **asked)
        return Response(TestNumberEventOut(found).data, status=201)
