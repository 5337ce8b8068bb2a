"""The attempt log of a delivery, and what is kept of receivers' answers to failed attempts."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.db import connection

from gateway import ids
from gateway.clock import now
from gateway.outbound.client import Answer
from tenants.models import Tenant
from webhooks.models import Delivery, within_retention

# --- The attempt log of a delivery: one entry an attempt, the newest are kept, shown with what the receiver
# said.

KEPT_ATTEMPTS = 20
"""Entries of a delivery's log, the newest."""
EXCERPT_CHARACTERS = 500


def log_entry(answer: Answer, at: str) -> dict[str, Any]:
    """The entry of an attempt that began at `at`, a moment in ISO 8601."""
    return {"at": at, "http_status": answer.status, "ms": answer.ms, "error": answer.error}


def attempts(delivery: Delivery) -> list[dict[str, Any]]:
    """A delivery's attempts, oldest first, with what the receiver said to those of which it is kept."""
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


# --- Answers of receivers to failed attempts: what is kept of one, how many, and for how long.
#
# How much of an answer is read at all is bounded in `gateway/outbound/connection.py`. An answer may
# quote the event, so it is shown and stored for as long as the event's body may be. It is bounded three
# times: the bytes of an answer, the answers of a delivery, and the answers of an endpoint over time.

MOST_BODY_BYTES = 4096
MOST_HEADER_BYTES = 2048
KEPT_ANSWERS = 3
"""Of a delivery: those to its newest failed attempts."""
AT_ONCE, SECONDS_EACH = 20, 10.0
"""Answers that are kept of an endpoint in each dispatcher: AT_ONCE at first, then one in SECONDS_EACH."""
FORGET_ROWS = 1000

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_NEVER_KEPT = frozenset({"set-cookie", "set-cookie2"})


def kept(answer: Answer, at: str) -> dict[str, Any] | None:
    """What is kept of the answer to an attempt that is in the log with the time `at`; bad text is replaced.

    None for a success, and where no answer came.
    """
    if answer.ok or answer.status is None:
        return None
    return {
        "at": at,
        "headers": dict(_headers(answer)),
        "body": _storable(answer.body[:MOST_BODY_BYTES].decode("utf-8", "replace"), MOST_BODY_BYTES),
    }


def _headers(answer: Answer) -> Iterator[tuple[str, str]]:
    """The first headers, without cookies; of equal names the last one counts."""
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
    """How many answers of an endpoint may be kept: a receiver that fails half of the time answers without end."""

    left: float = AT_ONCE
    at: float = field(default_factory=time.monotonic)

    def kept(self, answer: Answer, at: str) -> dict[str, Any] | None:
        """`kept`, unless too many answers of the endpoint were kept recently."""
        found = kept(answer, at)
        return found if found and self._take() else None

    def _take(self) -> bool:
        moment = time.monotonic()
        self.left = min(AT_ONCE, self.left + (moment - self.at) / SECONDS_EACH)
        self.at = moment
        if self.left < 1:
            return False
        self.left -= 1
        return True


# By the partial index `delivery_with_answers`, a tenant at a time.
_FORGET = """
UPDATE webhook_deliveries SET answers = NULL WHERE id IN (
    SELECT d.id FROM unnest(%s::int[], %s::uuid[]) AS over (days, last_id)
    JOIN tenants_tenant t ON t.retention_days = over.days
    CROSS JOIN LATERAL (
        SELECT id FROM webhook_deliveries
        WHERE tenant_id = t.id AND answers IS NOT NULL AND id < over.last_id LIMIT %s FOR NO KEY UPDATE SKIP LOCKED
    ) d LIMIT %s
)
"""


def forget() -> int:
    """Forget the answers to deliveries of events whose bodies are past retention. Returns how many deliveries."""
    moment = now()
    retentions = list(Tenant.objects.values_list("retention_days", flat=True).distinct())
    ends = [ids.first_at(moment - timedelta(days=days)) for days in retentions]
    forgotten = 0
    while True:
        with connection.cursor() as cursor:
            cursor.execute(_FORGET, [retentions, ends, FORGET_ROWS, FORGET_ROWS])
            rows: int = cursor.rowcount
        forgotten += rows
        if rows < FORGET_ROWS:
            return forgotten
