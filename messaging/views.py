"""`POST /v1/messages` and `/v1/messages/read` (specification 4)."""

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request

from gateway.api.authentication import caller_of, tenant_of
from gateway.api.json import object_of
from gateway.api.limits.in_flight import waits_for_upstream
from messaging import idempotency
from messaging.message_log.views import MessageLogView
from messaging.sending import flow
from messaging.sending.flow import SendRequest
from messaging.sending.runtimes import BlockingRuntime, run_blocking


class MessagesView(MessageLogView):
    """Send one message, or mark one as read, the upstream's own bodies and answers; look messages up in the log."""

    edge = "messages"
    """The upstream's edge of the number that takes the message."""

    @extend_schema(
        operation_id="send_message",
        summary="Send a message",
        description="The body is the upstream's messages body plus `from`. The answer is the upstream's own.",
        tags=["Messages"],
        parameters=[OpenApiParameter(idempotency.HEADER, str, OpenApiParameter.HEADER)],
        request=OpenApiTypes.OBJECT,
        responses={200: OpenApiTypes.OBJECT},
    )
    @waits_for_upstream
    def create(self, request: Request) -> HttpResponse:
        send = SendRequest(
            tenant_id=tenant_of(request).id,
            environment=caller_of(request).effective_environment,
            path=request.path,
            edge=self.edge,
            raw=request._request.body or b"{}",
            body=object_of(request),
            idempotency_key=request.headers.get(idempotency.HEADER),
            request_id=getattr(request._request, "request_id", None),
        )
        return run_blocking(flow.send_message(BlockingRuntime(), send)).as_response()

    @extend_schema(
        operation_id="mark_message_read",
        summary="Mark a message as read",
        description="Optionally shows the typing indicator until the answer is sent.",
        tags=["Messages"],
        request=OpenApiTypes.OBJECT,
        responses={200: OpenApiTypes.OBJECT},
    )
    @waits_for_upstream
    def read(self, request: Request) -> HttpResponse:
        reading = flow.mark_read(
            BlockingRuntime(),
            tenant_id=tenant_of(request).id,
            environment=caller_of(request).effective_environment,
            body=object_of(request),
        )
        return run_blocking(reading).as_response()
