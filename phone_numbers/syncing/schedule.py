"""Schedule of the upstream syncs (accounts here, templates in `messaging`): interval, lease, back-off.

An account that fails is tried again after a minute, doubling up to the interval. A claimed account is due again when
its lease is over, so a crash delays it and loses nothing.
"""

import random
from datetime import timedelta

from phone_numbers.graph_calls import Refused

INTERVAL = timedelta(hours=6)
LEASE = timedelta(minutes=10)
"""How long a claimed account may wait in the queue, and how long a run may take from one call to the next."""
FIRST_RETRY = timedelta(minutes=1)
BATCH = 200
"""How many accounts one call of beat claims."""
MOST_FAILURES = 20


def next_interval() -> timedelta:
    """The time until the next regular read, spread so that accounts do not come due together."""
    return INTERVAL * random.uniform(0.9, 1)  # noqa: S311


def after_failure(failures: int, error: Exception) -> tuple[int, timedelta]:
    """The number of failures in a row, and the wait until the next try; not before a throttling answer allows it."""
    failures = min(failures + 1, MOST_FAILURES)
    wait = min(FIRST_RETRY * 2 ** (failures - 1), INTERVAL) * random.uniform(0.8, 1.2)  # noqa: S311
    if isinstance(error, Refused) and error.verdict.retry_after:
        wait = max(wait, timedelta(seconds=error.verdict.retry_after))
    return failures, wait
