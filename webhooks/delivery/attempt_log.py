"""The attempt log of a delivery: one entry an attempt, the newest are kept."""

from typing import Any

from gateway.outbound.client import Answer

KEPT_ATTEMPTS = 20
"""Entries of a delivery's log, the newest."""


def log_entry(answer: Answer, at: str) -> dict[str, Any]:
    """The entry of an attempt that began at `at`, a moment in ISO 8601."""
    return {"at": at, "http_status": answer.status, "ms": answer.ms, "error": answer.error}
