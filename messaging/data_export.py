"""Data exports: all data of one customer, or of a whole account, as lines of JSON.

Each line is `{"kind": …, "data": {…}}`. The order is: business, numbers, endpoints, templates, opt-outs, scheduled
messages, message log, events. An event has the form in which webhooks deliver it. If its body is erased or past
retention, the line has only the fields of the event's row. Events and messages start with the newest. A message also
has the ad that led to it. No export has secrets.

`console/exports.py` writes the file in the background, and keeps it for a week. An erasure of a customer's data
deletes the file earlier.
"""

import gzip
import math
from collections.abc import Iterator
from datetime import timedelta
from heapq import merge
from itertools import islice
from typing import Any, TypeVar
from uuid import UUID

import orjson
from django.db import IntegrityError, transaction
from django.db.models import Min, Q, QuerySet, Sum
from django.db.models.functions import Length
from django.http import StreamingHttpResponse

from gateway.api.errors import Conflict, NotFound, RateLimited
from gateway.api.json import dumps
from gateway.api.pagination import represent
from gateway.clock import now
from gateway.task_queue import enqueue
from messaging import opt_outs
from messaging.batches.serializers import ScheduledOut
from messaging.erasure import Names, names_of, scheduled_to
from messaging.message_log.serializers import MessageOut, OptedOutCustomerOut
from messaging.models import MessageTemplate, ScheduledMessage
from messaging.retention import NAMELESS, customers_in_bodies
from phone_numbers.models import PhoneNumber
from phone_numbers.serializers import NumberOut
from tenants.audit import Actor
from tenants.models import Export, ExportPart, Tenant
from tenants.serializers import TenantOut
from webhooks.events import envelope
from webhooks.models import Endpoint, Event, Message
from webhooks.serializers import EndpointOut
from webhooks.views import EventOut

ACCOUNT, CUSTOMER = "account", "customer"
KINDS = (ACCOUNT, CUSTOMER)
JSON_LINES = "application/x-ndjson"
Row = TypeVar("Row", Event, Message)
KEPT = timedelta(days=7)
"""How long the files of all exports are kept, also those of `console/exports.py`."""
MOST_KEPT_BYTES = 2 * 1024**3
"""The maximum number of compressed bytes of a tenant's files. The file that exceeds it is still written."""
PAGE = 500
"""How many rows, with the bodies of events, are in memory at once."""


def request(
    *, tenant_id: UUID, environment: str, customer_id: str | None, user_id: int | None, actor: Actor
) -> Export:
    """Request a file with one customer's data or the whole account. Raises Conflict while another such file is being
    written, and RateLimited while the tenant has too many bytes of files.
    """
    require_room(tenant_id)
    try:
        with transaction.atomic():
            export = Export.objects.create(
                tenant_id=tenant_id,
                environment=environment,
                user_id=user_id,
                kind=ACCOUNT if customer_id is None else CUSTOMER,
                query=(customer_id or "").removeprefix("+"),
            )
            actor.record(
                "data.export",
                tenant_id=tenant_id,
                target_type="export",
                target_id=str(export.pk),
                kind=export.kind,
            )
            transaction.on_commit(lambda: enqueue("console.tasks.write_export", export_id=str(export.pk)))
    except IntegrityError:
        raise Conflict("Another file is still being written: ask for the next one when it is done.") from None
    return export


def require_room(tenant_id: UUID) -> None:
    """Raise RateLimited if the tenant's files have `MOST_KEPT_BYTES` or more, until the oldest is deleted."""
    kept = ExportPart.objects.filter(export__tenant_id=tenant_id).aggregate(
        size=Sum(Length("content")), first=Min("export__created_at")
    )
    if (kept["size"] or 0) < MOST_KEPT_BYTES:
        return
    wait = math.ceil((kept["first"] + KEPT - now()).total_seconds())
    raise RateLimited(
        f"The files of your exports have {MOST_KEPT_BYTES // 1024**2:,} MiB already, which is the maximum.",
        hint=f"Each file is deleted {KEPT.days} days after its request.",
        details={"limit": MOST_KEPT_BYTES},
        headers={"Retry-After": str(max(1, wait))},
    )


def find(*, tenant_id: UUID, environment: str, export_id: UUID) -> Export:
    """A tenant's export of data in an environment. Raises NotFound."""
    rows = Export.objects.filter(tenant_id=tenant_id, environment=environment, kind__in=KINDS)
    found = rows.filter(pk=export_id).first()
    if found is None:
        raise NotFound("There is no such export.")
    return found


def lines(export: Export) -> Iterator[bytes]:
    """The lines of an export's file. An empty text, which is no line, shows that the work goes on: a customer may have
    few lines among very many.
    """
    if export.kind == ACCOUNT:
        yield from _account(export.tenant_id, export.environment)
    names = names_of(export.tenant_id, export.query) if export.kind == CUSTOMER else None
    yield from _marks(export, names)
    scope = {"tenant_id": export.tenant_id, "environment": export.environment}
    sent = {"event_id__isnull": False, "direction": "outbound"}
    for page in _pages_of(names, Message.objects.filter(**scope), event_id="event_id", **sent):
        yield b""
        for shown in represent(MessageOut, page):
            yield _line("message", shown)
    yield from _events(export, names)


