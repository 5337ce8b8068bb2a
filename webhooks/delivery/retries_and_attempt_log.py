"""The steps after an attempt: the decision on the next attempt, a log entry, and the stored part of the answer."""

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from operator import itemgetter
from typing import Any, Literal

from django.conf import settings
from django.db import connection

from gateway import ids
from gateway.clock import now
from gateway.database.distribution import of_tenant, together
from gateway.outbound.client import Answer
from tenants.models import Tenant
from webhooks.destinations.interface import TOO_LARGE
from webhooks.events.envelope import within_retention
from webhooks.models import Delivery

# --- Retry schedule: what follows an attempt. WEBHOOK_RETRY_SCHEDULE with n steps allows n + 1 attempts.
#
# Pure functions: no database, no clock (decision "Webhooks to customers").

JITTER = 0.2
GONE = 410
HONOURS_RETRY_AFTER = frozenset({429, 503})


@dataclass(frozen=True, slots=True)
class Decision:
    """A delivery's next state. `delay` is the seconds from the end of this attempt to the next. None if there is no
    next one.
    """

    status: Literal["pending", "delivered", "failed", "dead"]
    delay: float | None = None
    gone: bool = False
    """Whether the receiver answered 410. Its endpoint is then disabled."""


def schedule() -> Sequence[float]:
    """Seconds from each failed attempt to the next, for endpoints without their own schedule. A delivery whose
    attempt after the last step fails is dead.
    """
    steps: Sequence[float] = settings.WEBHOOK_RETRY_SCHEDULE
    return steps


PUT_OFF_SECONDS = 10.0


def put_off(attempts: int) -> Decision:
    """Reschedule a delivery that did not reach its receiver because of the egress proxy. Counts no attempt."""
    return Decision("failed" if attempts else "pending", PUT_OFF_SECONDS * spread())


_DELIVERED = Decision("delivered")


def spread() -> float:
    """A random factor for a delay, so that retries do not all come at the same moment."""
    return random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - no secret


def decide(answer: Answer, *, attempt: int, steps: Sequence[float], factor: float | None = None) -> Decision:
    """The state after the given attempt (1 is the first): delivered, failed with a next attempt, or dead.

    `factor` multiplies the delay, and is random by default. Deliveries with the same factor are retried at the same
    time.
    """
    if answer.ok:
        return _DELIVERED
    if answer.status == GONE:
        return Decision("dead", gone=True)
    if attempt > len(steps) or answer.error == TOO_LARGE:
        return Decision("dead")
    delay = steps[attempt - 1] * (factor or spread())
    if answer.status in HONOURS_RETRY_AFTER and answer.retry_after is not None:
        delay = max(delay, min(answer.retry_after, max(steps)))
    return Decision("failed", delay)


# --- The attempt log of a delivery: one entry for each attempt, of which only the newest are stored.

KEPT_ATTEMPTS = 20
"""The maximum number of entries in the log of a delivery. Older entries are dropped."""
EXCERPT_CHARACTERS = 500


def log_entry(answer: Answer, at: str) -> dict[str, Any]:
    """The log entry of an attempt that began at `at`, a time in ISO 8601."""
    return {"at": at, "http_status": answer.status, "ms": answer.ms, "error": answer.error}


def shown_attempts(delivery: Delivery) -> list[dict[str, Any]]:
    """A delivery's attempts, oldest first, each with the receiver's answer if that is stored."""
    days = Tenant.objects.values_list("retention_days", flat=True).get(pk=delivery.tenant_id)
    is_kept = within_retention(delivery.event_id, days, now())
    answers = {each["at"]: each for each in (delivery.answers or {}).values()} if is_kept else {}
    return [_attempt(entry, answers.get(entry["at"])) for entry in delivery.attempt_log]


def _attempt(entry: dict[str, Any], answer: dict[str, Any] | None) -> dict[str, Any]:
    return {
        **{name: entry.get(name) for name in ("at", "http_status", "ms", "error")},
        "response_excerpt": answer["body"][:EXCERPT_CHARACTERS] if answer else "",
        "response_headers": answer["headers"] if answer else None,
        "response_body": answer["body"] if answer else None,
    }


# --- Stored answers of receivers: answers to failed attempts, and also to successful attempts if the endpoint asks for
# them.
#
# `gateway/outbound/connection.py` limits how much of an answer is read. An answer may quote the event, so it is shown
# and stored only as long as the event's body. Three limits apply: the bytes of an answer, the answers of a delivery,
# and the answers of an endpoint over time.

