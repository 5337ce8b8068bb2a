"""Device log-ins: a program without a browser asks for an API key, and a person confirms it in the console."""

from typing import ClassVar

from django.db import models

from gateway.clock import now
from gateway.ids import uuid7


class DeviceLogin(models.Model):
    """A program's request for a key. It lives for minutes; the key itself is never stored."""

    class Status(models.TextChoices):
        WAITING = "waiting"
        CONFIRMED = "confirmed"
        DENIED = "denied"
        REDEEMED = "redeemed"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    device_code_hash = models.CharField(max_length=64, unique=True)
    """SHA-256, hex: only the program knows the code."""
    user_code = models.CharField(max_length=8, unique=True)
    """What the person compares and types, without its hyphen."""
    client_name = models.CharField(max_length=100)
    """What the program says of itself, for example the computer's name."""
    ip = models.GenericIPAddressField(null=True)
    status = models.CharField(max_length=9, choices=Status.choices, default=Status.WAITING)
    tenant = models.ForeignKey("tenants.Tenant", null=True, on_delete=models.CASCADE, related_name="+")
    """The business of the person who confirmed."""
    user = models.ForeignKey("tenants.User", null=True, on_delete=models.CASCADE, related_name="+")
    environment = models.CharField(max_length=4, blank=True)
    """What the person chose for the key."""
    created_at = models.DateTimeField(default=now, editable=False)
    expires_at = models.DateTimeField()

    class Meta:
        verbose_name = "device log-in"
        indexes: ClassVar = [models.Index(fields=["expires_at"], name="device_login_by_end")]

    def __str__(self) -> str:
        return str(self.id)
