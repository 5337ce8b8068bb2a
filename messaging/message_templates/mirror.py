"""The template mirror and its sync. Only this module writes the mirror, from lists, single reads, commands and
notifications.

Every write first locks the account's mirror row. Every update carries its time, and an older update never overwrites
a newer one. So concurrent syncs, and a sync that began before a deletion, do no harm.

A notification about a template is stored at once, in the transaction of the incoming flow (upstream fact 3.8). It can
be late, out of order, or about a template that was created elsewhere. So the account's templates are also read again
soon.

The sync reads an account's templates when the account is new, every six hours, and after hints. Beat calls
`start_due_syncs`, which claims accounts and starts a task for each, so a slow or failing account delays no other. A
claim sets the row's next time to the end of the lease, so after a crash the account is due again. `POST
/v1/templates/sync` reads at once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import orjson
import structlog
from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Least

from gateway.clock import now
from gateway.database.transactions import concerns_all
from gateway.task_queue import enqueue
from gateway.upstream import blocking_client
from gateway.upstream.blocking_client import PAGE_SIZE
from gateway.upstream.notifications.lossless_json import text
from gateway.upstream.templates import TemplateGraph
from messaging.models import MessageTemplate, TemplateMirror
from phone_numbers.models import BusinessAccount
from phone_numbers.sync import BATCH, LEASE, after_failure, next_interval
from phone_numbers.tokens import FAILURES, Refused, accepted_for

log = structlog.get_logger(__name__)

LONGEST_ID = 64
SOON = timedelta(seconds=30)
"""The delay of a read after a hint. A burst of hints within this time causes one read."""
SOON_PER_PAGE = timedelta(seconds=7)
"""The delay for each page of a large account. So even endless hints use at most a tenth of the account's 5,000 calls an
hour (upstream fact 2.4).
"""


@dataclass(frozen=True, slots=True)
class MirrorChanges:
    """The counts of templates in a list, and of those that were added, updated and removed."""

    synced: int
    added: int = 0
    updated: int = 0
    removed: int = 0


@contextmanager
def locked(account: BusinessAccount) -> Iterator[TemplateMirror]:
    """Lock the account's mirror row, in a transaction."""
    with transaction.atomic():
        TemplateMirror.objects.bulk_create([TemplateMirror(account=account)], ignore_conflicts=True)
        yield TemplateMirror.objects.select_for_update(no_key=True).get(account=account)


def hint(mirror: TemplateMirror) -> None:
    """Schedule a read of the account's templates. Call it inside `locked`."""
    pages = MessageTemplate.objects.filter(account_id=mirror.account_id).count() // PAGE_SIZE
    soon = now() + max(SOON, pages * SOON_PER_PAGE)
    TemplateMirror.objects.filter(pk=mirror.pk).update(next_sync_at=Least(F("next_sync_at"), soon))


def store_list(
    account: BusinessAccount, views: Sequence[dict[str, Any]], *, read_at: datetime
) -> MirrorChanges:
    """Make the mirror equal to a complete list of the account's templates (newest first). `read_at` is when the read of
    the list began.

    Changes stored after `read_at` are kept. A list that is older than the last stored list changes nothing.
    """
    listed = {id_: view for view in views if (id_ := text(view.get("id"))) and _can_be_stored(id_, view)}
    with locked(account) as mirror:
        if mirror.read_at is not None and mirror.read_at >= read_at:
            return MirrorChanges(synced=len(listed))
        known = {row.template_id: row for row in MessageTemplate.objects.filter(account=account)}
        added = [
            _described(_new(account, template_id), view, at=read_at)
            for template_id, view in reversed(listed.items())
            if template_id not in known
        ]
        current = [row for row in known.values() if row.changed_at < read_at]
        updated = []
        for row in current:
            view = listed.get(row.template_id)
            if view is not None and (row.document != _json(view) or row.deleted_at is not None):
                updated.append(_described(row, view, at=read_at))
        gone = [row for row in current if row.template_id not in listed]
        MessageTemplate.objects.bulk_create(added, batch_size=500)
        MessageTemplate.objects.bulk_update(updated, _DESCRIBED, batch_size=500)
        MessageTemplate.objects.filter(pk__in=[row.pk for row in gone]).delete()
        mirror.read_at = read_at
        mirror.save(update_fields=["read_at"])
    removed = sum(1 for row in gone if row.deleted_at is None)
    return MirrorChanges(synced=len(listed), added=len(added), updated=len(updated), removed=removed)


def store_one(
    account: BusinessAccount, view: Mapping[str, Any], *, since: datetime, at: datetime | None = None
) -> None:
    """Store one template from a call that began at `since`. Does nothing if the mirror's row has changed after `since`.

    `at` is stored as the time of the change: the beginning of a read (the default), or the end of a command.
    """
    template_id = text(view.get("id"))
    if template_id is None:
        return
    with locked(account):
        row = _row(account, template_id)
        if row is None or row.changed_at < since:
            _described(row or _new(account, template_id), view, at=at or since).save()


