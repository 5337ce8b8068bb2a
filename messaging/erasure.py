"""Erasure of one customer's data at a tenant's request, in both environments. The receipt counts what was erased.

The request is stored and processed in the background; processing it twice has no further effect. Erasure removes:

- bodies of events and notifications, and export files that may name the customer;
- the customer's ids and message ids, in the log and in deliveries;
- stored answers of batches, of scheduled messages and of Idempotency-Keys;
- ids of media files, opt-outs and read marks.

Scheduled messages to the customer are cancelled. Rows that identify no customer stay, so analytics and the ledger keep
their counts. The request log never holds bodies.

Until the erasure is done, the customer's id is stored encrypted. Afterwards only a keyed hash of the id is stored and
logged. After the restore of an older backup, `manage.py expunge --again` finds the customers by the logged hashes and
erases them again.
"""

import logging
import time
from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from typing import Any
from uuid import UUID

import orjson
import structlog
from django.conf import settings
from django.db import connection, transaction
from django.db.models import Q, QuerySet
from django.utils.crypto import salted_hmac

from gateway.api.errors import Conflict, NotFound
from gateway.clock import now
from gateway.database.transactions import concerns_all
from gateway.task_queue import AGAIN_SECONDS, RUN_SECONDS, enqueue, in_turn
from messaging.batches import lifecycle, scheduled_messages
from messaging.batches.body import customers_of
from messaging.conversations.read_marks import key_of
from messaging.models import Batch, BatchFile, Erasure, KnownMedia, OptOut, ReadMark, ScheduledMessage
from messaging.retention import (
    NAMELESS,
    customers_in_bodies,
    delete_opt_outs,
    expunge,
    expunge_in_steps,
)
from messaging.sending.customer_hours import country_code
from phone_numbers.models import PhoneNumber
from tenants.audit import Actor
from tenants.models import Export
from webhooks.events import envelope
from webhooks.events import retention as events
from webhooks.models import Event

log = structlog.get_logger(__name__)
# After a restore, the lines `customer_erased` are the only record of erasures. No LOG_LEVEL may suppress them.
logging.getLogger(__name__).setLevel(logging.INFO)

LEASE = timedelta(minutes=30)
"""The lease of the worker that runs an erasure. The worker renews it after each step. After the lease expires, another
worker starts over.
"""
BETWEEN_IDS = "\0"
"""Between the stored ids of a customer. The database refuses it in a look-up. So a worker of an earlier release, which
knows only one id, fails and does not complete the erasure.
"""
RUN = "messaging.tasks.erase_customers"
MEDIA = ("audio", "document", "image", "sticker", "video")
"""Members of a message that contain the id of a media file."""
EXPORTS_WITH_CUSTOMERS = ("messages", "customer", "account")
ERASED_ANSWER = b'{"erased":true}'
"""The answer to a repeated Idempotency-Key whose stored answer was erased. The message is not sent again."""

_ERASE_ANSWERS = """
UPDATE messaging_idempotencyrecord SET body = %(erased)s
WHERE tenant_id = %(tenant_id)s AND status IS NOT NULL AND body <> %(erased)s
  AND EXISTS (SELECT 1 FROM unnest(%(names)s::bytea[]) AS name WHERE position(name IN body) > 0)
"""


@dataclass(frozen=True, slots=True)
class Names:
    """The ids of one customer: phone numbers in WhatsApp's form, and business-scoped user ids."""

    wa_ids: frozenset[str]
    user_ids: frozenset[str]

    @property
    def all(self) -> frozenset[str]:
        """All ids."""
        return self.wa_ids | self.user_ids

    @property
    def condition(self) -> Q:
        """The condition for the customer's rows in a table that has the columns `wa_id` and `user_id`."""
        return Q(wa_id__in=self.wa_ids) | Q(user_id__in=self.user_ids)


def hash_of(tenant_id: UUID, customer_id: str, *, secret: str | None = None) -> str:
    """The keyed hash that replaces a tenant's customer in receipts and logs. The key is SECRET_KEY, or `secret`."""
    return salted_hmac("erasure", f"{tenant_id}:{customer_id}", secret, algorithm="sha256").hexdigest()


def request(*, tenant_id: UUID, customer_id: str, actor: Actor, wakes_worker: bool = True) -> Erasure:
    """Store a request to erase a customer, by wa_id or user_id. Returns the open request if there is one.

    With `wakes_worker` false, no worker is notified, because the caller itself calls `run_open`.
    """
    customer_id = customer_id.removeprefix("+")
    with transaction.atomic():
        erasure, is_new = Erasure.objects.get_or_create(
            tenant_id=tenant_id,
            customer_hash=hash_of(tenant_id, customer_id),
            completed_at=None,
            defaults={"customer_id": customer_id},
        )
        if is_new:
            # The audit entry must not name the customer whose data is erased.
            actor.record(
                "customer.erase", tenant_id=tenant_id, target_type="erasure", target_id=str(erasure.pk)
            )
            if wakes_worker:
                transaction.on_commit(lambda: enqueue(RUN, expires=AGAIN_SECONDS))
    return erasure


