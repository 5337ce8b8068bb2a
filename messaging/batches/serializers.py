"""Batches with their items, and scheduled messages, as the API shows them (specification 2)."""

from typing import Any

import orjson
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from gateway import ids
from messaging.models import Batch, BatchItem, ScheduledMessage


class CustomerHoursOut(serializers.Serializer[dict[str, int]]):
    """`customer_hours`: hours of the day, in the customers' time zones."""

    to = serializers.IntegerField(help_text="The hour at which sending ends.")

    def get_fields(self) -> dict[str, Any]:
        opens = serializers.IntegerField(help_text="The hour at which sending begins.")
        return {"from": opens, **super().get_fields()}


class BatchOut(serializers.ModelSerializer[Batch]):
    id = serializers.CharField(source="public_id")
    send_at = serializers.DateTimeField(
        allow_null=True,
        help_text="The time before which no message of the batch is sent, ISO 8601 in UTC; null for no such time.",
    )

    customer_hours = CustomerHoursOut(
        allow_null=True,
        help_text="The hours of the customer's day in which messages of the batch are sent; null for every hour.",
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
    message = serializers.CharField(help_text="The probable error of the messages, with Meta's error code.")
    count = serializers.IntegerField(help_text="How many messages of the batch the warning concerns.")
    indexes = serializers.ListField(
        child=serializers.IntegerField(),
        help_text="The positions in the batch of the first twenty of these messages, counted from 0.",
    )


class NewBatchOut(BatchOut):
    warnings = serializers.SerializerMethodField(
        help_text="Errors of messages that Meta will probably reject, judging by your templates. The service sends "
        "these messages nevertheless."
    )

    class Meta(BatchOut.Meta):
        fields = [*BatchOut.Meta.fields, "warnings"]

    @extend_schema_field(BatchWarningOut(many=True))
    def get_warnings(self, _: Batch) -> list[dict[str, Any]]:
        return [dict(BatchWarningOut(warning).data) for warning in self.context["warnings"]]


class RepeatedBatchOut(BatchOut):
    same_messages = serializers.SerializerMethodField(
        help_text="Whether this call has the same messages as the call that created the batch. This call sends "
        "nothing in either case."
    )

    class Meta(BatchOut.Meta):
        fields = [*BatchOut.Meta.fields, "same_messages"]

    def get_same_messages(self, _: Batch) -> bool:
        return bool(self.context["same_messages"])


class BatchPlaceOut(serializers.Serializer[BatchItem]):
    batch_id = serializers.SerializerMethodField(
        help_text="The id of the batch that the other message belongs to: `bat_` and 26 characters."
    )
    idx = serializers.IntegerField(
        source="first_idx", help_text="The position of the other message in that batch, counted from 0."
    )

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
        allow_null=True,
        help_text="Your own name for the message; null when you gave none. It is not passed on to WhatsApp.",
    )
    response = serializers.SerializerMethodField()
    event_id = serializers.SerializerMethodField()
    duplicate_of = serializers.SerializerMethodField(
        help_text="The earlier message with the same `message_ref`, because of which this message was skipped; null "
        "for a message that was not skipped for this reason."
    )

    skip_reason = serializers.SerializerMethodField(
        help_text="Why the message was skipped; null for a message that was not skipped. `duplicate_of` names the "
        "other message."
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
        source="public_id", help_text="The id of the scheduled message: `sch_` and 26 characters."
    )
    status = serializers.ChoiceField(
        ScheduledMessage.Status.choices, help_text="The state of the scheduled message."
    )
    send_at = serializers.DateTimeField(
        help_text="The time before which the message is not sent, ISO 8601 in UTC."
    )
    customer_hours = CustomerHoursOut(
        allow_null=True,
        help_text="The hours of the customer's day in which the message may be sent; null for every hour.",
    )
    phone_number_id = serializers.CharField(help_text="Meta's id of the number that sends the message.")
    http_status = serializers.IntegerField(
        allow_null=True, help_text="The HTTP status of WhatsApp's answer; null when no answer came."
    )
    wamid = serializers.CharField(
        allow_null=True, help_text="WhatsApp's id of the message; null until WhatsApp has accepted it."
    )
    response = serializers.SerializerMethodField(
        help_text="WhatsApp's answer, or the error that explains why the message was not sent; null until then."
    )
    event_id = serializers.SerializerMethodField(
        help_text="The id of the message's event `message.outbound`: `evt_` and 26 characters; null without one."
    )
    sent_at = serializers.DateTimeField(
        allow_null=True, help_text="When the message was sent, ISO 8601 in UTC; null before."
    )
    created_at = serializers.DateTimeField(help_text="When the message was scheduled, ISO 8601 in UTC.")
