"""JSON answers of the event log: items of `/v1/events`, and one event with its envelope."""

from typing import Any

from django.conf import settings
from rest_framework import serializers

from webhooks.events.members import ENVELOPE
from webhooks.events.types import EVENT_TYPES
from webhooks.models import Event
from webhooks.serializers import DeliveryOut


class DeliveryCounts(serializers.Serializer[dict[str, int]]):
    """How many deliveries have each status."""

    pending = serializers.IntegerField()
    delivered = serializers.IntegerField()
    failed = serializers.IntegerField()
    dead = serializers.IntegerField()


class EventOut(serializers.ModelSerializer[Event]):
    """The envelope without `data` and `raw`, with the state of its deliveries (decision "Events")."""

    id = serializers.CharField(source="public_id")
    type = serializers.ChoiceField(choices=EVENT_TYPES)
    api_version = serializers.SerializerMethodField()
    created_at = serializers.DateTimeField()
    payload_available = serializers.SerializerMethodField()
    deliveries = serializers.SerializerMethodField()

    class Meta:
        model = Event
        fields = [
            *(name for name in ENVELOPE if name not in {"data", "raw"}),
            "payload_available",
            "deliveries",
        ]

    def get_api_version(self, event: Event) -> str:
        return settings.API_VERSION

    def get_payload_available(self, event: Event) -> bool:
        return event.id in self.context["available"]

    def get_deliveries(self, event: Event) -> DeliveryCounts:
        counts: Any = self.context["counts"][event.id]
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
