"""`GET /v1/analytics`: figures of messages and webhooks by hour or day."""

from datetime import datetime
from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from gateway.api import query
from gateway.api.authentication import scope_of
from gateway.api.errors import InvalidRequest
from gateway.api.viewsets import ResourceViewSet
from gateway.roles import KeyScope
from gateway.upstream.notifications.change import DIRECTIONS
from webhooks.analytics import statistics
from webhooks.analytics.statistics import GROUPS, HOURS, Sums


class MessageFiguresOut(serializers.Serializer[Sums]):
    """Messages that were sent or received in the hour or day, and their current statuses."""

    start = serializers.DateTimeField()
    phone_number_id = serializers.CharField(required=False)
    template = serializers.CharField(
        required=False, help_text="The name of the template; empty for messages without a template."
    )
    direction = serializers.ChoiceField(choices=DIRECTIONS, required=False)
    received = serializers.IntegerField()
    sent = serializers.IntegerField()
    delivered = serializers.IntegerField()
    read = serializers.IntegerField()
    failed = serializers.IntegerField()
    failed_by_code = serializers.DictField(child=serializers.IntegerField())
    unknown = serializers.IntegerField()
    pricing = serializers.DictField(
        child=serializers.IntegerField(), help_text="The number of messages for each pricing category."
    )
    referrals = serializers.DictField(
        child=serializers.IntegerField(),
        help_text="The number of messages that came from each ad or post, by Meta's id of the ad or post.",
    )
    median_seconds_to_delivered = serializers.IntegerField(allow_null=True)
    median_seconds_to_read = serializers.IntegerField(allow_null=True)

    def to_representation(self, instance: Sums) -> dict[str, Any]:
        plain = ("received", "sent", "delivered", "read", "failed", "unknown")
        return {
            "start": serializers.DateTimeField().to_representation(instance.start),
            **instance.group,
            **{name: instance.counts.get(name, 0) for name in plain},
            "failed_by_code": instance.by_value.get("failed", {}),
            "pricing": instance.by_value.get("pricing", {}),
            "referrals": instance.by_value.get("referral", {}),
            "median_seconds_to_delivered": instance.percentile("delivered_seconds", 0.5),
            "median_seconds_to_read": instance.percentile("read_seconds", 0.5),
        }


class WebhookFiguresOut(serializers.Serializer[Sums]):
    """Deliveries of the hour's or day's events, without replays."""

    start = serializers.DateTimeField()
    delivered = serializers.IntegerField()
    failed = serializers.IntegerField(help_text="The number of deliveries that failed for good.")
    open = serializers.IntegerField(
        help_text="The number of deliveries that were waiting for an attempt or a retry when the hour was counted."
    )
    p95_ms = serializers.IntegerField(allow_null=True)

    def to_representation(self, instance: Sums) -> dict[str, Any]:
        return {
            "start": serializers.DateTimeField().to_representation(instance.start),
            **{name: instance.counts.get(name, 0) for name in ("delivered", "failed", "open")},
            "p95_ms": instance.percentile("delivered_ms", 0.95),
        }


class AnalyticsOut(serializers.Serializer[Any]):
    messages = MessageFiguresOut(many=True)
    webhooks = WebhookFiguresOut(many=True)
    as_of = serializers.DateTimeField(
        help_text="The figures include everything that was stored before this time."
    )
    pending_hours = serializers.IntegerField(
        help_text="The number of hours of the range that have changed and will be counted again."
    )


class AnalyticsView(ResourceViewSet):
    """Figures of the caller's environment."""

    tag = "Events"
    scope = KeyScope.EVENTS

    @extend_schema(
        operation_id="get_analytics",
        summary="Get analytics",
        description="Returns figures about messages and webhook deliveries by hour or day, in UTC. A status is counted "
        "in the hour in which its message was sent or received.",
        parameters=[
            OpenApiParameter("from", datetime, required=True, description=query.FROM),
            OpenApiParameter("to", datetime, required=True, description=query.TO),
            OpenApiParameter(
                "interval",
                str,
                enum=list(HOURS),
                description="The length of a figure's period: `hour` or `day`. The default is `day`.",
            ),
            OpenApiParameter(
                "group_by",
                str,
                description=f"Separated by commas: {', '.join(f'`{name}`' for name in GROUPS)}.",
            ),
            OpenApiParameter("phone_number_id", str, description="Only messages of this number."),
            OpenApiParameter("template", str, description="Only messages of this template."),
            OpenApiParameter("direction", str, enum=list(DIRECTIONS)),
        ],
        responses=AnalyticsOut,
    )
    def retrieve(self, request: Request) -> Response:
        begin, end = query.span(request)
        if begin is None or end is None:
            missing = [name for name, value in (("from", begin), ("to", end)) if value is None]
            raise InvalidRequest.of(**dict.fromkeys(missing, "Required: an ISO 8601 date-time."))
        equal = {
            "phone_number_id": query.text(request, "phone_number_id"),
            "template": query.text(request, "template", longest=512),
            "direction": query.choice(request, "direction", DIRECTIONS),
        }
        found = statistics.read(
            **scope_of(request),
            begin=begin,
            end=end,
            interval=query.choice(request, "interval", tuple(HOURS)) or "day",
            groups=query.choices(request, "group_by", GROUPS) or (),
            equal={name: value for name, value in equal.items() if value is not None},
        )
        return Response(AnalyticsOut(found).data)
