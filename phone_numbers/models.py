"""Business accounts (WABA) with their token, and phone numbers with their connection state.

A waba_id or phone_number_id belongs to one tenant (decisions, Numbers). Written by `onboarding.py` and
`connection.py`.
"""

from typing import ClassVar, Self
from uuid import UUID

from django.db import models

from gateway.clock import now
from gateway.encryption import EncryptedTextField
from gateway.ids import uuid7
from tenants.models import ApiKey, Tenant


class BusinessAccountQuerySet(models.QuerySet["BusinessAccount"]):
    def for_tenant(self, tenant_id: UUID) -> Self:
        """A tenant's own accounts."""
        return self.filter(tenant_id=tenant_id)


class BusinessAccount(models.Model):
    """A business account (WABA) of a tenant, with the token that acts for it."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="accounts")
    environment = models.CharField(max_length=4, choices=ApiKey.Environment.choices)
    waba_id = models.CharField(max_length=64, unique=True)
    name = models.CharField(max_length=255, null=True, blank=True)
    access_token = EncryptedTextField(purpose="upstream_token")
    token_expires_at = models.DateTimeField(null=True, blank=True)
    data_access_expires_at = models.DateTimeField(null=True, blank=True)
    token_invalid_at = models.DateTimeField(null=True, blank=True)
    subscribed = models.BooleanField(default=False)
    taken_away = models.CharField(max_length=32, null=True, blank=True)
    """Why the upstream side took the account away: `account_removed` or `account_restricted`; null when it did not."""
    synced_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(default=now, editable=False)

    objects = BusinessAccountQuerySet.as_manager()

    class Meta:
        indexes: ClassVar = [models.Index(fields=["tenant"], name="account_by_tenant")]

    def __str__(self) -> str:
        return self.waba_id


class PhoneNumberQuerySet(models.QuerySet["PhoneNumber"]):
    def for_tenant(self, tenant_id: UUID) -> Self:
        """A tenant's own numbers."""
        return self.filter(tenant_id=tenant_id)


class PhoneNumber(models.Model):
    """A business phone number (section 2, Number)."""

    class State(models.TextChoices):
        PENDING = "pending"
        CONNECTED = "connected"
        DISCONNECTED = "disconnected"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    account = models.ForeignKey(BusinessAccount, on_delete=models.PROTECT, related_name="numbers")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="numbers")
    environment = models.CharField(max_length=4, choices=ApiKey.Environment.choices)
    phone_number_id = models.CharField(max_length=64, unique=True)
    display_phone_number = models.CharField(max_length=32, default="", blank=True)
    digits = models.CharField(max_length=20, default="", blank=True)
    """The number's digits alone: how a caller's E.164 `from` and the upstream's management events name it."""
    verified_name = models.CharField(max_length=255, null=True, blank=True)
    quality_rating = models.CharField(max_length=20, null=True, blank=True)
    messaging_limit_tier = models.CharField(max_length=32, null=True, blank=True)
    throughput_level = models.CharField(max_length=32, null=True, blank=True)
    name_status = models.CharField(max_length=32, null=True, blank=True)
    coexistence = models.BooleanField(default=False)
    """In use in the WhatsApp Business app as well: never registered or deregistered by the service."""
    pin = EncryptedTextField(purpose="number_pin", null=True, blank=True)
    registered = models.BooleanField(default=False)
    registered_at = models.DateTimeField(null=True, blank=True)
    connection_state = models.CharField(max_length=12, choices=State.choices, default=State.PENDING)
    connection_detail = models.CharField(max_length=32, null=True, blank=True)
    ever_connected = models.BooleanField(default=False)
    last_event_at = models.DateTimeField(null=True, blank=True)
    meta_snapshot = models.JSONField(null=True, blank=True)
    refreshed_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(default=now, editable=False)

    objects = PhoneNumberQuerySet.as_manager()

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["tenant", "-id"], name="number_by_tenant"),
            models.Index(fields=["tenant", "digits"], name="number_by_digits"),
            models.Index(fields=["connection_state"], name="number_by_state"),
        ]

    def __str__(self) -> str:
        return self.phone_number_id
