"""The staff admin of batches and of notifications that became nobody's event, to look at. Bodies are on no page."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from gateway import ids
from messaging.message_templates import admin as template_admin  # noqa: F401 - registers its pages
from messaging.models import Batch, KeptNotification
from tenants.staff.navigation import NavigationLink, register_navigation
from tenants.staff.read_only_admin import HistoryAdmin, PeriodFilter, display, status_label, worded

register_navigation(
    "Messaging",
    NavigationLink("Templates", "description", "admin:messaging_messagetemplate_changelist"),
    NavigationLink("Batches", "stacks", "admin:messaging_batch_changelist"),
    NavigationLink("Kept notifications", "inbox", "admin:messaging_keptnotification_changelist"),
)


BATCH_LABELS = {"queued": "info", "completed": "success", "cancelled": "warning"}


@admin.register(Batch)
class BatchAdmin(HistoryAdmin):
    list_display = (
        "shown_id",
        "created_at",
        "owner",
        "phone_number_id",
        "shown_status",
        "total",
        "accepted",
        "failed",
        "rate",
    )
    list_filter = (PeriodFilter, "status")
    fields = (
        "shown_id",
        "owner",
        "shown_environment",
        "phone_number_id",
        "reference",
        "shown_status",
        "waiting_for",
        "waiting_since",
        "total",
        "accepted",
        "failed",
        "retries",
        "rate",
        "created_at",
        "started_at",
        "completed_at",
    )
    readonly_fields = ("shown_id", "owner", "shown_environment", "reference", "shown_status", "rate")
    shown_environment = worded("environment")
    id_searches = {ids.BATCH: "id"}
    uuid_searches = ("tenant_id",)
    search_help_text = "A batch ID (bat_…) or a tenant ID"
    shown_status = status_label(BATCH_LABELS)

    @display(description="The tenant's reference")
    def reference(self, batch: Batch) -> str:
        return batch.client_ref or ""

    @display(description="Messages per second")
    def rate(self, batch: Batch) -> int:
        return batch.rate_per_sec


@admin.register(KeptNotification)
class KeptNotificationAdmin(HistoryAdmin):
    list_display = ("id", "received_at", "why_kept", "error", "waba_id")
    list_filter = (PeriodFilter,)
    fields = ("id", "received_at", "why_kept", "error", "waba_id", "body_sha256")
    readonly_fields = ("why_kept",)
    why_kept = worded("reason")
    search_help_text = "A WABA ID"

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        return (queryset.filter(waba_id=term) if term else queryset), False
