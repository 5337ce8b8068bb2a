"""Console page that sends a test message: the form, the answer as it came, code that does the same, and its events."""

from typing import Any
from uuid import uuid4

import orjson
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_http_methods, require_safe

from gateway.api.errors import ServiceError, error_reply
from gateway.api.limits import in_flight
from gateway.api.reply import Reply
from gateway.roles import Area
from messaging.console.forms import SendForm
from messaging.console.upstream_codes import of_code
from messaging.sending import flow
from messaging.sending.flow import SendRequest
from messaging.sending.runtimes import BlockingRuntime, run_blocking
from tenants.console.frame import TEST, Visit, console_page, require_open
from webhooks.events import envelope, search

EVENTS_SHOWN = 20
PRETEND_CUSTOMER = "+91 98123 45678"
"""Whom the form names first in the test world, where no number is a real person's."""


@require_http_methods(["GET", "HEAD", "POST"])
@console_page(Area.INTEGRATION)
def send(request: HttpRequest, visit: Visit) -> HttpResponse:
    """The form; sent, also the answer. A form is sent once: reloading the answer shows it again."""
    initial = {"template": request.GET.get("template", "")}
    if visit.environment == TEST:
        initial["to"] = PRETEND_CUSTOMER
    form = SendForm(request.POST or None, visit=visit, initial=initial)
    context: dict[str, Any] = {"tenant": visit.tenant, "form": form, "form_id": uuid4()}
    if request.method == "POST":
        require_open(visit)
        if form.is_valid():
            context |= _sent(request, visit, form)
    return render(request, "console/messaging/send.html", context, status=400 if form.errors else 200)


@require_safe
@console_page(Area.INTEGRATION)
def variables(request: HttpRequest, visit: Visit) -> HttpResponse:
    """The fields of a template's variables alone: the page asks for them when a template is chosen."""
    form = SendForm(visit=visit, initial={"template": request.GET.get("template", "")})
    return render(request, "console/messaging/send_variables.html", {"form": form})


@require_safe
@console_page(Area.INTEGRATION)
def events(request: HttpRequest, visit: Visit) -> HttpResponse:
    """The events of a message, oldest first: the page asks for them while it is open."""
    wamid = request.GET.get("wamid", "")[:512]
    return render(request, "console/messaging/events.html", {"wamid": wamid, "rows": _events(visit, wamid)})


def _sent(request: HttpRequest, visit: Visit, form: SendForm) -> dict[str, Any]:
    body = form.message()
    raw = orjson.dumps(body)
    wanted = SendRequest(
        tenant_id=visit.tenant.id,
        environment=visit.environment,
        path="/v1/messages",
        raw=raw,
        body=body,
        idempotency_key=f"console-{request.POST.get('form_id', '')[:64]}",
        request_id=getattr(request, "request_id", None),
    )
    try:
        with in_flight.upstream.held(visit.tenant.id, body["from"]):
            reply = run_blocking(flow.send_message(BlockingRuntime(), wanted))
    except ServiceError as error:
        reply = error_reply(error, getattr(request, "request_id", None))
    answer = _answer(reply)
    wamid = next(iter(answer.get("messages") or [{}])).get("id") if isinstance(answer, dict) else None
    problem = None if reply.status < 300 or not isinstance(answer, dict) else answer.get("error")
    shown = orjson.dumps(body, option=orjson.OPT_INDENT_2).decode()
    return {
        "status": reply.status,
        "answer": orjson.dumps(answer, option=orjson.OPT_INDENT_2).decode(),
        "problem": problem,
        "meaning": of_code(str(problem.get("code"))) if isinstance(problem, dict) else None,
        "request_body": shown,
        "indented_body": shown.replace("\n", "\n    "),
        "wamid": wamid,
        "rows": _events(visit, wamid) if wamid else [],
    }


def _answer(reply: Reply) -> Any:
    try:
        return orjson.loads(reply.body)
    except orjson.JSONDecodeError:
        return {}


def _events(visit: Visit, wamid: str) -> list[dict[str, Any]]:
    if not wamid:
        return []
    found = search.search(
        tenant_id=visit.tenant.id, environment=visit.environment, equal={"wamid": wamid}, limit=EVENTS_SHOWN
    ).rows
    bodies = envelope.load([event.id for event in found])
    rows = []
    for event in reversed(found):
        stored = bodies.get(event.id)
        data = orjson.loads(stored.data) if stored else {}
        status = data.get("status")
        said = status.get("status") if isinstance(status, dict) else None
        errors = status.get("errors") if isinstance(status, dict) else None
        rows.append({"event": event, "said": said, "errors": errors or []})
    return rows
