"""The views of `/v1/messages`, which the OpenAPI document describes (specification 4).

The listener itself answers a POST of a message or a read mark (`web/routes.py`). Django answers only look-ups.
"""

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request

from gateway.api.viewsets import AnsweredByListener
from messaging import idempotency
from messaging.message_log.views import MessageLogView


class MessagesView(MessageLogView):
    """Send a message, mark a message as read, or look messages up in the log."""

    tag = "Messages"
    limited_actions = MessageLogView.limited_actions | {"create", "read"}

    @extend_schema(
        operation_id="send_message",
        summary="Send a message",
        description="Sends one message. The body is that of WhatsApp's own `/messages`, with `from` added. The answer "
        "is WhatsApp's own.",
        parameters=[OpenApiParameter(idempotency.HEADER, str, OpenApiParameter.HEADER)],
        request=OpenApiTypes.OBJECT,
        responses={200: OpenApiTypes.OBJECT},
    )
    def create(self, request: Request) -> HttpResponse:
        raise AnsweredByListener

    @extend_schema(
        operation_id="mark_message_read",
        summary="Mark a message as read",
        description="Marks a customer's message as read. With `typing_indicator`, the customer also sees that you are "
        "typing.",
        request=OpenApiTypes.OBJECT,
        responses={200: OpenApiTypes.OBJECT},
    )
    def read(self, request: Request) -> HttpResponse:
        raise AnsweredByListener
