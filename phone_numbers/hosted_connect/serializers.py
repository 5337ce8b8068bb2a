"""JSON bodies of connect sessions: In shapes check requests, Out shapes write answers."""

from typing import Any

from rest_framework import serializers

from phone_numbers.hosted_connect import sessions
from phone_numbers.hosted_connect.return_urls import problem_of
from phone_numbers.models import ConnectSession
from phone_numbers.serializers import CredentialField, UpstreamIdField


class ConnectSessionIn(serializers.Serializer[dict[str, Any]]):
    return_url = serializers.CharField()

    def validate_return_url(self, value: str) -> str:
        if problem := problem_of(value):
            raise serializers.ValidationError(problem)
        return value


class NewConnectSessionOut(serializers.ModelSerializer[ConnectSession]):
    id = serializers.CharField(source="public_id")
    url = serializers.SerializerMethodField()
    status = serializers.CharField(source="shown_status")

    class Meta:
        model = ConnectSession
        fields = ["id", "url", "expires_at", "status"]

    def get_url(self, session: ConnectSession) -> str:
        return sessions.url_of(session)


class ConnectSessionOut(NewConnectSessionOut):
    class Meta(NewConnectSessionOut.Meta):
        fields = [
            *NewConnectSessionOut.Meta.fields,
            "return_url",
            "created_at",
            "completed_at",
            "waba_id",
            "phone_number_ids",
            "error",
        ]


class ConnectAnswerIn(serializers.Serializer[dict[str, Any]]):
    """What the hosted page sends: the sign-up's code with its ids, or none when the customer left."""

    state = serializers.CharField(max_length=200)
    code = CredentialField(required=False, allow_null=True, default=None)
    waba_id = UpstreamIdField(required=False, allow_null=True, default=None)
    phone_number_id = UpstreamIdField(required=False, allow_null=True, default=None)
    reason = serializers.CharField(
        required=False, allow_null=True, allow_blank=True, default=None, max_length=2000
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["code"] is not None and attrs["waba_id"] is None:
            raise serializers.ValidationError({"waba_id": ["This field is required with a code."]})
        return attrs
