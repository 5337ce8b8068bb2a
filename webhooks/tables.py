"""The time-partitioned tables of the event log (docs/architecture.md)."""

from django.conf import settings

from gateway.database.partitions import PartitionedTable, register

LONGEST_RETENTION_DAYS = 365

EVENTS = register(PartitionedTable("events", "month", "id", 93, lambda: settings.EVENT_METADATA_DAYS))
PAYLOADS = register(
    PartitionedTable("event_payloads", "week", "date", LONGEST_RETENTION_DAYS + 28, lambda: 0)
)
DELIVERIES = register(
    PartitionedTable("webhook_deliveries", "week", "id", 28, lambda: settings.EVENT_METADATA_DAYS)
)
MESSAGES = register(
    PartitionedTable(
        "messages",
        "month",
        "date",
        93,
        lambda: settings.EVENT_METADATA_DAYS,
        date_column="month",
        fillfactor=70,
    )
)
"""Rows are updated by each status of their message, usually within minutes: on their own page if it has room."""
