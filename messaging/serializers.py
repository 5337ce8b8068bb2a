"""Batches and their items as the API shows them (specification 2)."""

import orjson
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from gateway import ids
from messaging.models import Batch, BatchItem


class BatchOut(serializers.ModelSerializer[Batch]):
    id = serializers.CharField(source="public_id")

    class Meta:
        model = Batch
        fields = [
            "id",
            "status",
            "total",
            "accepted",
            "failed",
            "rate_per_sec",
            "client_ref",
            "waiting_for",
            "created_at",
            "started_at",
            "completed_at",
        ]


class BatchItemOut(serializers.ModelSerializer[BatchItem]):
    response = serializers.SerializerMethodField()
    event_id = serializers.SerializerMethodField()

    class Meta:
        model = BatchItem
        fields = ["idx", "status", "http_status", "wamid", "response", "event_id", "sent_at"]

    @extend_schema_field({"type": ["object", "null"], "additionalProperties": True})
    def get_response(self, item: BatchItem) -> orjson.Fragment | None:
        """The stored bytes as they are."""
        return orjson.Fragment(bytes(item.response)) if item.response is not None else None

    def get_event_id(self, item: BatchItem) -> str | None:
        return ids.encode(ids.EVENT, item.event_id) if item.event_id else None
