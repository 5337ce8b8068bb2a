"""JSON bodies of tenants, keys and apps. `…In` classes validate requests, `…Out` classes build responses."""

from datetime import datetime
from typing import Any

from rest_framework import serializers

from gateway.api.validation import MomentField
from gateway.clock import now
from gateway.roles import NUMBER_SCOPES, KeyScope
from tenants import tenant_status
from tenants.credentials.api_keys import LONGEST_NUMBER_ID, MOST_NUMBERS, PREFIX_CHARACTERS
from tenants.models import ApiKey, AuditEntry, PlatformApp, Tenant
from tenants.names import check_name


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
    name = serializers.CharField(required=False, max_length=200, validators=[check_name])
    billing_email = serializers.EmailField(required=False, allow_null=True, max_length=254)
    retention_days = serializers.ChoiceField(required=False, choices=Tenant.Retention.choices)


class TenantCreateIn(serializers.Serializer[dict[str, Any]]):
    name = serializers.CharField(max_length=200, validators=[check_name])
    external_ref = serializers.CharField(
        required=False, allow_null=True, default=None, max_length=255, trim_whitespace=False
    )
    retention_days = serializers.ChoiceField(
        required=False, default=Tenant.Retention.DAYS_90, choices=Tenant.Retention.choices
    )


class AppKeyIn(serializers.Serializer[dict[str, Any]]):
    name = serializers.CharField(max_length=200, validators=[check_name])
    environment = serializers.ChoiceField(
        required=False,
        choices=ApiKey.Environment.choices,
        help_text="The environment of the key. The default is `live`, or `test` if a test key creates the key.",
    )
    expires_at = MomentField(
        required=False,
        allow_null=True,
        help_text="When the key expires. Null or left out, it expires with the key that creates it, otherwise never.",
    )

    def validate_expires_at(self, moment: datetime | None) -> datetime | None:
        if moment is not None and moment <= now():
            raise serializers.ValidationError("Must be in the future.")
        return moment


class ApiKeyIn(AppKeyIn):
    scopes = serializers.ListField(
        child=serializers.ChoiceField(choices=[scope.value for scope in KeyScope]),
        required=False,
        allow_empty=False,
        help_text="The scopes of the key. The default is all scopes of the key or person that creates it.",
    )
    phone_number_ids = serializers.ListField(
        child=serializers.RegexField(rf"^[0-9]{{1,{LONGEST_NUMBER_ID}}}$"),
        required=False,
        allow_null=True,
        allow_empty=False,
        max_length=MOST_NUMBERS,
        help_text="The numbers that the key is limited to. Null or left out, it has the numbers of its creator. A "
        f"limited key can have only the scopes {', '.join(f'`{scope}`' for scope in sorted(NUMBER_SCOPES))}.",
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
            "scopes",
            "phone_number_ids",
            "created_by_user_id",
            "created_by_key_id",
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
            "scopes",
            "phone_number_ids",
            "created_by_user_id",
            "created_by_key_id",
        ]


class AnyApiKeyOut(ApiKeyOut):
    """A key with its owner, for staff."""

    class Meta(ApiKeyOut.Meta):
        fields = [*ApiKeyOut.Meta.fields, "tenant_id", "app_id"]


class AnyApiKeyIn(serializers.Serializer[dict[str, Any]]):
    tenant_id = serializers.UUIDField(required=False)
    app_id = serializers.UUIDField(required=False)
    prefix = serializers.CharField(required=False, max_length=48, source="prefix__startswith")

    def validate_prefix(self, text: str) -> str:
        return text[:PREFIX_CHARACTERS]


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
    name = serializers.CharField(max_length=200, validators=[check_name])


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


class AdminTenantOut(TenantOut):
    """The admin view of a tenant (specification 2)."""

    class Meta(TenantOut.Meta):
        fields = [
            *TenantOut.Meta.fields,
            "created_via",
            "contact_email",
            "website",
            "tax_id",
            "tax_id_type",
            "email_domain",
            "flags",
            "approved_at",
            "rejected_reason",
            "suspended_reason",
        ]


class AdminTenantsIn(serializers.Serializer[dict[str, Any]]):
    status = serializers.ChoiceField(required=False, choices=Tenant.Status.choices)


class ApprovedOut(serializers.ModelSerializer[Tenant]):
    class Meta:
        model = Tenant
        fields = ["id", "status", "approved_at", "billing_status", "trial_ends_at"]


class RejectIn(serializers.Serializer[dict[str, Any]]):
    reason = serializers.CharField(max_length=2000)


class RejectedOut(serializers.ModelSerializer[Tenant]):
    class Meta:
        model = Tenant
        fields = ["id", "status", "rejected_reason"]


class SuspendIn(serializers.Serializer[dict[str, Any]]):
    reason = serializers.ChoiceField(choices=tenant_status.SUSPENSION_REASONS)
    note = serializers.CharField(required=False, default="", allow_blank=True, max_length=2000)


class SuspendedOut(serializers.ModelSerializer[Tenant]):
    class Meta:
        model = Tenant
        fields = ["id", "status", "suspended_reason"]


class ReinstatedOut(serializers.ModelSerializer[Tenant]):
    class Meta:
        model = Tenant
        fields = ["id", "status"]


class AuditIn(serializers.Serializer[dict[str, Any]]):
    tenant_id = serializers.UUIDField(required=False)
    action = serializers.CharField(required=False, max_length=60)


class AuditEntryOut(serializers.ModelSerializer[AuditEntry]):
    class Meta:
        model = AuditEntry
        fields = [
            "id",
            "tenant_id",
            "actor_user_id",
            "action",
            "target_type",
            "target_id",
            "details",
            "created_at",
        ]


class LastMailIn(serializers.Serializer[dict[str, Any]]):
    email = serializers.EmailField()


class LastMailOut(serializers.Serializer[Any]):
    to = serializers.EmailField()
    subject = serializers.CharField()
    links = serializers.ListField(child=serializers.URLField())
    sent_at = serializers.DateTimeField()


class ConsoleUserOut(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    email = serializers.EmailField()
    is_staff = serializers.BooleanField()


class ConsoleSessionIn(serializers.Serializer[dict[str, Any]]):
    email = serializers.EmailField(max_length=254)
    password = serializers.CharField(max_length=128, trim_whitespace=False)
    otp = serializers.CharField(required=False, default="", allow_blank=True, max_length=20)


class ConsoleSessionOut(serializers.Serializer[Any]):
    expires_at = serializers.DateTimeField()
    user = ConsoleUserOut()
    tenant_id = serializers.UUIDField(allow_null=True)


class NewConsoleSessionOut(ConsoleSessionOut):
    token = serializers.CharField()
