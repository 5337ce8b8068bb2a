"""The search: find pages by an id, a number or a name, within the visit's tenant and environment."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from django.apps import apps
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode

from console import lists, navigation
from console.visit import Visit
from gateway import ids
from gateway.api.errors import NotFound
from gateway.request_log import views as request_log
from gateway.roles import Area
from messaging.message_log import message_search
from messaging.models import Batch, MessageTemplate
from messaging.sending.outbound import typed_number
from phone_numbers.models import PhoneNumber
from tenants.credentials import api_keys
from tenants.credentials.api_keys import PREFIX_CHARACTERS
from tenants.models import ApiKey
from webhooks.models import Delivery, Endpoint, Event

MOST_HITS = 5
"""The maximum number of hits from one finder."""
LONGEST_TEXT = 512
_NUMBER = re.compile(r"\+?[0-9][0-9\s().-]{3,30}")


@dataclass(frozen=True, slots=True)
class Hit:
    """A search result."""

    kind: str
    title: str
    url: str


Finder = Callable[[Visit, str], Iterable[Hit]]


def find(visit: Visit, text: str) -> list[Hit]:
    """The hits for a text, in the areas that the visit may read. A support view gets the hits whose pages it opens."""
    wanted = text.strip()[:LONGEST_TEXT]
    if len(wanted) < 2:
        return []
    return [
        hit
        for area, finder in FINDERS
        if visit.may_read(area)
        for hit in islice(finder(visit, wanted), MOST_HITS)
        if navigation.opens(visit, hit.url)
    ]


def search_page(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Show the hits. A single hit redirects to its page."""
    asked = request.GET.get("q", "")
    hits = find(visit, asked)
    if len(hits) == 1:
        return redirect(hits[0].url)
    return render(request, "console/search.html", {"asked": asked, "hits": hits})


def search_hits(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Show only the hits. The search field loads them while the member types."""
    asked = request.GET.get("q", "")
    return render(request, "console/parts/hits.html", {"asked": asked, "hits": find(visit, asked)})


def _pages(visit: Visit, text: str) -> Iterator[Hit]:
    for entry in navigation.entries_of(visit):
        if text.lower() in entry.title.lower():
            yield Hit("Page", entry.title, reverse(entry.url_name))


def _keys(visit: Visit, text: str) -> Iterator[Hit]:
    if text.startswith("wb_"):
        prefix = text[:PREFIX_CHARACTERS]
        for key in ApiKey.objects.for_tenant(visit.tenant.id).filter(prefix__startswith=prefix):
            page = reverse("console_rotate_key", args=[key.pk])
            if api_keys.has_ended(key):
                page = f"{reverse('console_api_keys')}?ended=yes#key-{key.pk}"
            yield Hit("API key", f"{key.prefix}… {key.name}", page)


def _requests(visit: Visit, text: str) -> Iterator[Hit]:
    request_id = ids.typed(text)
    if ids.decode(ids.REQUEST, request_id) is None:
        return
    try:
        call = request_log.find(**visit.scope, request_id=request_id)
    except NotFound:
        return
    yield Hit("Call", f"{call.method} {call.route or ''}", reverse("console_request", args=[request_id]))


def _events(visit: Visit, text: str) -> Iterator[Hit]:
    key = ids.decode(ids.EVENT, ids.typed(text))
    rows = Event.objects.for_environment(**visit.scope)
    for event in rows.filter(pk=key) if key else ():
        yield Hit(
            "Event", f"{event.type} {event.public_id}", reverse("console_event", args=[event.public_id])
        )


def _deliveries(visit: Visit, text: str) -> Iterator[Hit]:
    key = ids.decode(ids.DELIVERY, ids.typed(text))
    rows = Delivery.objects.for_environment(**visit.scope)
    for delivery in rows.filter(pk=key) if key else ():
        title = f"{delivery.event_type}, {delivery.status}"
        yield Hit("Delivery", title, reverse("console_delivery", args=[delivery.public_id]))


def _endpoints(visit: Visit, text: str) -> Iterator[Hit]:
    # A tenant has few endpoints, so all are scanned. An inbox has no page.
    rows = Endpoint.objects.for_environment(**visit.scope).exclude(kind=Endpoint.Kind.INBOX)
    for endpoint in rows.order_by("-id"):
        if text.lower() in endpoint.url.lower() or text in {str(endpoint.pk), endpoint.uid}:
            yield Hit("Endpoint", endpoint.url, reverse("console_endpoint", args=[endpoint.pk]))


def _messages(visit: Visit, text: str) -> Iterator[Hit]:
    if not text.startswith("wamid."):
        return
    try:
        found = message_search.find(**visit.scope, key=text)
    except NotFound:
        return
    yield Hit(
        "Message", f"{found.type or 'message'}, {found.status}", reverse("console_message", args=[text])
    )


def _customers(visit: Visit, text: str) -> Iterator[Hit]:
    if typed_number(text) is None:
        return
    for number in lists.numbers_meant(text):
        if message_search.search(**visit.scope, equal={"wa_id": number}, limit=1).rows:
            url = f"{reverse('console_messages')}?{urlencode({'wa_id': f'+{number}'})}"
            yield Hit("Customer", f"Messages with +{number}", url)


def _batches(visit: Visit, text: str) -> Iterator[Hit]:
    own = Batch.objects.for_environment(**visit.scope)
    key = ids.decode(ids.BATCH, ids.typed(text))
    for batch in own.filter(Q(pk=key) if key else Q(client_ref=text)):
        title = batch.client_ref or batch.public_id
        yield Hit("Batch", title, reverse("console_batch", args=[batch.public_id]))


def _templates(visit: Visit, text: str) -> Iterator[Hit]:
    own = MessageTemplate.objects.for_environment(**visit.scope)
    for row in own.filter(Q(name__icontains=text) | Q(template_id=text)).order_by("name", "language")[
        :MOST_HITS
    ]:
        yield Hit(
            "Template", f"{row.name} ({row.language})", reverse("console_template", args=[row.template_id])
        )


def _numbers(visit: Visit, text: str) -> Iterator[Hit]:
    if not _NUMBER.fullmatch(text):
        return
    meant = lists.numbers_meant(text)
    own = PhoneNumber.objects.for_environment(**visit.scope)
    for number in own.filter(
        Q(digits__in=meant) | Q(phone_number_id=meant[0]) | Q(account__waba_id=meant[0])
    ):
        title = number.display_phone_number or number.phone_number_id
        yield Hit("Number", title, reverse("console_number", args=[number.phone_number_id]))


FINDERS: list[tuple[Area, Finder]] = [
    (Area.OWN, _pages),
    (Area.INTEGRATION, _keys),
    (Area.INTEGRATION, _requests),
    (Area.INTEGRATION, _events),
    (Area.INTEGRATION, _deliveries),
    (Area.INTEGRATION, _endpoints),
    (Area.INTEGRATION, _numbers),
    (Area.INTEGRATION, _messages),
    (Area.INTEGRATION, _customers),
    (Area.INTEGRATION, _batches),
    (Area.INTEGRATION, _templates),
]
"""The finders, each with the area that a member must be able to read. A finder searches for exact indexed values. The
finders of pages, endpoints and templates search for a part of a name, because there are few of these.
"""

if apps.is_installed("billing"):
    from billing.models import Invoice

    def _invoices(visit: Visit, text: str) -> Iterator[Hit]:
        for invoice in Invoice.objects.for_tenant(visit.tenant.id).filter(number=text.upper()):
            yield Hit("Invoice", invoice.number, reverse("console_invoice", args=[invoice.public_id]))

    FINDERS.append((Area.BILLING, _invoices))
