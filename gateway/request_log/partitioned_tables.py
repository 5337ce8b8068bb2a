"""The partitioned table of the request log: one partition a day, dropped when `REQUEST_LOG_DAYS` are over."""

from django.conf import settings

from gateway.database.partitions import PartitionedTable, register

REQUESTS = register(
    PartitionedTable("api_requests", "day", "id", ahead_days=7, keep_days=lambda: settings.REQUEST_LOG_DAYS)
)