def change(
    account: BusinessAccount, template_id: str, members: Mapping[str, Any], *, since: datetime | None = None
) -> None:
    """Change members of a template after an event, or after a command that began at `since`, and schedule a read."""
    with locked(account) as mirror:
        row = _row(account, template_id)
        if row is not None and row.deleted_at is None and (since is None or row.changed_at < since):
            _described(row, {**orjson.loads(row.document), **members}, at=now()).save()
        hint(mirror)


def delete(account: BusinessAccount, *, name: str | None = None, template_id: str | None = None) -> None:
    """Mark a template, or all languages of a name, as deleted. The next list confirms or reverts this."""
    chosen = MessageTemplate.objects.filter(account=account, deleted_at__isnull=True)
    chosen = chosen.filter(template_id=template_id) if template_id else chosen.filter(name=name)
    with locked(account) as mirror:
        chosen.update(deleted_at=now(), changed_at=now())
        hint(mirror)


def reread_soon(account: BusinessAccount) -> None:
    """Schedule a read of the account's templates, when a command's outcome is unknown or an event does not name the
    change.
    """
    with locked(account) as mirror:
        hint(mirror)


def language_of(value: object) -> str:
    """Convert a language to the mirror's form, `en_US`. Events write `en-US` (upstream fact 3.8)."""
    return (text(value) or "").replace("-", "_")[:32]


def _can_be_stored(template_id: str, view: Mapping[str, Any]) -> bool:
    """Whether the columns can hold a template. A template that does not fit must not block the other templates of its
    account.
    """
    try:
        _json(view)
    except orjson.JSONEncodeError:
        return False
    return len(template_id) <= LONGEST_ID


_DESCRIBED = ["name", "language", "status", "category", "document", "changed_at", "deleted_at"]


def _row(account: BusinessAccount, template_id: str) -> MessageTemplate | None:
    return MessageTemplate.objects.filter(account=account, template_id=template_id).first()


def _new(account: BusinessAccount, template_id: str) -> MessageTemplate:
    return MessageTemplate(
        account=account,
        tenant_id=account.tenant_id,
        environment=account.environment,
        template_id=template_id,
    )


def _described(row: MessageTemplate, view: Mapping[str, Any], *, at: datetime) -> MessageTemplate:
    row.name = (text(view.get("name")) or "")[:512]
    row.language = language_of(view.get("language"))
    row.status = (text(view.get("status")) or "")[:32]
    row.category = (text(view.get("category")) or "")[:32]
    row.document = _json(view)
    row.changed_at, row.deleted_at = at, None
    return row


def _json(view: Mapping[str, Any]) -> str:
    return orjson.dumps(view).decode()


STATUSES: Mapping[str, str] = {
    **{
        same: same
        for same in (
            "APPROVED",
            "REJECTED",
            "PENDING",
            "PAUSED",
            "DISABLED",
            "IN_APPEAL",
            "PENDING_DELETION",
            "LOCKED",
            "ARCHIVED",
            "LIMIT_EXCEEDED",
        )
    },
    "REINSTATED": "APPROVED",
    "UNLOCKED": "APPROVED",
    "UNARCHIVED": "APPROVED",
}
"""The template's new status, by the `event` of a status update. After other events, the next read fetches the status.
"""


def apply_notification(*, field: str, value: Mapping[str, Any], waba_id: str) -> None:
    """Apply one change of a notification to the template that it names. Runs inside the caller's transaction."""
    account = BusinessAccount.objects.filter(waba_id=waba_id).first()
    if account is None:
        return
    template_id = _template_id(account, value)
    if template_id is None:
        reread_soon(account)
    elif field == _STATUS and value.get("event") == "DELETED":
        delete(account, template_id=template_id)
    else:
        change(account, template_id, HANDLERS[field](value))


def _template_id(account: BusinessAccount, value: Mapping[str, Any]) -> str | None:
    """The id of the template that an event names by id, or else by name and language. None for an unknown template."""
    template_id = text(value.get("message_template_id"))
    named = (
        Q(template_id=template_id)
        if template_id
        else Q(
            name=text(value.get("message_template_name")) or "",
            language=language_of(value.get("message_template_language")),
        )
    )
    return (
        MessageTemplate.objects.filter(named, account=account).values_list("template_id", flat=True).first()
    )


def _status(value: Mapping[str, Any]) -> dict[str, Any]:
    status = STATUSES.get(text(value.get("event")) or "")
    if status is None:
        return {}
    reason = (text(value.get("reason")) or "NONE") if status == "REJECTED" else "NONE"
    category = text(value.get("message_template_category"))
    return {"status": status, "rejected_reason": reason, **({"category": category} if category else {})}


