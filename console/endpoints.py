"""Pages of webhook endpoints: list, create, and one endpoint with its health and actions."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import orjson
from allauth.core import ratelimit
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from rest_framework.exceptions import ValidationError

from console.endpoint_forms import (
    EndpointChangeForm,
    EndpointForm,
    ExampleForm,
    NewEndpointForm,
    PeriodForm,
    RotateForm,
    initial_of,
)
from console.form_ids import acting_once
from console.visit import Visit, flash_errors, or_404, require_open
from gateway.api import limits
from gateway.api.errors import InvalidRequest, RateLimited, ServiceError
from gateway.api.validation import checked
from tenants.audit import Actor
from tenants.labels import milliseconds
from webhooks import replay
from webhooks.endpoints import health, lifecycle
from webhooks.events import filters
from webhooks.models import Endpoint, steps_of
from webhooks.requests import credentials, signed_request, verify_ping
from webhooks.requests.verify_ping import WebhookVerifyFailed
from webhooks.serializers import EndpointChangeIn, EndpointIn
from webhooks.templatetags.delivery_errors import in_words

ACTION = "call_while_waiting"
"""The name of the limit in `ACCOUNT_RATE_LIMITS`."""


@contextmanager
def endpoint_called(request: HttpRequest, visit: Visit) -> Iterator[None]:
    """Hold a slot for a call to an endpoint during the block. Raises TooManyInFlight when no slot is free. Raises
    RateLimited when an account that awaits approval makes too many calls.
    """
    if visit.awaits_approval and not ratelimit.consume(request, action=ACTION, key=str(visit.tenant.id)):
        raise RateLimited(
            "Your account is waiting for approval and has called its endpoints too often. Try again later."
        )
    with limits.endpoints.held(visit.tenant.id):
        yield


def endpoint_list(request: HttpRequest, visit: Visit) -> HttpResponse:
    """List the endpoints, with a form for a new endpoint. Only the response to the form shows the new endpoint's
    secret.
    """
    form = NewEndpointForm(request.POST or None)
    if request.method == "POST":
        require_open(visit)
        if form.is_valid() and (created := _create(request, visit, form)) is not None:
            return created
    every = Endpoint.objects.for_environment(**visit.scope).order_by("-id")
    rows = [row for row in every if row.kind != Endpoint.Kind.INBOX]
    return render(
        request,
        "console/webhooks/list.html",
        {"form": form, "endpoints": rows, "count": len(every), "most": lifecycle.MOST_ENDPOINTS},
        status=400 if form.errors else 200,
    )


def endpoint(request: HttpRequest, visit: Visit, endpoint_id: UUID) -> HttpResponse:
    """Show one endpoint: its health in words, its settings and its actions."""
    return _endpoint_page(request, visit, _find(visit, endpoint_id))


def change(request: HttpRequest, visit: Visit, endpoint_id: UUID) -> HttpResponse:
    """Show the form with an endpoint's settings. A new URL is saved only if it passes a ping.

    Only the fields that the member changed are saved, so what another member changed since the page was opened is kept.
    """
    found = _find(visit, endpoint_id)
    form = EndpointChangeForm(request.POST or None, initial=initial_of(found))
    form.endpoint_kind = Endpoint.Kind(found.kind)
    # The URL of a destination is derived from its settings.
    form.fields["url"].disabled = found.kind != Endpoint.Kind.WEBHOOK
    if request.method == "POST" and form.is_valid():
        require_open(visit)
        if "preview" in request.POST:
            with _errors_in(form):
                found_now = filters.preview(found, form.cleaned_data["filter"])
                return _change_page(request, found, form, preview=found_now)
            return _change_page(request, found, form)
        with _errors_in(form), endpoint_called(request, visit):
            body = checked(EndpointChangeIn(data=form.changes()))
            lifecycle.change(**_acting(visit), endpoint_id=endpoint_id, changes=body)
            messages.success(request, "Saved.")
            return redirect("console_endpoint", endpoint_id)
    return _change_page(request, found, form)


def _change_page(request: HttpRequest, found: Endpoint, form: EndpointForm, **more: Any) -> HttpResponse:
    return render(
        request,
        "console/webhooks/change.html",
        {"endpoint": found, "form": form, **more},
        status=400 if form.errors else 200,
    )


def verify(request: HttpRequest, visit: Visit, endpoint_id: UUID) -> HttpResponse:
    """Ping the endpoint now."""
    require_open(visit)
    found = _find(visit, endpoint_id)
    with flash_errors(request), endpoint_called(request, visit):
        try:
            ping = lifecycle.verify(found)
        except WebhookVerifyFailed as error:
            return _endpoint_page(request, visit, found, failed_ping=error.details)
        messages.success(request, f"The ping passed in {milliseconds(ping.response_ms)}.")
    return redirect("console_endpoint", endpoint_id)


def resume(request: HttpRequest, visit: Visit, endpoint_id: UUID) -> HttpResponse:
    """End a pause or close an open circuit, and send the waiting deliveries."""
    require_open(visit)
    with flash_errors(request):
        lifecycle.resume(**_acting(visit), endpoint_id=endpoint_id)
        messages.success(request, "The waiting deliveries are being sent.")
    return redirect("console_endpoint", endpoint_id)


def pause(request: HttpRequest, visit: Visit, endpoint_id: UUID) -> HttpResponse:
    """Pause the endpoint. Its waiting deliveries stay, and new events are not queued until it is resumed."""
    require_open(visit)
    with flash_errors(request):
        changes = {"status": Endpoint.Status.PAUSED}
        lifecycle.change(**_acting(visit), endpoint_id=endpoint_id, changes=changes)
        messages.success(request, "Paused.")
    return redirect("console_endpoint", endpoint_id)


def example(request: HttpRequest, visit: Visit, endpoint_id: UUID) -> HttpResponse:
    """Send an example event and show the endpoint's response."""
    require_open(visit)
    found = _find(visit, endpoint_id)
    form = ExampleForm(request.POST)
    with flash_errors(request), endpoint_called(request, visit):
        if form.is_valid():
            sent = verify_ping.send_example(found, **form.cleaned_data)
            return _endpoint_page(request, visit, found, sent=sent, example_form=form)
    return redirect("console_endpoint", endpoint_id)


