"""The mirror of the upstream's message templates: one row an account, one row a template (docs/templates.md).

Written by `mirror.py` alone, which locks the account's row first, so writers of one account take turns.
"""

from typing import ClassVar, Self
from uuid import UUID

from django.db import models

from gateway.clock import now
from gateway.ids import uuid7
from phone_numbers.models import BusinessAccount
from tenants.models import ApiKey, Tenant


class TemplateMirror(models.Model):
    """How current the mirror of one account's templates is, and when it is read again."""

    account = models.OneToOneField(
        BusinessAccount, on_delete=models.CASCADE, primary_key=True, related_name="template_mirror"
    )
    next_sync_at = models.DateTimeField(default=now)
    """When it is due. A claimed sync moves it to the end of its lease, so that a crash makes it due again."""
    failures = models.PositiveSmallIntegerField(default=0)
    read_at = models.DateTimeField(null=True, blank=True)
    """When the newest list that was stored here began to be read: an older one changes nothing."""

    class Meta:
        indexes: ClassVar = [models.Index(fields=["next_sync_at"], name="template_mirror_by_sync")]

    def __str__(self) -> str:
        return str(self.account_id)


class MessageTemplateQuerySet(models.QuerySet["MessageTemplate"]):
    def for_tenant(self, tenant_id: UUID) -> Self:
        """A tenant's own templates, without those that are deleted."""
        return self.filter(tenant_id=tenant_id, deleted_at__isnull=True)


class MessageTemplate(models.Model):
    """One language of a message template, as the upstream last described it."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    account = models.ForeignKey(BusinessAccount, on_delete=models.CASCADE, related_name="templates")
    environment = models.CharField(max_length=4, choices=ApiKey.Environment.choices)
    template_id = models.CharField(max_length=64)
    """The upstream's id."""
    name = models.CharField(max_length=512)
    language = models.CharField(max_length=32)
    """With an underscore (`en_US`), however the upstream wrote it."""
    status = models.CharField(max_length=32)
    category = models.CharField(max_length=32)
    document = models.TextField()
    """The upstream's object as JSON text: its members in its order, which a jsonb column would not keep."""
    changed_at = models.DateTimeField()
    """The time of the last update that was stored. A read of the upstream that began earlier does not overwrite it."""
    deleted_at = models.DateTimeField(null=True, blank=True)
    """Deleted by a command or an event; the row goes once a later list no longer has it."""

    objects = MessageTemplateQuerySet.as_manager()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["account", "template_id"], name="template_once_per_account"),
        ]
        indexes: ClassVar = [
            models.Index(fields=["tenant", "environment", "-id"], name="template_by_tenant"),
            models.Index(fields=["tenant", "template_id"], name="template_by_upstream_id"),
        ]

    def __str__(self) -> str:
        return self.template_id
