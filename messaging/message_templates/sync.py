"""Sync of the template mirror: an account's templates are read when it is new, every six hours, and after hints.

Beat calls `start_due`, which claims accounts and starts a task for each, so a slow or failing account delays no
other. The claim moves the row's next time ahead, so after a crash the account is due again. A caller's `POST
/v1/templates/sync` reads at once; concurrent syncs do no harm (`mirror.py`).
"""

from datetime import datetime, timedelta
from uuid import UUID

import structlog
from django.db import transaction

from gateway.clock import now
from gateway.database.transactions import concerns_all
from gateway.task_queue import enqueue
from gateway.upstream import client
from gateway.upstream.templates import TemplateGraph
from messaging.message_templates import mirror
from messaging.message_templates.mirror import MirrorChanges
from messaging.models import TemplateMirror
from phone_numbers.models import BusinessAccount
from phone_numbers.sync import BATCH, LEASE, after_failure, next_interval
from phone_numbers.tokens import FAILURES, Refused, accepted_for

log = structlog.get_logger(__name__)


def read(account: BusinessAccount) -> MirrorChanges:
    """Read every template of an account and store the list. If it raises one of FAILURES, nothing is stored."""
    read_at = now()
    graph = TemplateGraph(account.environment, account.access_token)
    views = [
        view for page in graph.pages(account.waba_id) for view in client.rows(accepted_for(account, page))
    ]
    return mirror.store_list(account, views, read_at=read_at)


def start_due() -> int:
    """Claim the due accounts and enqueue a task for each. Called by beat. Returns how many."""
    _begin_new_mirrors()
    started = 0
    for account_id, lease in _claim():
        if not enqueue("messaging.tasks.sync_templates", account_id=str(account_id), lease=lease.isoformat()):
            break
        started += 1
    return started


def run(*, account_id: UUID, lease: datetime) -> None:
    """Read one claimed account, if the claim still holds. Failures are retried with back-off."""
    due = TemplateMirror.objects.select_related("account").filter(pk=account_id, next_sync_at=lease).first()
    if due is None:
        return
    try:
        read(due.account)
    except Exception as error:
        if concerns_all(error):
            raise  # the lease runs out and the account is due again
        if not isinstance(error, FAILURES):
            log.exception("template_sync_crashed", account=str(account_id))
        _put_off(due, error)
    else:
        _schedule(due, failures=0, wait=next_interval())


def _begin_new_mirrors() -> None:
    """Add a mirror row, due at once, for accounts without one, so that their approved templates are imported."""
    with transaction.atomic():
        # The new row references the account, so an account with a locked row waits for the next run.
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
    """Due accounts whose token works. The others stay due until their token works."""
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
    """Set the next time, unless a hint has meanwhile set an earlier one."""
    mine = TemplateMirror.objects.filter(pk=due.pk, next_sync_at=due.next_sync_at)
    if not mine.update(failures=failures, next_sync_at=now() + wait):
        TemplateMirror.objects.filter(pk=due.pk).update(failures=failures)
