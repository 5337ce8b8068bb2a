"""The contacts and chats that a coexistence number has in the WhatsApp Business app. They are synced once.

Within 24 hours of the onboarding, Meta accepts one request for the contacts and then one for the chats (upstream fact
1.10). It then sends the data in notifications. A failed request is retried with back-off until the 24 hours are over.
Beat claims due requests by lease, so a request is due again after a crash. When Meta answers that it already has the
request, the request is stored as made.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import structlog
from django.db import transaction
from django.db.models import Case, Exists, F, OuterRef, Q, Value, When
from django.db.models.functions import Greatest

from gateway.clock import now
from gateway.task_queue import enqueue
from gateway.upstream.notifications.lossless_json import member, objects
from phone_numbers.models import AppData, PhoneNumber
from phone_numbers.tokens import FAILURES, Refused, accepted_for, graph_of

Kind, Status = AppData.Kind, AppData.Status

OPEN_FOR = timedelta(hours=24)
"""How long after the onboarding Meta accepts the requests."""
LEASE = timedelta(minutes=2)
"""How long a process owns a request that it claimed. It is longer than a call can take."""
FIRST_RETRY, LONGEST_RETRY = timedelta(seconds=30), timedelta(minutes=30)
WAITS_FOR_CONTACTS = 3
"""After this many attempts to request the contacts, the chats are requested without them."""
BATCH = 50
REQUESTED_BEFORE, TOO_LATE, DECLINED = 2593107, 2593108, 2593109
"""Error codes of Meta (upstream fact 1.10)."""

log = structlog.get_logger(__name__)


def begin(number: PhoneNumber) -> None:
    """Schedule both syncs of a coexistence number. A sync that expired is scheduled again, because a new onboarding
    opens the 24 hours again. Another sync that has already begun is not changed. Does nothing for other numbers.
    """
    if not number.coexistence:
        return
    ends_at = now() + OPEN_FOR
    with transaction.atomic():
        AppData.objects.filter(number=number, status=Status.EXPIRED).delete()
        AppData.objects.bulk_create(
            [AppData(number=number, kind=kind, ends_at=ends_at) for kind in Kind.values],
            ignore_conflicts=True,
        )
    transaction.on_commit(lambda: enqueue("phone_numbers.tasks.request_app_data"), robust=True)


def request_due() -> int:
    """Send the due requests, and end those that are too late. Returns the number of all these requests. Called by beat
    and after an onboarding.
    """
    requested = 0
    while claimed := _claim():
        for row in claimed:
            _request(row)
        requested += len(claimed)
    return requested


def _claim() -> list[AppData]:
    moment = now()
    contacts_wait = AppData.objects.filter(
        number=OuterRef("number"),
        kind=Kind.CONTACTS,
        status=Status.PENDING,
        attempts__lt=WAITS_FOR_CONTACTS,
    )
    with transaction.atomic():
        due = (
            AppData.objects.filter(status=Status.PENDING, next_attempt_at__lte=moment)
            .exclude(Q(kind=Kind.HISTORY) & Exists(contacts_wait))
            .select_for_update(skip_locked=True, of=("self",))
            .order_by("next_attempt_at")
            .values_list("pk", flat=True)[:BATCH]
        )
        claimed = list(due)
        AppData.objects.filter(pk__in=claimed).update(
            next_attempt_at=moment + LEASE, attempts=F("attempts") + 1
        )
    return list(AppData.objects.filter(pk__in=claimed).select_related("number__account"))


def _request(row: AppData) -> None:
    account = row.number.account
    if row.ends_at <= now():
        _settle(row, status=Status.EXPIRED)
        return
    try:
        answer = accepted_for(
            account, graph_of(account).request_app_data(row.number.phone_number_id, sync_type=row.kind)
        )
    except FAILURES as error:
        code = error.verdict.code if isinstance(error, Refused) else None
        if code == REQUESTED_BEFORE:
            _settle(row, status=Status.REQUESTED)
        elif code == TOO_LATE:
            _settle(row, status=Status.EXPIRED, error_code=code)
        else:
            wait = min(FIRST_RETRY * 2 ** min(row.attempts - 1, 10), LONGEST_RETRY)
            _settle(row, next_attempt_at=now() + wait, error_code=code)
        log.warning("app_data_refused", number=str(row.number_id), kind=row.kind, code=code)
        return
    request_id = answer.json().get("request_id")
    _settle(
        row,
        status=Status.REQUESTED,
        requested_at=now(),
        error_code=None,
        request_id=str(request_id)[:255] if request_id else None,
    )


def _settle(row: AppData, **outcome: Any) -> None:
    """Store an outcome. If a notification has updated the row in the meantime, its newer facts stay."""
    AppData.objects.filter(pk=row.pk, status=Status.PENDING).update(**outcome)


# --- Notifications of Meta. Each new change is applied once, inside the transaction of its event.
def apply_notification(*, field: str, value: Mapping[str, Any], phone_number_id: str | None) -> None:
    """Apply a `history` or `smb_app_state_sync` change to the number's progress."""
    number = PhoneNumber.objects.filter(phone_number_id=phone_number_id).first()
    if number is None:
        return
    if field == Kind.CONTACTS:
        _receive(number, Kind.CONTACTS, count=len(objects(value, "state_sync")))
        return
    for _, piece in objects(value, "history"):
        if errors := objects(piece, "errors"):
            code = errors[0][1].get("code")
            status = Status.DECLINED if code == DECLINED else Status.FAILED
            _row(number, Kind.HISTORY).update(status=status, error_code=code, finished_at=now())
            continue
        progress = member(piece, "metadata").get("progress")
        _receive(
            number,
            Kind.HISTORY,
            count=sum(len(objects(thread, "messages")) for _, thread in objects(piece, "threads")),
            progress=progress if isinstance(progress, int) else 0,
        )


def _row(number: PhoneNumber, kind: str) -> Any:
    """The query for the row of a sync. If the request was made elsewhere, the row is missing and is created."""
    AppData.objects.bulk_create(
        [AppData(number=number, kind=kind, ends_at=now() + OPEN_FOR)], ignore_conflicts=True
    )
    return AppData.objects.filter(number=number, kind=kind)


def _receive(number: PhoneNumber, kind: str, *, count: int, progress: int = 0) -> None:
    """Add to the count of received items. Notifications come in any order, so the stored progress never decreases. A
    progress of 100 completes the sync.

    Contacts also arrive when the business edits one later, so they do not prove that an expired sync was requested.
    """
    is_whole = progress >= 100
    rows = _row(number, kind)
    if kind == Kind.CONTACTS:
        rows.filter(status=Status.EXPIRED).update(received=F("received") + count)
        rows = rows.exclude(status=Status.EXPIRED)
    rows.update(
        received=F("received") + count,
        progress=Greatest("progress", min(progress, 100)),
        status=Status.COMPLETED
        if is_whole
        else Case(When(progress=100, then=Value(Status.COMPLETED)), default=Value(Status.RECEIVING)),
        error_code=None,
        **({"finished_at": now()} if is_whole else {}),
    )


def progress_of(number: PhoneNumber) -> dict[str, AppData | None]:
    """Both syncs of a number. None for a sync that never began."""
    rows = {row.kind: row for row in AppData.objects.filter(number=number)}
    return {"contacts": rows.get(Kind.CONTACTS), "history": rows.get(Kind.HISTORY)}
