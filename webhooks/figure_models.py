"""Rows of the hourly figures: what was counted, and which hours have to be counted again."""

from typing import ClassVar

from django.db import models
from django.db.models.functions import Now


class FigureChange(models.Model):
    """A tenant's hour of which a message or an event was written. Written by publishing; gathered by `figures/`."""

    tenant_id = models.UUIDField()
    environment = models.CharField(max_length=4)
    hour = models.IntegerField()
    """Hours since 1970."""
    noted_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "figure_changes"

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.hour}"


class FigureDue(models.Model):
    """A tenant's hour that is to be counted again, and when."""

    pk = models.CompositePrimaryKey("tenant_id", "environment", "hour")
    tenant_id = models.UUIDField()
    environment = models.CharField(max_length=4)
    hour = models.IntegerField()
    due_at = models.DateTimeField()
    since = models.DateTimeField(null=True)
    """When its oldest uncounted change was noted; null where deliveries are open and nothing is known to be missing."""

    class Meta:
        db_table = "figures_due"
        indexes: ClassVar = [models.Index(fields=["due_at"], name="figure_due_by_time")]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.hour}"


class Figure(models.Model):
    """How many messages or deliveries of an hour have a property. An hour's rows are replaced as a whole."""

    pk = models.CompositePrimaryKey(
        "tenant_id", "environment", "hour", "phone_number_id", "template", "direction", "measure", "value"
    )
    tenant_id = models.UUIDField()
    environment = models.CharField(max_length=4)
    hour = models.IntegerField()
    phone_number_id = models.CharField(max_length=255)
    template = models.CharField(max_length=512)
    direction = models.CharField(max_length=8)
    """That of messages; `webhook` for deliveries."""
    measure = models.CharField(max_length=20)
    value = models.CharField(max_length=40)
    """What the count is by, such as an error code; empty for a plain count."""
    count = models.BigIntegerField()

    class Meta:
        db_table = "figures"
        indexes: ClassVar = [models.Index(fields=["hour"], name="figure_by_hour")]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.hour} {self.measure}"
