"""Tables of business accounts (WABA) with their tokens, phone numbers with their connection state, and connect
sessions.

A waba_id or phone_number_id belongs to one tenant (docs/numbers.md). Facts (subscribed, registered, token, taken away)
are written only inside `connection.facts_change`, which derives the connection state from them. The ids of a tenant's
sandbox are derived from the tenant's id, so a sandbox that is created twice exists only once.
"""

import hashlib
from typing import ClassVar
from uuid import UUID

from django.contrib.postgres.fields import ArrayField
from django.db import models

from gateway import ids
from gateway.clock import now
from gateway.encryption import EncryptedTextField
from gateway.ids import uuid7
from tenants.models import ApiKey, Tenant, TenantRows


class TakenAway(models.TextChoices):
    """Why Meta took an account or a number away. Also used as a connection detail."""

    ACCOUNT_REMOVED = "account_removed", "Account removed"
    ACCOUNT_RESTRICTED = "account_restricted", "Account restricted"


class BusinessAccount(models.Model):
    """A business account (WABA) of a tenant, with the token for its calls."""

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
    taken_away = models.CharField(max_length=32, choices=TakenAway.choices, null=True, blank=True)
    facts_changed_at = models.DateTimeField(null=True, blank=True)
    """When a command or event last changed a fact. A Graph API read that began before this time does not overwrite the
    fact.
    """
    token_checked_at = models.DateTimeField(null=True, blank=True)
    token_questioned_at = models.DateTimeField(null=True, blank=True)
    """When the service last checked the token because Meta had rejected a call with it."""
    token_mailed_at = models.DateTimeField(null=True, blank=True)
    """When the last mail about the rejected token was sent to the tenant."""
    token_warned_days = models.PositiveSmallIntegerField(null=True, blank=True)
    """The last `token.expiring` event about the token's present end: 7 or 1 (days before the end). Null without such an
    event.
    """
    synced_at = models.DateTimeField(null=True, blank=True)
    next_sync_at = models.DateTimeField(default=now)
    sync_lease_until = models.DateTimeField(null=True, blank=True)
    sync_failures = models.PositiveSmallIntegerField(default=0)
    created_at = models.DateTimeField(default=now, editable=False)

    objects = TenantRows["BusinessAccount"].as_manager()

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["tenant"], name="account_by_tenant"),
            models.Index(fields=["next_sync_at"], name="account_by_sync"),
        ]

    def __str__(self) -> str:
        return self.waba_id


class PhoneNumber(models.Model):
    """A tenant's business phone number, with its facts and its connection state (specification 2)."""

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
    """The digits of the number. Callers' E.164 `from` and Meta's management events name the number by its
    digits.
    """
    verified_name = models.CharField(max_length=255, null=True, blank=True)
    quality_rating = models.CharField(max_length=20, null=True, blank=True)
    messaging_limit_tier = models.CharField(max_length=32, null=True, blank=True)
    throughput_level = models.CharField(max_length=32, null=True, blank=True)
    name_status = models.CharField(max_length=32, null=True, blank=True)
    coexistence = models.BooleanField(default=False)
    """Whether the number is also in use in the WhatsApp Business app. The service never registers or deregisters such a
    number.
    """
    pin = EncryptedTextField(purpose="number_pin", null=True, blank=True)
    pin_is_untold = models.BooleanField(default=False, db_default=False)
    """Whether the service generated the PIN and no response has contained it yet."""
    registered = models.BooleanField(default=False)
    registered_at = models.DateTimeField(null=True, blank=True)
    connection_state = models.CharField(max_length=12, choices=State.choices, default=State.PENDING)
    connection_detail = models.CharField(max_length=32, null=True, blank=True)
    ever_connected = models.BooleanField(default=False)
    connection_changes = models.PositiveIntegerField(default=0)
    """The count of `number.connection` events of this number."""
    disconnect_mailed_at = models.DateTimeField(null=True, blank=True)
    """When the last mail about a disconnection of the number was sent to the tenant."""
    taken_away = models.CharField(max_length=32, choices=TakenAway.choices, null=True, blank=True)
    facts_changed_at = models.DateTimeField(null=True, blank=True)
    last_event_at = models.DateTimeField(null=True, blank=True)
    meta_snapshot = models.JSONField(null=True, blank=True)
    refreshed_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(default=now, editable=False)

    objects = TenantRows["PhoneNumber"].as_manager()

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["tenant", "-id"], name="number_by_tenant"),
            models.Index(fields=["tenant", "digits"], name="number_by_digits"),
            models.Index(fields=["connection_state"], name="number_by_state"),
        ]

    def __str__(self) -> str:
        return self.phone_number_id

    @property
    def waba_id(self) -> str:
        """Meta's id of the account."""
        return self.account.waba_id


