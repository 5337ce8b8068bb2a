"""`/v1/events*`, `/v1/webhooks*` and `/v1/webhook-deliveries*` (specification 4; answers: decision "Events").

A key reaches only its own environment.
"""

from datetime import datetime
from typing import Any, ClassVar, get_args
from uuid import UUID

import orjson
from django.conf import settings
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from gateway import ids
from gateway.api import query
from gateway.api.authentication import caller_of, filtered_number, scope_of
from gateway.api.errors import NotFound
from gateway.api.limits import waits_for_endpoint
from gateway.api.pagination import NewestFirst, before_of, bounded_page, limit_of, represent
from gateway.api.validation import checked
from gateway.api.viewsets import ResourceViewSet
from gateway.roles import KeyScope
from gateway.upstream.notifications.change import Direction
from tenants.audit import Actor
from webhooks import replay
from webhooks.endpoints import lifecycle
from webhooks.endpoints.health import with_holds
from webhooks.events import envelope, filters, search
from webhooks.events.envelope import ALL, DIRECTION_OF_TYPE, ENVELOPE, EVENT_TYPES
from webhooks.models import Delivery, Endpoint, Event
from webhooks.requests import verify_ping
from webhooks.serializers import (
    DeletedOut,
    DeliveryOut,
    DeliveryWithLogOut,
    EndpointChangeIn,
    EndpointIn,
    EndpointOut,
    EndpointWithHealthOut,
    ExampleIn,
    ExampleOut,
    FilterPreviewIn,
    FilterPreviewOut,
    NewEndpointOut,
    QueuedOut,
    ReplayedOut,
    ReplayIn,
    ReplayPreviewOut,
    RotatedSecretOut,
    RotateSecretIn,
    VerifiedOut,
)


# --- JSON answers of the event log: items of `/v1/events`, and one event with its envelope.
class DeliveryCounts(serializers.Serializer[dict[str, int]]):
    """How many deliveries have each status."""

    pending = serializers.IntegerField()
    delivered = serializers.IntegerField()
    failed = serializers.IntegerField()
    dead = serializers.IntegerField()


WORDS = {
    "display_phone_number": {
        "help_text": "Your number in digits, such as `919800000001`; null when the event concerns no number."
    }
}


class EventOut(serializers.ModelSerializer[Event]):
    """The envelope without `data` and `raw`, with the state of the event's message and deliveries."""

    id = serializers.CharField(source="public_id")
    type = serializers.ChoiceField(choices=EVENT_TYPES)
    api_version = serializers.SerializerMethodField()
    created_at = serializers.DateTimeField()
    direction = serializers.SerializerMethodField()
    payload_available = serializers.SerializerMethodField()
    deliveries = serializers.SerializerMethodField()

    class Meta:
        model = Event
        fields = [
            *(name for name in ENVELOPE if name not in {"data", "raw"}),
            "direction",
            "status",
            "error_code",
            "payload_available",
            "deliveries",
        ]
        extra_kwargs: ClassVar = WORDS

    def get_api_version(self, event: Event) -> str:
        return settings.API_VERSION

    @extend_schema_field({"type": ["string", "null"], "enum": [*get_args(Direction), None]})
    def get_direction(self, event: Event) -> Direction | None:
        return DIRECTION_OF_TYPE.get(event.type)

    def get_payload_available(self, event: Event) -> bool:
        return event.payload_available

    def get_deliveries(self, event: Event) -> DeliveryCounts:
        counts: Any = event.delivery_counts
        return counts  # type: ignore[no-any-return]


class EnvelopeOut(serializers.ModelSerializer[Event]):
    """The envelope in the form in which endpoints get it (specification 6)."""

    id = serializers.CharField()
    type = serializers.ChoiceField(choices=EVENT_TYPES)
    api_version = serializers.CharField()
    created_at = serializers.DateTimeField()
    data = serializers.DictField()  # type: ignore[assignment]
    raw = serializers.JSONField(allow_null=True)

    class Meta:
        model = Event
        fields = ENVELOPE
        extra_kwargs: ClassVar = WORDS


class OneEventOut(serializers.Serializer[dict[str, Any]]):
    """An event with its deliveries. `event` is null if the body is past retention."""

    event = EnvelopeOut(allow_null=True)
    payload_available = serializers.BooleanField()
    deliveries = DeliveryOut(many=True)


