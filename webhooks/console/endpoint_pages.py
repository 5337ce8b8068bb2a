"""Console pages of webhook endpoints: list, create, one endpoint with its health, and what can be done with it."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from rest_framework.exceptions import ValidationError

from gateway.api.errors import InvalidRequest, ServiceError
from gateway.api.validation import checked
from gateway.roles import Area
from tenants.actors import Actor
from tenants.console.frame import Visit, console_page, or_404, require_open, told
from tenants.wording.values import milliseconds
from webhooks import replay
from webhooks.console.calls import endpoint_called
from webhooks.console.endpoint_form import EndpointForm, NewEndpointForm, stored
from webhooks.console.forms import ExampleForm, PeriodForm, RotateForm
from webhooks.endpoints import health, lifecycle
from webhooks.models import Endpoint
from webhooks.requests import custom_headers, example_event
from webhooks.requests.verify_ping import WebhookVerifyFailed
from webhooks.serializers import EndpointChangeIn, EndpointIn
from webhooks.templatetags.delivery_errors import in_words


@require_http_methods(["GET", "HEAD", "POST"])
@console_page(Area.INTEGRATION)
def endpoint_list(request: HttpRequest, visit: Visit) -> HttpResponse:
    """The endpoints, and a form for a new one. The answer to the form is the only page with its secret."""
    form = NewEndpointForm(request.POST or None)
    if request.method == "POST":
        require_open(visit)
        if form.is_valid() and (created := _create(request, visit, form)) is not None:
            return created
    rows = Endpoint.objects.for_environment(visit.tenant.id, visit.environment).order_by("-id")
    return render(
        request,
        "console/webhooks/list.html",
        {"form": form, "endpoints": rows, "most": lifecycle.MOST_ENDPOINTS},
        status=400 if form.errors else 200,
    )


@require_safe
@console_page(Area.INTEGRATION)
def endpoint(request: HttpRequest, visit: Visit, endpoint_id: UUID) -> HttpResponse:
    """One endpoint: health in words, what it gets, and what can be done with it."""
    return _endpoint_page(request, visit, _find(visit, endpoint_id))


@require_http_methods(["GET", "HEAD", "POST"])
@console_page(Area.INTEGRATION)
def change(request: HttpRequest, visit: Visit, endpoint_id: UUID) -> HttpResponse:
    """The form that changes its settings. A new URL is pinged first and taken only when it passes.

    Only what was changed in the form is sent on, so what another person changed meanwhile stays.
    """
    found = _find(visit, endpoint_id)
    form = EndpointForm(request.POST or None, initial=stored(found))
    if request.method == "POST" and form.is_valid():
        require_open(visit)
        with _into(form), endpoint_called(request, visit):
            changed = {name: value for name, value in form.body().items() if name in form.changed_data}
            body = checked(EndpointChangeIn(data=changed))
            lifecycle.change(**_acting(visit), endpoint_id=endpoint_id, changes=body)
            messages.success(request, "Saved.")
            return redirect("console_endpoint", endpoint_id)
    return render(
        request,
        "console/webhooks/change.html",
        {"endpoint": found, "form": form},
        status=400 if form.errors else 200,
    )


@require_POST
@console_page(Area.INTEGRATION)
def verify(request: HttpRequest, visit: Visit, endpoint_id: UUID) -> HttpResponse:
    """Ping the endpoint now."""
    require_open(visit)
    found = _find(visit, endpoint_id)
    with told(request), endpoint_called(request, visit):
        try:
            ping = lifecycle.verify(found)
        except WebhookVerifyFailed as error:
            return _endpoint_page(request, visit, found, failed_ping=error.details)
        messages.success(request, f"The ping passed in {milliseconds(ping.response_ms)}.")
    return redirect("console_endpoint", endpoint_id)


@require_POST
@console_page(Area.INTEGRATION)
def resume(request: HttpRequest, visit: Visit, endpoint_id: UUID) -> HttpResponse:
    """End a pause or an open circuit: what waits goes out."""
    require_open(visit)
    with told(request):
        lifecycle.resume(**_acting(visit), endpoint_id=endpoint_id)
        messages.success(request, "What waits is being sent.")
    return redirect("console_endpoint", endpoint_id)


@require_POST
@console_page(Area.INTEGRATION)
def pause(request: HttpRequest, visit: Visit, endpoint_id: UUID) -> HttpResponse:
    """Hold its events back until it is resumed."""
    require_open(visit)
    with told(request):
        changes = {"status": Endpoint.Status.PAUSED}
        lifecycle.change(**_acting(visit), endpoint_id=endpoint_id, changes=changes)
        messages.success(request, "Paused. Its events wait until you resume it.")
    return redirect("console_endpoint", endpoint_id)


@require_POST
@console_page(Area.INTEGRATION)
def example(request: HttpRequest, visit: Visit, endpoint_id: UUID) -> HttpResponse:
    """Send an example event, and show what the endpoint said."""
    require_open(visit)
    found = _find(visit, endpoint_id)
    form = ExampleForm(request.POST)
    with told(request), endpoint_called(request, visit):
        if form.is_valid():
            sent = example_event.send(found, **form.cleaned_data)
            return _endpoint_page(request, visit, found, sent=sent, example_form=form)
    return redirect("console_endpoint", endpoint_id)


@require_POST
@console_page(Area.INTEGRATION)
def rotate(request: HttpRequest, visit: Visit, endpoint_id: UUID) -> HttpResponse:
    """A new secret, on this answer alone."""
    require_open(visit)
    found = _find(visit, endpoint_id)
    form = RotateForm(request.POST)
    if not form.is_valid():
        return _endpoint_page(request, visit, found, rotate_form=form, status=400)
    rotated = lifecycle.rotate_secret(**_acting(visit), endpoint_id=endpoint_id, **form.cleaned_data)
    return _secret_page(request, visit, rotated, rotated.secret)


@require_POST
@console_page(Area.INTEGRATION)
def recover(request: HttpRequest, visit: Visit, endpoint_id: UUID) -> HttpResponse:
    """Replay a time range: the first answer counts, the second, with `confirmed`, queues."""
    require_open(visit)
    found = _find(visit, endpoint_id)
    form = PeriodForm(request.POST, zone=visit.zone)
    if not form.is_valid():
        return _endpoint_page(request, visit, found, recover_form=form, status=400)
    confirmed = request.POST.get("confirmed") == "yes"
    with told(request):
        queued = replay.replay_endpoint(
            **_scope(visit), endpoint_id=endpoint_id, **form.range(), is_preview=not confirmed
        )
        if not confirmed:
            return _endpoint_page(request, visit, found, recover_form=form, preview=queued)
        counted = "1 delivery is" if queued.count == 1 else f"{queued.count:,} deliveries are"
        messages.success(request, f"{counted} queued behind fresh events.")
    return redirect("console_endpoint", endpoint_id)


@require_http_methods(["GET", "HEAD", "POST"])
@console_page(Area.INTEGRATION)
def delete(request: HttpRequest, visit: Visit, endpoint_id: UUID) -> HttpResponse:
    """A page that says what deleting does; POST deletes."""
    found = _find(visit, endpoint_id)
    if request.method == "POST":
        require_open(visit)
        with told(request):
            lifecycle.delete(**_acting(visit), endpoint_id=endpoint_id)
            messages.success(request, "The endpoint is deleted.")
        return redirect("console_endpoints")
    return render(request, "console/webhooks/delete.html", {"endpoint": found})


def _scope(visit: Visit) -> dict[str, Any]:
    return {"tenant_id": visit.tenant.id, "environment": visit.environment}


def _acting(visit: Visit) -> dict[str, Any]:
    """The scope of a change, and who makes it."""
    return {**_scope(visit), "actor": Actor(user_id=visit.user.pk)}


def _find(visit: Visit, endpoint_id: UUID) -> Endpoint:
    with or_404():
        return lifecycle.find(**_scope(visit), endpoint_id=endpoint_id)


class _into:  # noqa: N801
    """Show what the flow refuses beside the field that it is about."""

    def __init__(self, form: EndpointForm) -> None:
        self.form = form

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, ValidationError | InvalidRequest):
            for name, problems in _fields(error).items():
                self.form.add_error(
                    name if name in self.form.fields else None, [str(problem) for problem in problems]
                )
            return True
        if isinstance(error, ServiceError):
            self.form.add_error("url", _sentence(error))
            return True
        return False


def _fields(error: ValidationError | InvalidRequest) -> dict[str, Any]:
    """What is wrong with which field; what belongs to none is said of the URL."""
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
    """The page with the new endpoint's secret, whether or not its ping passed; None when nothing was created."""
    with _into(form), endpoint_called(request, visit):
        body = checked(EndpointIn(data=form.body()))
        try:
            created = lifecycle.create(**_acting(visit), **body)
        except WebhookVerifyFailed as error:
            details = dict(error.details or {})
            found = _find(visit, details["endpoint_id"])
            return _secret_page(request, visit, found, details["secret"], failed_ping=details)
        return _secret_page(request, visit, created, created.secret, passed=True)
    return None


def _secret_page(
    request: HttpRequest, visit: Visit, found: Endpoint, secret: str, **ping: Any
) -> HttpResponse:
    """The endpoint's page with its new secret in a dialog above it, and what came of the ping if there was one."""
    response = _endpoint_page(request, visit, found, new_secret=secret, **ping)
    response["Cache-Control"] = "no-store"
    return response


def _endpoint_page(
    request: HttpRequest, visit: Visit, found: Endpoint, *, status: int = 200, **more: Any
) -> HttpResponse:
    context = {
        "endpoint": found,
        "health": health.health_of(found),
        "header_names": custom_headers.names(found),
        "rotate_form": RotateForm(),
        "example_form": ExampleForm(),
        "recover_form": PeriodForm(zone=visit.zone),
    }
    return render(request, "console/webhooks/endpoint.html", context | more, status=status)
