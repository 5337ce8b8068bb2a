"""The event log and its delivery: endpoints, events with their bodies, deliveries.

Events, bodies and deliveries are time-partitioned and carry no foreign keys: rows are written in bulk by
`events/publish.py` and `delivery/dispatcher.py` and leave by whole partitions (docs/architecture.md).
"""

from datetime import date, datetime, timedelta
from typing import ClassVar, Self
from uuid import UUID

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from gateway import ids
from gateway.clock import now
from gateway.encryption import EncryptedTextField
from gateway.ids import uuid7
from tenants.models import Tenant


class EndpointQuerySet(models.QuerySet["Endpoint"]):
    def for_tenant(self, tenant_id: UUID) -> Self:
        """A tenant's own endpoints."""
        return self.filter(tenant_id=tenant_id)


class Endpoint(models.Model):
    """A customer's webhook endpoint. Written by `endpoints.py`; its delivery figures by `delivery/dispatcher.py`."""

    class Status(models.TextChoices):
        PENDING = "pending"
        ACTIVE = "active"
        PAUSED = "paused"
        DISABLED = "disabled"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="endpoints")
    url = models.CharField(max_length=2048)
    description = models.CharField(max_length=500, default="", blank=True)
    event_types = ArrayField(models.CharField(max_length=40))
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.PENDING)
    verified_at = models.DateTimeField(null=True, blank=True)
    secret = EncryptedTextField(purpose="webhook_secret")
    secret_prefix = models.CharField(max_length=12)
    previous_secret = EncryptedTextField(purpose="webhook_secret", null=True, blank=True)
    previous_secret_expires_at = models.DateTimeField(null=True, blank=True)
    secret_unreadable_since = models.DateTimeField(null=True, blank=True)
    """Since when no key of ENCRYPTION_KEYS opens `secret`: deliveries are put off. A new secret repairs it."""
    last_success_at = models.DateTimeField(null=True, blank=True)
    consecutive_failures = models.PositiveIntegerField(default=0)
    failing_since = models.DateTimeField(null=True, blank=True)
    circuit_open_until = models.DateTimeField(null=True, blank=True)
    circuit_opened = models.PositiveSmallIntegerField(default=0)
    """How often in a row the circuit opened: its wait doubles each time."""
    window_started_at = models.DateTimeField(null=True, blank=True)
    window_attempts = models.PositiveIntegerField(default=0)
    window_failures = models.PositiveIntegerField(default=0)
    """Attempts and failures of the running five minutes, for the circuit's second rule."""
    disabled_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(default=now, editable=False)

    objects = EndpointQuerySet.as_manager()

    class Meta:
        indexes: ClassVar = [models.Index(fields=["tenant", "-id"], name="endpoint_by_tenant")]

    def __str__(self) -> str:
        return str(self.id)


class EventQuerySet(models.QuerySet["Event"]):
    def for_tenant(self, tenant_id: UUID) -> Self:
        """A tenant's own events."""
        return self.filter(tenant_id=tenant_id)


class Event(models.Model):
    """The envelope of an event without its body (specification 6). Partitioned by month of its id."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant_id = models.UUIDField()
    type = models.CharField(max_length=40)
    waba_id = models.CharField(max_length=255, null=True)
    phone_number_id = models.CharField(max_length=255, null=True)
    display_phone_number = models.CharField(max_length=255, null=True)
    wamid = models.TextField(null=True)
    wa_id = models.CharField(max_length=255, null=True)
    user_id = models.CharField(max_length=255, null=True)
    dedupe_key = models.CharField(max_length=255)
    raw_path = models.TextField(null=True)
    raw_id = models.UUIDField(null=True)
    """The payload row that holds the notification, shared by all events of it."""
    payload_expires_on = models.DateField()

    objects = EventQuerySet.as_manager()

    class Meta:
        db_table = "events"
        indexes: ClassVar = [
            models.Index(fields=["tenant_id", "-id"], name="event_by_tenant"),
            models.Index(
                fields=["tenant_id", "wamid", "-id"],
                name="event_by_message",
                condition=Q(wamid__isnull=False),
            ),
            models.Index(fields=["tenant_id", "type", "-id"], name="event_by_type"),
            models.Index(fields=["tenant_id", "waba_id", "-id"], name="event_by_account"),
            models.Index(fields=["tenant_id", "phone_number_id", "-id"], name="event_by_number"),
            models.Index(
                fields=["tenant_id", "wa_id", "-id"],
                name="event_by_customer",
                condition=Q(wa_id__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return self.public_id

    @property
    def public_id(self) -> str:
        return ids.encode(ids.EVENT, self.id)

    @property
    def created_at(self) -> datetime:
        """Exactly the millisecond in the id."""
        return ids.created_at(self.id)


class EventPayload(models.Model):
    """A body: an event's `data`, or a notification's bytes. Partitioned by week of expiry, dropped as a whole."""

    pk = models.CompositePrimaryKey("expires_on", "id")
    expires_on = models.DateField()
    id = models.UUIDField()
    tenant_id = models.UUIDField()
    body = models.BinaryField()

    class Meta:
        db_table = "event_payloads"

    def __str__(self) -> str:
        return str(self.id)


class EventKey(models.Model):
    """What was published already: the upstream repeats for days, and each repeat stops here."""

    pk = models.CompositePrimaryKey("tenant_id", "dedupe_key")
    tenant_id = models.UUIDField()
    dedupe_key = models.CharField(max_length=255)
    created_at = models.DateTimeField(default=now)

    class Meta:
        db_table = "event_keys"
        indexes: ClassVar = [models.Index(fields=["created_at"], name="event_key_by_age")]

    def __str__(self) -> str:
        return self.dedupe_key


class RetentionMove(models.Model):
    """How far a tenant's bodies are in the weeks that its retention gives them. Written by `events/retention.py`."""

    tenant = models.OneToOneField(Tenant, on_delete=models.CASCADE, primary_key=True, related_name="+")
    retention_days = models.PositiveSmallIntegerField()
    after = models.UUIDField(null=True)
    """The last event that was looked at; null when all were."""

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["tenant"], name="retention_to_move", condition=Q(after__isnull=False))
        ]

    def __str__(self) -> str:
        return str(self.tenant_id)