def find(*, tenant_id: UUID, erasure_id: UUID) -> Erasure:
    """The receipt of a tenant's erasure. Raises NotFound."""
    found = Erasure.objects.for_tenant(tenant_id).filter(pk=erasure_id).first()
    if found is None:
        raise NotFound("There is no such erasure.")
    return found


def run_open(seconds: float = RUN_SECONDS) -> int:
    """Run the erasures that no worker holds, of the tenants in turn. Called after a request, and every minute by beat.
    Returns how many it ran. After `seconds`, the others are left to the next run.

    An error in one erasure does not stop the others.
    """
    ran, ends_at = 0, time.monotonic() + seconds
    idle = Erasure.objects.filter(_idle()).order_by("id")
    for erasure_id in in_turn(idle.values_list("tenant_id", "pk")):
        try:
            ran += _run(erasure_id)
        except Exception as error:
            if concerns_all(error):
                raise
            log.exception("erasure_failed", erasure_id=str(erasure_id))
        if time.monotonic() > ends_at:
            enqueue(RUN, expires=AGAIN_SECONDS)
            break
    return ran


def _idle() -> Q:
    return Q(completed_at=None) & (Q(leased_until=None) | Q(leased_until__lt=now()))


def _run(erasure_id: UUID) -> bool:
    """Erase the data, then complete the receipt. Returns False when another worker holds the erasure."""
    lease = now() + LEASE
    if not Erasure.objects.filter(_idle(), pk=erasure_id).update(leased_until=lease):
        return False
    erasure = Erasure.objects.get(pk=erasure_id)
    open_ = Erasure.objects.filter(pk=erasure_id, completed_at=None)
    given, *stored = (erasure.customer_id or "").split(BETWEEN_IDS)
    names = names_of(erasure.tenant_id, given, *stored)
    # Stored before anything is erased, because the erasure also removes what links the ids.
    ids = BETWEEN_IDS.join([given, *sorted(names.all - {given})])
    if not open_.filter(leased_until=lease).update(customer_id=ids):
        return False
    erased: Counter[str] = Counter(erasure.erased)
    for kind, count in _erase(erasure.tenant_id, names):
        erased[kind] += count
        held, lease = lease, now() + LEASE
        if not open_.filter(leased_until=held).update(leased_until=lease, erased=erased):
            return False
    done = {"completed_at": now(), "leased_until": None, "customer_id": None}
    if not open_.filter(leased_until=lease).update(**done):
        return False
    log.info("customer_erased", tenant_id=str(erasure.tenant_id), customer_hash=erasure.customer_hash)
    return True


def names_of(tenant_id: UUID, customer_id: str, *known: str) -> Names:
    """The given id of a customer, the customer's other ids that events and opt-outs link to it, and other ids that are
    known.
    """
    given, other = ("wa_id", "user_id") if customer_id.isdigit() else ("user_id", "wa_id")
    linked = {
        value
        for model in (Event, OptOut)
        for value in model.objects.filter(
            tenant_id=tenant_id, **{given: customer_id, f"{other}__isnull": False}
        )
        .values_list(other, flat=True)
        .distinct()
    }
    names = frozenset({customer_id, *linked, *known})
    wa_ids = frozenset(filter(str.isdigit, names))
    return Names(wa_ids, names - wa_ids)


def _erase(tenant_id: UUID, names: Names) -> Iterator[tuple[str, int]]:
    """Erase what the message flows store about a customer. Yields a kind and a count after each step.

    A run that was interrupted is followed by another from the beginning. So what a step needs is not erased before it.
    """
    yield "scheduled_messages", _cancel_scheduled(tenant_id, names)
    yield "opt_outs", OptOut.objects.filter(names.condition, tenant_id=tenant_id).delete()[0]
    for media in _media(tenant_id, names):
        yield "media", KnownMedia.objects.filter(tenant_id=tenant_id, media_id__in=media).delete()[0]
    steps = chain(
        *(expunge_in_steps(tenant_id=tenant_id, wa_id=wa_id) for wa_id in names.wa_ids),
        *(expunge_in_steps(tenant_id=tenant_id, user_id=user_id) for user_id in names.user_ids),
    )
    for count in steps:
        yield "events", count
    yield "idempotency_answers", _erase_answers(tenant_id, names)
    numbers = PhoneNumber.objects.for_tenant(tenant_id).values_list("phone_number_id", flat=True)
    conversations = [key_of(number, name) for number in numbers for name in names.all]
    marks = ReadMark.objects.filter(tenant_id=tenant_id, conversation__in=conversations)
    yield "read_marks", marks.delete()[0]
    waiting_files = BatchFile.objects.filter(tenant_id=tenant_id, batch_id=None)
    yield "uploaded_files", waiting_files.delete()[0]
    exports = Export.objects.filter(tenant_id=tenant_id, kind__in=EXPORTS_WITH_CUSTOMERS)
    yield "export_files", exports.delete()[1].get("tenants.Export", 0)