FILTERS = ("phone_number_id", "waba_id", "wamid", "wa_id", "user_id")
LONGEST_FILTER = 512


def _equal(request: Request) -> dict[str, str]:
    """The columns by which a request filters the list of events."""
    given = {name: query.text(request, name, longest=LONGEST_FILTER) for name in FILTERS}
    given["phone_number_id"] = filtered_number(caller_of(request), given["phone_number_id"])
    given["wa_id"] = query.wa_id(request)
    return {name: value for name, value in given.items() if value is not None}


class EventsView(ResourceViewSet):
    """The events of the caller's environment, and the state of their deliveries."""

    tag = "Events"
    scope = KeyScope.EVENTS
    limited_actions = frozenset({"list", "retrieve"})
    pagination_class: ClassVar = NewestFirst

    @extend_schema(
        operation_id="list_events",
        summary="Search the event log",
        description="Returns the events without their bodies, newest first, each with the counts of its deliveries. A "
        "request searches at most 10,000 events. When few match, a page can have fewer events than `limit`, or none. "
        "Continue until `next_cursor` is null.",
        parameters=[
            OpenApiParameter("type", str, description="Event types, separated by commas."),
            *(OpenApiParameter(name, str) for name in FILTERS),
            OpenApiParameter("from", datetime, description=query.FROM),
            OpenApiParameter("to", datetime, description=query.TO),
        ],
        responses=EventOut(many=True),
    )
    def list(self, request: Request) -> Response:
        caller = scope_of(request)
        begin, end = query.span(request)
        page = search.search(
            **caller,
            types=query.choices(request, "type", EVENT_TYPES) or (),
            equal=_equal(request),
            begin=begin,
            end=end,
            before=before_of(request, Event),
            limit=limit_of(request),
        )
        return bounded_page(
            request,
            represent(EventOut, search.with_stored_state(page.rows, tenant_id=caller["tenant_id"])),
            page.before,
        )

    @extend_schema(
        operation_id="get_event",
        summary="Get an event",
        description="Returns the event's envelope exactly as it is delivered, and all deliveries of the event.",
        responses=OneEventOut,
    )
    def retrieve(self, request: Request, event_id: str) -> Response:
        caller = caller_of(request)
        event = search.find(**scope_of(request), event_id=event_id)
        if not caller.reaches(event.phone_number_id):
            raise NotFound("There is no such event.")
        found = envelope.load([event.id], tenant_id=event.tenant_id)[event.id]
        if found and caller.phone_number_ids is not None:
            found = found.with_own_change()
        deliveries = with_holds(search.deliveries(event), **scope_of(request))
        return Response(
            {
                "event": orjson.Fragment(found.body()) if found else None,
                "payload_available": found is not None,
                "deliveries": represent(DeliveryOut, deliveries),
            }
        )


def _acting(request: Request) -> dict[str, Any]:
    """The scope of a change and its author."""
    return {**scope_of(request), "actor": Actor.of(request)}


