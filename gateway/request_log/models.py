"""Rows of the request log: one for each API call for a tenant. Only `recorder.py` writes them."""

from typing import ClassVar, Self
from uuid import UUID

from django.conf import settings
from django.db import models

from gateway import ids
from gateway.database.partitions import PartitionedTable, register


class RequestRows(models.QuerySet["ApiRequest"]):
    """Logged calls, with a filter for one tenant and environment."""

    def for_environment(self, tenant_id: UUID, environment: str) -> Self:
        """The calls of a tenant in one environment."""
        return self.filter(tenant_id=tenant_id, environment=environment)


class ApiRequest(ids.PublicId, ids.MadeById, models.Model):
    """A finished call. Its id is the request id (`X-Service-Request-Id`). Partitioned by the day of the id."""

    id = models.UUIDField(primary_key=True, editable=False)
    id_prefix = ids.REQUEST
    tenant_id = models.UUIDField()
    environment = models.CharField(max_length=4)
    method = models.CharField(max_length=16)
    route = models.CharField(max_length=200, null=True)
    """The pattern of the path, without the ids. Null for a path without a route."""
    status = models.PositiveSmallIntegerField()
    error_code = models.CharField(max_length=64, null=True)
    key_prefix = models.CharField(max_length=16, null=True)
    """The first characters of the API key. Null for a console token."""
    own_ms = models.FloatField()
    upstream_ms = models.FloatField()

    objects = RequestRows.as_manager()

    class Meta:
        db_table = "api_requests"
        indexes: ClassVar = [
            models.Index(fields=["tenant_id", "environment", "-id"], name="request_by_tenant")
        ]

    def __str__(self) -> str:
        return self.public_id

    @property
    def is_error_of_upstream(self) -> bool:
        """Whether the error is Meta's. Meta's codes are numbers, and the service's codes are words."""
        return (self.error_code or "").isdecimal()


REQUESTS = register(
    PartitionedTable("api_requests", "day", "id", ahead_days=7, keep_days=lambda: settings.REQUEST_LOG_DAYS)
)