def rotate(request: HttpRequest, visit: Visit, endpoint_id: UUID) -> HttpResponse:
    """Rotate the secret. Only this response shows the new secret."""
    require_open(visit)
    found = _find(visit, endpoint_id)
    form = RotateForm(request.POST)
    if not form.is_valid():
        return _endpoint_page(request, visit, found, rotate_form=form, status=400)
    with acting_once(request) as may_act:
        if not may_act:
            return redirect("console_endpoint", endpoint_id)
        rotated = lifecycle.rotate_secret(**_acting(visit), endpoint_id=endpoint_id, **form.cleaned_data)
    return _endpoint_page(request, visit, rotated, new_secret=rotated.secret)


def recover(request: HttpRequest, visit: Visit, endpoint_id: UUID) -> HttpResponse:
    """Replay the deliveries of a time range. The first submission shows their count. The second submission, with
    `confirmed` and the range that was counted, queues them.
    """
    require_open(visit)
    found = _find(visit, endpoint_id)
    form = PeriodForm(request.POST, zone=visit.zone)
    if not form.is_valid():
        return _endpoint_page(request, visit, found, recover_form=form, status=400)
    confirmed = request.POST.get("confirmed") == "yes"
    chosen = form.range()
    try:
        queued = replay.replay_endpoint(
            **visit.scope, endpoint_id=endpoint_id, **chosen, is_preview=not confirmed
        )
    except ServiceError as error:
        form.add_error(None, error.text)
        return _endpoint_page(request, visit, found, recover_form=form, status=400)
    if not confirmed:
        return _endpoint_page(request, visit, found, recover_form=form, preview=queued, previewed=chosen)
    counted = "1 delivery is" if queued.count == 1 else f"{queued.count:,} deliveries are"
    messages.success(request, f"{counted} queued behind new events.")
    return redirect("console_endpoint", endpoint_id)


