"""Rows of the message log: what is known of each message, without its content."""

from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar

from django.db import models
from django.db.models import Q

from gateway import ids
from gateway.upstream.notifications.message_facts import Status
from tenants.models import ApiKey

EXPUNGED = "expunged:"
"""What the key of an expunged message begins with, and the dedupe key of an expunged event; the row's id follows."""
PRECEDENCE: Mapping[Status, str] = {
    "failed": "failed_at",
    "read": "read_at",
    "delivered": "delivered_at",
    "sent": "sent_at",
    "accepted": "accepted_at",
}
"""The column of each status of an outbound message (upstream fact 3.3): the first that has a time is shown."""


def _conditions() -> Mapping[str, str]:
    """SQL for `Message.status`: its own time and none of those before it."""
    conditions = {"received": "direction = 'inbound'"}
    earlier = "direction = 'outbound'"
    for status, column in PRECEDENCE.items():
        conditions[status] = f"({earlier} AND {column} IS NOT NULL)"
        earlier += f" AND {column} IS NULL"
    return {**conditions, "unknown": f"({earlier})"}


STATUS_CONDITIONS = _conditions()


class Message(models.Model):
    """A message and how far it came. Written by `events/message_log.py` with its events. Partitioned by month.

    Each time is the earliest that an event reported, so the order of the events does not matter. The content is in the
    body of the event that holds the message.
    """

    pk = models.CompositePrimaryKey("tenant_id", "environment", "key", "month")
    tenant_id = models.UUIDField()
    environment = models.CharField(max_length=4, choices=ApiKey.Environment.choices)
    key = models.TextField(db_collation="C")
    """The wamid; of a message that got none, the public id of its event."""
    month = models.DateField()
    """The month's first day in which the row was made."""
    id = models.UUIDField()
    """Of the first event of the message that was published; never changes."""
    direction = models.CharField(max_length=8)
    waba_id = models.CharField(max_length=255, null=True)
    phone_number_id = models.CharField(max_length=255, null=True)
    wa_id = models.CharField(max_length=255, null=True)
    user_id = models.CharField(max_length=255, null=True)
    type = models.CharField(max_length=40, null=True)
    template = models.CharField(max_length=512, null=True)
    template_language = models.CharField(max_length=20, null=True)
    batch_id = models.UUIDField(null=True)
    idx = models.IntegerField(null=True)
    event_id = models.UUIDField(null=True)
    """The event that holds the message; null while only statuses of it came."""
    accepted_at = models.DateTimeField(null=True)
    sent_at = models.DateTimeField(null=True)
    delivered_at = models.DateTimeField(null=True)
    read_at = models.DateTimeField(null=True)
    failed_at = models.DateTimeField(null=True)
    error_code = models.IntegerField(null=True)
    pricing_category = models.CharField(max_length=40, null=True)
    pricing_type = models.CharField(max_length=40, null=True)
    billable = models.BooleanField(null=True)
    service_ms = models.IntegerField(null=True)
    upstream_ms = models.IntegerField(null=True)

    class Meta:
        db_table = "messages"
        indexes: ClassVar = [
            models.Index(fields=["tenant_id", "environment", "-id"], name="message_by_tenant"),
            models.Index(
                fields=["tenant_id", "wa_id", "-id"],
                name="message_by_customer",
                condition=Q(wa_id__isnull=False),
            ),
            models.Index(
                fields=["tenant_id", "user_id", "-id"],
                name="message_by_user",
                condition=Q(user_id__isnull=False),
            ),
            models.Index(
                fields=["batch_id", "-id"], name="message_by_batch", condition=Q(batch_id__isnull=False)
            ),
            models.Index(
                fields=["tenant_id", "-id"], name="message_failed", condition=Q(failed_at__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return str(self.id)

    @property
    def created_at(self) -> datetime:
        """When the row was made."""
        return ids.created_at(self.id)

    @property
    def wamid(self) -> str | None:
        """The upstream's id; None when it gave none, or when the message was expunged."""
        return None if self.key.startswith((ids.EVENT, EXPUNGED)) else self.key

    @property
    def status(self) -> Status:
        """How far the message came: a later `sent` never undoes `read`."""
        if self.direction == "inbound":
            return "received"
        reached = (status for status, column in PRECEDENCE.items() if getattr(self, column) is not None)
        return next(reached, "unknown")
