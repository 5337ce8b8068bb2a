"""Isolation of rows: an error with one tenant, invoice or notice is logged and does not stop the others."""

import math
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

import structlog

from gateway.database.transactions import concerns_all, is_lock_limit

log = structlog.get_logger(__name__)

Item = TypeVar("Item")

UNANSWERED_AT_MOST = 5
"""After this many unanswered items in a row, the other items wait for the next run."""
HELD_AT_MOST = 10
"""After this many items in a row that meet a locked row, the other items wait for the next run. Each such item takes
seconds, and all items may need the same row.
"""


class Unanswered(Exception):
    """An external service did not answer, and may not answer for the next item either."""


class SomeFailed(Exception):
    """At least one item failed. `done` counts the items that did something."""

    def __init__(self, done: int, failed: int) -> None:
        super().__init__(f"{failed} failed")
        self.done = done


def each(
    items: Iterable[Item], act: Callable[[Item], object], *, step: str, seconds: float = math.inf
) -> int:
    """Call `act` with each item. Returns how many calls returned a true value. After `seconds`, the other items wait
    for the next run.

    An exception is logged with the step and the item's id, and the next item follows. Raises SomeFailed at the end if
    any exception other than Unanswered occurred. An unreachable database ends the step at once.
    """
    done = failed = unanswered = held = 0
    end = time.monotonic() + seconds
    for item in items:
        if time.monotonic() > end:
            break
        try:
            done += bool(act(item))
        except Unanswered as error:
            log.warning("billing_item_unanswered", step=step, item=str(item), error=type(error).__name__)
            unanswered, held = unanswered + 1, 0
            if unanswered == UNANSWERED_AT_MOST:
                break
        except Exception as error:
            if concerns_all(error):
                raise
            failed += 1
            unanswered, held = 0, held + 1 if is_lock_limit(error) else 0
            log.exception("billing_item_failed", step=step, item=str(item))
            if held == HELD_AT_MOST:
                break
        else:
            unanswered = held = 0
    if failed:
        raise SomeFailed(done, failed)
    return done
