"""The views of `/v1/messages/batch*` (specification 4)."""

from contextlib import nullcontext
from typing import Any, cast

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from gateway.api import limits, query
from gateway.api.authentication import limited_scope_of
from gateway.api.json import JSONParser, UnreadJSON
from gateway.api.limits import API_BODY_BYTES, large_bodies, limited_by
from gateway.api.pagination import NewestFirst
from gateway.api.validation import checked
from gateway.api.viewsets import DeclaredQuery
from gateway.roles import KeyScope
from messaging.batches import body, lifecycle, scheduled_messages
from messaging.batches.outcomes import Outcomes, outcomes_of
from messaging.batches.serializers import BatchItemOut, BatchOut, NewBatchOut, RepeatedBatchOut
from messaging.models import Batch, BatchItem


class BatchOutcomesOut(serializers.Serializer[Outcomes]):
    accepted = serializers.IntegerField(
        source="statuses.accepted",
        help_text="How many messages WhatsApp has accepted without reporting a status since.",
    )
    sent = serializers.IntegerField(
        source="statuses.sent", help_text="How many messages are on their way to the phone."
    )
    delivered = serializers.IntegerField(
        source="statuses.delivered",
        help_text="How many messages have reached the phone and have not been reported as read.",
    )
    read = serializers.IntegerField(source="statuses.read", help_text="How many messages were read.")
    failed = serializers.IntegerField(
        source="statuses.failed",
        help_text="How many messages WhatsApp rejected at once or reported as failed later.",
    )


class BatchTimeIn(serializers.Serializer[dict[str, Any]]):
    send_at = serializers.CharField(
        allow_null=True,
        help_text="The new time: ISO 8601 with an offset, in the future, at most 90 days ahead; null means now.",
    )


class BatchDetailsOut(BatchOut):
    outcomes = serializers.SerializerMethodField(
        help_text="How many messages of the batch have each status now. Each message is counted once."
    )

    class Meta(BatchOut.Meta):
        fields = [*BatchOut.Meta.fields, "outcomes"]

    @extend_schema_field(BatchOutcomesOut)
    def get_outcomes(self, batch: Batch) -> dict[str, Any]:
        return dict(BatchOutcomesOut(outcomes_of(batch)).data)


class InOrder(NewestFirst):
    """Orders items by their place in the batch."""

    field = "idx"
    descending = False


@limited_by(body.MAX_BODY_BYTES)
class BatchesView(DeclaredQuery, GenericViewSet[BatchItem]):
    """Up to 10,000 messages, sent at the number's pace."""

    tag = "Messages"
    scope = KeyScope.MESSAGES
    limited_actions = frozenset({"create", "list", "retrieve", "partial_update", "items", "cancel", "retry"})
    parser_classes = [UnreadJSON]
    pagination_class = InOrder

    @extend_schema(
        operation_id="create_batch",
        summary="Send a batch of messages",
        description="Sends up to 10,000 messages from one number, as fast as the number may send. Each message "
        "creates a `message.outbound` event.",
        request=OpenApiTypes.OBJECT,
        responses={202: NewBatchOut, 200: RepeatedBatchOut},
    )
    def create(self, request: Request) -> Response:
        scope = limited_scope_of(request)
        is_large = int(request.META.get("CONTENT_LENGTH") or 0) > API_BODY_BYTES
        place = limits.large_batches.held(scope["tenant_id"]) if is_large else nullcontext()
        with place, large_bodies.held_for(request._request):
            stored = lifecycle.create(**scope, raw=cast("bytes", request.data or b"{}"))
        if stored.is_new:
            created = NewBatchOut(stored.batch, context={"warnings": stored.warnings})
            return Response(created.data, status=202)
        repeated = RepeatedBatchOut(stored.batch, context={"same_messages": stored.same_messages})
        return Response(repeated.data, headers={"Idempotent-Replayed": "true"})

    @extend_schema(
        operation_id="list_batches",
        summary="List batches",
        description="Returns the batches, newest first.",
        parameters=[
            OpenApiParameter("status", str, enum=Batch.Status.values),
            OpenApiParameter("client_ref", str, description="Only the batch with this `client_ref`."),
        ],
        responses=BatchOut(many=True),
    )
    def list(self, request: Request) -> Response:
        batches = Batch.objects.for_environment(**limited_scope_of(request))
        if status := query.choice(request, "status", Batch.Status.values):
            batches = batches.filter(status=status)
        if client_ref := query.text(request, "client_ref"):
            batches = batches.filter(client_ref=client_ref)
        paginator = NewestFirst()
        page = paginator.paginate_queryset(batches, request)
        return paginator.get_paginated_response(BatchOut(page, many=True).data)

    @extend_schema(
        operation_id="get_batch",
        summary="Get a batch",
        description="Returns the status and the counts of the batch, what the batch waits for, and the outcomes of "
        "its messages.",
        responses=BatchDetailsOut,
    )
    def retrieve(self, request: Request, batch_id: str) -> Response:
        return Response(BatchDetailsOut(self._batch(request, batch_id)).data)

    @extend_schema(
        operation_id="list_batch_items",
        summary="List the items of a batch",
        description="Returns the items in the order in which they were submitted, each with WhatsApp's answer.",
        parameters=[OpenApiParameter("status", str, enum=BatchItem.Status.values)],
        responses=BatchItemOut(many=True),
    )
    def items(self, request: Request, batch_id: str) -> Response:
        items = BatchItem.objects.filter(batch=self._batch(request, batch_id)).defer("body")
        if status := query.choice(request, "status", BatchItem.Status.values):
            items = items.filter(status=status)
        page = self.paginate_queryset(items)
        return self.get_paginated_response(BatchItemOut(page, many=True).data)

    @extend_schema(
        operation_id="cancel_batch",
        summary="Cancel a batch",
        description="Stops the batch. Items that are already being sent are still sent. All other unsent items become "
        "`skipped`.",
        request=None,
        responses=BatchOut,
    )
    def cancel(self, request: Request, batch_id: str) -> Response:
        return Response(BatchOut(lifecycle.cancel(self._batch(request, batch_id))).data)

    @extend_schema(
        operation_id="retry_batch",
        summary="Retry a batch",
        request=None,
        responses={202: BatchOut},
        description="Queues again the failed items that were certainly not sent. These are items that WhatsApp "
        "throttled, and items for which WhatsApp rejected the token.",
    )
    def retry(self, request: Request, batch_id: str) -> Response:
        return Response(BatchOut(lifecycle.retry(self._batch(request, batch_id))).data, status=202)

    def _batch(self, request: Request, batch_id: str) -> Batch:
        return lifecycle.find(**limited_scope_of(request), batch_id=batch_id)


@limited_by(API_BODY_BYTES)
class BatchView(BatchesView):
    """One batch."""

    tag = "Messages"
    parser_classes = [JSONParser]

    @extend_schema(
        operation_id="reschedule_batch",
        summary="Change the time of a batch",
        description="Changes the time from which the batch is sent; `null` sends the batch now. The answer is 409 once "
        "the first message of the batch has been sent.",
        request=BatchTimeIn,
        responses=BatchOut,
    )
    def partial_update(self, request: Request, batch_id: str) -> Response:
        batch = self._batch(request, batch_id)
        given = checked(BatchTimeIn(data=request.data))
        send_at = scheduled_messages.moment_of(given["send_at"]) if given["send_at"] is not None else None
        return Response(BatchOut(lifecycle.reschedule(batch, send_at)).data)
