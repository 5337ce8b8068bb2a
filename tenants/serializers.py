"""What goes over the wire for tenants, keys and apps: In shapes check, Out shapes show."""

from typing import Any

from rest_framework import serializers

from tenants.models import ApiKey, PlatformApp, Tenant


class ChecklistOut(serializers.Serializer[dict[str, bool]]):
    number_connected = serializers.BooleanField()
    api_key_created = serializers.BooleanField()
    webhook_verified = serializers.BooleanField()
    test_message_sent = serializers.BooleanField()


class TenantOut(serializers.ModelSerializer[Tenant]):
    checklist = ChecklistOut(read_only=True)

    class Meta:
        model = Tenant
        fields = [
            "id",
            "name",
            "external_ref",
            "status",
            "sandbox",
            "retention_days",
            "billing_status",
            "trial_ends_at",
            "created_at",
            "checklist",
            "billing_email",
        ]


class TenantChangeIn(serializers.Serializer[dict[str, Any]]):
    name = serializers.CharField(required=False, max_length=200)
    billing_email = serializers.EmailField(required=False, allow_null=True, max_length=254)
    retention_days = serializers.ChoiceField(required=False, choices=Tenant.Retention.choices)


class TenantCreateIn(serializers.Serializer[dict[str, Any]]):
    name = serializers.CharField(max_length=200)
    external_ref = serializers.CharField(required=False, allow_null=True, default=None, max_length=255)
    retention_days = serializers.ChoiceField(
        required=False, default=Tenant.Retention.DAYS_90, choices=Tenant.Retention.choices
    )


class ApiKeyIn(serializers.Serializer[dict[str, Any]]):
    name = serializers.CharField(max_length=200)
    environment = serializers.ChoiceField(
        required=False, default=ApiKey.Environment.LIVE, choices=ApiKey.Environment.choices
    )


class ApiKeyOut(serializers.ModelSerializer[ApiKey]):
    class Meta:
        model = ApiKey
        fields = [
            "id",
            "name",
            "environment",
            "prefix",
            "created_at",
            "last_used_at",
            "expires_at",
            "revoked_at",
        ]


class NewApiKeyOut(ApiKeyOut):
    key = serializers.CharField()

    class Meta(ApiKeyOut.Meta):
        fields = [
            "id",
            "name",
            "environment",
            "prefix",
            "key",
            "created_at",
            "last_used_at",
            "expires_at",
            "revoked_at",
        ]


class RevokedKeyOut(serializers.Serializer[ApiKey]):
    id = serializers.UUIDField()
    revoked_at = serializers.DateTimeField()


class RotatedKeyOut(serializers.Serializer[dict[str, Any]]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    environment = serializers.ChoiceField(choices=ApiKey.Environment.choices)
    prefix = serializers.CharField()
    key = serializers.CharField()
    replaces = serializers.UUIDField()
    old_key_expires_at = serializers.DateTimeField()


class AppIn(serializers.Serializer[dict[str, Any]]):
    name = serializers.CharField(max_length=200)


class AppOut(serializers.ModelSerializer[PlatformApp]):
    class Meta:
        model = PlatformApp
        fields = ["id", "name"]


class AppWithTenantsOut(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    tenants = serializers.IntegerField(source="tenant_count")


class AppKeyOut(serializers.Serializer[dict[str, Any]]):
    id = serializers.UUIDField()
    app_id = serializers.UUIDField()
    prefix = serializers.CharField()
    key = serializers.CharField()