class AppData(models.Model):
    """The sync of a coexistence number's contacts or chats in the WhatsApp Business app. Written by `app_data.py`."""

    class Kind(models.TextChoices):
        CONTACTS = "smb_app_state_sync", "Contacts"
        HISTORY = "history", "Chats"

    class Status(models.TextChoices):
        PENDING = "pending"
        REQUESTED = "requested"
        RECEIVING = "receiving"
        COMPLETED = "completed"
        DECLINED = "declined"
        EXPIRED = "expired"
        FAILED = "failed"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    number = models.ForeignKey(PhoneNumber, on_delete=models.CASCADE, related_name="app_data")
    kind = models.CharField(max_length=20, choices=Kind.choices)
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.PENDING)
    ends_at = models.DateTimeField()
    """The time until which Meta accepts the request."""
    attempts = models.PositiveSmallIntegerField(default=0)
    next_attempt_at = models.DateTimeField(default=now)
    requested_at = models.DateTimeField(null=True, blank=True)
    request_id = models.CharField(max_length=255, null=True, blank=True)
    progress = models.PositiveSmallIntegerField(default=0)
    """The percentage of the chats that was sent, as Meta reports it."""
    received = models.PositiveIntegerField(default=0)
    """The count of contacts or messages received so far."""
    finished_at = models.DateTimeField(null=True, blank=True)
    error_code = models.IntegerField(null=True, blank=True)
    """Meta's error code of the last rejection."""

    class Meta:
        verbose_name_plural = "app data"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["number", "kind"], name="app_data_once_per_number")
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["next_attempt_at"], condition=models.Q(status="pending"), name="app_data_pending"
            )
        ]

    def __str__(self) -> str:
        return f"{self.number_id} {self.kind}"


class NumberStateInterval(models.Model):
    """An interval in which a number was in a connection state. Usage is measured with these intervals.

    Written in the transaction that changes the state, so the interval always agrees with the stored state. `to_at` is
    null while the interval lasts. `tenant` is the owner of the number at that time. After the number has left the
    tenant, `number` is null and the interval has a copy of the values that usage shows.
    """

    id = models.BigAutoField(primary_key=True)
    number = models.ForeignKey(
        PhoneNumber, on_delete=models.SET_NULL, related_name="state_intervals", null=True, blank=True
    )
    phone_number_id = models.CharField(max_length=64, null=True, blank=True)
    display_phone_number = models.CharField(max_length=32, null=True, blank=True)
    environment = models.CharField(max_length=4, choices=ApiKey.Environment.choices, null=True, blank=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    connection_state = models.CharField(max_length=12, choices=PhoneNumber.State.choices)
    from_at = models.DateTimeField()
    to_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["number"], condition=models.Q(to_at__isnull=True), name="one_open_interval_per_number"
            ),
            models.CheckConstraint(
                condition=models.Q(to_at__isnull=True) | models.Q(to_at__gte=models.F("from_at")),
                name="interval_runs_forward",
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["tenant", "connection_state", "from_at"], name="interval_by_tenant"),
        ]

    def __str__(self) -> str:
        return f"{self.number_id} {self.connection_state} from {self.from_at}"


class RedeemedCode(models.Model):
    """The token from the code of an embedded sign-up. Meta accepts a code only once, so a repeated call uses the stored
    token.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    environment = models.CharField(max_length=4, choices=ApiKey.Environment.choices)
    code_hash = models.CharField(max_length=64)
    access_token = EncryptedTextField(purpose="upstream_token")
    created_at = models.DateTimeField(default=now, editable=False)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant", "environment", "code_hash"], name="code_redeemed_once_per_tenant"
            ),
        ]
        indexes: ClassVar = [models.Index(fields=["created_at"], name="redeemed_code_by_age")]

    def __str__(self) -> str:
        return str(self.id)


MAX_RETURN_URL_LENGTH = 2048


class ConnectSession(ids.PublicId, models.Model):
    """A session of the hosted connect page (specification 2). Written by `hosted_connect/sessions.py`."""

    class Status(models.TextChoices):
        OPEN = "open"
        CONNECTED = "connected"
        FAILED = "failed"

    EXPIRED = "expired"
    """The status that is shown for an open session after its end. It is never stored."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    id_prefix = ids.CONNECT_SESSION
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="connect_sessions")
    environment = models.CharField(max_length=4, choices=ApiKey.Environment.choices)
    return_url = models.CharField(max_length=MAX_RETURN_URL_LENGTH)
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.OPEN)
    expires_at = models.DateTimeField()
    finishing_until = models.DateTimeField(null=True, blank=True)
    """The end of the lease of the request that finishes the session. Until then a second request is rejected."""
    completed_at = models.DateTimeField(null=True, blank=True)
    waba_id = models.CharField(max_length=64, null=True, blank=True)
    phone_number_ids = ArrayField(models.CharField(max_length=64), default=list, blank=True)
    error = models.JSONField(null=True, blank=True)
    created_at = models.DateTimeField(default=now, editable=False)

    objects = TenantRows["ConnectSession"].as_manager()

    class Meta:
        indexes: ClassVar = [models.Index(fields=["tenant", "-id"], name="connect_session_by_tenant")]

    def __str__(self) -> str:
        return self.public_id

    @property
    def shown_status(self) -> str:
        """The status, with `expired` for an open session past its end."""
        if self.status == self.Status.OPEN and self.expires_at <= now():
            return self.EXPIRED
        return self.status


def sandbox_waba_id_of(tenant_id: UUID) -> str:
    """The business account id of a tenant's sandbox."""
    return f"99{_sandbox_digits(tenant_id, 'account')}"


def sandbox_number_id_of(tenant_id: UUID) -> str:
    """The phone_number_id of the sandbox's first number."""
    return f"98{_sandbox_digits(tenant_id, 'number')}"


def _sandbox_digits(tenant_id: UUID, what: str) -> str:
    digest = hashlib.sha256(tenant_id.bytes + what.encode()).digest()
    return f"{int.from_bytes(digest[:8]) % 10**14:014d}"