def _account(tenant_id: UUID, environment: str) -> Iterator[bytes]:
    yield _line("business", TenantOut(Tenant.objects.get(pk=tenant_id)).data)
    for number in PhoneNumber.objects.for_environment(tenant_id, environment).order_by("id"):
        yield _line("number", NumberOut(number).data)
    for endpoint in Endpoint.objects.for_environment(tenant_id, environment).order_by("id"):
        yield _line("webhook", EndpointOut(endpoint).data)
    templates = MessageTemplate.objects.for_environment(tenant_id, environment)
    for template in templates.order_by("id").iterator():
        yield _line("template", orjson.Fragment(template.document))


def _marks(export: Export, names: Names | None) -> Iterator[bytes]:
    """The lines of opt-outs and scheduled messages."""
    scope: dict[str, Any] = {"tenant_id": export.tenant_id, "environment": export.environment}
    for opt_out in opt_outs.opted_out(**scope).filter(_of(names)).order_by("id").iterator():
        yield _line("opt_out", OptedOutCustomerOut(opt_out).data)
    rows = ScheduledMessage.objects.filter(**scope)
    for scheduled, customers in scheduled_to(rows, export.tenant_id):
        if names is None or not names.all.isdisjoint(customers):
            body = orjson.Fragment(bytes(scheduled.body))
            yield _line("scheduled_message", {**ScheduledOut(scheduled).data, "body": body})


def _of(names: Names | None) -> Q:
    return names.condition if names is not None else Q()


def _pages_of(
    names: Names | None, rows: QuerySet[Row], *, event_id: str, **outbound: Any
) -> Iterator[list[Row]]:
    """Pages of a customer's rows, newest row first. Without names, pages of all rows. A page may be empty.

    `event_id` is the column with the id of the row's event. `outbound` are the conditions for outbound messages.
    """
    if names is None:
        yield from _pages(rows)
        return
    named = ((row, True) for page in _pages(rows.filter(names.condition)) for row in page)
    nameless = _named_by_body(names, rows.filter(NAMELESS, **outbound), event_id)
    found = merge(named, nameless, key=lambda each: each[0].id, reverse=True)
    while some := list(islice(found, PAGE)):
        yield [row for row, is_own in some if is_own]


def _named_by_body(names: Names, nameless: QuerySet[Row], event_id: str) -> Iterator[tuple[Row, bool]]:
    """The rows whose bodies name the customer, and the last row of each page, each with whether its body does."""
    for page in _pages(nameless):
        event_ids = [getattr(row, event_id) for row in page]
        customers = customers_in_bodies(event_ids, tenant_id=page[0].tenant_id)
        for row, of_row in zip(page, event_ids, strict=True):
            is_own = not names.all.isdisjoint(customers.get(of_row, ()))
            if is_own or row is page[-1]:
                yield row, is_own


def _pages(rows: QuerySet[Row]) -> Iterator[list[Row]]:
    """Pages of rows, newest row first."""
    page = list(rows.order_by("-id")[:PAGE])
    while page:
        yield page
        page = list(rows.filter(id__lt=page[-1].id).order_by("-id")[:PAGE])


def _events(export: Export, names: Names | None) -> Iterator[bytes]:
    rows = Event.objects.for_environment(export.tenant_id, export.environment)
    for page in _pages_of(names, rows, event_id="id", type="message.outbound"):
        yield b""
        bodies = envelope.load([event.id for event in page], tenant_id=export.tenant_id)
        for event in page:
            body = bodies[event.id]
            yield _line("event", orjson.Fragment(body.body()) if body is not None else _head(event))


def _head(event: Event) -> object:
    """The fields that the event's row still has when the body is gone."""
    event.payload_available, event.delivery_counts = False, {}
    return {name: value for name, value in EventOut(event).data.items() if name != "deliveries"}


def _line(kind: str, data: object) -> bytes:
    return dumps({"kind": kind, "data": data}) + b"\n"


def file_of(export: Export) -> StreamingHttpResponse:
    """The response that streams an export's file in parts."""
    is_json = export.kind in KINDS
    parts = ExportPart.objects.filter(export=export).order_by("place").values_list("pk", flat=True)
    content_type = JSON_LINES if is_json else "text/csv; charset=utf-8"
    answer = StreamingHttpResponse(_unpacked(list(parts)), content_type=content_type)
    name = f"{export.kind}.{'ndjson' if is_json else 'csv'}"
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer


def _unpacked(parts: list[int]) -> Iterator[bytes]:
    for key in parts:
        yield gzip.decompress(ExportPart.objects.values_list("content", flat=True).get(pk=key))
