"""Exports: the rows of a list as CSV. A list of more than `MOST_AT_ONCE` rows is written to a file in the background,
and a mail has the link to the file.

Exported lists contain no texts of messages. A member who may read a list may export it and download its files. Files
are deleted after `KEPT`. This module also writes and serves the files of `messaging/data_export.py`.
"""

import csv
import gzip
import io
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from urllib.parse import unquote
from uuid import UUID
from zoneinfo import ZoneInfo

import structlog
from django.conf import settings
from django.contrib import messages
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse

from console import lists
from console.account_settings import people_by_id, who
from console.analytics import RangeForm, read_days
from console.messages import MessageFilter, search_page
from console.request_log import RequestFilter
from console.visit import Visit
from gateway import ids
from gateway.api.errors import InvalidRequest, RateLimited
from gateway.clock import now
from gateway.csv_cells import as_text
from gateway.database.transactions import concerns_all
from gateway.request_log import views as request_log
from gateway.roles import Area
from gateway.task_queue import AGAIN_SECONDS, RUN_SECONDS, enqueue, in_turn
from messaging import data_export
from tenants import audit, mail
from tenants.audit_labels import action_words, changes
from tenants.models import AuditEntry, Export, ExportPart, User
from tenants.team import members

log = structlog.get_logger(__name__)

MOST_AT_ONCE = 10_000
"""The maximum number of rows in a direct download. Longer lists are written in the background."""
MOST_ROWS = 1_000_000
"""The maximum number of rows in a file. Only the newest rows of a longer list are exported."""
KEPT = data_export.KEPT
LEASE = timedelta(minutes=5)
"""The lease of the worker that writes a file. The worker renews it at each part."""
ROWS_OF_A_PART = 5_000
PART_SECONDS = 60.0
"""A part ends after this time, even without rows. A filter may match few rows of a log."""
RECORDED_EVERY = timedelta(hours=1)
"""How often the audit log records that a person downloads the same list directly."""
PAGE = 1_000
MOST_PAGES_AT_ONCE = 2 * MOST_AT_ONCE // PAGE
"""The maximum number of pages that a direct download reads. Each is a bounded walk through the log."""

Row = Sequence[object]
Pages = Iterator[list[Row]]


@dataclass(frozen=True, slots=True)
class Kind:
    """A list that can be exported: the area that a member must be able to read, the columns, and a function that
    returns pages of the filtered rows, newest first. A page may be empty.
    """

    title: str
    area: Area
    columns: tuple[str, ...]
    pages: Callable[[Visit, QueryDict], Pages]


def _messages(visit: Visit, query: QueryDict) -> Pages:
    wanted = lists.filled_fields(MessageFilter(query))
    before = None
    while True:
        page = search_page(visit, wanted, before=before, limit=PAGE)
        yield [
            (
                _moment(visit, row.created_at),
                row.direction,
                row.wa_id or row.user_id,
                row.phone_number_id,
                row.status,
                row.error_code,
                row.type,
                row.template,
                row.template_language,
                *(
                    _moment(visit, at)
                    for at in (row.accepted_at, row.sent_at, row.delivered_at, row.read_at, row.failed_at)
                ),
                ids.encode(ids.BATCH, row.batch_id) if row.batch_id else None,
                row.wamid,
            )
            for row in page.rows
        ]
        if (before := page.before) is None:
            return


def _requests(visit: Visit, query: QueryDict) -> Pages:
    equal, begin, end = lists.split_span(lists.filled_fields(RequestFilter(query)), visit.zone)
    before = None
    while True:
        page = request_log.search(**visit.scope, equal=equal, begin=begin, end=end, before=before, limit=PAGE)
        yield [
            (
                _moment(visit, call.created_at),
                call.method,
                call.route,
                call.status,
                call.error_code,
                call.key_prefix,
                round(call.own_ms, 1),
                round(call.upstream_ms, 1),
                call.public_id,
            )
            for call in page.rows
        ]
        if (before := page.before) is None:
            return


def _analytics(visit: Visit, query: QueryDict) -> Pages:
    days, narrowed = RangeForm(visit, query).wanted()
    found = read_days(visit, days, narrowed, groups=("phone_number_id", "template"))
    counted = ("received", "sent", "delivered", "read", "failed")
    yield [
        (
            f"{sums.start:%Y-%m-%d}",
            sums.group["phone_number_id"],
            sums.group["template"],
            *(sums.counts.get(name, 0) for name in counted),
        )
        for sums in sorted(found.messages, key=lambda each: each.start, reverse=True)
    ]


def _audit(visit: Visit, query: QueryDict) -> Pages:
    before = 2**63 - 1
    entries = AuditEntry.objects.filter(tenant_id=visit.tenant.id).order_by("-id")
    while page := list(entries.filter(id__lt=before)[:PAGE]):
        before = page[-1].pk
        people = people_by_id(visit, [row.actor_user_id for row in page if row.actor_user_id is not None])
        yield [
            (
                _moment(visit, row.created_at),
                who(row, people),
                action_words(row.action),
                row.target_type,
                row.target_id,
                "; ".join(changes(row.details, visit.zone)),
            )
            for row in page
        ]


