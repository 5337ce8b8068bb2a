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
