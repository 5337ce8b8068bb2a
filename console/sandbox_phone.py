"""The sandbox's phone: a member reads the business's messages on it and replies as a customer.

The phone also works while the account awaits approval, because messages of the sandbox never reach a real phone.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import orjson
from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.forms import Form
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBadRequest
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import reverse

from console.visit import Visit, or_404, require_open
from gateway.api import limits
from gateway.api.attachments import attach, isolate
from gateway.api.errors import InvalidRequest
from phone_numbers.models import PhoneNumber
from phone_numbers.sandbox import control
from phone_numbers.sandbox.bubbles import bubbles_of, gist

KINDS = (
    ("text", "Text"),
    ("image", "Picture"),
    ("video", "Video"),
    ("audio", "Voice message"),
    ("document", "Document"),
    ("sticker", "Sticker"),
    ("location", "Location"),
    ("contacts", "Contact card"),
    ("order", "Order"),
)
MOST_MESSAGES = 100
MOST_CUSTOMERS = 50
INLINE_TYPES = ("image/jpeg", "image/png", "image/webp", "audio/", "video/")
"""Content types that the page displays. Other files are downloaded, so no file can act as a page of this host."""
EMOJIS = ("👍", "❤", "😂")


AD = {
    "source_url": "https://fb.me/1a2b3c",
    "source_id": "120200300400500600",
    "source_type": "ad",
    "headline": "Chat with us",
    "body": "Fresh coffee, delivered",
    "media_type": "image",
    "image_url": "https://example.com/coffee.jpg",
    "ctwa_clid": "ARAkLkA8rmlFeiCktEJQ",
}
"""The example ad that a sandbox customer can click, in Meta's form (upstream fact 3.4)."""


class CustomerForm(forms.Form):
    """The form for the first message of a new customer."""

    customer = forms.CharField(
        label="Phone number",
        max_length=24,
        initial="+91 98123 45678",
        help_text="With country code. Any number: nothing reaches a real phone.",
        widget=forms.TextInput(attrs={"inputmode": "tel", "autocomplete": "off"}),
    )
    name = forms.CharField(label="Name", max_length=100, required=False)
    identity = forms.ChoiceField(
        label="Which of their ids you get",
        choices=(
            ("both", "Phone number and user id"),
            ("phone", "Phone number"),
            ("user_id", "Only the user id, as of a customer with a user name"),
        ),
    )

    from_ad = forms.BooleanField(label="They came from an ad", required=False)

    def clean_customer(self) -> str:
        digits = re.sub(r"[\s().+-]", "", self.cleaned_data["customer"])
        if not re.fullmatch(r"[1-9]\d{6,14}", digits):
            raise ValidationError("Give the number with its country code, e.g. +91 98123 45678.")
        return digits


class WriteForm(forms.Form):
    """A message from the customer."""

    kind = forms.ChoiceField(label="Kind", choices=KINDS)
    text = forms.CharField(
        label="Message",
        required=False,
        max_length=4_096,
        widget=forms.TextInput(attrs={"autocomplete": "off", "placeholder": "Message"}),
    )

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if cleaned.get("kind") == "text" and not cleaned.get("text"):
            self.add_error("text", "Type a message.")
        return cleaned

    def message(self) -> dict[str, Any]:
        """The members of the message. A text with an image, video or document is the file's caption."""
        kind, text = self.cleaned_data["kind"], self.cleaned_data.get("text", "")
        if kind == "text":
            return {"type": "text", "text": text}
        if text and kind in {"image", "video", "document"}:
            return {"type": kind, kind: {"caption": text}}
        return {"type": kind}


