"""Bodies and answers of `/v1/test/*`."""

from typing import Any

from rest_framework import serializers

STATUSES = ("sent", "delivered", "read", "played", "failed")
TEMPLATE_EVENTS = (
    "APPROVED",
    "REJECTED",
    "PENDING",
    "PAUSED",
    "DISABLED",
    "FLAGGED",
    "IN_APPEAL",
    "REINSTATED",
    "PENDING_DELETION",
    "DELETED",
    "LOCKED",
    "UNLOCKED",
    "ARCHIVED",
    "UNARCHIVED",
    "LIMIT_EXCEEDED",
)
REASONS = (
    "NONE",
    "ABUSIVE_CONTENT",
    "CATEGORY_NOT_AVAILABLE",
    "INCORRECT_CATEGORY",
    "INVALID_FORMAT",
    "PROMOTIONAL",
    "SCAM",
    "TAG_CONTENT_MISMATCH",
)
CATEGORIES = ("AUTHENTICATION", "MARKETING", "UTILITY")
QUALITIES = ("UNKNOWN", "GREEN", "YELLOW", "RED")
NUMBER_EVENTS = (
    "FLAGGED",
    "UNFLAGGED",
    "UPGRADE",
    "DOWNGRADE",
    "THROUGHPUT_UPGRADE",
    "NAME_APPROVED",
    "NAME_REJECTED",
    "PIN_CHANGED",
)


class TestRecipientOut(serializers.Serializer[Any]):
    to = serializers.CharField()
    behaviour = serializers.CharField()
    code = serializers.IntegerField(allow_null=True, help_text="The upstream's code, if it fails.")


class TestTextOut(serializers.Serializer[Any]):
    text = serializers.CharField(
        help_text="The last line of a text, of a caption, or of the text above buttons."
    )
    behaviour = serializers.CharField()


class TestInboundIn(serializers.Serializer[Any]):
    """The members that the contract names; the message's own object comes beside them, in the upstream's form."""

    phone_number_id = serializers.CharField(required=False, help_text="The first number if left out.")
    type = serializers.CharField(required=False, help_text="`text` if left out.")
    text = serializers.JSONField(required=False, help_text="A plain string, or the upstream's object.")
    name = serializers.CharField(required=False, help_text="The customer's profile name, remembered.")
    username = serializers.CharField(required=False, help_text="The customer's user name, remembered.")
    identity = serializers.ChoiceField(
        required=False,
        choices=["both", "phone", "user_id"],
        help_text="What you learn of the customer: phone number, business-scoped user id, or both; remembered.",
    )
    referral = serializers.JSONField(required=False, help_text="The ad or post that the customer came from.")

    def get_fields(self) -> dict[str, Any]:
        customer = serializers.CharField(help_text="The customer's phone number or business-scoped user id.")
        # `context` would hide a member of the serializer itself.
        context = serializers.JSONField(
            required=False, help_text="The message that is answered: its id, or the upstream's object."
        )
        return {"from": customer, **super().get_fields(), "context": context}


class TestInboundOut(serializers.Serializer[Any]):
    id = serializers.CharField(help_text="The message id that the event carries as `wamid`.")
    phone_number_id = serializers.CharField()
    customer = serializers.CharField()


class TestMessageOut(serializers.Serializer[Any]):
    id = serializers.CharField()
    phone_number_id = serializers.CharField()
    customer = serializers.CharField()
    direction = serializers.CharField(help_text="`inbound` or `outbound`.")
    status = serializers.CharField(allow_null=True, help_text="As the customer's phone shows it.")
    body = serializers.DictField(help_text="The message: as you sent it, or as your event carries it.")
    reaction = serializers.CharField(allow_null=True, help_text="The emoji that is on the message.")
    change = serializers.CharField(
        allow_null=True, help_text="`edited` or `deleted` when the customer did that."
    )


class TestStatusIn(serializers.Serializer[Any]):
    message_id = serializers.CharField(max_length=512, help_text="Of a message that a test number sent.")
    status = serializers.ChoiceField(choices=STATUSES)
    code = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=9_999_999,
        help_text="Of `failed`: the upstream's code, 131026 if left out.",
    )


class TestStatusOut(serializers.Serializer[Any]):
    id = serializers.CharField()
    status = serializers.CharField()


class TestTemplateIn(serializers.Serializer[Any]):
    """One decision about a template."""

    template_id = serializers.CharField(max_length=64, help_text="The template's id.")
    event = serializers.ChoiceField(required=False, choices=TEMPLATE_EVENTS)
    reason = serializers.ChoiceField(required=False, choices=REASONS, help_text="Of an event.")
    quality = serializers.ChoiceField(required=False, choices=QUALITIES)
    category = serializers.ChoiceField(required=False, choices=CATEGORIES)
    correct_category = serializers.ChoiceField(
        required=False, choices=CATEGORIES, help_text="The upstream's warning a day before the change."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        decisions = attrs.keys() - {"template_id", "reason"}
        if len(decisions) != 1:
            raise serializers.ValidationError(
                {"event": ["Send exactly one of event, quality, category and correct_category."]}
            )
        if "reason" in attrs and "event" not in attrs:
            raise serializers.ValidationError({"reason": ["Belongs to an event."]})
        return attrs


class TestTemplateOut(serializers.Serializer[Any]):
    id = serializers.CharField()
    name = serializers.CharField()
    language = serializers.CharField()
    status = serializers.CharField()
    category = serializers.CharField()
    quality = serializers.CharField()


class TestNumberEventIn(serializers.Serializer[Any]):
    phone_number_id = serializers.CharField(
        required=False, max_length=64, help_text="The first number if left out."
    )
    event = serializers.ChoiceField(choices=NUMBER_EVENTS)


class TestNumberEventOut(serializers.Serializer[Any]):
    phone_number_id = serializers.CharField(source="id")
    quality_rating = serializers.CharField()
    messaging_limit_tier = serializers.CharField()
    throughput_level = serializers.CharField(source="throughput")
    name_status = serializers.CharField()
