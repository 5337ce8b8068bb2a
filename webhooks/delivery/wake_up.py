"""Waking the dispatcher: one coalesced signal in Valkey, sent after the commit.

Losing a signal costs at most a second: beat calls `deliver_due` every second whatever happens here.
"""

import structlog

from gateway.database import transactions
from gateway.task_queue import enqueue
from gateway.threads.debounce import Coalesced
from gateway.valkey import VALKEY_UNAVAILABLE, valkey

log = structlog.get_logger(__name__)

SIGNAL = "deliveries:wake"
"""A list of at most one element: the dispatcher waits on it."""
ALIVE = "deliveries:alive"
"""Set while some dispatcher is running or lingering: then no task is needed."""
CALLED = "deliveries:called"
"""Set for a second by a wake-up: a burst of events sends for one task, not one each."""
CALL_MILLISECONDS = 1_000

WAKE_SECONDS = 0.01
"""A process that publishes all the time signals once in so long."""

# Signals, and says whether the caller is to send for a dispatcher: nobody is running one, and nobody sent for one.
_WAKE = """
redis.call('RPUSH', KEYS[1], 1)
redis.call('LTRIM', KEYS[1], 0, 0)
if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
return redis.call('SET', KEYS[3], 1, 'NX', 'PX', ARGV[1]) and 1 or 0
"""


def after_commit() -> None:
    """Wake the dispatcher soon after the current transaction commits; outside of one, soon."""
    transactions.after_commit(_wake.ask)


def soon() -> None:
    """Wake the dispatcher soon, for what was committed on a connection other than Django's."""
    _wake.ask()


def wake() -> None:
    """Signal that deliveries are due; starts a dispatcher when none is running."""
    try:
        needed = valkey().eval(_WAKE, 3, SIGNAL, ALIVE, CALLED, CALL_MILLISECONDS)
    except VALKEY_UNAVAILABLE as error:
        log.warning("wake_missed", error=type(error).__name__)
        return
    if needed:
        enqueue("webhooks.tasks.deliver_due", expires=5)


_wake = Coalesced(wake, seconds=WAKE_SECONDS)
