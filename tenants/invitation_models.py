"""Invitations: a person of a business asks another to join its team, by a mailed link."""

from datetime import datetime, timedelta
from typing import ClassVar, Self
from uuid import UUID

from django.db import models
from django.db.models import Q

from gateway.clock import now
from gateway.ids import uuid7
from gateway.roles import Role

LINK_LIFETIME = timedelta(hours=24)


class InvitationQuerySet(models.QuerySet["Invitation"]):
    def for_tenant(self, tenant_id: UUID) -> Self:
        """A business's own invitations."""
        return self.filter(tenant_id=tenant_id)

    def open(self) -> Self:
        """Those whose link may still be used: neither accepted, withdrawn nor sent anew. It may be too old."""
        return self.filter(ended_at__isnull=True)


class Invitation(models.Model):
    """One mail with one link. Sending it again ends this row and makes another, so a former link never works."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey("tenants.Tenant", on_delete=models.CASCADE, related_name="invitations")
    email = models.EmailField()
    role = models.CharField(max_length=10, choices=Role.choices)
    invited_by = models.ForeignKey("tenants.User", null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=now, editable=False)
    ended_at = models.DateTimeField(null=True)
    """When it was accepted, withdrawn or sent anew."""

    objects = InvitationQuerySet.as_manager()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant", "email"], condition=Q(ended_at__isnull=True), name="one_open_invitation"
            )
        ]
        indexes: ClassVar = [models.Index(fields=["tenant", "-created_at"], name="invitation_by_tenant")]

    def __str__(self) -> str:
        return str(self.id)

    @property
    def expires_at(self) -> datetime:
        """When its link stops working."""
        return self.created_at + LINK_LIFETIME

    @property
    def is_expired(self) -> bool:
        """Whether its link is too old."""
        return self.expires_at <= now()
