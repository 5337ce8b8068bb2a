"""Messages as the API shows them: items of `/v1/messages`, and single messages with content, statuses and events."""

from typing import Any, get_args

import orjson
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from gateway import ids
from gateway.meta_errors import error_code
from gateway.upstream.notifications.change import STATUSES, Direction
from messaging import opt_outs
from messaging.message_log.customers import Customer
from messaging.message_log.detail import Detail, Error
from webhooks.events.envelope import EVENT_TYPES
from webhooks.models import Message
from webhooks.serializers import DeliveryOut


class SentTemplateOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    language = serializers.CharField(allow_null=True)


class PricingOut(serializers.Serializer[Any]):
    """What WhatsApp charges for the message, as the message's statuses report it."""

    category = serializers.CharField(allow_null=True)
    type = serializers.CharField(allow_null=True)
    billable = serializers.BooleanField(allow_null=True)


class ReferralOut(serializers.Serializer[Message]):
    """The ad or post that led the customer to write a message."""

    source_type = serializers.CharField(
        source="referral_source_type",
        allow_null=True,
        help_text="What the customer came from: `ad` or `post`; null when Meta did not say.",
    )
    source_id = serializers.CharField(
        source="referral_source_id",
        allow_null=True,
        help_text="Meta's id of the ad or post; null when Meta did not say.",
    )
    ctwa_clid = serializers.CharField(source="referral_ctwa_clid", allow_null=True)


class MessageOut(serializers.ModelSerializer[Message]):
    """A message's progress, without its content."""

    id = serializers.CharField(
        source="key", help_text="The id of the message: the wamid, or the event's id when there is no wamid."
    )
    wamid = serializers.CharField(allow_null=True)
    direction = serializers.ChoiceField(choices=get_args(Direction))
    # Generators of clients name the type by the label. Without it, they name it like the schema `MessageStatus`.
    status = serializers.ChoiceField(choices=STATUSES, label="Current status")
    template = serializers.SerializerMethodField()
    pricing = serializers.SerializerMethodField()
    batch_id = serializers.SerializerMethodField()
    event_id = serializers.SerializerMethodField()
    referral = serializers.SerializerMethodField(
        help_text="The ad or post from which the customer wrote this message; null when there was none."
    )
    created_at = serializers.DateTimeField()
    is_history = serializers.BooleanField(
        help_text="Whether the message was imported from the WhatsApp Business app. Then `created_at` is the time at "
        "which it was originally sent."
    )

    class Meta:
        model = Message
        fields = [
            "id",
            "wamid",
            "direction",
            "status",
            "error_code",
            "waba_id",
            "phone_number_id",
            "wa_id",
            "user_id",
            "type",
            "template",
            "batch_id",
            "idx",
            "event_id",
            "pricing",
            "referral",
            "is_history",
            "service_ms",
            "upstream_ms",
            "created_at",
            "accepted_at",
            "sent_at",
            "delivered_at",
            "read_at",
            "failed_at",
        ]

    @extend_schema_field(SentTemplateOut(allow_null=True))
    def get_template(self, message: Message) -> dict[str, str | None] | None:
        if message.template is None:
            return None
        return {"name": message.template, "language": message.template_language}

    @extend_schema_field(PricingOut(allow_null=True))
    def get_pricing(self, message: Message) -> dict[str, Any] | None:
        if message.pricing_category is None and message.billable is None:
            return None
        return {
            "category": message.pricing_category,
            "type": message.pricing_type,
            "billable": message.billable,
        }

    @extend_schema_field(ReferralOut(allow_null=True))
    def get_referral(self, message: Message) -> dict[str, str | None] | None:
        if message.referral_source_id is None and message.referral_ctwa_clid is None:
            return None
        return dict(ReferralOut(message).data)

    def get_batch_id(self, message: Message) -> str | None:
        return ids.encode(ids.BATCH, message.batch_id) if message.batch_id else None

    def get_event_id(self, message: Message) -> str | None:
        return ids.encode(ids.EVENT, message.event_id) if message.event_id else None


class MessageErrorOut(serializers.Serializer[Any]):
    """WhatsApp's error. Past retention, only `code` is left. `hint` and the page at `doc_url` explain the code."""

    code = serializers.IntegerField(
        allow_null=True, help_text="WhatsApp's error code, such as `131047`; null when there is none."
    )
    title = serializers.CharField(
        allow_null=True, help_text="WhatsApp's short name of the error; null when there is none."
    )
    message = serializers.CharField(
        allow_null=True, help_text="WhatsApp's sentence about the error; null when there is none."
    )
    details = serializers.CharField(
        allow_null=True, help_text="WhatsApp's details of this case; null when there are none."
    )
    hint = serializers.SerializerMethodField(
        help_text="What went wrong, and how to repair it; null for an unknown code."
    )
    doc_url = serializers.SerializerMethodField(
        help_text="The address of the page that explains this code; null for an unknown code."
    )

    @extend_schema_field({"type": ["string", "null"]})
    def get_hint(self, error: Error) -> str | None:
        known = error_code(error.code)
        return known.hint if known else None

    @extend_schema_field({"type": ["string", "null"], "format": "uri"})
    def get_doc_url(self, error: Error) -> str | None:
        known = error_code(error.code)
        return known.doc_url if known else None


