"""`/v1/messages/scheduled*`: single messages with a `send_at`."""

from typing import Any, ClassVar

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from gateway.api import query
from gateway.api.authentication import caller_of, limited_scope_of, reach_of
from gateway.api.json import object_of
from gateway.api.pagination import NewestFirst, represent
from gateway.api.validation import checked
from gateway.api.viewsets import ResourceViewSet
from gateway.roles import KeyScope
from messaging import idempotency
from messaging.batches import scheduled_messages
from messaging.batches.serializers import ScheduledOut
from messaging.models import ScheduledMessage
from messaging.sending.flow import SendRequest


class SendAtIn(serializers.Serializer[dict[str, Any]]):
    send_at = serializers.CharField(
        help_text="The new time: ISO 8601 with an offset, in the future, at most 90 days ahead."
    )


class ScheduledView(ResourceViewSet):
    """Single messages that are or were scheduled for a time."""

    tag = "Messages"
    scope = KeyScope.MESSAGES
    limited_actions = frozenset({"create", "list", "retrieve", "partial_update", "cancel"})
    pagination_class: ClassVar = NewestFirst

    @extend_schema(
        operation_id="schedule_message",
        summary="Schedule a message",
        description="Sends one message later. The body is that of `POST /v1/messages`, with `send_at`, "
        "`customer_hours`, or both. The message is sent after `send_at`, and only in the given hours of the "
        "customer's day.",
        parameters=[OpenApiParameter(idempotency.HEADER, str, OpenApiParameter.HEADER)],
        request=OpenApiTypes.OBJECT,
        responses={202: ScheduledOut},
    )
    def create(self, request: Request) -> HttpResponse:
        reply = scheduled_messages.create(
            SendRequest(
                **reach_of(caller_of(request)),
                path=request.path,
                raw=request._request.body or b"{}",
                body=object_of(request),
                idempotency_key=request.headers.get(idempotency.HEADER),
                request_id=getattr(request, "request_id", None),
            )
        )
        return reply.as_response()

    @extend_schema(
        operation_id="list_scheduled_messages",
        summary="List scheduled messages",
        description="Returns the scheduled messages, newest first.",
        parameters=[OpenApiParameter("status", str, enum=ScheduledMessage.Status.values)],
        responses=ScheduledOut(many=True),
    )
    def list(self, request: Request) -> Response:
        rows = ScheduledMessage.objects.for_environment(**limited_scope_of(request)).defer("body")
        if status := query.choice(request, "status", ScheduledMessage.Status.values):
            rows = rows.filter(status=status)
        paginator = NewestFirst()
        page = paginator.paginate_queryset(rows, request)
        return paginator.get_paginated_response(represent(ScheduledOut, page))

    @extend_schema(
        operation_id="get_scheduled_message",
        summary="Get a scheduled message",
        description="Returns the state of the scheduled message, and the result once the message has been sent.",
        responses=ScheduledOut,
    )
    def retrieve(self, request: Request, scheduled_id: str) -> Response:
        return Response(ScheduledOut(self._find(request, scheduled_id)).data)

    @extend_schema(
        operation_id="reschedule_message",
        summary="Change the time of a scheduled message",
        description="Changes the time while the message waits. Once the message is being sent, the answer is 409.",
        request=SendAtIn,
        responses=ScheduledOut,
    )
    def partial_update(self, request: Request, scheduled_id: str) -> Response:
        message = self._find(request, scheduled_id)
        given = checked(SendAtIn(data=request.data))
        send_at = scheduled_messages.moment_of(given["send_at"])
        return Response(ScheduledOut(scheduled_messages.change(message, send_at)).data)

    @extend_schema(
        operation_id="cancel_scheduled_message",
        summary="Cancel a scheduled message",
        description="Cancels the message while it waits. Once the message is being sent, the answer is 409.",
        request=None,
        responses=ScheduledOut,
    )
    def cancel(self, request: Request, scheduled_id: str) -> Response:
        return Response(ScheduledOut(scheduled_messages.cancel(self._find(request, scheduled_id))).data)

    def _find(self, request: Request, scheduled_id: str) -> ScheduledMessage:
        return scheduled_messages.find(**limited_scope_of(request), scheduled_id=scheduled_id)
