"""The time-partitioned tables of the event log (docs/architecture.md)."""

from django.conf import settings

from gateway.database.partitions import PartitionedTable, register

LONGEST_RETENTION_DAYS = 365

EVENTS = register(
    PartitionedTable("events", "month", "id", ahead_days=93, keep_days=lambda: settings.EVENT_METADATA_DAYS)
)
PAYLOADS = register(
    PartitionedTable(
        "event_payloads", "week", "date", ahead_days=LONGEST_RETENTION_DAYS + 28, keep_days=lambda: 0
    )
)
DELIVERIES = register(
    PartitionedTable(
        "webhook_deliveries", "week", "id", ahead_days=28, keep_days=lambda: settings.EVENT_METADATA_DAYS
    )
)
MESSAGES = register(
    PartitionedTable(
        "messages",
        "month",
        "date",
        ahead_days=93,
        keep_days=lambda: settings.EVENT_METADATA_DAYS,
        date_column="month",
        fillfactor=70,
    )
)
"""Rows are updated by each status of their message, usually within minutes: on their own page if it has room."""
