"""Payment tables: mandates, payment attempts, the provider's notices. Rows and their invariants only."""

from typing import ClassVar, Self
from uuid import UUID

from django.db import models
from django.db.models import Q

from gateway import ids
from gateway.clock import now
from gateway.ids import uuid7
from tenants.models import Tenant

MANDATE, ATTEMPT, REFUND = "mnd_", "pat_", "rfd_"
RAZORPAY = "razorpay"
"""The provider of rows that are older than the column."""


class MandateQuerySet(models.QuerySet["Mandate"]):
    def for_tenant(self, tenant_id: UUID) -> Self:
        """A tenant's own mandates."""
        return self.filter(tenant_id=tenant_id)


class Mandate(models.Model):
    """A standing permission to debit a tenant. Written by `payments/mandates.py`."""

    class Method(models.TextChoices):
        UPI = "upi", "UPI"
        CARD = "card"
        EMANDATE = "emandate", "E-mandate"

    class Status(models.TextChoices):
        PENDING = "pending"
        ACTIVE = "active"
        PAUSED = "paused"
        REJECTED = "rejected"
        CANCELLED = "cancelled"
        EXPIRED = "expired"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="mandates")
    provider = models.CharField(max_length=20, default=RAZORPAY, db_default=RAZORPAY)
    """The provider that it was registered with: it is debited and cancelled there, whatever PAYMENT_PROVIDER says."""
    method = models.CharField(max_length=10, choices=Method.choices)
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.PENDING)
    max_amount_paise = models.BigIntegerField()
    instrument = models.CharField(max_length=100, null=True, blank=True)
    """Masked, e.g. `g***@okaxis`."""
    replaces = models.ForeignKey("self", null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    return_url = models.CharField(max_length=2048, null=True, blank=True)
    authorization_url = models.CharField(max_length=500, null=True, blank=True)
    authorization_expires_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    provider_registration_id = models.CharField(max_length=64, null=True, blank=True)
    """The page on which it is approved, as the provider names it."""
    provider_order_id = models.CharField(max_length=64, null=True, blank=True, unique=True)
    provider_customer_id = models.CharField(max_length=64, null=True, blank=True)
    provider_token_id = models.CharField(max_length=64, null=True, blank=True, unique=True)
    cancel_at_provider = models.BooleanField(default=False)
    """A replaced mandate whose page or token is not cancelled at the provider yet."""
    created_at = models.DateTimeField(default=now, editable=False)

    objects = MandateQuerySet.as_manager()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant"],
                condition=Q(status__in=["active", "paused"]),
                name="one_standing_mandate_per_tenant",
            ),
        ]
        indexes: ClassVar = [models.Index(fields=["tenant", "-id"], name="mandate_by_tenant")]

    def __str__(self) -> str:
        return self.public_id

    @property
    def public_id(self) -> str:
        return ids.encode(MANDATE, self.id)


class PaymentAttempt(models.Model):
    """One attempt to collect an invoice. Written by `billing/payments/`; an invoice has one in flight."""

    class Kind(models.TextChoices):
        AUTOPAY = "autopay"
        LINK = "link"
        MANUAL = "manual", "Bank transfer"
        TDS = "tds", "Tax deducted at source"

    class Status(models.TextChoices):
        CREATED = "created"
        SCHEDULED = "scheduled"
        PROCESSING = "processing"
        CAPTURED = "captured"
        FAILED = "failed"
        UNKNOWN = "unknown"

    IN_FLIGHT = (Status.CREATED, Status.SCHEDULED, Status.PROCESSING, Status.UNKNOWN)

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    invoice = models.ForeignKey("billing.Invoice", on_delete=models.PROTECT, related_name="attempts")
    mandate = models.ForeignKey(
        Mandate, null=True, blank=True, on_delete=models.PROTECT, related_name="attempts"
    )
    kind = models.CharField(max_length=8, choices=Kind.choices)
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.CREATED)
    amount_paise = models.BigIntegerField()
    provider = models.CharField(max_length=20, default=RAZORPAY, db_default=RAZORPAY)
    captured_paise = models.BigIntegerField(default=0)
    """What was collected. Only grows, like `refunded_paise`: a stale answer of the provider changes neither."""
    refunded_paise = models.BigIntegerField(default=0, db_default=0)
    """What was refunded of it."""
    receipt = models.CharField(max_length=40, unique=True)
    return_url = models.CharField(max_length=2048, null=True, blank=True)
    payment_url = models.CharField(max_length=500, null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    """When a payment link ends."""
    pays_all = models.BooleanField(default=False, db_default=False)
    """Whether it is a link for everything that is due; `invoice` is the oldest of it."""
    provider_order_id = models.CharField(max_length=64, null=True, blank=True, unique=True)
    provider_link_id = models.CharField(max_length=64, null=True, blank=True, unique=True)
    provider_payment_id = models.CharField(max_length=64, null=True, blank=True)
    scheduled_for = models.DateTimeField(null=True, blank=True)
    """When the debit was asked for; written before the call, so it is asked for once."""
    completed_at = models.DateTimeField(null=True, blank=True)
    error = models.JSONField(null=True, blank=True)
    created_at = models.DateTimeField()
    next_check_at = models.DateTimeField()
    """When the provider is asked about it, should no notice come before."""

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["invoice"],
                condition=Q(status__in=["created", "scheduled", "processing", "unknown"]),
                name="one_attempt_in_flight_per_invoice",
            ),
            models.UniqueConstraint(
                fields=["invoice"], condition=Q(kind="tds"), name="tax_deducted_once_per_invoice"
            ),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["next_check_at"],
                name="attempt_in_flight",
                condition=Q(status__in=["created", "scheduled", "processing", "unknown"]),
            ),
            models.Index(
                fields=["next_check_at"], name="attempt_ended", condition=Q(status__in=["captured", "failed"])
            ),
            models.Index(fields=["provider_payment_id"], name="attempt_by_payment"),
        ]

    def __str__(self) -> str:
        return self.public_id

    @property
    def public_id(self) -> str:
        return ids.encode(ATTEMPT, self.id)

    @property
    def kept_paise(self) -> int:
        """What was collected and not refunded."""
        return self.captured_paise - self.refunded_paise


