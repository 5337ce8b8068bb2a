"""The read-only staff admin of batches, message templates and unrouted notifications.

No page shows bodies. Batches also appear in the staff search and on a tenant's page.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse

from gateway import ids
from messaging.models import Batch, KeptNotification, MessageTemplate
from tenants.models import Tenant
from tenants.staff.dialogs import change_url
from tenants.staff.read_only_admin import HistoryAdmin, PeriodFilter, display, labelled, status_label
from tenants.staff.search import Hit, Line, register_finder, register_lines
from tenants.staff.site import NavigationLink, register_navigation


@admin.register(MessageTemplate)
class MessageTemplateAdmin(HistoryAdmin):
    list_display = (
        "template_id",
        "name",
        "language",
        "shown_status",
        "shown_category",
        "owner",
        "changed_at",
    )
    list_filter = (PeriodFilter,)
    fields = (
        "template_id",
        "name",
        "language",
        "shown_status",
        "shown_category",
        "owner",
        "account",
        "environment",
        "changed_at",
        "deleted_at",
    )
    shown_status = labelled("status")
    shown_category = labelled("category")
    search_help_text = "Meta's template ID, a WABA ID or a tenant ID"

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        named = Q(template_id=term) | Q(account__waba_id=term)
        with suppress(ValueError):
            named |= Q(tenant_id=UUID(term))
        return queryset.filter(named), False


@register_finder("messaging.view_batch")
def _batches(text: str) -> Iterator[Hit]:
    key = ids.decode(ids.BATCH, ids.typed(text))
    for batch in Batch.objects.filter(pk=key).select_related("tenant") if key else ():
        yield Hit(
            "Batch", batch.public_id, f"{batch.tenant.name}, {batch.status}", change_url(Batch, batch.pk)
        )


@register_lines("messaging.view_batch")
def _lines(tenant: Tenant) -> Iterator[Line]:
    newest = Batch.objects.for_tenant(tenant.id).order_by("-id").first()
    if newest is not None:
        text = f"the newest {newest.status}: {newest.accepted:,} of {newest.total:,} accepted, {newest.failed:,} failed"
        yield Line("Batches", text, f"{reverse('admin:messaging_batch_changelist')}?q={tenant.id}")


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
    shown_environment = labelled("environment")
    id_searches = {ids.BATCH: "id"}
    uuid_column = "tenant_id"
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
    why_kept = labelled("reason")
    search_help_text = "A WABA ID"

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        return (queryset.filter(waba_id=term) if term else queryset), False
