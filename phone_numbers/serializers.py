"""JSON bodies of numbers. `…In` classes validate requests, `…Out` classes build responses (specification 2 and 4)."""

from datetime import datetime
from typing import Any, ClassVar, NamedTuple

from rest_framework import serializers

from phone_numbers.models import AppData, PhoneNumber


class ListedNumber(NamedTuple):
    """The fields of a number and of its account in the response, in the response's order."""

    phone_number_id: str
    display_phone_number: str
    verified_name: str | None
    waba_id: str
    connection_state: str
    connection_detail: str | None
    quality_rating: str | None
    messaging_limit_tier: str | None
    throughput_level: str | None
    name_status: str | None
    registered_at: datetime | None
    last_event_at: datetime | None


class NumberOut(serializers.ModelSerializer[PhoneNumber]):
    waba_id = serializers.CharField()

    class Meta:
        model = PhoneNumber
        fields = list(ListedNumber._fields)


class AppDataOut(serializers.ModelSerializer[AppData]):
    """The sync of the contacts or of the chats in the WhatsApp Business app."""

    class Meta:
        model = AppData
        fields = ["status", "progress", "received", "requested_at", "ends_at", "finished_at", "error_code"]
        extra_kwargs: ClassVar = {
            "progress": {
                "help_text": "How much of the chats has been imported, in percent, as WhatsApp reports it. It is "
                "always 0 for contacts."
            },
            "received": {"help_text": "How many contacts or messages have been received so far."},
            "ends_at": {
                "help_text": "Until when WhatsApp accepts the request for the data, ISO 8601 in UTC."
            },
        }


class NumberAppDataOut(serializers.Serializer[Any]):
    """The syncs of a number's WhatsApp Business app."""

    phone_number_id = serializers.CharField()
    coexistence = serializers.BooleanField()
    contacts = AppDataOut(allow_null=True)
    history = AppDataOut(allow_null=True)


class RefreshedNumberOut(NumberOut):
    meta_snapshot = serializers.JSONField(required=False)

    class Meta(NumberOut.Meta):
        fields = [*NumberOut.Meta.fields, "meta_snapshot"]


class SignedUpNumberOut(NumberOut):
    pin = serializers.CharField(
        required=False,
        help_text="The PIN that the service made for the registration. Only this answer shows it. Absent without one.",
    )

    class Meta(NumberOut.Meta):
        fields = [*NumberOut.Meta.fields, "pin"]


class ConnectionOut(serializers.ModelSerializer[PhoneNumber]):
    class Meta:
        model = PhoneNumber
        fields = ["phone_number_id", "connection_state", "connection_detail"]


class ImportedNumberOut(serializers.ModelSerializer[PhoneNumber]):
    class Meta:
        model = PhoneNumber
        fields = ["phone_number_id", "display_phone_number", "connection_state", "connection_detail"]


class ConnectedAccountOut(serializers.Serializer[dict[str, Any]]):
    waba_id = serializers.CharField()
    numbers = ImportedNumberOut(many=True)
    held_elsewhere = serializers.ListField(
        child=serializers.CharField(),
        help_text="Meta's ids of the account's numbers that belong to another business here. They were not imported.",
    )


class HealthReasonOut(serializers.Serializer[dict[str, Any]]):
    code = serializers.IntegerField(allow_null=True)
    description = serializers.CharField(allow_null=True)
    what_to_do = serializers.CharField(allow_null=True)


class HealthEntityOut(serializers.Serializer[dict[str, Any]]):
    entity_type = serializers.CharField(allow_null=True)
    id = serializers.CharField(allow_null=True)
    can_send_message = serializers.CharField(allow_null=True)
    reasons = HealthReasonOut(many=True)


class NumberHealthOut(serializers.Serializer[dict[str, Any]]):
    phone_number_id = serializers.CharField()
    connection_state = serializers.ChoiceField(choices=PhoneNumber.State.choices)
    connection_detail = serializers.CharField(allow_null=True)
    can_send_message = serializers.CharField(allow_null=True)
    entities = HealthEntityOut(many=True)
    checked_at = serializers.DateTimeField()


class ReleasedNumberOut(serializers.Serializer[dict[str, Any]]):
    phone_number_id = serializers.CharField()
    released = serializers.BooleanField()


class ReleasedAccountOut(serializers.Serializer[dict[str, Any]]):
    waba_id = serializers.CharField()
    phone_number_ids = serializers.ListField(child=serializers.CharField())
    released = serializers.BooleanField()


class PinField(serializers.RegexField):
    """A PIN of exactly six digits."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(
            r"^[0-9]{6}\Z", trim_whitespace=False, error_messages={"invalid": "Must be six digits."}, **kwargs
        )


class UpstreamIdField(serializers.RegexField):
    """An id from Meta, which has only digits. It becomes part of a path."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(r"^[0-9]{1,64}\Z", error_messages={"invalid": "Must be an id of digits."}, **kwargs)


class CredentialField(serializers.RegexField):
    """A code or token from Meta. It becomes a query parameter, and servers reject lines over 8 KiB."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(
            r"^[!-~]+\Z",
            max_length=2048,
            error_messages={"invalid": "Must be printable ASCII characters, without spaces."},
            **kwargs,
        )


class EmbeddedSignupIn(serializers.Serializer[dict[str, Any]]):
    code = CredentialField()
    waba_id = UpstreamIdField()
    phone_number_id = UpstreamIdField()
    pin = PinField(required=False, allow_null=True, default=None)


class ConnectIn(serializers.Serializer[dict[str, Any]]):
    waba_id = UpstreamIdField()
    access_token = CredentialField(required=False)
    code = CredentialField(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if ("access_token" in attrs) == ("code" in attrs):
            problem = "Send either access_token or code."
            raise serializers.ValidationError({"access_token": [problem], "code": [problem]})
        return attrs


class MigrateIn(serializers.Serializer[dict[str, Any]]):
    waba_id = UpstreamIdField()
    cc = serializers.RegexField(r"^\+?[0-9]{1,4}\Z")
    phone_number = serializers.CharField(max_length=32)


class RegisterIn(serializers.Serializer[dict[str, Any]]):
    pin = PinField(required=False, allow_null=True, default=None)


class TwoStepIn(serializers.Serializer[dict[str, Any]]):
    pin = PinField()


class RequestCodeIn(serializers.Serializer[dict[str, Any]]):
    code_method = serializers.ChoiceField(choices=["SMS", "VOICE"])
    language = serializers.CharField(max_length=20)


class VerifyCodeIn(serializers.Serializer[dict[str, Any]]):
    code = serializers.CharField(max_length=20)


class AdminNumbersIn(serializers.Serializer[dict[str, Any]]):
    connection_state = serializers.ChoiceField(required=False, choices=PhoneNumber.State.choices)


class AdminNumberOut(serializers.ModelSerializer[PhoneNumber]):
    tenant_name = serializers.CharField(source="tenant.name")

    COLUMNS = (
        "tenant__name",
        "phone_number_id",
        "display_phone_number",
        "connection_state",
        "quality_rating",
        "messaging_limit_tier",
        "last_event_at",
    )

    class Meta:
        model = PhoneNumber
        fields = [
            "tenant_id",
            "tenant_name",
            "phone_number_id",
            "display_phone_number",
            "connection_state",
            "quality_rating",
            "messaging_limit_tier",
            "last_event_at",
        ]