class EndpointsView(ResourceViewSet):
    """A tenant's webhook endpoints."""

    tag = "Webhooks"
    scope = KeyScope.WEBHOOKS

    @extend_schema(
        operation_id="list_webhooks",
        summary="List webhook endpoints",
        description="Returns the endpoints without their secrets.",
        parameters=[
            OpenApiParameter("uid", str, description="Only the endpoint with this id that you chose.")
        ],
        responses=EndpointOut(many=True),
    )
    def list(self, request: Request) -> Response:
        rows = Endpoint.objects.for_environment(**scope_of(request))
        if (uid := query.text(request, "uid")) is not None:
            rows = rows.filter(uid=uid)
        pages = NewestFirst()
        found = pages.paginate_queryset(rows, request)
        return pages.get_paginated_response(EndpointOut(found, many=True).data)

    @extend_schema(
        operation_id="create_webhook",
        summary="Create a webhook endpoint",
        description="Sends the verify ping. Only this answer shows the secret.",
        request=EndpointIn,
        responses={201: NewEndpointOut},
    )
    @waits_for_endpoint
    def create(self, request: Request) -> Response:
        body = checked(EndpointIn(data=request.data))
        endpoint = lifecycle.create(**_acting(request), **body)
        return Response(NewEndpointOut(endpoint).data, status=201)

    @extend_schema(
        operation_id="get_webhook",
        summary="Get a webhook endpoint",
        description="Returns the endpoint's settings, state and health, without the secret.",
        responses=EndpointWithHealthOut,
    )
    def retrieve(self, request: Request, endpoint_id: UUID) -> Response:
        endpoint = lifecycle.find(**scope_of(request), endpoint_id=endpoint_id)
        return Response(EndpointWithHealthOut(endpoint).data)

    @extend_schema(
        operation_id="update_webhook",
        summary="Change a webhook endpoint",
        description="A new url is verified by a ping before it is stored.",
        request=EndpointChangeIn,
        responses=EndpointOut,
    )
    @waits_for_endpoint
    def partial_update(self, request: Request, endpoint_id: UUID) -> Response:
        lifecycle.find(**scope_of(request), endpoint_id=endpoint_id)
        body = checked(EndpointChangeIn(data=request.data))
        endpoint = lifecycle.change(**_acting(request), endpoint_id=endpoint_id, changes=body)
        return Response(EndpointOut(endpoint).data)

    @extend_schema(
        operation_id="delete_webhook",
        summary="Delete a webhook endpoint",
        description="Deliveries that still wait for the endpoint are never sent.",
        responses={200: DeletedOut},
    )
    def destroy(self, request: Request, endpoint_id: UUID) -> Response:
        lifecycle.delete(**_acting(request), endpoint_id=endpoint_id)
        return Response({"id": endpoint_id, "deleted": True})

    @extend_schema(
        operation_id="verify_webhook",
        summary="Verify a webhook endpoint",
        description="Sends the verify ping. A passed ping makes the endpoint active, unless it is paused.",
        request=None,
        responses=VerifiedOut,
    )
    @waits_for_endpoint
    def verify(self, request: Request, endpoint_id: UUID) -> Response:
        endpoint = lifecycle.find(**scope_of(request), endpoint_id=endpoint_id)
        ping = lifecycle.verify(endpoint)
        return Response(
            {
                "id": endpoint.id,
                "status": endpoint.status,
                "verified_at": endpoint.verified_at,
                "response_ms": ping.response_ms,
            }
        )

    @extend_schema(
        operation_id="resume_webhook",
        summary="Resume a webhook endpoint",
        description="Closes the endpoint's circuit, ends a pause, and sends the waiting deliveries.",
        request=None,
        responses=EndpointWithHealthOut,
    )
    def resume(self, request: Request, endpoint_id: UUID) -> Response:
        endpoint = lifecycle.resume(**_acting(request), endpoint_id=endpoint_id)
        return Response(EndpointWithHealthOut(endpoint).data)

    @extend_schema(
        operation_id="test_webhook",
        summary="Send an example event to an endpoint",
        description="Sends the example of an event type, marked as a test. The event is neither stored nor counted. "
        "The answer contains the endpoint's answer.",
        request=ExampleIn,
        responses=ExampleOut,
    )
    @waits_for_endpoint
    def test(self, request: Request, endpoint_id: UUID) -> Response:
        endpoint = lifecycle.find(**scope_of(request), endpoint_id=endpoint_id)
        lifecycle.require_webhook(endpoint)
        body = checked(ExampleIn(data=request.data))
        return Response(ExampleOut(verify_ping.send_example(endpoint, **body)).data)

    @extend_schema(
        operation_id="preview_webhook_filter",
        summary="Preview a filter by content",
        description="Evaluates a filter on the endpoint's recent events. Nothing is stored.",
        request=FilterPreviewIn,
        responses=FilterPreviewOut,
    )
    def preview_filter(self, request: Request, endpoint_id: UUID) -> Response:
        endpoint = lifecycle.find(**scope_of(request), endpoint_id=endpoint_id)
        lifecycle.require_webhook(endpoint)
        body = checked(FilterPreviewIn(data=request.data))
        return Response(FilterPreviewOut(filters.preview(endpoint, body["filter"])).data)

    @extend_schema(
        operation_id="rotate_webhook_secret",
        summary="Rotate an endpoint's secret",
        description="Both secrets sign every delivery until the overlap ends.",
        request=RotateSecretIn,
        responses=RotatedSecretOut,
    )
    def rotate_secret(self, request: Request, endpoint_id: UUID) -> Response:
        lifecycle.find(**scope_of(request), endpoint_id=endpoint_id)
        body = checked(RotateSecretIn(data=request.data))
        endpoint = lifecycle.rotate_secret(**_acting(request), endpoint_id=endpoint_id, **body)
        return Response(RotatedSecretOut(endpoint).data)

    @extend_schema(
        operation_id="replay_webhook",
        summary="Replay deliveries to an endpoint",
        description="Queues new deliveries of the events of a time range. They are sent in the background, after "
        "new events.",
        request=ReplayIn,
        responses={200: ReplayPreviewOut, 202: QueuedOut},
    )
    def replay(self, request: Request, endpoint_id: UUID) -> Response:
        lifecycle.find(**scope_of(request), endpoint_id=endpoint_id)
        wanted = checked(ReplayIn(data=request.data))
        queued = replay.replay_endpoint(
            **scope_of(request),
            endpoint_id=endpoint_id,
            begin=wanted["from"],
            end=wanted["to"],
            statuses=wanted["status"],
            event_types=None if ALL in (wanted["event_types"] or [ALL]) else wanted["event_types"],
            is_preview=wanted["preview"],
        )
        if wanted["preview"]:
            return Response(ReplayPreviewOut(queued).data)
        return Response({"queued": queued.count}, status=202)


