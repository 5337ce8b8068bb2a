"""Console page of the test world: the customer's phone, on which a person reads what the business sends, and answers.

Open while an account waits for approval as well: nothing in the test world reaches a real phone.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.forms import Form
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBadRequest
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from gateway.api.errors import InvalidRequest
from gateway.api.limits import in_flight
from gateway.roles import Area
from phone_numbers.console.phone_forms import CustomerForm, WriteForm
from phone_numbers.models import PhoneNumber
from phone_numbers.sandbox import making, world
from phone_numbers.sandbox.bubbles import bubbles_of, gist
from tenants.console.frame import TEST, Visit, console_page, or_404, require_open

MOST_MESSAGES = 100
MOST_CUSTOMERS = 50
INLINE_TYPES = ("image/jpeg", "image/png", "image/webp", "audio/", "video/")
"""Files that the page shows. Any other is a download, so that none becomes a page of this host."""
EMOJIS = ("👍", "❤", "😂")


@require_safe
@console_page(Area.INTEGRATION, environment=TEST)
def phone(request: HttpRequest, visit: Visit) -> HttpResponse:
    """The customers of a number, and the conversation with one of them."""
    customer = request.GET.get("customer", "")[:160]
    context: dict[str, Any] = {"customer": customer, "form": CustomerForm(), "writing": WriteForm()}
    try:
        with _asking(visit), or_404():
            numbers = world.ensure(visit.tenant.id)
            number = world.number_of(visit.tenant.id, request.GET.get("number") or None)
            context |= {
                "numbers": numbers,
                "number": number,
                "customers": _customers(visit, number),
                **_thread(visit, number, customer),
            }
    except making.FAILURES:
        return render(request, "console/phone/away.html")
    return render(request, "console/phone/phone.html", context)


@require_safe
@console_page(Area.INTEGRATION, environment=TEST)
def thread(request: HttpRequest, visit: Visit) -> HttpResponse:
    """The conversation alone: the page asks for it anew with each event; 204 while nothing changed."""
    customer = request.GET.get("customer", "")[:160]
    try:
        with _asking(visit), or_404():
            number = world.number_of(visit.tenant.id, request.GET.get("number") or None)
            context = {"number": number, "customer": customer, **_thread(visit, number, customer)}
    except making.FAILURES:
        return HttpResponse(status=204)
    if context["seen"] == request.GET.get("seen"):
        return HttpResponse(status=204)
    return HttpResponse(render_to_string("console/phone/thread.html", context, request))


@require_POST
@console_page(Area.INTEGRATION, environment=TEST)
def begin(request: HttpRequest, visit: Visit) -> HttpResponse:
    """A new customer writes for the first time."""
    require_open(visit)
    form = CustomerForm(request.POST)
    if not form.is_valid():
        _tell(request, form)
        return redirect("console_phone")
    said = {
        "type": "text",
        "text": "Hello",
        "identity": form.cleaned_data["identity"],
        "name": form.cleaned_data["name"] or None,
    }
    return _write(request, visit, form.cleaned_data["customer"], said)


@require_POST
@console_page(Area.INTEGRATION, environment=TEST)
def write(request: HttpRequest, visit: Visit) -> HttpResponse:
    """The customer writes, taps, reacts, corrects or deletes, as the button that was pressed says."""
    require_open(visit)
    customer = request.POST.get("customer", "")[:160]
    action, _, argument = request.POST.get("do", "write").partition(" ")
    message_id = request.POST.get("message", "")[:512]
    if action == "react":
        said: Mapping[str, Any] = {
            "type": "reaction",
            "reaction": {"message_id": message_id, "emoji": argument[:16]},
        }
    elif action == "delete":
        said = {"type": "revoke", "revoke": {"original_message_id": message_id}}
    elif action == "edit":
        text = request.POST.get("text", "")[:4_096]
        said = {"type": "edit", "edit": {"original_message_id": message_id}, "text": text}
    elif action == "choose":
        return _choose(request, visit, customer, message_id, argument)
    else:
        form = WriteForm(request.POST)
        if not form.is_valid():
            _tell(request, form)
            return _back(request, customer)
        said = form.message()
    return _write(request, visit, customer, said)


@require_safe
@console_page(Area.INTEGRATION, environment=TEST)
def file(request: HttpRequest, visit: Visit) -> HttpResponse:
    """A file of the test world by its `id`."""
    media_id = request.GET.get("id", "")[:64]
    if not media_id:
        return HttpResponseBadRequest("Which file?")
    try:
        with _asking(visit), or_404():
            answer = world.file(visit.tenant.id, media_id)
    except making.FAILURES:
        raise Http404("This file cannot be read now.") from None
    content_type = answer.headers.get("content-type", "")
    is_shown = content_type.startswith(INLINE_TYPES)
    response = HttpResponse(
        answer.body, content_type=content_type if is_shown else "application/octet-stream"
    )
    response["X-Content-Type-Options"] = "nosniff"
    if not is_shown:
        response["Content-Disposition"] = "attachment"
    return response


def _choose(request: HttpRequest, visit: Visit, customer: str, message_id: str, place: str) -> HttpResponse:
    """Send what the tapped button or list row of a message says, read from the message itself."""
    with _asking(visit), or_404():
        number = world.number_of(visit.tenant.id, request.POST.get("number") or None)
        rows = _messages(visit, number, customer)
    bubble = next((one for one in bubbles_of(rows) if one.id == message_id), None)
    if bubble is None or not place.isdigit() or int(place) >= len(bubble.choices):
        raise Http404("There is no such choice.")
    return _write(request, visit, customer, {**bubble.choices[int(place)].says, "context": message_id})


def _write(request: HttpRequest, visit: Visit, customer: str, said: Mapping[str, Any]) -> HttpResponse:
    number = request.POST.get("number") or None
    try:
        with _asking(visit), or_404():
            world.write(visit.tenant.id, {**said, "from": customer, "phone_number_id": number})
    except InvalidRequest as error:
        messages.error(request, error.text)
    except making.FAILURES:
        messages.error(request, "The test world did not answer. Try again in a minute.")
    return _back(request, customer)


def _tell(request: HttpRequest, form: Form) -> None:
    """Say on the next page what is wrong with a form."""
    for problems in form.errors.values():
        for problem in problems:
            messages.error(request, str(problem))


def _back(request: HttpRequest, customer: str) -> HttpResponse:
    place = {"number": request.POST.get("number", ""), "customer": customer}
    query = urlencode({name: value for name, value in place.items() if value})
    return redirect(f"{reverse('console_phone')}?{query}#write")


@contextmanager
def _asking(visit: Visit) -> Iterator[None]:
    """Hold a place of the bulkhead while the simulator is asked."""
    with in_flight.upstream.held(visit.tenant.id, None):
        yield


def _messages(visit: Visit, number: PhoneNumber, customer: str) -> list[Any]:
    return world.messages(
        visit.tenant.id, phone_number_id=number.phone_number_id, customer=customer, limit=MOST_MESSAGES
    )


def _thread(visit: Visit, number: PhoneNumber, customer: str) -> dict[str, Any]:
    """The bubbles of a conversation, and a fingerprint of what they show."""
    rows = _messages(visit, number, customer) if customer else []
    shown = repr([(row["id"], row["status"], row["reaction"], row["change"], row["body"]) for row in rows])
    seen = hashlib.sha256(shown.encode()).hexdigest()[:16]
    return {"bubbles": bubbles_of(rows), "emojis": EMOJIS, "seen": seen}


def _customers(visit: Visit, number: PhoneNumber) -> list[dict[str, Any]]:
    rows = world.customers(visit.tenant.id, phone_number_id=number.phone_number_id, limit=MOST_CUSTOMERS)
    return [
        {"key": row["customer"], "name": row["contact"]["profile"]["name"], "gist": gist(row["last"])}
        for row in rows
    ]
