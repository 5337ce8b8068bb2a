"""Rows of the message flows."""

from typing import ClassVar

from django.db import models

from gateway.clock import now
from gateway.ids import uuid7


class KeptNotification(models.Model):
    """A signed notification that became no tenant's event: unroutable or malformed. Kept for 30 days, never lost."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    received_at = models.DateTimeField(default=now, editable=False)
    reason = models.CharField(max_length=30)
    error = models.CharField(max_length=255, null=True)
    waba_id = models.CharField(max_length=64, null=True)
    body_sha256 = models.CharField(max_length=64, unique=True)
    body = models.BinaryField()

    class Meta:
        indexes: ClassVar = [models.Index(fields=["received_at"], name="kept_by_age")]

    def __str__(self) -> str:
        return f"{self.reason} {self.id}"


class IdempotencyRecord(models.Model):
    """One use of an Idempotency-Key: made before the upstream call begins, completed with its outcome.

    A record without an answer is running, or was interrupted: then its outcome is unknown and it is never sent
    again (decisions, Messages).
    """

    pk = models.CompositePrimaryKey("tenant_id", "environment", "key")
    tenant_id = models.UUIDField()
    environment = models.CharField(max_length=4)
    key = models.CharField(max_length=255)
    path = models.CharField(max_length=100)
    body_hash = models.BinaryField(max_length=32)
    started_at = models.DateTimeField(default=now)
    status = models.PositiveSmallIntegerField(null=True)
    headers = models.JSONField(default=dict)
    body = models.BinaryField(null=True)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["started_at"], name="idempotency_by_age")]

    def __str__(self) -> str:
        return self.key
