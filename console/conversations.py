"""Pages of conversations: the list, one conversation with the reply form, its files, and the switch that turns
conversations on.
"""

import hashlib
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import orjson
from django.contrib import messages
from django.core.cache import cache
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBadRequest, HttpResponseBase
from django.shortcuts import redirect, render

from console import lists
from console.conversation_forms import ReplyForm, TemplateReplyForm
from console.error_codes import UNREACHABLE, upstream_meaning
from console.events import live as news_of
from console.sandbox_phone import INLINE_TYPES
from console.send import BEING_SENT, next_form_id, refusal_of, send_once
from console.visit import Visit, flash_errors, or_404, require_open
from gateway.api import limits
from gateway.api.attachments import isolate
from gateway.api.errors import InvalidRequest, NotFound, ServiceError
from gateway.api.limits import limited_by
from gateway.clock import now
from gateway.roles import Area
from gateway.upstream.calls import UpstreamUnreachable
from messaging.conversations import drawing, list_and_search, read_marks
from messaging.conversations.drawing import Line
from messaging.conversations.list_and_search import Parties, Scope
from messaging.idempotency import WINDOW
from messaging.media import transfer, uploads
from messaging.media.uploads import MAX_REQUEST_BYTES, UNTYPED, Upload, media_type_of
from messaging.message_log import customers
from messaging.message_log.customers import Customer
from messaging.sending.outbound import international
from phone_numbers.models import PhoneNumber
from phone_numbers.senders_and_owners import required_sender
from tenants.audit import Actor
from tenants.models import Tenant
from webhooks.endpoints import lifecycle
from webhooks.models import Endpoint

CONVERSATIONS_PER_PAGE = 30
MESSAGES_PER_PAGE = 50
LONGEST_SEARCH = 100
OF_TEMPLATE = "t"
"""Follows the page's form id in the id of the form that sends a template. The id itself has hexadecimal digits."""
MOST_NUMBERS = 200


def conversation_list(request: HttpRequest, visit: Visit) -> HttpResponse:
    """List conversations, or the results of a search. The conversation with the latest customer message is first."""
    return render(request, "console/conversations/list.html", _list(request, visit))


