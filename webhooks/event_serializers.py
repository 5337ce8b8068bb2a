"""JSON answers of the event log: items of `/v1/events`, and one event with its envelope."""

from typing import Any, get_args

from django.conf import settings
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from gateway.upstream.notifications.message_facts import Direction
from webhooks.events.new_event import ENVELOPE
from webhooks.events.types import DIRECTION_OF_TYPE, EVENT_TYPES
from webhooks.models import Event
from webhooks.serializers import DeliveryOut


class DeliveryCounts(serializers.Serializer[dict[str, int]]):
    """How many deliveries have each status."""

    pending = serializers.IntegerField()
    delivered = serializers.IntegerField()
    failed = serializers.IntegerField()
    dead = serializers.IntegerField()


class EventOut(serializers.ModelSerializer[Event]):
    """The envelope without `data` and `raw`, with the state of its message and of its deliveries."""

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
    """The envelope as delivered (specification 6)."""

    id = serializers.CharField()
    type = serializers.ChoiceField(choices=EVENT_TYPES)
    api_version = serializers.CharField()
    created_at = serializers.DateTimeField()
    data = serializers.DictField()  # type: ignore[assignment]
    raw = serializers.JSONField(allow_null=True)

    class Meta:
        model = Event
        fields = ENVELOPE


class OneEventOut(serializers.Serializer[dict[str, Any]]):
    """`event` is null when its body is past retention."""

    event = EnvelopeOut(allow_null=True)
    payload_available = serializers.BooleanField()
    deliveries = DeliveryOut(many=True)