class BankTransfer(models.Model):
    """The bank's reference of a recorded transfer, unique per tenant. Written by `payments/bank_transfers.py`."""

    attempt = models.OneToOneField(
        PaymentAttempt, primary_key=True, on_delete=models.PROTECT, related_name="bank_transfer"
    )
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="bank_transfers")
    reference = models.CharField(max_length=64)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant", "reference"], name="bank_reference_once_per_tenant"),
        ]

    def __str__(self) -> str:
        return self.reference


class Refund(models.Model):
    """Money that staff pay back from a captured attempt, which has one in flight. Written by `payments/refunds.py`."""

    class Status(models.TextChoices):
        CREATED = "created"
        UNKNOWN = "unknown"
        PROCESSING = "processing"
        PROCESSED = "processed"
        FAILED = "failed"

    IN_FLIGHT = (Status.CREATED, Status.UNKNOWN, Status.PROCESSING)

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    attempt = models.ForeignKey(PaymentAttempt, on_delete=models.PROTECT, related_name="refunds")
    amount_paise = models.BigIntegerField()
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.CREATED)
    receipt = models.CharField(max_length=40, unique=True)
    provider_refund_id = models.CharField(max_length=64, null=True, blank=True, unique=True)
    error = models.JSONField(null=True, blank=True)
    created_at = models.DateTimeField()
    completed_at = models.DateTimeField(null=True, blank=True)
    next_check_at = models.DateTimeField()
    requested_by = models.BigIntegerField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["attempt"],
                condition=Q(status__in=["created", "unknown", "processing"]),
                name="one_refund_in_flight_per_attempt",
            ),
            models.CheckConstraint(condition=Q(amount_paise__gt=0), name="refund_is_positive"),
        ]

    def __str__(self) -> str:
        return self.public_id

    @property
    def public_id(self) -> str:
        return ids.encode(REFUND, self.id)


class ProviderTrouble(models.Model):
    """A provider that refuses the service's own account or keys. The row goes with its next answer."""

    provider = models.CharField(max_length=20, primary_key=True)
    since = models.DateTimeField()
    status = models.PositiveSmallIntegerField()
    text = models.CharField(max_length=300)

    def __str__(self) -> str:
        return f"{self.provider} since {self.since:%Y-%m-%d %H:%M} UTC"


class ProviderEvent(models.Model):
    """A notice of the payment provider, kept as it came. Written by `payments/notices.py`."""

    id = models.BigAutoField(primary_key=True)
    provider = models.CharField(max_length=20)
    event_id = models.CharField(max_length=100)
    type = models.CharField(max_length=60)
    body = models.BinaryField()
    received_at = models.DateTimeField(default=now, editable=False)
    processed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["provider", "event_id"], name="provider_event_once"),
        ]
        indexes: ClassVar = [
            models.Index(fields=["id"], name="provider_event_waiting", condition=Q(processed_at__isnull=True))
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.event_id}"
