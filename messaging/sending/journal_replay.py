"""Replay of the send journal: creates the events of abandoned entries (`journal.py`).

Every web process replays at its start and then every half minute, or sooner while entries are left. An entry with an
answer yields what its send would have stored: the event, if the upstream accepted the message, and the answer or the
release of the Idempotency-Key. The dedupe key is also the same, so the event is stored once. An entry without an answer
belongs to a send that the end of its process interrupted. Its event has the outcome "unknown", like the event of an
interrupted batch item.
"""

import threading

import structlog
from cryptography.exceptions import InvalidTag
from django.db import close_old_connections, connection, transaction

from gateway.api.errors import Reply
from gateway.database.statements import run
from gateway.database.transactions import concerns_all, error_fields, is_outage
from gateway.monitoring import metrics, tracing
from messaging.idempotency import KeyUse
from messaging.sending import journal
from messaging.sending.flow import recording
from messaging.sending.journal import Answered, Begun, Slot
from messaging.sending.outbound import outbound_event, outcome_unknown
from phone_numbers.senders_and_owners import Sender
from webhooks import wake_up

log = structlog.get_logger(__name__)

LEFT = metrics.Counter(
    "gateway_sends_left_in_journal_total",
    "Sends in the journal that could not be replayed: `waiting` are retried, `failed` need an operator.",
    label="state",
)

LOOK_SECONDS = 30.0
AGAIN_SECONDS = 2.0

_starting = threading.Lock()
_has_begun = False


def start() -> None:
    """Start a thread that replays the journal, unless this process already has one."""
    global _has_begun
    with _starting:
        if not _has_begun:
            threading.Thread(target=_run, name="send-replay", daemon=True).start()
            _has_begun = True


def replay() -> bool:
    """Replay the abandoned entries. Returns whether no entry must be retried. An entry that fails does not block the
    others.
    """
    LEFT.add(journal.failed(), label="failed")
    is_all = True
    for slot in journal.abandoned():
        is_done = False
        try:
            _replay(slot)
            is_done = True
        except InvalidTag:
            log.error("send_journal_unreadable", file=slot.path.name)
            slot.set_aside()
        except Exception as error:
            if concerns_all(error):
                LEFT.add(label="waiting")
                return False
            if is_outage(error):
                # A lock or a time-out: retry this entry later, and continue with the others.
                log.warning("send_not_replayed_yet", file=slot.path.name, **error_fields(error))
                LEFT.add(label="waiting")
                is_all = False
                continue
            log.exception("send_not_replayed", file=slot.path.name)
            slot.set_aside()
        finally:
            slot.close(remove=is_done)
    return is_all


def _replay(slot: Slot) -> None:
    entry = slot.entry()
    if entry is None:
        return
    begun, answered = entry
    number = Sender(
        phone_number_id=begun.phone_number_id,
        waba_id=begun.waba_id,
        token="",
        environment=begun.environment,
        connection_state="",
        connection_detail=None,
        digits=begun.digits,
        throughput_level=None,
        coexistence=False,
    )
    event = None
    if answered is None or answered.is_accepted:
        event = outbound_event(
            number=number,
            sent=begun.sent,
            response=answered.response if answered else outcome_unknown({"reason": "interrupted"}),
            http_status=answered.http_status if answered else None,
            id=begun.event_id,
        )
    with tracing.continued(begun.traceparent), transaction.atomic():
        fresh = run(recording(begun.tenant_id, event, *_key(begun, answered)))
    if fresh:
        wake_up.after_commit(fresh)
    log.info("send_replayed", is_answered=answered is not None)


def _key(begun: Begun, answered: Answered | None) -> tuple[KeyUse | None, Reply | None]:
    """The key and the reply to store for it, or None for the reply if the key is released. Both are None for an entry
    without an answer, because the idempotency record itself already shows the interruption.
    """
    if begun.idempotency_key is None or answered is None:
        return None, None
    use = KeyUse(
        begun.tenant_id, begun.environment, begun.idempotency_key, path="", body_hash=b"", claim=begun.claim
    )
    reply = Reply(answered.reply_status, answered.reply_headers, answered.reply_body)
    return use, reply if answered.is_stored else None


def _run() -> None:
    never = threading.Event()
    while True:
        is_done = False
        try:
            close_old_connections()
            is_done = replay()
        except Exception:
            log.exception("send_replay_failed")
        finally:
            connection.close()
        never.wait(LOOK_SECONDS if is_done else AGAIN_SECONDS)