def _quality(value: Mapping[str, Any]) -> dict[str, Any]:
    score = text(value.get("new_quality_score"))
    return {"quality_score": {"score": score}} if score else {}


def _category(value: Mapping[str, Any]) -> dict[str, Any]:
    """The categories in an event. An announced change has the coming category as `correct_category` and the current one
    as `new_category`. A completed change has the new and the previous category.
    """
    said = {
        "category": text(value.get("new_category")) or text(value.get("category")),
        "previous_category": text(value.get("previous_category")),
        "correct_category": text(value.get("correct_category")),
    }
    return {name: category for name, category in said.items() if category}


def _read_only(value: Mapping[str, Any]) -> dict[str, Any]:
    """Change no member. The event has the new text in a form that the mirror does not store, so the scheduled read
    fetches it.
    """
    return {}


_STATUS = "message_template_status_update"
HANDLERS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    _STATUS: _status,
    "message_template_quality_update": _quality,
    "message_template_components_update": _read_only,
    "template_category_update": _category,
    "template_correct_category_detection": _category,
}
"""For each field of Meta, the function that returns a template's changed members."""


# --- Sync.


def read_all(account: BusinessAccount) -> MirrorChanges:
    """Read every template of an account and store the list. If it raises one of FAILURES, nothing is stored."""
    read_at = now()
    graph = TemplateGraph(account.environment, account.access_token)
    views = [
        view
        for page in graph.pages(account.waba_id)
        for view in blocking_client.rows(accepted_for(account, page))
    ]
    return store_list(account, views, read_at=read_at)


def start_due_syncs() -> int:
    """Claim the due accounts and enqueue a task for each. Called by beat. Returns the number of tasks."""
    _begin_new_mirrors()
    started = 0
    for account_id, lease in _claim():
        if not enqueue("messaging.tasks.sync_templates", account_id=str(account_id), lease=lease.isoformat()):
            break
        started += 1
    return started


def run_sync(*, account_id: UUID, lease: datetime) -> None:
    """Read one claimed account, unless the claim has expired. Failures are retried with back-off."""
    due = TemplateMirror.objects.select_related("account").filter(pk=account_id, next_sync_at=lease).first()
    if due is None:
        return
    try:
        read_all(due.account)
    except Exception as error:
        if concerns_all(error):
            raise  # after the lease expires, the account is due again
        if not isinstance(error, FAILURES):
            log.exception("template_sync_crashed", account=str(account_id))
        _put_off(due, error)
    else:
        _schedule(due, failures=0, wait=next_interval())


def _begin_new_mirrors() -> None:
    """Add a mirror row, due at once, for each account without one. The sync then imports the account's templates."""
    with transaction.atomic():
        # The new row references the account's row. If that row is locked, the account waits for the next run.
        new = BusinessAccount.objects.filter(template_mirror__isnull=True).select_for_update(
            of=("self",), skip_locked=True, no_key=True
        )
        TemplateMirror.objects.bulk_create(
            [
                TemplateMirror(account_id=account_id)
                for account_id in new.values_list("pk", flat=True)[:BATCH]
            ],
            ignore_conflicts=True,
        )


def _claim() -> list[tuple[UUID, datetime]]:
    """Claim due accounts whose token works. Other accounts stay due until their token works. Returns the claimed
    accounts with their leases.
    """
    moment = now()
    lease = moment + LEASE
    with transaction.atomic():
        due = TemplateMirror.objects.filter(
            next_sync_at__lte=moment,
            account__token_invalid_at__isnull=True,
            account__taken_away__isnull=True,
        )
        rows = due.select_for_update(of=("self",), skip_locked=True, no_key=True).order_by("next_sync_at")
        claimed = list(rows.values_list("pk", flat=True)[:BATCH])
        TemplateMirror.objects.filter(pk__in=claimed).update(next_sync_at=lease)
    return [(account_id, lease) for account_id in claimed]


def _put_off(due: TemplateMirror, error: Exception) -> None:
    failures, wait = after_failure(due.failures, error)
    _schedule(due, failures=failures, wait=wait)
    code = error.verdict.code if isinstance(error, Refused) else None
    log.warning("template_sync_failed", account=str(due.account_id), error=type(error).__name__, code=code)


def _schedule(due: TemplateMirror, *, failures: int, wait: timedelta) -> None:
    """Set the time of the next read. If a hint has set an earlier time in the meantime, that time stays."""
    mine = TemplateMirror.objects.filter(pk=due.pk, next_sync_at=due.next_sync_at)
    if not mine.update(failures=failures, next_sync_at=now() + wait):
        TemplateMirror.objects.filter(pk=due.pk).update(failures=failures)
