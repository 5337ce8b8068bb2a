"""The page to send a test message. It shows the form, the raw response, code for the same call, and the message's
events.
"""

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import orjson
from django import forms
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from console.error_codes import UNREACHABLE, upstream_meaning
from console.template_forms import approved_templates, offer_templates
from console.visit import TEST, Visit, require_open, sending_numbers
from gateway.api.errors import MetaUnreachable, Reply, ServiceError, error_reply
from gateway.text_field import TextField
from messaging.idempotency import DifferentBody, InProgress
from messaging.message_log import customers
from messaging.message_templates import parameters
from messaging.models import MessageTemplateQuerySet
from messaging.sending.flow import SendRequest, send_from_thread
from messaging.sending.outbound import international, lacks_country_code, typed_number
from phone_numbers.models import PhoneNumber
from webhooks.events import envelope, search

EVENTS_SHOWN = 20
SENT_BEFORE = (
    "This form was already sent, with other contents. Look for its message before you send it again."
)
BEING_SENT = "It is being sent. Look for its message before you send it again."
EXAMPLE_CUSTOMER = "+91 98123 45678"
"""The recipient that forms suggest in the sandbox. Sandbox messages reach no real phone."""


class TemplateForm(forms.Form):
    """A form to choose a template. A chosen template adds a field for each of its variables."""

    without_template = "Choose a template"
    """The label of the choice without a template."""
    template = forms.ChoiceField(
        label="Template",
        required=False,
        help_text="Needed unless the customer wrote within the last 24 hours.",
    )

    def __init__(self, *args: Any, templates: MessageTemplateQuerySet, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.refusal: str | None = None
        """The reason why the form cannot fill in the chosen template. None if the form can."""
        self.document: Mapping[str, Any] | None = None
        """The chosen template, as WhatsApp describes it."""
        self._template = offer_templates(self, templates, self.without_template)
        if self._template is not None:
            self._add_parameters(orjson.loads(self._template.document))

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if self.refusal is not None:
            raise ValidationError(self.refusal)
        return cleaned

    def parameter_fields(self) -> list[forms.BoundField]:
        """The fields for the variables of the chosen template."""
        return [field for field in self if field.name not in self.base_fields]

    def as_read(self) -> list[tuple[str, str]]:
        """The chosen template as customers will read it, with the values typed so far."""
        typed = {field.name: field.value() for field in self.parameter_fields() if field.value()}
        return parameters.as_read(self.document, typed) if self.document else []

    def _add_parameters(self, document: Mapping[str, Any]) -> None:
        try:
            wanted = parameters.parameters_of(document)
        except parameters.CannotBeFilled as error:
            self.refusal = str(error)
            return
        self.document = document
        for parameter in wanted:
            self.fields[parameter.key] = forms.CharField(label=parameter.label, max_length=1024)


class SendForm(TemplateForm):
    """A test message: a text, or a template with a field for each variable."""

    without_template = "None: send the text"
    from_ = forms.ChoiceField(label="From")
    to = forms.CharField(
        label="To",
        max_length=24,
        help_text="With country code, e.g. +91 98000 00001.",
        widget=forms.TextInput(attrs={"autocomplete": "tel", "inputmode": "tel", "type": "tel"}),
    )
    text = TextField(
        label="Text", max_length=4096, required=False, widget=forms.Textarea(attrs={"rows": 3, "dir": "auto"})
    )

    def __init__(self, *args: Any, visit: Visit, **kwargs: Any) -> None:
        super().__init__(*args, templates=approved_templates(visit), **kwargs)
        self._visit = visit
        senders = sending_numbers(visit)
        self.sender_ids = [number for number, _ in senders]
        self.fields["from_"].choices = senders  # type: ignore[attr-defined]

    def clean_to(self) -> str:
        to = typed_number(self.cleaned_data["to"])
        if to is None or lacks_country_code(self.cleaned_data["to"]):
            raise ValidationError("Give the number with its country code, e.g. +91 98000 00001.")
        return to

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        if self._template is not None:
            self._check_account(cleaned)
        elif not cleaned.get("text") and "template" not in self.errors:
            raise ValidationError("Type a text, or choose a template.")
        return cleaned

    def head_fields(self) -> list[forms.BoundField]:
        """The fields that come before the fields for the template's variables."""
        return [self[name] for name in ("from_", "to")]

    def message(self) -> dict[str, Any]:
        """The body for `POST /v1/messages`."""
        values = self.cleaned_data
        head = {"from": values["from_"], "messaging_product": "whatsapp", "to": international(values["to"])}
        if self.document is not None:
            return {**head, "type": "template", "template": parameters.message(self.document, values)}
        return {**head, "type": "text", "text": {"body": values["text"]}}

    def _check_account(self, cleaned: Mapping[str, Any]) -> None:
        numbers = PhoneNumber.objects.for_environment(**self._visit.scope)
        number = numbers.filter(phone_number_id=cleaned.get("from_")).first()
        if number is not None and self._template and number.account_id != self._template.account_id:
            raise ValidationError(
                "This template belongs to another business account than the number. Choose another number."
            )


def send(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Show the form and, after sending, the response. Reloading the response does not send the message again."""
    initial = {"template": request.GET.get("template", "")}
    if visit.environment == TEST:
        initial["to"] = EXAMPLE_CUSTOMER
    form = SendForm(request.POST or None, visit=visit, initial=initial)
    context: dict[str, Any] = {"tenant": visit.tenant, "form": form, "form_id": next_form_id(request)}
    if request.method != "POST" and visit.environment == TEST and form.sender_ids:
        context["must_write"] = _must_write(visit, form.sender_ids[0])
    if request.method == "POST":
        require_open(visit)
        if form.is_valid():
            context |= _sent(request, visit, form)
    return render(request, "console/messaging/send.html", context, status=400 if form.errors else 200)


def _must_write(visit: Visit, number: str) -> dict[str, str] | None:
    """The number and the sandbox's example customer. None if this customer has written in the last 24 hours. If not, a
    text to the customer would fail.
    """
    known = customers.find(
        **visit.scope, phone_number_id=number, customer_id=typed_number(EXAMPLE_CUSTOMER) or ""
    )
    return None if known.window_open else {"number": number, "customer": EXAMPLE_CUSTOMER}


def variables(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Show only the fields for a template's variables. The page loads them when a template is chosen."""
    form = SendForm(visit=visit, initial={"template": request.GET.get("template", "")})
    return render(request, "console/messaging/send_variables.html", {"form": form})


def events(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Show the events of a message, oldest first. The open page polls them."""
    wamid = request.GET.get("wamid", "")[:512]
    return render(request, "console/messaging/events.html", {"wamid": wamid, "rows": _events(visit, wamid)})


def send_once(request: HttpRequest, visit: Visit, body: dict[str, Any]) -> Reply:
    """Send a message and return the response. The form's `form_id` is the idempotency key, so a form sends only one
    message.
    """
    request_id = getattr(request, "request_id", None)
    wanted = SendRequest(
        **visit.scope,
        path="/v1/messages",
        raw=orjson.dumps(body),
        body=body,
        idempotency_key=f"console-{request.POST.get('form_id', '')[:64]}",
        request_id=request_id,
    )
    try:
        return send_from_thread(wanted)
    except ServiceError as error:
        return error_reply(error, request_id)


def next_form_id(request: HttpRequest, *, is_being_sent: bool = False) -> str:
    """The id of the next page's form. While the message is being sent, it is the submitted form's id, so submitting the
    form again sends no second message.
    """
    return request.POST.get("form_id", "") if is_being_sent else str(uuid4())


def refusal_of(answer: bytes) -> str:
    """The reason why WhatsApp refused a message, in words, from its response."""
    try:
        error = orjson.loads(answer).get("error") or {}
    except (orjson.JSONDecodeError, AttributeError):
        return UNREACHABLE
    known = upstream_meaning(str(error.get("code")))
    if known is not None:
        return f"It was not sent. {known.cause} {known.fix} (code {known.code})"
    if error.get("code") == DifferentBody.code:
        return BEING_SENT if error.get("message") == InProgress.message else SENT_BEFORE
    if _states_outcome(error):
        return str(error["message"])
    return f"It was not sent: {error.get('message') or 'WhatsApp gave no reason.'}"


def _states_outcome(error: Mapping[str, Any]) -> bool:
    """Whether the error's own text says if the message was sent. It may have been sent despite such an error."""
    return error.get("code") == MetaUnreachable.code or error.get("message") == BEING_SENT


def _sent(request: HttpRequest, visit: Visit, form: SendForm) -> dict[str, Any]:
    body = form.message()
    reply = send_once(request, visit, body)
    answer = _answer(reply)
    wamid = next(iter(answer.get("messages") or [{}])).get("id") if isinstance(answer, dict) else None
    problem = None if reply.status < 300 or not isinstance(answer, dict) else answer.get("error")
    is_being_sent = isinstance(problem, dict) and problem.get("message") == InProgress.message
    if is_being_sent:
        problem = {"message": BEING_SENT}
    shown = orjson.dumps(body, option=orjson.OPT_INDENT_2).decode()
    return {
        "status": reply.status,
        "answer": orjson.dumps(answer, option=orjson.OPT_INDENT_2).decode(),
        "problem": problem,
        "form_id": next_form_id(request, is_being_sent=is_being_sent),
        "is_refused": isinstance(problem, dict) and not _states_outcome(problem),
        "meaning": upstream_meaning(str(problem.get("code"))) if isinstance(problem, dict) else None,
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
    found = search.search(**visit.scope, equal={"wamid": wamid}, limit=EVENTS_SHOWN).rows
    bodies = envelope.load([event.id for event in found], tenant_id=visit.tenant.id)
    rows = []
    for event in reversed(found):
        stored = bodies.get(event.id)
        data = orjson.loads(stored.data) if stored else {}
        status = data.get("status")
        said = status.get("status") if isinstance(status, dict) else None
        errors = status.get("errors") if isinstance(status, dict) else None
        rows.append({"event": event, "said": said, "errors": errors or []})
    return rows
