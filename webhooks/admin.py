"""Staff admin of the event log: endpoints, events without bodies, and deliveries, all read-only."""

from typing import Any

from cryptography.fernet import InvalidToken
from django.contrib import admin
from django.contrib.admin import SimpleListFilter
from django.db.models import QuerySet
from django.http import HttpRequest

from gateway import ids
from tenants.staff.navigation import NavigationLink, register_navigation
from tenants.staff.read_only_admin import HistoryAdmin, PeriodFilter, TenantRowsAdmin, display
from webhooks import custom_headers
from webhooks.events.types import EVENT_TYPES
from webhooks.models import Delivery, Endpoint, Event

register_navigation(
    "Webhooks",
    NavigationLink("Endpoints", "webhook", "admin:webhooks_endpoint_changelist"),
    NavigationLink("Deliveries", "local_shipping", "admin:webhooks_delivery_changelist"),
    NavigationLink("Events", "bolt", "admin:webhooks_event_changelist"),
)


ENDPOINT_LABELS = {"active": "success", "pending": "warning", "paused": "info", "disabled": "danger"}
DELIVERY_LABELS = {"delivered": "success", "pending": "info", "failed": "warning", "dead": "danger"}


@admin.register(Endpoint)
class EndpointAdmin(TenantRowsAdmin):
    list_display = (
        "url",
        "owner",
        "environment",
        "shown_status",
        "consecutive_failures",
        "circuit_open_until",
        "last_success_at",
        "created_at",
    )
    list_filter = ("status", "environment")
    search_fields = ("url", "=id", "=tenant__id", "tenant__name")
    search_help_text = "URL, endpoint id, tenant id or name"
    fields = (
        "id",
        "owner",
        "environment",
        "url",
        "format",
        "description",
        "event_types",
        "waba_ids",
        "phone_number_ids",
        "statuses",
        "uid",
        "metadata",
        "header_names",
        "timeout_seconds",
        "rate_per_second",
        "ordered",
        "shown_status",
        "verified_at",
        "secret_prefix",
        "previous_secret_expires_at",
        "last_success_at",
        "consecutive_failures",
        "failing_since",
        "circuit_open_until",
        "disabled_at",
        "created_at",
    )
    readonly_fields = ("owner", "shown_status", "header_names")

    @display(description="Headers")
    def header_names(self, endpoint: Endpoint) -> str:
        try:
            return ", ".join(custom_headers.unpacked(endpoint.headers))
        except InvalidToken:
            return "cannot be read: no key of ENCRYPTION_KEYS opens them"

    @display(description="Status", label=ENDPOINT_LABELS)
    def shown_status(self, endpoint: Endpoint) -> str:
        return endpoint.status


class TypeOfEvent(SimpleListFilter):
    """By event type: the list of the specification, not a DISTINCT over the table."""

    title = "type"
    parameter_name = "type"
    column = "type"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in sorted(EVENT_TYPES)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(**{self.column: self.value()}) if self.value() else queryset


class TypeOfDelivery(TypeOfEvent):
    column = "event_type"


@admin.register(Event)
class EventAdmin(HistoryAdmin):
    """Envelopes without their bodies: staff does not read customers' messages."""

    list_display = ("shown_id", "created", "type", "tenant", "phone_number_id", "waba_id")
    list_filter = (PeriodFilter, "environment", TypeOfEvent)
    fields = (
        "shown_id",
        "created",
        "type",
        "tenant",
        "environment",
        "waba_id",
        "phone_number_id",
        "wamid",
        "dedupe_key",
        "raw_path",
        "payload_expires_on",
    )
    readonly_fields = ("shown_id", "created", "tenant")
    id_searches = {ids.EVENT: "id"}
    uuid_searches = ("tenant_id",)
    search_help_text = "An event id (evt_…) or a tenant id"


@admin.register(Delivery)
class DeliveryAdmin(HistoryAdmin):
    list_display = (
        "shown_id",
        "created",
        "event_type",
        "tenant",
        "shown_status",
        "attempts",
        "last_error",
        "next_attempt_at",
    )
    list_filter = (PeriodFilter, "status", "environment", TypeOfDelivery)
    fields = (
        "shown_id",
        "created",
        "tenant",
        "environment",
        "shown_event",
        "event_type",
        "endpoint_id",
        "shown_status",
        "attempts",
        "next_attempt_at",
        "last_http_status",
        "last_error",
        "last_response_ms",
        "shown_attempts",
        "is_replay",
    )
    readonly_fields = ("shown_id", "created", "tenant", "shown_event", "shown_status", "shown_attempts")
    id_searches = {ids.DELIVERY: "id", ids.EVENT: "event_id"}
    uuid_searches = ("tenant_id",)
    search_help_text = "A delivery id (dlv_…), an event id (evt_…) or a tenant id"

    @display(description="Status", label=DELIVERY_LABELS)
    def shown_status(self, delivery: Delivery) -> str:
        return delivery.status

    @display(description="Event")
    def shown_event(self, delivery: Delivery) -> str:
        return ids.encode(ids.EVENT, delivery.event_id)

    @display(description="Attempts")
    def shown_attempts(self, delivery: Delivery) -> str:
        # The answers' excerpts are the customer's data and stay out.
        return "\n".join(
            f"{attempt['at']}  {attempt['http_status'] or '—'}  {attempt['ms']} ms  {attempt['error'] or 'ok'}"
            for attempt in delivery.attempt_log
        )