def _media(tenant_id: UUID, names: Names) -> Iterator[set[str]]:
    """The ids of media files in a customer's messages, some at a time. At least once, to count none."""
    yield set()
    rows = events.remaining(tenant_id).filter(names.condition)
    for some in events.in_batches(rows):
        found: set[str] = set()
        for body in envelope.load([event.id for event in some], tenant_id=tenant_id).values():
            if body is not None and b'"id"' in body.data:
                found.update(_media_in(orjson.loads(body.data)))
        yield found


def _media_in(value: Any) -> Iterator[str]:
    """The ids of media files anywhere in a body."""
    for each in value if isinstance(value, list) else ():
        yield from _media_in(each)
    for name, each in value.items() if isinstance(value, dict) else ():
        if name in MEDIA and isinstance(each, dict) and "id" in each:
            yield str(each["id"])
        yield from _media_in(each)


def _cancel_scheduled(tenant_id: UUID, names: Names | None) -> int:
    """Cancel the scheduled messages to a customer. Without names, cancel all scheduled messages of the tenant."""
    cancelled = 0
    for message, customers in scheduled_to(ScheduledMessage.objects.for_tenant(tenant_id), tenant_id):
        if names is None or not names.all.isdisjoint(customers):
            try:
                scheduled_messages.cancel(message)
                cancelled += 1
            except Conflict:
                continue  # the message became due in the meantime
    return cancelled


def scheduled_to(
    rows: QuerySet[ScheduledMessage], tenant_id: UUID
) -> Iterator[tuple[ScheduledMessage, set[str]]]:
    """The messages of `rows` that wait for their time, each with the possible ids of its customer."""
    numbers = PhoneNumber.objects.for_tenant(tenant_id).values_list("phone_number_id", "digits")
    codes = {number: country_code(digits) for number, digits in numbers}
    for message in rows.filter(status=scheduled_messages.Status.SCHEDULED).order_by("id").iterator():
        code = codes.get(message.phone_number_id, "")
        yield message, customers_of(bytes(message.body), country_code=code)


def _erase_answers(tenant_id: UUID, names: Names) -> int:
    """Erase stored answers that name a customer. Their Idempotency-Keys stay, so that no message is sent twice."""
    quoted = [orjson.dumps(name) for name in names.all]
    with connection.cursor() as cursor:
        cursor.execute(_ERASE_ANSWERS, {"tenant_id": tenant_id, "names": quoted, "erased": ERASED_ANSWER})
        return int(cursor.rowcount)


# --- After a restore, the hashes in the log are the only record of erasures since the backup.


def request_again(tenant_id: UUID, hashes: Set[str]) -> tuple[list[Erasure], set[str]]:
    """Request erasures of the tenant's customers with the given hashes. Returns the erasures, and the hashes of no
    customer.

    A hash may have been made with an earlier SECRET_KEY that is in SECRET_KEY_FALLBACKS.
    """
    requested, unknown = [], set(hashes)
    for name in _customers(tenant_id):
        own = {
            hash_of(tenant_id, name, secret=key)
            for key in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
        } & hashes
        if own:
            requested.append(
                request(tenant_id=tenant_id, customer_id=name, actor=Actor(), wakes_worker=False)
            )
            unknown -= own
    return requested, unknown


def _customers(tenant_id: UUID) -> set[str]:
    """The ids of all customers that a tenant's events, opt-outs and scheduled messages name."""
    found: set[str] = set()
    for model in (Event, OptOut):
        for column in ("wa_id", "user_id"):
            named = model.objects.filter(**{"tenant_id": tenant_id, f"{column}__isnull": False})
            found.update(named.values_list(column, flat=True).distinct())
    for _, customers in scheduled_to(ScheduledMessage.objects.for_tenant(tenant_id), tenant_id):
        found |= customers
    nameless = events.remaining(tenant_id).filter(NAMELESS, type="message.outbound")
    for some in events.in_batches(nameless):
        bodies = customers_in_bodies([event.id for event in some], tenant_id=tenant_id)
        found = found.union(*bodies.values())
    return found


# --- Closing an account ends its open batches and scheduled messages. If asked, it also deletes the contents of events,
# opt-outs and export files.


def on_tenant_closing(*, tenant_id: UUID, delete_data: bool, **_: Any) -> dict[str, int]:
    """Receiver of `tenants.signals.tenant_closing`: cancel open batches and scheduled messages.

    With `delete_data`, also delete the contents of events, opt-outs and export files. Returns the counts by kind.
    """
    batches = 0
    for batch in Batch.objects.for_tenant(tenant_id).filter(status=Batch.Status.QUEUED):
        try:
            lifecycle.cancel(batch)
            batches += 1
        except Conflict:
            continue  # the batch ended in the meantime
    ended = {"batches": batches, "scheduled messages": _cancel_scheduled(tenant_id, None)}
    if delete_data:
        ended["events"] = expunge(tenant_id=tenant_id)
        ended["opt-outs"] = delete_opt_outs(tenant_id)
        exports = Export.objects.filter(tenant_id=tenant_id)
        ended["export files"] = exports.delete()[1].get("tenants.Export", 0)
    return ended