def phone(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Show the customers of a number, and the conversation with one of them."""
    customer = request.GET.get("customer", "")[:160]
    context: dict[str, Any] = {"customer": customer, "form": CustomerForm(), "writing": WriteForm()}
    try:
        with _asking_simulator(visit), or_404():
            numbers = control.ensure(visit.tenant.id)
            number = control.number_of(visit.tenant.id, request.GET.get("number") or None)
            context |= {
                "numbers": numbers,
                "number": number,
                "customers": _customers(visit, number),
                **_thread(visit, number, customer),
            }
    except control.FAILURES:
        return render(request, "console/phone/away.html")
    return render(request, "console/phone/phone.html", context)


def thread(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Show only the conversation. The page requests it at each event. Returns 204 if the conversation is unchanged or
    the simulator does not answer.
    """
    customer = request.GET.get("customer", "")[:160]
    try:
        with _asking_simulator(visit), or_404():
            number = control.number_of(visit.tenant.id, request.GET.get("number") or None)
            context = {"number": number, "customer": customer, **_thread(visit, number, customer)}
    except control.FAILURES:
        return HttpResponse(status=204)
    if context["seen"] == request.GET.get("seen"):
        return HttpResponse(status=204)
    return HttpResponse(render_to_string("console/phone/thread.html", context, request))


def begin(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Send the first message of a new customer."""
    require_open(visit)
    form = CustomerForm(request.POST)
    if not form.is_valid():
        _explain(request, form)
        return redirect("console_phone")
    said = {
        "type": "text",
        "text": "Hello",
        "identity": form.cleaned_data["identity"],
        "name": form.cleaned_data["name"] or None,
        **({"referral": AD} if form.cleaned_data["from_ad"] else {}),
    }
    answer = _write(request, visit, form.cleaned_data["customer"], said)
    return redirect("console_send") if "then_send" in request.POST else answer


def write(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Write, tap, react, edit or delete as the customer, depending on the pressed button."""
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
    elif action == "prefer":
        return _prefer(request, visit, customer, argument)
    elif action == "call":
        return _call(request, visit, customer, argument)
    elif action == "choose":
        return _choose(request, visit, customer, message_id, argument)
    else:
        form = WriteForm(request.POST)
        if not form.is_valid():
            _explain(request, form)
            return _back(request, customer)
        said = form.message()
    return _write(request, visit, customer, said)


def file(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Serve a file of the sandbox by its `id`."""
    media_id = request.GET.get("id", "")[:64]
    if not media_id:
        return HttpResponseBadRequest("Which file?")
    try:
        with _asking_simulator(visit), or_404():
            answer = control.file(visit.tenant.id, media_id)
    except control.FAILURES:
        raise Http404("This file cannot be read now.") from None
    content_type = answer.headers.get("content-type", "")
    is_shown = content_type.startswith(INLINE_TYPES)
    response = HttpResponse(
        answer.body, content_type=content_type if is_shown else "application/octet-stream"
    )
    if is_shown:
        isolate(response)
    else:
        attach(response, None)
    return response


def flow(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Show a Flow. The member fills it in as the customer, screen by screen. The end of the Flow sends a message of the
    customer.
    """
    given = request.GET if request.method == "GET" else request.POST
    customer, message_id = given.get("customer", "")[:160], given.get("message", "")[:512]
    step: dict[str, Any] = {}
    if request.method == "POST":
        require_open(visit)
        step = _filled_in(request)
    try:
        with _asking_simulator(visit), or_404():
            number = control.number_of(visit.tenant.id, given.get("number") or None)
            screen = control.flow_step(visit.tenant.id, message_id, **step)
    except control.FAILURES:
        return render(request, "console/phone/away.html")
    place = urlencode({"number": number.phone_number_id, "customer": customer})
    if screen["closed"]:
        return redirect(f"{reverse('console_phone')}?{place}#write")
    shown = {"screen": screen, "number": number, "customer": customer, "message_id": message_id}
    written = orjson.dumps(screen.get("data") or {}).decode()
    return render(request, "console/phone/flow.html", {**shown, "data": written, "back": place})


def _filled_in(request: HttpRequest) -> dict[str, Any]:
    """The submitted screen, its data, and the entered values: lists for choices, booleans for checkboxes."""
    values: dict[str, Any] = {}
    for name in request.POST:
        kind, _, field = name.partition(":")
        if kind == "choices":
            values[field] = [each for each in request.POST.getlist(name) if each]
        elif kind == "flag":
            values[field] = request.POST.getlist(name)[-1] == "on"
        elif kind == "field":
            values[field] = request.POST.get(name)
    try:
        data = orjson.loads(request.POST.get("data", "{}"))
    except orjson.JSONDecodeError:
        data = {}
    return {"screen": request.POST.get("screen", "")[:200], "data": data, "values": values}


def _choose(request: HttpRequest, visit: Visit, customer: str, message_id: str, place: str) -> HttpResponse:
    """Send the reply of a tapped button or list row, as defined in the message."""
    with _acting(request, visit) as chosen:
        number = control.number_of(visit.tenant.id, chosen)
        rows = _messages(visit, number, customer)
        bubble = next((one for one in bubbles_of(rows) if one.id == message_id), None)
        if bubble is None or place not in map(str, range(len(bubble.choices))):
            raise Http404("There is no such choice.")
        says = bubble.choices[int(place)].says
        reply = (says.get("interactive") or {}).get("nfm_reply") or {}
        if reply.get("name") == "flow" and control.has_flow(visit.tenant.id, message_id):
            asked = {"number": number.phone_number_id, "customer": customer, "message": message_id}
            return redirect(f"{reverse('console_phone_flow')}?{urlencode(asked)}")
        said = {**says, "context": message_id, "from": customer, "phone_number_id": chosen}
        control.write(visit.tenant.id, said)
    return _back(request, customer)


def _call(request: HttpRequest, visit: Visit, customer: str, argument: str) -> HttpResponse:
    """Call the business, or act on a call. `argument` has the action and the call's id, if any."""
    action, _, call_id = argument.partition(" ")
    with _acting(request, visit) as number:
        if call_id:
            control.act_on_call(visit.tenant.id, call_id=call_id, action=action)
        else:
            control.call_business(visit.tenant.id, phone_number_id=number, **{"from": customer})
    return _back(request, customer)


def _prefer(request: HttpRequest, visit: Visit, customer: str, value: str) -> HttpResponse:
    """Stop or resume marketing messages as the customer, as in WhatsApp's own settings."""
    with _acting(request, visit) as number:
        control.prefer(visit.tenant.id, customer=customer, value=value, phone_number_id=number)
        wish = "no marketing" if value == "stop" else "marketing again"
        messages.success(request, f"The business is notified that you want {wish}.")
    return _back(request, customer)


def _write(request: HttpRequest, visit: Visit, customer: str, said: Mapping[str, Any]) -> HttpResponse:
    with _acting(request, visit) as number:
        control.write(visit.tenant.id, {**said, "from": customer, "phone_number_id": number})
    return _back(request, customer)


@contextmanager
def _acting(request: HttpRequest, visit: Visit) -> Iterator[str | None]:
    """Act as a customer of the chosen number. Yields the number's id. The next page shows errors of the block."""
    try:
        with _asking_simulator(visit), or_404():
            yield request.POST.get("number") or None
    except InvalidRequest as error:
        messages.error(request, error.text)
    except control.FAILURES:
        messages.error(request, "The sandbox did not answer. Try again in a minute.")


def _explain(request: HttpRequest, form: Form) -> None:
    """Show a form's errors on the next page."""
    for problems in form.errors.values():
        for problem in problems:
            messages.error(request, str(problem))


def _back(request: HttpRequest, customer: str) -> HttpResponse:
    place = {"number": request.POST.get("number", ""), "customer": customer}
    query = urlencode({name: value for name, value in place.items() if value})
    return redirect(f"{reverse('console_phone')}?{query}#write")


@contextmanager
def _asking_simulator(visit: Visit) -> Iterator[None]:
    """Hold a slot of the bulkhead during a call to the simulator."""
    with limits.upstream.held(visit.tenant.id, None):
        yield


def _messages(visit: Visit, number: PhoneNumber, customer: str) -> list[Any]:
    return control.messages(
        visit.tenant.id, phone_number_id=number.phone_number_id, customer=customer, limit=MOST_MESSAGES
    )


def _thread(visit: Visit, number: PhoneNumber, customer: str) -> dict[str, Any]:
    """The context of a conversation: its bubbles and calls, with a fingerprint. A reaction changes the fingerprint
    because it is a message of its own.
    """
    rows = _messages(visit, number, customer) if customer else []
    ringing = control.calls(visit.tenant.id, phone_number_id=number.phone_number_id) if customer else []
    calls = [call for call in ringing if call["customer"] == customer]
    shown = repr(calls) + repr([(row["id"], row["status"], row["change"], row["body"]) for row in rows])
    seen = hashlib.sha256(shown.encode()).hexdigest()[:16]
    return {"bubbles": bubbles_of(rows), "calls": calls, "emojis": EMOJIS, "seen": seen}


def _customers(visit: Visit, number: PhoneNumber) -> list[dict[str, Any]]:
    rows = control.customers(visit.tenant.id, phone_number_id=number.phone_number_id, limit=MOST_CUSTOMERS)
    return [
        {"key": row["customer"], "name": row["contact"]["profile"]["name"], "gist": gist(row["last"])}
        for row in rows
    ]