class DeliveriesView(ResourceViewSet):
    """Deliveries of events to endpoints, with the outcome of each attempt."""

    tag = "Webhooks"
    scope = KeyScope.WEBHOOKS

    @extend_schema(
        operation_id="list_webhook_deliveries",
        summary="List webhook deliveries",
        description="Returns the deliveries, newest first. A delivery is one event on its way to one endpoint. A "
        "request searches at most 10,000 deliveries. When few match, a page can have fewer deliveries than `limit`, or "
        "none. Continue until `next_cursor` is null.",
        parameters=[
            OpenApiParameter("endpoint_id", UUID),
            OpenApiParameter("status", str, enum=Delivery.Status.values),
            OpenApiParameter("event_id", str),
            OpenApiParameter("event_type", str, description="Event types, separated by commas."),
            OpenApiParameter(
                "http_status",
                int,
                description="Only deliveries whose last attempt was answered with this HTTP status.",
            ),
            OpenApiParameter("from", datetime, description=query.FROM),
            OpenApiParameter("to", datetime, description=query.TO),
        ],
        responses=DeliveryOut(many=True),
    )
    def list(self, request: Request) -> Response:
        equal: dict[str, Any] = {
            "endpoint_id": query.uuid(request, "endpoint_id"),
            "status": query.choice(request, "status", Delivery.Status.values),
            "last_http_status": query.integer(request, "http_status", least=100, most=599),
        }
        begin, end = query.span(request)
        page = search.search_deliveries(
            **scope_of(request),
            equal={name: value for name, value in equal.items() if value is not None},
            event_types=query.choices(request, "event_type", EVENT_TYPES) or (),
            event_id=query.public_id(request, "event_id", ids.EVENT),
            begin=begin,
            end=end,
            before=before_of(request, Delivery),
            limit=limit_of(request),
        )
        return bounded_page(
            request, represent(DeliveryOut, with_holds(page.rows, **scope_of(request))), page.before
        )

    @extend_schema(
        operation_id="get_webhook_delivery",
        summary="Get a webhook delivery",
        description="Returns the delivery with its last 20 attempts.",
        responses=DeliveryWithLogOut,
    )
    def retrieve(self, request: Request, delivery_id: str) -> Response:
        rows = Delivery.objects.for_environment(**scope_of(request))
        row = query.by_public_id(rows, ids.DELIVERY, delivery_id, "delivery")
        return Response(DeliveryWithLogOut(with_holds([row], **scope_of(request))[0]).data)

    @extend_schema(
        operation_id="replay_webhook_delivery",
        summary="Send a delivery again",
        description="Makes one attempt at once, signed with the current secrets. The answer shows the result.",
        request=None,
        responses=ReplayedOut,
    )
    @waits_for_endpoint
    def replay(self, request: Request, delivery_id: str) -> Response:
        key = ids.decode(ids.DELIVERY, delivery_id)
        if key is None:
            raise NotFound("There is no such delivery.")
        row = replay.replay_delivery(**scope_of(request), delivery_id=key)
        return Response(ReplayedOut(row).data)