KINDS = {
    "messages": Kind(
        "Messages",
        Area.INTEGRATION,
        (
            *("time", "direction", "customer", "phone_number_id", "status", "error_code", "type", "template"),
            *("language", "accepted_at", "sent_at", "delivered_at", "read_at", "failed_at", "batch"),
            "message_id",
        ),
        _messages,
    ),
    "requests": Kind(
        "Request log",
        Area.INTEGRATION,
        ("time", "method", "route", "status", "error_code", "key", "gateway_ms", "meta_ms", "request_id"),
        _requests,
    ),
    "figures": Kind(
        "Figures",
        Area.INTEGRATION,
        ("day", "phone_number_id", "template", "received", "sent", "delivered", "read", "failed"),
        _analytics,
    ),
    "audit": Kind(
        "Audit log", Area.SETTINGS, ("time", "who", "did", "target", "target_id", "change"), _audit
    ),
}


def _moment(visit: Visit, at: datetime | None) -> str | None:
    """A time in ISO 8601, in the member's zone. None for None."""
    return at.astimezone(visit.zone).isoformat(timespec="seconds") if at else None


def _lines(rows: Iterable[Sequence[object]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(
        ["" if cell is None else as_text(cell) if isinstance(cell, str) else cell for cell in row]
        for row in rows
    )
    return text.getvalue().encode()


# --- Pages.


def _at_once(request: HttpRequest, visit: Visit, *, name: str) -> HttpResponse:
    """Download a list as a file. For a list that is long or whose rows are far apart, show a page that offers to write
    the file in the background.
    """
    kind = KINDS[name]
    rows: list[Row] = []
    for pages, page in enumerate(kind.pages(visit, request.GET), start=1):
        rows += page
        if len(rows) > MOST_AT_ONCE or pages > MOST_PAGES_AT_ONCE:
            context = {"name": name, "kind": kind, "query": request.GET.urlencode(), "at_once": MOST_AT_ONCE}
            return render(request, "console/export.html", context | {"most": MOST_ROWS, "days": KEPT.days})
    if "customer" in kind.columns:
        _record_download(visit, name)
    answer = HttpResponse(_lines([kind.columns, *rows]), content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{name}.csv"'
    return answer


messages_csv = partial(_at_once, name="messages")
requests_csv = partial(_at_once, name="requests")
analytics_csv = partial(_at_once, name="figures")
audit_csv = partial(_at_once, name="audit")


def _record_download(visit: Visit, name: str) -> None:
    """Record that a person downloads a list of customers, at most once in `RECORDED_EVERY`: downloads must not use up
    the business's entries of a day.
    """
    facts = {"kind": name, "environment": visit.environment}
    recent = AuditEntry.objects.filter(tenant_id=visit.tenant.id, created_at__gt=now() - RECORDED_EVERY)
    if not recent.filter(action="data.export", actor_user_id=visit.user.pk, details=facts).exists():
        _record(visit, "list", name, facts)


def _record(visit: Visit, target_type: str, target_id: object, facts: dict[str, Any]) -> None:
    audit.record(
        action="data.export",
        target_type=target_type,
        target_id=target_id,
        tenant_id=visit.tenant.id,
        actor_user_id=visit.user.pk,
        details=facts,
    )


def start(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Write a file in the background. A mail with the link follows."""
    kind = KINDS.get(name := request.POST.get("kind", ""))
    if kind is None or not visit.may_read(kind.area):
        messages.error(request, "Your role may not open this list.")
        return redirect("console")
    query = request.POST.get("query", "")[:2000]
    if "\0" in unquote(query):
        # The middleware refuses it in the query of a request, and this is one that is read later.
        raise InvalidRequest("The filter must not contain the character U+0000.")
    try:
        data_export.require_room(visit.tenant.id)
        with transaction.atomic():
            export = Export.objects.create(
                tenant=visit.tenant,
                user=visit.user,
                environment=visit.environment,
                kind=name,
                query=query,
            )
            _record(visit, "export", export.pk, {"kind": name, "environment": visit.environment})
    except IntegrityError:
        messages.error(
            request,
            "Another file of yours is still being written. Request the next file once you have the mail for that one.",
        )
    except RateLimited as error:
        messages.error(request, error.text)
    else:
        enqueue("console.tasks.write_export", export_id=str(export.pk))
        messages.success(
            request, f"We write the file and send a link to {visit.user.email} when it is ready."
        )
    return redirect("console")


def _written(request: HttpRequest, visit: Visit, export_id: UUID, *, area: Area) -> HttpResponseBase:
    """Download a file that was written in the background. `area` is the area of the exported list. The area INTEGRATION
    includes exports of customer data. The page is closed to a support view.
    """
    kinds = [name for name, kind in KINDS.items() if kind.area == area]
    if area == Area.INTEGRATION:
        kinds += data_export.KINDS
    own = Export.objects.filter(tenant=visit.tenant, kind__in=kinds, rows__isnull=False)
    return data_export.file_of(get_object_or_404(own, pk=export_id))


download = partial(_written, area=Area.INTEGRATION)
download_audit = partial(_written, area=Area.SETTINGS)


# --- Files written in the background.


def write_waiting() -> None:
    """Write the waiting files that no worker is writing, of the tenants in turn, and delete old files. Called every
    minute by beat. After `RUN_SECONDS`, the other files are left to the next run.

    An error in one file does not stop the others.
    """
    Export.objects.filter(created_at__lt=now() - KEPT).delete()
    ends_at = time.monotonic() + RUN_SECONDS
    idle = Export.objects.filter(_idle(), rows__isnull=True).order_by("id")
    for key in in_turn(idle.values_list("tenant_id", "pk")):
        try:
            write(key)
        except Exception as error:
            if concerns_all(error):
                raise
            log.exception("export_failed", export_id=str(key))
        if time.monotonic() > ends_at:
            enqueue("console.tasks.write_exports", expires=AGAIN_SECONDS)
            break


def write(export_id: UUID) -> None:
    """Write a file from its beginning and mail its link. Does nothing if another worker is writing the file or has
    written it.
    """
    lease = now() + LEASE
    own = Export.objects.filter(pk=export_id, rows__isnull=True)
    if not own.filter(_idle()).update(leased_until=lease):
        return
    export = Export.objects.select_related("tenant", "user").get(pk=export_id)
    export.user = _recipient(export)
    if export.user is None and export.kind in KINDS:
        export.delete()
        return
    export.parts.all().delete()
    total = 0
    for place, (count, content) in enumerate(_contents(export)):
        with transaction.atomic():
            # A worker that has lost its lease stops here.
            held, lease = lease, now() + LEASE
            if not own.filter(leased_until=held).update(leased_until=lease):
                return
            if content:
                ExportPart.objects.create(export=export, place=place, content=gzip.compress(content))
        total += count
    with transaction.atomic():
        if not own.filter(leased_until=lease).update(rows=total):
            return
        # The member may have left meanwhile.
        recipient = _recipient(Export.objects.select_related("user").get(pk=export_id))
        if recipient is not None:
            mail.send(to=recipient.email, template="export_ready", context=_facts(export, total))


def _recipient(export: Export) -> User | None:
    """Who gets the mail: the member, or an owner for a list whose member has left. None for a file of a key or of a
    closed tenant.
    """
    if export.user is None and export.kind in KINDS:
        return members.owners(export.tenant_id).first()
    return export.user


def _idle() -> Q:
    return Q(leased_until__isnull=True) | Q(leased_until__lt=now())


def _contents(export: Export) -> Iterator[tuple[int, bytes]]:
    """The parts of a file, each with the number of its rows. The first part of a CSV file has the column names and no
    rows.
    """
    if export.kind in data_export.KINDS:
        lines = data_export.lines(export)
        yield from _parts(([line] if line else [] for line in lines), b"".join)
        return
    assert export.user is not None  # noqa: S101 - `write` asks
    visit = Visit(export.user, export.tenant, export.environment, ZoneInfo(export.user.time_zone))
    kind = KINDS[export.kind]
    yield 0, _lines([kind.columns])
    yield from _parts(kind.pages(visit, QueryDict(export.query)), _lines)


def _parts(pages: Iterator[list[Any]], written: Callable[[list[Any]], bytes]) -> Iterator[tuple[int, bytes]]:
    """Parts of at least `ROWS_OF_A_PART` rows, or fewer after `PART_SECONDS`, up to `MOST_ROWS` rows in all."""
    rows: list[Any] = []
    left, ends_at = MOST_ROWS, time.monotonic() + PART_SECONDS
    for page in pages:
        rows += page[: left - len(rows)]
        is_full = len(rows) == left
        if is_full or len(rows) >= ROWS_OF_A_PART or time.monotonic() > ends_at:
            yield len(rows), written(rows)
            left, ends_at, rows = left - len(rows), time.monotonic() + PART_SECONDS, []
        if is_full:
            return
    yield len(rows), written(rows)


def _facts(export: Export, rows: int) -> dict[str, Any]:
    """The context of the mail."""
    kind = KINDS.get(export.kind)
    page = "console_audit_export" if kind and kind.area == Area.SETTINGS else "console_export"
    link = settings.APP_URL + reverse(page, args=[export.pk])
    title = kind.title if kind else "Data of one customer" if export.query else "Data of the account"
    return {"tenant": export.tenant, "title": title, "rows": rows, "link": link, "days": KEPT.days}
