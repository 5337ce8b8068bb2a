"""JSON bodies of numbers: In shapes check requests, Out shapes write answers (specification 2 and 4)."""

from typing import Any

from rest_framework import serializers

from phone_numbers.models import PhoneNumber


class NumberOut(serializers.ModelSerializer[PhoneNumber]):
    waba_id = serializers.CharField()

    class Meta:
        model = PhoneNumber
        fields = [
            "phone_number_id",
            "display_phone_number",
            "verified_name",
            "waba_id",
            "connection_state",
            "connection_detail",
            "quality_rating",
            "messaging_limit_tier",
            "throughput_level",
            "name_status",
            "registered_at",
            "last_event_at",
        ]


class RefreshedNumberOut(NumberOut):
    class Meta(NumberOut.Meta):
        fields = [*NumberOut.Meta.fields, "meta_snapshot"]


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
        help_text="Numbers of the account that another tenant holds; not imported.",
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
    connection_state = serializers.CharField()
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
    """Six digits, and nothing around them."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(
            r"^[0-9]{6}\Z", trim_whitespace=False, error_messages={"invalid": "Must be six digits."}, **kwargs
        )


class UpstreamIdField(serializers.RegexField):
    """An id of the upstream: it becomes part of a path."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(r"^[0-9]{1,64}\Z", error_messages={"invalid": "Must be an id of digits."}, **kwargs)


class CredentialField(serializers.RegexField):
    """A code or token of the upstream. It becomes a query parameter, and servers refuse lines over 8 KiB."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(
            r"^[!-~]+\Z",
            max_length=2048,
            error_messages={"invalid": "Must consist of letters, digits and signs of ASCII, without spaces."},
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
