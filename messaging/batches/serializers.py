"""Batches with their items, and scheduled messages, as the API shows them (specification 2)."""

from typing import Any

import orjson
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from gateway import ids
from messaging.models import Batch, BatchItem, ScheduledMessage


class CustomerHoursOut(serializers.Serializer[dict[str, int]]):
    """`customer_hours`: hours of the day, in the customers' time zones."""

    to = serializers.IntegerField(help_text="Nothing of it is sent from this hour on.")

    def get_fields(self) -> dict[str, Any]:
        opens = serializers.IntegerField(help_text="Nothing of it is sent before this hour.")
        return {"from": opens, **super().get_fields()}


class BatchOut(serializers.ModelSerializer[Batch]):
    id = serializers.CharField(source="public_id")
    send_at = serializers.DateTimeField(
        allow_null=True, help_text="Nothing of it is sent before; null for a batch that was given no time."
    )

    customer_hours = CustomerHoursOut(
        allow_null=True, help_text="It is sent in these hours of its customers' days; null at any."
    )

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
            "send_at",
            "customer_hours",
            "skip_opted_out",
            "created_at",
            "started_at",
            "completed_at",
        ]


class BatchWarningOut(serializers.Serializer[Any]):
    message = serializers.CharField(help_text="What is probably wrong, with Meta's error code.")
    count = serializers.IntegerField(help_text="How many messages of the batch it is about.")
    indexes = serializers.ListField(
        child=serializers.IntegerField(), help_text="The places of the first twenty of them, from 0."
    )


class NewBatchOut(BatchOut):
    warnings = serializers.SerializerMethodField(
        help_text="What Meta would refuse by what is known of your templates; the messages are sent all the same."
    )

    class Meta(BatchOut.Meta):
        fields = [*BatchOut.Meta.fields, "warnings"]

    @extend_schema_field(BatchWarningOut(many=True))
    def get_warnings(self, _: Batch) -> list[dict[str, Any]]:
        return [dict(BatchWarningOut(warning).data) for warning in self.context["warnings"]]


class RepeatedBatchOut(BatchOut):
    same_messages = serializers.SerializerMethodField(
        help_text="Whether the messages of this call are those that the batch was made of. `false`: they are not, "
        "and nothing of this call is sent."
    )

    class Meta(BatchOut.Meta):
        fields = [*BatchOut.Meta.fields, "same_messages"]

    def get_same_messages(self, _: Batch) -> bool:
        return bool(self.context["same_messages"])


class BatchPlaceOut(serializers.Serializer[BatchItem]):
    batch_id = serializers.SerializerMethodField(
        help_text="The batch of that message: `bat_` and 26 characters."
    )
    idx = serializers.IntegerField(source="first_idx", help_text="Its place in that batch, from 0.")

    def get_batch_id(self, item: BatchItem) -> str | None:
        return ids.encode(ids.BATCH, item.first_batch_id) if item.first_batch_id else None


class _Answered:
    # A docstring here would become the description of both serializers in the contract.
    @extend_schema_field({"type": ["object", "null"], "additionalProperties": True})
    def get_response(self, sent: BatchItem | ScheduledMessage) -> orjson.Fragment | None:
        """The stored bytes, unchanged."""
        return orjson.Fragment(bytes(sent.response)) if sent.response is not None else None

    def get_event_id(self, sent: BatchItem | ScheduledMessage) -> str | None:
        return ids.encode(ids.EVENT, sent.event_id) if sent.event_id else None


class BatchItemOut(_Answered, serializers.ModelSerializer[BatchItem]):
    message_ref = serializers.CharField(
        allow_null=True, help_text="Your own name for the message, if you gave one; WhatsApp never gets it."
    )
    response = serializers.SerializerMethodField()
    event_id = serializers.SerializerMethodField()
    duplicate_of = serializers.SerializerMethodField(
        help_text="The message that had this `message_ref` before, for which this one was skipped; else null."
    )

    skip_reason = serializers.SerializerMethodField(
        help_text="Why it was skipped: `opted_out`, `message_ref` (see `duplicate_of`), or `batch_ended`; else null."
    )

    class Meta:
        model = BatchItem
        fields = [
            "idx",
            "status",
            "message_ref",
            "http_status",
            "wamid",
            "response",
            "event_id",
            "sent_at",
            "duplicate_of",
            "skip_reason",
        ]

    @extend_schema_field(BatchPlaceOut(allow_null=True))
    def get_duplicate_of(self, item: BatchItem) -> dict[str, Any] | None:
        return dict(BatchPlaceOut(item).data) if item.first_batch_id is not None else None

    @extend_schema_field(
        {"type": ["string", "null"], "enum": ["opted_out", "message_ref", "batch_ended", None]}
    )
    def get_skip_reason(self, item: BatchItem) -> str | None:
        if item.status != BatchItem.Status.SKIPPED:
            return None
        return item.skip_reason or ("message_ref" if item.first_batch_id else "batch_ended")


class ScheduledOut(_Answered, serializers.Serializer[ScheduledMessage]):
    """A message that is or was scheduled for a time, with its outcome."""

    id = serializers.CharField(
        source="public_id", help_text="The scheduled message: `sch_` and 26 characters."
    )
    status = serializers.ChoiceField(
        ScheduledMessage.Status.choices, help_text="How far it is: it waits, is on its way, or has ended."
    )
    send_at = serializers.DateTimeField(help_text="It is not sent before.")
    customer_hours = CustomerHoursOut(
        allow_null=True, help_text="It is sent in these hours of its customer's day; null at any."
    )
    phone_number_id = serializers.CharField(help_text="The number that sends it.")
    http_status = serializers.IntegerField(
        allow_null=True, help_text="The status of WhatsApp's answer; null without one."
    )
    wamid = serializers.CharField(allow_null=True, help_text="WhatsApp's id of the message that was sent.")
    response = serializers.SerializerMethodField(
        help_text="WhatsApp's answer, or the error that says why it was not sent; null until it has ended."
    )
    event_id = serializers.SerializerMethodField(
        help_text="Its event `message.outbound`: `evt_` and 26 characters."
    )
    sent_at = serializers.DateTimeField(allow_null=True, help_text="When it was sent.")
    created_at = serializers.DateTimeField(help_text="When it was scheduled.")