class ReplayChunk(models.Model):
    """Deliveries, or missed events, of an endpoint that are still to be replayed. Written by `replay.py`."""

    id = models.BigAutoField(primary_key=True)
    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="+", db_index=False)
    missed = models.BooleanField()
    """Whether the ids are those of events, not of deliveries."""
    source_ids = ArrayField(models.UUIDField())
    due_at = models.DateTimeField()

    class Meta:
        indexes: ClassVar = [models.Index(fields=["endpoint", "id"], name="replay_by_endpoint")]

    def __str__(self) -> str:
        return str(self.id)


class DeliveryQuerySet(models.QuerySet["Delivery"]):
    def for_tenant(self, tenant_id: UUID) -> Self:
        """A tenant's own deliveries."""
        return self.filter(tenant_id=tenant_id)


class Delivery(models.Model):
    """One event on its way to one endpoint. Partitioned by week of its id."""

    class Status(models.TextChoices):
        PENDING = "pending"
        DELIVERED = "delivered"
        FAILED = "failed"
        DEAD = "dead"

    OPEN = (Status.PENDING, Status.FAILED)

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant_id = models.UUIDField()
    endpoint_id = models.UUIDField()
    event_id = models.UUIDField()
    event_type = models.CharField(max_length=40)
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.PENDING)
    attempts = models.PositiveSmallIntegerField(default=0)
    next_attempt_at = models.DateTimeField(null=True)
    leased_until = models.DateTimeField(null=True)
    """While a worker holds it: `next_attempt_at` as the claim set it. Still there after that: the worker died."""
    dead_at = models.DateTimeField(null=True)
    last_http_status = models.PositiveSmallIntegerField(null=True)
    last_error = models.CharField(max_length=30, null=True)
    last_response_ms = models.PositiveIntegerField(null=True)
    attempt_log = models.JSONField(default=list)
    is_replay = models.BooleanField(default=False)
    replay_of = models.UUIDField(null=True)

    objects = DeliveryQuerySet.as_manager()

    class Meta:
        db_table = "webhook_deliveries"
        verbose_name_plural = "deliveries"
        indexes: ClassVar = [
            models.Index(fields=["tenant_id", "-id"], name="delivery_by_tenant"),
            models.Index(fields=["event_id"], name="delivery_by_event"),
            models.Index(
                fields=["endpoint_id", "next_attempt_at"],
                name="delivery_due",
                condition=Q(status__in=["pending", "failed"]),
            ),
            models.Index(fields=["dead_at"], name="delivery_dead", condition=Q(status="dead")),
        ]

    def __str__(self) -> str:
        return self.public_id

    @property
    def public_id(self) -> str:
        return ids.encode(ids.DELIVERY, self.id)

    @property
    def created_at(self) -> datetime:
        return ids.created_at(self.id)


def expires_on(created_at: datetime, retention_days: int) -> date:
    """The first day on which nobody may need a body any more: its partition goes when that week is over."""
    return (created_at + timedelta(days=retention_days + 1)).date()


def within_retention(event_id: UUID, retention_days: int, moment: datetime) -> bool:
    """Whether an event's body may still be shown and delivered, whatever is still stored of it."""
    return ids.milliseconds(event_id) / 1000 + retention_days * 86_400 > moment.timestamp()
