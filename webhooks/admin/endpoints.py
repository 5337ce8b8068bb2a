"""Staff admin of endpoints: their settings without secrets, and the actions verify, resume and recover."""

import json
from typing import Any, cast

from django import forms
from django.contrib import admin
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.utils.html import format_html
from django.utils.text import Truncator
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget, UnfoldAdminIntegerFieldWidget

from tenants import audit
from tenants.audit import Actor
from tenants.labels import milliseconds
from tenants.staff.dialogs import DialogForm, action, ask_again, change_url, dialog, done
from tenants.staff.read_only_admin import TenantRowsAdmin, display, labelled, shown_moment, status_label
from webhooks import replay
from webhooks.endpoints import lifecycle
from webhooks.models import Endpoint, steps_of
from webhooks.recover_form import RecoverForm
from webhooks.requests import credentials, signed_request

ENDPOINT_LABELS = {"active": "success", "pending": "warning", "paused": "info", "disabled": "danger"}


class RecoverDialogForm(RecoverForm, DialogForm):
    """The console's replay form, shown in a dialog."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        hours, status = self.fields["hours"], self.fields["status"]
        hours.widget = UnfoldAdminIntegerFieldWidget(attrs=hours.widget.attrs)
        status.widget = UnfoldAdminCheckboxSelectMultipleWidget(
            choices=cast("forms.MultipleChoiceField", status).choices
        )


RECOVER = dialog(
    "Send deliveries of the last hours again?",
    "They are counted first. After you confirm, they are queued behind new events. The tenant's audit log names you.",
    "Count",
    RecoverDialogForm,
)


@admin.register(Endpoint)
class EndpointAdmin(TenantRowsAdmin):
    list_display = (
        "short_url",
        "owner",
        "environment",
        "shown_status",
        "consecutive_failures",
        "circuit_open_until",
        "last_success_at",
    )
    list_filter = ("status", "environment")
    search_fields = ("url", "=id", "=tenant__id", "tenant__name")
    search_help_text = "URL, endpoint ID, tenant ID or name"
    fields = (
        "id",
        "owner",
        "environment",
        "shown_kind",
        "shown_url",
        "format",
        "description",
        "event_types",
        "waba_ids",
        "phone_number_ids",
        "statuses",
        "content_filter",
        "uid",
        "notes",
        "header_names",
        "timeout_seconds",
        "rate_per_second",
        "ordered",
        "together",
        "retries",
        "exhausted_mail_threshold",
        "authentication",
        "keep_answers",
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

    @display(description="URL", ordering="url")
    def short_url(self, endpoint: Endpoint) -> str:
        return Truncator(endpoint.url).chars(60)

    @display(description="URL")
    def shown_url(self, endpoint: Endpoint) -> str:
        return format_html('<span class="break-all">{}</span>', endpoint.url)

    @display(description="The tenant's notes")
    def notes(self, endpoint: Endpoint) -> str:
        return "; ".join(f"{name}: {value}" for name, value in endpoint.metadata.items())

    @display(description="Filter")
    def content_filter(self, endpoint: Endpoint) -> str:
        return json.dumps(endpoint.filter, ensure_ascii=False) if endpoint.filter else ""

    @display(description="Several events in one request")
    def together(self, endpoint: Endpoint) -> str:
        if endpoint.batch_events:
            return f"up to {endpoint.batch_events} within {endpoint.batch_milliseconds} ms"
        return f"a customer's within {endpoint.quiet_seconds} s" if endpoint.quiet_seconds else ""

    @display(description="Seconds between attempts")
    def retries(self, endpoint: Endpoint) -> str:
        return ", ".join(map(str, steps_of(endpoint.retry_schedule))) if endpoint.retry_schedule else ""

    @display(description="Authentication")
    def authentication(self, endpoint: Endpoint) -> str:
        stored = credentials.readable(endpoint)
        used = {
            "client certificate": stored.tls is not None and stored.tls.client_certificate,
            "own CA": stored.tls is not None and stored.tls.ca,
            "OAuth2": stored.oauth2,
            "second signature": stored.seed,
        }
        return ", ".join(name for name, given in used.items() if given)

    @display(description="Headers")
    def header_names(self, endpoint: Endpoint) -> str:
        return ", ".join(signed_request.header_names(endpoint))

    actions_detail = ["verify", "resume", "recover"]
    shown_status = status_label(ENDPOINT_LABELS)
    shown_kind = labelled("kind")

    def has_operate_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return bool(request.user.has_perm("webhooks.change_endpoint"))

    @action(
        description="Verify",
        permissions=["operate"],
        icon="verified",
        dialog=dialog(
            "Verify this endpoint?",
            "Its server gets a signed ping. If the ping passes, the endpoint becomes active and waiting deliveries are "
            "sent. A paused endpoint stays paused. The tenant's audit log names you.",
            "Verify",
        ),
    )
    def verify(self, request: HttpRequest, form: DialogForm, object_id: str) -> HttpResponse:
        endpoint = get_object_or_404(Endpoint.objects.select_related("tenant"), pk=object_id)
        # Recorded before the ping, so that the audit log also has a failed ping.
        audit.record(
            action="webhook_endpoint.verify",
            target_type="webhook_endpoint",
            target_id=endpoint.id,
            tenant_id=endpoint.tenant_id,
            actor_user_id=request.user.pk,
        )
        ping = lifecycle.verify(endpoint)
        said = (
            f"It answered in {milliseconds(ping.response_ms)} and is {endpoint.get_status_display().lower()}."
        )
        return done(request, said, change_url(Endpoint, object_id))

    @action(
        description="Resume",
        permissions=["operate"],
        icon="play_arrow",
        dialog=dialog(
            "Resume this endpoint?",
            "This closes the circuit, ends a pause and sends waiting deliveries. The tenant's audit log names you.",
            "Resume",
        ),
    )
    def resume(self, request: HttpRequest, form: DialogForm, object_id: str) -> HttpResponse:
        endpoint = get_object_or_404(Endpoint, pk=object_id)
        resumed = lifecycle.resume(
            tenant_id=endpoint.tenant_id,
            environment=endpoint.environment,
            endpoint_id=endpoint.id,
            actor=Actor(user_id=request.user.pk),
        )
        said = f"It is {resumed.get_status_display().lower()}; waiting deliveries are sent."
        return done(request, said, change_url(Endpoint, object_id))

    @action(description="Recover", permissions=["operate"], icon="history", dialog=RECOVER)
    def recover(self, request: HttpRequest, form: RecoverDialogForm, object_id: str) -> HttpResponse:
        """Replay a time range. The first submission shows the count. A second with the same choices queues the
        replays.
        """
        endpoint = get_object_or_404(Endpoint, pk=object_id)
        chosen = form.range()
        scope = {
            "tenant_id": endpoint.tenant_id,
            "environment": endpoint.environment,
            "endpoint_id": endpoint.id,
            **chosen,
        }
        choices = f"{form.cleaned_data['hours']} {' '.join(chosen['statuses'])}"
        if not form.is_confirmed(choices):
            counted = replay.replay_endpoint(**scope, is_preview=True)
            return ask_again(request, RECOVER, form, choices, *_preview(counted))
        with transaction.atomic():
            queued = replay.replay_endpoint(**scope)
            audit.record(
                action="webhook_endpoint.recover",
                target_type="webhook_endpoint",
                target_id=endpoint.id,
                tenant_id=endpoint.tenant_id,
                actor_user_id=request.user.pk,
                details={
                    "from": chosen["begin"],
                    "to": chosen["end"],
                    "statuses": chosen["statuses"],
                    "queued": queued.count,
                },
            )
        said = f"{_deliveries(queued.count)} queued behind new events."
        return done(request, said, change_url(Endpoint, object_id))


def _preview(counted: replay.Queued) -> tuple[str, str]:
    """The result of the count, and the label of the button that queues the replays. The label is empty if nothing
    matches.
    """
    if counted.oldest is None:
        return "Nothing matches.", ""
    oldest = shown_moment(counted.oldest)
    note = (
        f"{_deliveries(counted.count)}, the oldest of {oldest}. It takes at least {counted.expected_seconds:,} s; "
        "new events go first."
    )
    return note, f"Send {counted.count:,} again"


def _deliveries(count: int) -> str:
    return f"{count:,} {'delivery' if count == 1 else 'deliveries'}"