class MessageReportOut(serializers.Serializer[Any]):
    """A status that WhatsApp reported. Reports are in the order in which they were stored."""

    status = serializers.CharField(
        allow_null=True,
        help_text="The status that WhatsApp reported, such as `delivered` or `played`; null when it is not known.",
    )
    at = serializers.DateTimeField(
        help_text="When the message reached the status. Once the event's body is no longer stored, it is the time at "
        "which the report was stored."
    )
    wa_id = serializers.CharField(allow_null=True)
    user_id = serializers.CharField(allow_null=True)
    error = MessageErrorOut(allow_null=True)
    event_id = serializers.CharField()


class MessageEventOut(serializers.Serializer[Any]):
    """An event of the message, with all its deliveries."""

    id = serializers.CharField()
    type = serializers.ChoiceField(choices=EVENT_TYPES)
    created_at = serializers.DateTimeField()
    deliveries = DeliveryOut(many=True)


@extend_schema_field({"type": ["object", "null"], "additionalProperties": True})
class StoredObject(serializers.Field[bytes, Any, orjson.Fragment, Any]):
    """A JSON object, shown byte for byte as it is stored."""

    def to_representation(self, value: bytes) -> orjson.Fragment:
        return orjson.Fragment(value)


class DetailOut(serializers.Serializer[Detail]):
    """The members of a message that its row lacks. `sender` becomes `from`, which is a keyword of Python."""

    sender = serializers.CharField(source="sender", allow_null=True)
    to = serializers.CharField(allow_null=True)
    error = MessageErrorOut(allow_null=True)
    payload_available = serializers.BooleanField()
    request = StoredObject()
    response = StoredObject()
    message = StoredObject()
    statuses = MessageReportOut(many=True)
    events = MessageEventOut(many=True)

    def get_fields(self) -> dict[str, Any]:
        return {"from" if name == "sender" else name: field for name, field in super().get_fields().items()}


class OneMessageOut(MessageOut):
    """A message with its content within retention: `request` for an outbound message, `message` for any other."""

    def get_fields(self) -> dict[str, Any]:
        return super().get_fields() | DetailOut().get_fields()


class LastTemplateOut(serializers.ModelSerializer[Message]):
    """The template that was last sent to the customer."""

    id = serializers.CharField(source="key")
    name = serializers.CharField(source="template")
    language = serializers.CharField(source="template_language", allow_null=True)
    status = serializers.ChoiceField(choices=STATUSES)
    created_at = serializers.DateTimeField()

    class Meta:
        model = Message
        fields = ["id", "name", "language", "status", "created_at"]


class LastReferralOut(ReferralOut):
    """The ad or post that last led the customer to write, and the customer's message."""

    message_id = serializers.CharField(
        source="key", help_text="The id of the message that the customer wrote from the ad or post."
    )
    at = serializers.DateTimeField(source="sent_at", allow_null=True)


class CustomerOut(serializers.Serializer[Customer]):
    """A customer of a number: ids, newest messages, service window and opt-out."""

    phone_number_id = serializers.CharField()
    wa_id = serializers.CharField(allow_null=True)
    user_id = serializers.CharField(allow_null=True)
    username = serializers.CharField(allow_null=True)
    last_inbound_at = serializers.DateTimeField(source="last_inbound.sent_at", allow_null=True, default=None)
    last_inbound_id = serializers.CharField(source="last_inbound.key", allow_null=True, default=None)
    window_open = serializers.BooleanField()
    window_open_until = serializers.DateTimeField(allow_null=True)
    last_outbound_at = serializers.DateTimeField(
        source="last_outbound.created_at", allow_null=True, default=None
    )
    last_template = LastTemplateOut(allow_null=True)
    last_referral = LastReferralOut(allow_null=True)
    opted_out = serializers.SerializerMethodField()
    opted_out_at = serializers.DateTimeField(source="opt_out.opted_out_at", allow_null=True)
    opted_out_source = serializers.ChoiceField(
        source="opt_out.opted_out_source", choices=opt_outs.SOURCES, allow_null=True
    )

    def get_opted_out(self, customer: Customer) -> bool:
        """Whether the customer opted out of marketing messages."""
        return customer.opt_out.opted_out_at is not None


class OptedOutCustomerOut(serializers.Serializer[Any]):
    """A customer who opted out of a number's marketing messages."""

    phone_number_id = serializers.CharField()
    wa_id = serializers.CharField(allow_null=True)
    user_id = serializers.CharField(allow_null=True)
    opted_out_at = serializers.DateTimeField()
    opted_out_source = serializers.ChoiceField(choices=opt_outs.SOURCES)
