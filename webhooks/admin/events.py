"""Staff admin of the event log: events without their bodies, and deliveries with the receivers' answers."""

from datetime import datetime
from typing import Any

from django.contrib import admin
from django.contrib.admin import SimpleListFilter
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import mark_safe

from gateway import ids
from tenants import audit
from tenants.labels import label, milliseconds, words
from tenants.staff.dialogs import DialogForm, action, change_url, dialog, done
from tenants.staff.read_only_admin import HistoryAdmin, PeriodFilter, display, shown_moment, status_label
from webhooks import replay
from webhooks.delivery import retries_and_attempt_log
from webhooks.events.envelope import EVENT_TYPES
from webhooks.models import Delivery, Endpoint, Event

DELIVERY_LABELS = {"delivered": "success", "pending": "info", "failed": "warning", "dead": "danger"}


def row_link(model: type[Model], key: Any, text: str) -> str:
    """A link to the admin page of a row."""
    return format_html('<a class="text-link break-all" href="{}">{}</a>', change_url(model, key), text)


class TypeOfEvent(SimpleListFilter):
    """Filter by event type. The choices are the specification's list, because a DISTINCT would scan the table."""

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
    """Events without their bodies, because staff must not read customers' messages."""

    list_display = ("shown_id", "created", "type", "owner", "phone_number_id", "waba_id")
    list_filter = (PeriodFilter, "environment", TypeOfEvent)
    fields = (
        "shown_id",
        "created",
        "type",
        "owner",
        "environment",
        "waba_id",
        "phone_number_id",
        "wamid",
        "shown_deliveries",
        "dedupe_key",
        "raw_path",
        "payload_expires_on",
    )
    id_searches = {ids.EVENT: "id"}
    uuid_column = "tenant_id"
    search_help_text = "An event ID (evt_…) or a tenant ID"

    @display(description="Deliveries")
    def shown_deliveries(self, event: Event) -> str:
        path = reverse("admin:webhooks_delivery_changelist")
        return format_html('<a class="text-link" href="{}?q={}">Show them</a>', path, event.public_id)


@admin.register(Delivery)
class DeliveryAdmin(HistoryAdmin):
    list_display = (
        "shown_id",
        "created",
        "event_type",
        "owner",
        "shown_status",
        "attempts",
        "shown_error",
        "next_attempt_at",
    )
    list_filter = (PeriodFilter, "status", "environment", TypeOfDelivery)
    fields = (
        "shown_id",
        "created",
        "owner",
        "environment",
        "shown_event",
        "event_type",
        "shown_endpoint",
        "shown_status",
        "attempts",
        "next_attempt_at",
        "last_http_status",
        "shown_error",
        "shown_duration",
        "shown_attempts",
        "shown_original",
    )
    id_searches = {ids.DELIVERY: "id", ids.EVENT: "event_id"}
    uuid_column = "tenant_id"
    search_help_text = "A delivery ID (dlv_…), an event ID (evt_…) or a tenant ID"
    shown_status = status_label(DELIVERY_LABELS)

    @display(description="Event")
    def shown_event(self, delivery: Delivery) -> str:
        return row_link(Event, delivery.event_id, ids.encode(ids.EVENT, delivery.event_id))

    @display(description="Endpoint")
    def shown_endpoint(self, delivery: Delivery) -> str:
        endpoint = Endpoint.objects.filter(pk=delivery.endpoint_id).only("url").first()
        if endpoint is None:
            return f"{delivery.endpoint_id} (deleted)"
        return row_link(Endpoint, endpoint.pk, endpoint.url)

    @display(description="Sent again from")
    def shown_original(self, delivery: Delivery) -> str:
        if delivery.replay_of is None:
            return ""
        return row_link(Delivery, delivery.replay_of, ids.encode(ids.DELIVERY, delivery.replay_of))

    @display(description="Last error")
    def shown_error(self, delivery: Delivery) -> str:
        return label(delivery.last_error)

    @display(description="Last answer took")
    def shown_duration(self, delivery: Delivery) -> str:
        return "" if delivery.last_response_ms is None else milliseconds(delivery.last_response_ms)

    @display(description="Each attempt")
    def shown_attempts(self, delivery: Delivery) -> str:
        return format_html_join(
            "",
            "<p>{} · {} in {} · {}</p>{}",
            (
                (
                    shown_moment(datetime.fromisoformat(attempt["at"])),
                    f"HTTP {attempt['http_status']}" if attempt["http_status"] else "no answer",
                    milliseconds(attempt["ms"]),
                    words(attempt["error"] or "accepted"),
                    _answer(attempt),
                )
                for attempt in retries_and_attempt_log.shown_attempts(delivery)
            ),
        )

    actions_detail = ["send_again"]

    def has_operate_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return bool(request.user.has_perm("webhooks.add_delivery"))

    @action(
        description="Send again",
        permissions=["operate"],
        icon="replay",
        dialog=dialog(
            "Send this delivery again?",
            "The event is sent once more, now, as a new delivery, unless the tenant is suspended. "
            "The tenant's audit log names you.",
            "Send again",
        ),
    )
    def send_again(self, request: HttpRequest, form: DialogForm, object_id: str) -> HttpResponse:
        delivery = get_object_or_404(Delivery, pk=object_id)
        made = replay.replay_delivery(
            tenant_id=delivery.tenant_id, environment=delivery.environment, delivery_id=delivery.id
        )
        audit.record(
            action="webhook_delivery.replay",
            target_type="webhook_delivery",
            target_id=delivery.public_id,
            tenant_id=delivery.tenant_id,
            actor_user_id=request.user.pk,
        )
        said = f"The new delivery is {made.get_status_display().lower()}."
        return done(request, said, change_url(Delivery, made.pk))


def _answer(attempt: dict[str, Any]) -> str:
    """The receiver's answer to an attempt, as HTML. Empty when no answer is stored."""
    if attempt["response_body"] is None:
        return ""
    headers = [f"{name}: {value}" for name, value in attempt["response_headers"].items()]
    lines = [*headers, "", *attempt["response_body"].splitlines()]
    broken = format_html_join(mark_safe("<br>"), "{}", ((line,) for line in lines))
    return format_html('<p class="font-mono break-all">{}</p>', broken)