def rows(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Show only the list. The page requests the list at each event. Returns 204 if the list is unchanged."""
    context = _list(request, visit)
    if context["seen"] == request.GET.get("seen"):
        return HttpResponse(status=204)
    context["open_key"] = request.GET.get("open", "")
    return render(request, "console/conversations/rows.html", context)


def live(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Report whether the environment has new events."""
    return news_of(request, visit)


def turn_on(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Turn conversations on. The console then receives messages, so numbers can be connected without a webhook
    endpoint.
    """
    require_open(visit)
    with flash_errors(request):
        lifecycle.create(**visit.scope, actor=Actor(user_id=visit.user.pk), kind=Endpoint.Kind.INBOX)
        messages.success(request, "Conversations are on. What customers write appears here.")
    return redirect("console_conversations")


def turn_off(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Turn conversations off. The messages stay in the log. The environment's numbers can then send only with a
    verified endpoint.
    """
    inbox = lifecycle.find_inbox(**visit.scope)
    if request.method == "POST":
        require_open(visit)
    if request.method == "POST" and inbox is not None:
        with flash_errors(request):
            lifecycle.delete(**visit.scope, endpoint_id=inbox.pk, actor=Actor(user_id=visit.user.pk))
            messages.success(request, "Conversations are off.")
        return redirect("console_conversations")
    has_another = lifecycle.has_verified(**visit.scope, besides=inbox)
    context = {"inbox": inbox, "has_another": has_another}
    return render(request, "console/conversations/off.html", context)


@limited_by(MAX_REQUEST_BYTES)
def conversation(request: HttpRequest, visit: Visit, number_id: str, customer_id: str) -> HttpResponse:
    """Show a conversation with the forms to reply. Reloading the page does not send a reply again."""
    number, customer = _find(visit, number_id, customer_id)
    reply, template = ReplyForm(), TemplateReplyForm(number=number, visit=visit)
    form_id = next_form_id(request)
    if request.method == "POST":
        require_open(visit)
        form: ReplyForm | TemplateReplyForm
        if request.POST.get("do") == "template":
            form = template = TemplateReplyForm(request.POST, number=number, visit=visit)
        else:
            form = reply = ReplyForm(request.POST, request.FILES)
        if form.is_valid() and _send(request, visit, number, customer, form):
            return redirect("console_conversation", number_id, customer_id)
        form_id = next_form_id(request, is_being_sent=BEING_SENT in form.non_field_errors())
    is_wrong = bool(reply.errors or template.errors)
    context = {
        **_thread(visit, number, customer, lists.before(request)),
        **_list(request, visit, with_page=False),
        "reply": reply,
        "template_form": template,
        "form_id": form_id.removesuffix(OF_TEMPLATE),
        "of_template": OF_TEMPLATE,
        "may_open_messages": visit.may_read(Area.INTEGRATION),
        "can_send": number.connection_state == PhoneNumber.State.CONNECTED,
    }
    context["quoted"] = _quoted(context["days"], reply["quote"].value() or request.GET.get("quote"))
    return render(
        request, "console/conversations/conversation.html", context, status=400 if is_wrong else 200
    )


def thread(request: HttpRequest, visit: Visit, number_id: str, customer_id: str) -> HttpResponse:
    """Show only the messages. The page requests them at each event. Returns 204 if they are unchanged."""
    number, customer = _find(visit, number_id, customer_id)
    context = _thread(visit, number, customer, lists.before(request))
    if context["seen_thread"] == request.GET.get("seen"):
        return HttpResponse(status=204)
    return render(request, "console/conversations/thread.html", context)


def variables(request: HttpRequest, visit: Visit, number_id: str, customer_id: str) -> HttpResponse:
    """Show only the fields for a template's variables. The page loads them when a template is chosen."""
    number, _ = _find(visit, number_id, customer_id)
    initial = {"template": request.GET.get("template", "")}
    form = TemplateReplyForm(number=number, visit=visit, initial=initial)
    return render(request, "console/conversations/variables.html", {"form": form})


def file(request: HttpRequest, visit: Visit) -> HttpResponseBase:
    """Stream the file of the message `id` from WhatsApp. Returns 404 after the retention of message texts."""
    message_id = request.GET.get("id", "")[:512]
    if not message_id:
        return HttpResponseBadRequest("Of which message?")
    with or_404():
        message = list_and_search.content_of(Scope(visit.tenant.id, visit.environment), message_id)
    shown = next((line.bubble.file for line in drawing.lines_of([message], {})), None)
    if shown is None or shown.id is None:
        raise Http404("There is no file in this message.")
    number_id = message.row.phone_number_id
    range_ = request.headers.get("Range")
    download = partial(transfer.download, **visit.scope, media_id=shown.id, from_=number_id, range_=range_)
    try:
        answer: HttpResponseBase = limits.upstream.response(download, visit.tenant.id, number_id)
    except (ServiceError, UpstreamUnreachable):
        raise Http404("WhatsApp did not return this file. It may have expired.") from None
    if answer.status_code >= 300:
        answer.close()
        raise Http404("WhatsApp did not return this file. It may have expired.")
    if answer.headers.get("Content-Type", "").startswith(INLINE_TYPES):
        isolate(answer)
        answer["Content-Disposition"] = "inline"
    return answer


def _list(request: HttpRequest, visit: Visit, *, with_page: bool = True) -> dict[str, Any]:
    """The context of the list, with a fingerprint of its content. Without `with_page` the list is empty: the page of a
    conversation loads the list later.
    """
    inbox = lifecycle.find_inbox(**visit.scope)
    own = PhoneNumber.objects.for_environment(**visit.scope)
    numbers = dict(own.order_by("id").values_list("phone_number_id", "display_phone_number")[:MOST_NUMBERS])
    wanted = request.GET.get("number", "")
    wanted = wanted if wanted in numbers else ""
    asked = request.GET.get("q", "").strip()[:LONGEST_SEARCH]
    page = list_and_search.Page([], None)
    if inbox is not None and with_page:
        scope = Scope(visit.tenant.id, visit.environment, wanted or None)
        since, before = inbox.created_at, lists.before(request)
        if not asked:
            page = list_and_search.newest(scope, since=since, limit=CONVERSATIONS_PER_PAGE, before=before)
        elif list_and_search.is_number(asked):
            page = list_and_search.by_number(scope, asked, since=since, limit=CONVERSATIONS_PER_PAGE)
        else:
            page = list_and_search.by_text(
                scope, asked, since=since, limit=CONVERSATIONS_PER_PAGE, before=before
            )
    query = urlencode({name: value for name, value in (("number", wanted), ("q", asked)) if value})
    shown = [
        (row.last.row.id, row.last.row.status, row.gist, row.unread, row.is_open, row.opted_out)
        for row in page.rows
    ]
    return {
        "inbox": inbox,
        "page": page,
        "numbers": numbers,
        "wanted": wanted,
        "asked": asked,
        "query": query,
        "is_searched": bool(asked) or lists.before(request) is not None,
        "seen": _fingerprint(shown) if with_page else "",
        "may_turn_on": visit.may_change(Area.INTEGRATION) and visit.is_open(visit.environment),
        "may_erase": visit.may_change(Area.SETTINGS) and visit.tenant.status == Tenant.Status.ACTIVE,
    }


def _find(visit: Visit, number_id: str, customer_id: str) -> tuple[PhoneNumber, Customer]:
    with or_404():
        own = PhoneNumber.objects.for_environment(**visit.scope)
        number = own.filter(phone_number_id=number_id).select_related("account").first()
        if number is None:
            raise NotFound("There is no such number.")
        customer = customers.find(**visit.scope, phone_number_id=number_id, customer_id=customer_id)
    return number, customer


def _thread(visit: Visit, number: PhoneNumber, customer: Customer, before: UUID | None) -> dict[str, Any]:
    """The context of a conversation: its messages by day, with a fingerprint. When the member may reply, the messages
    are marked as read.
    """
    scope = Scope(visit.tenant.id, visit.environment, number.phone_number_id)
    found = list_and_search.thread(
        scope,
        wa_id=customer.wa_id,
        user_id=customer.user_id,
        limit=MESSAGES_PER_PAGE,
        before=before,
    )
    lines = drawing.lines_of(found.messages, list_and_search.documents_of(scope, found.messages))
    parties = Parties(number.phone_number_id, customer.wa_id, customer.user_id)
    if found.messages and visit.may_change(Area.CONVERSATIONS):
        read_marks.mark(**visit.scope, conversations=parties.keys, through=found.messages[0].row.id)
    return {
        "number": number,
        "customer": customer,
        "customer_id": parties.customer,
        "open_key": parties.key,
        "name": next((message.name for message in found.messages if message.name), ""),
        "days": [
            (day, [(line, _reason(line)) for line in of_day])
            for day, of_day in groupby(lines, key=lambda line: _day(line.bubble.at, visit))
        ],
        "older": found.before,
        "is_newest": before is None,
        "seen_thread": _fingerprint([(line.row.id, line.row.status, line.bubble) for line in lines]),
    }


def _reason(line: Line) -> str:
    """Why a message was not delivered."""
    known = upstream_meaning(str(line.row.error_code))
    return drawing.failure(line.row, f"{known.cause} {known.fix}" if known else None)


def _day(at: datetime, visit: Visit) -> str:
    """The heading of a day in the visit's zone."""
    day, today = at.astimezone(visit.zone).date(), now().astimezone(visit.zone).date()
    if day == today:
        return "Today"
    return "Yesterday" if day == today - timedelta(days=1) else f"{day.day} {day:%B %Y}"


def _quoted(days: list[tuple[str, list[tuple[Line, str]]]], key: str | None) -> Line | None:
    """The message that a reply quotes. None when the page does not show this message."""
    shown = (line for _, of_day in days for line, _ in of_day)
    return next((line for line in shown if key and line.row.wamid == key), None)


def _send(
    request: HttpRequest,
    visit: Visit,
    number: PhoneNumber,
    customer: Customer,
    form: ReplyForm | TemplateReplyForm,
) -> bool:
    """Send a reply. Returns whether it was sent. If not, the form has the reason."""
    to = {"to": international(customer.wa_id)} if customer.wa_id else {"recipient": customer.user_id}
    try:
        media_id = _uploaded(request, visit, number, form)
        body = {
            "from": number.phone_number_id,
            "messaging_product": "whatsapp",
            **to,
            **form.message(media_id),
        }
        sent = send_once(request, visit, body)
    except ServiceError as error:
        form.add_error(None, error.text)
        return False
    except UpstreamUnreachable:
        form.add_error(None, UNREACHABLE)
        return False
    if sent.status >= 300:
        form.add_error(None, refusal_of(sent.body))
    return sent.status < 300


def _uploaded(
    request: HttpRequest, visit: Visit, number: PhoneNumber, form: ReplyForm | TemplateReplyForm
) -> str | None:
    """Upload the reply's file and return its media id. Returns None for a reply without a file.

    A form that is submitted again gets the same id for the same file, so its message is the same and is sent once.
    """
    given = form.cleaned_data.get("file")
    if given is None:
        return None
    digest = hashlib.file_digest(given.file, "sha256").hexdigest()
    given.file.seek(0)
    form_id = request.POST.get("form_id", "")[:64]
    name = f"answer-file:{visit.tenant.id}:{number.phone_number_id}:{form_id}:{digest}"
    if (known := cache.get(name)) is not None:
        return str(known)
    sender = required_sender(**visit.scope, from_=number.phone_number_id)
    upload = Upload(given.file, given.size, given.name or "file", media_type_of(given) or UNTYPED)
    with limits.upstream.held(visit.tenant.id, number.phone_number_id):
        answer = uploads.upload(visit.tenant.id, sender, upload, {})
    uploaded = orjson.loads(answer.content)
    if answer.status_code >= 300:
        raise InvalidRequest(refusal_of(answer.content))
    # Of two simultaneous submissions, both use the id of the first.
    cache.add(name, str(uploaded["id"]), WINDOW.total_seconds())
    return str(cache.get(name, uploaded["id"]))


def _fingerprint(shown: object) -> str:
    return hashlib.sha256(repr(shown).encode()).hexdigest()[:16]
