"""The staff admin of message templates: whose they are and what the upstream decided, to look at."""

from contextlib import suppress
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from messaging.message_templates.models import MessageTemplate
from tenants.staff.read_only_admin import HistoryAdmin, PeriodFilter, worded


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
    readonly_fields = ("owner", "shown_status", "shown_category")
    shown_status = worded("status")
    shown_category = worded("category")
    search_help_text = "The upstream's template ID, a WABA ID or a tenant ID"

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
