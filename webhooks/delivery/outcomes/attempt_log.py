"""The attempt log of a delivery: one entry an attempt, the newest are kept, shown with what the receiver said."""

from typing import Any

from gateway.clock import now
from gateway.outbound.client import Answer
from tenants.models import Tenant
from webhooks.models import Delivery, within_retention

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
