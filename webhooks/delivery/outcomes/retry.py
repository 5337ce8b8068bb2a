"""Retry schedule: what follows an attempt. WEBHOOK_RETRY_SCHEDULE with n steps allows n + 1 attempts.

Without database or clock (decision "Webhooks to customers").
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from django.conf import settings

from gateway.outbound.client import Answer

JITTER = 0.2
GONE = 410
HONOURS_RETRY_AFTER = frozenset({429, 503})


@dataclass(frozen=True, slots=True)
class Decision:
    """A delivery's next state; `delay` is in seconds from the attempt's end, None when there is no next one."""

    status: Literal["pending", "delivered", "failed", "dead"]
    delay: float | None = None
    gone: bool = False
    """The receiver said 410: the endpoint is disabled."""


def schedule() -> Sequence[float]:
    """Seconds from each failed attempt to the next, the same for every endpoint; after the last it is dead."""
    steps: Sequence[float] = settings.WEBHOOK_RETRY_SCHEDULE
    return steps


PUT_OFF_SECONDS = 10.0


def put_off(attempts: int) -> Decision:
    """A delivery that the egress proxy kept from its receiver: it is tried later, and no attempt is counted."""
    delay = PUT_OFF_SECONDS * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - spreads load, no secret
    return Decision("failed" if attempts else "pending", delay)


_DELIVERED = Decision("delivered")


def decide(answer: Answer, *, attempt: int, steps: Sequence[float]) -> Decision:
    """The state after the given attempt (1 is the first): delivered, failed with the next step, or dead."""
    if answer.ok:
        return _DELIVERED
    if answer.status == GONE:
        return Decision("dead", gone=True)
    if attempt > len(steps):
        return Decision("dead")
    delay = steps[attempt - 1] * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - spreads load, no secret
    if answer.status in HONOURS_RETRY_AFTER and answer.retry_after is not None:
        delay = max(delay, min(answer.retry_after, max(steps)))
    return Decision("failed", delay)