def delete(request: HttpRequest, visit: Visit, endpoint_id: UUID) -> HttpResponse:
    """Explain the effect of deleting the endpoint. POST deletes it."""
    found = _find(visit, endpoint_id)
    if request.method == "POST":
        require_open(visit)
        with flash_errors(request):
            lifecycle.delete(**_acting(visit), endpoint_id=endpoint_id)
            messages.success(request, "The endpoint is deleted.")
        return redirect("console_endpoints")
    return render(request, "console/webhooks/delete.html", {"endpoint": found})


def _acting(visit: Visit) -> dict[str, Any]:
    """The scope of a change and its author."""
    return {**visit.scope, "actor": Actor(user_id=visit.user.pk)}


def _find(visit: Visit, endpoint_id: UUID) -> Endpoint:
    with or_404():
        found = lifecycle.find(**visit.scope, endpoint_id=endpoint_id)
    if found.kind == Endpoint.Kind.INBOX:
        raise Http404("This is not a webhook endpoint.")
    return found


class _errors_in:  # noqa: N801
    """Context manager: show the errors of the block at the fields of a form."""

    def __init__(self, form: EndpointForm) -> None:
        self.form = form

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, ValidationError | InvalidRequest):
            for name, problems in _fields(error).items():
                # A group's errors are a mapping by part, because each part of the group has its own form field.
                parts = problems if isinstance(problems, Mapping) else {"": problems}
                for part, found in parts.items():
                    field = f"{name}_{part}" if part else name
                    self.form.add_error(field if field in self.form.fields else None, list(map(str, found)))
            return True
        if isinstance(error, ServiceError):
            place = "destination" if self.form.fields["url"].disabled else "url"
            self.form.add_error(place, _sentence(error))
            return True
        return False


def _fields(error: ValidationError | InvalidRequest) -> dict[str, Any]:
    """Errors by field. An error without a field is shown at the field of the URL."""
    if isinstance(error, InvalidRequest):
        return dict((error.details or {}).get("fields") or {"url": [error.text]})
    return error.detail if isinstance(error.detail, dict) else {}


def _sentence(error: ServiceError) -> str:
    if not isinstance(error, WebhookVerifyFailed):
        return error.text
    details = error.details or {}
    said = f"HTTP {details['http_status']}" if details.get("http_status") else "no answer"
    excerpt = f" Its answer begins: {details['body_excerpt']}" if details.get("body_excerpt") else ""
    why, took = in_words(details.get("error")), milliseconds(details.get("response_ms") or 0)
    return f"{error.text} It gave {said} after {took}: {why}.{excerpt}"


def _create(request: HttpRequest, visit: Visit, form: NewEndpointForm) -> HttpResponse | None:
    """Create an endpoint. Returns the page with its secret, even if its ping failed, and the list for a form that was
    submitted before. Returns None when no endpoint was created.
    """
    with _errors_in(form), endpoint_called(request, visit), acting_once(request) as may_act:
        if not may_act:
            return redirect("console_endpoints")
        body = checked(EndpointIn(data=form.body()))
        try:
            created = lifecycle.create(**_acting(visit), **body)
        except WebhookVerifyFailed as error:
            details = dict(error.details or {})
            found = _find(visit, details["endpoint_id"])
            return _endpoint_page(request, visit, found, new_secret=details["secret"], failed_ping=details)
        return _endpoint_page(request, visit, created, new_secret=created.secret, passed=True)
    return None


def _endpoint_page(
    request: HttpRequest, visit: Visit, found: Endpoint, *, status: int = 200, **more: Any
) -> HttpResponse:
    context = {
        "endpoint": found,
        "health": health.health_of(found),
        "header_names": signed_request.header_names(found),
        "credentials": credentials.readable(found),
        "steps": steps_of(found.retry_schedule) if found.retry_schedule else [],
        "filter_text": orjson.dumps(found.filter).decode(),
        "rotate_form": RotateForm(),
        "example_form": ExampleForm(),
        "recover_form": PeriodForm(zone=visit.zone),
    }
    return render(request, "console/webhooks/endpoint.html", context | more, status=status)