MOST_BODY_BYTES = 4096
MOST_HEADER_BYTES = 2048
KEPT_ANSWERS = 3
"""The maximum number of stored answers of a delivery. A new answer replaces the answer of three attempts earlier."""
AT_ONCE, SECONDS_EACH = 20, 10.0
"""How many answers to failed attempts a dispatcher stores for an endpoint: AT_ONCE at first, then one per
SECONDS_EACH seconds.
"""
PRUNED_ROWS = 1000

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_NEVER_KEPT = frozenset({"set-cookie", "set-cookie2"})


def kept(answer: Answer, at: str, *, keeps_success: bool = False) -> dict[str, Any] | None:
    """The part of an answer to store, for the attempt that began at `at` (ISO 8601). Replaces characters that cannot be
    stored.

    None if there is no answer, or if the attempt succeeded and `keeps_success` is false. For a success, only the
    beginning of the body is stored.
    """
    if not (answer.status or answer.body) or (answer.ok and not keeps_success):
        return None
    if answer.ok:
        beginning = answer.body[:EXCERPT_CHARACTERS].decode("utf-8", "replace")
        return {"at": at, "headers": {}, "body": _storable(beginning, EXCERPT_CHARACTERS)}
    return {
        "at": at,
        "headers": dict(_headers(answer)),
        "body": _storable(answer.body[:MOST_BODY_BYTES].decode("utf-8", "replace"), MOST_BODY_BYTES),
    }


def _headers(answer: Answer) -> Iterator[tuple[str, str]]:
    """The first headers, without cookies. If a name is repeated, its last value is used."""
    left = MOST_HEADER_BYTES
    for raw_name, raw_value in answer.fields:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        left -= len(raw_name) + len(raw_value)
        if left < 0:
            return
        if name.lower() not in _NEVER_KEPT:
            yield _storable(name, MOST_HEADER_BYTES), _storable(value, MOST_HEADER_BYTES)


def _storable(text: str, most_bytes: int) -> str:
    return text.replace("\0", _REPLACEMENT).encode("utf-8", "replace")[:most_bytes].decode("utf-8", "ignore")


@dataclass(slots=True)
class AnswerAllowance:
    """Limits the stored answers of an endpoint. Without this limit, an endpoint that fails half of the time would
    add answers without end.
    """

    left: float = AT_ONCE
    at: float = field(default_factory=time.monotonic)

    def kept(self, answer: Answer, at: str, *, keeps_success: bool) -> dict[str, Any] | None:
        """Call `kept`. None for a failed answer if too many failed answers of the endpoint were stored recently."""
        found = kept(answer, at, keeps_success=keeps_success)
        return found if found and (answer.ok or self._take()) else None

    def _take(self) -> bool:
        moment = time.monotonic()
        self.left = min(AT_ONCE, self.left + (moment - self.at) / SECONDS_EACH)
        self.at = moment
        if self.left < 1:
            return False
        self.left -= 1
        return True


# Uses the partial index `delivery_with_answers`.
_PRUNE = f"""
UPDATE webhook_deliveries SET answers = NULL WHERE {of_tenant("webhook_deliveries")} AND id = ANY(ARRAY(
    SELECT d.id FROM unnest(%(owners)s::uuid[], %(ends)s::uuid[]) AS over (tenant_id, last_id)
    CROSS JOIN LATERAL (
        SELECT id FROM webhook_deliveries
        WHERE {of_tenant("webhook_deliveries")} AND tenant_id = over.tenant_id AND answers IS NOT NULL
          AND id < over.last_id LIMIT %(rows)s FOR NO KEY UPDATE SKIP LOCKED
    ) d LIMIT %(rows)s
))
"""  # noqa: S608 - only conditions are formatted in


def prune_answers() -> int:
    """Delete stored answers to events past retention. Returns the number of changed deliveries."""
    moment = now()
    pruned = 0
    retentions = Tenant.objects.order_by().values_list("id", "retention_days")
    for tenant_id, group in together(retentions, itemgetter(0)):
        rows = PRUNED_ROWS
        while rows == PRUNED_ROWS:
            with connection.cursor() as cursor:
                values: dict[str, Any] = {
                    "tenant_id": tenant_id,
                    "owners": [owner for owner, _ in group],
                    "ends": [ids.first_at(moment - timedelta(days=days)) for _, days in group],
                    "rows": PRUNED_ROWS,
                }
                cursor.execute(_PRUNE, values)
                rows = cursor.rowcount
            pruned += rows
    return pruned
