"""Metrics of Valkey: whether it answers, whether it may evict, and how full its memory is."""

from typing import Any

from gateway.monitoring import metrics
from gateway.valkey.connection import VALKEY_UNAVAILABLE, valkey


def _answers() -> bool:
    try:
        return bool(valkey().ping())
    except VALKEY_UNAVAILABLE:
        return False


def _memory() -> dict[str, Any] | None:
    try:
        facts: dict[str, Any] = valkey().info("memory")
    except VALKEY_UNAVAILABLE:
        return None
    return facts


def _evicts() -> bool | None:
    facts = _memory()
    return None if facts is None else facts["maxmemory_policy"] != "noeviction"


def _used() -> float | None:
    facts = _memory()
    if facts is None:
        return None
    return float(facts["used_memory"] / facts["maxmemory"]) if facts["maxmemory"] else 0.0


metrics.gauge("gateway_valkey_up", "1 while Valkey answers, else 0.", _answers)
metrics.gauge("gateway_valkey_evicts", "1 when maxmemory-policy is not noeviction, else 0.", _evicts)
metrics.gauge(
    "gateway_valkey_memory_used_ratio", "Used memory of Valkey by its maxmemory; 0 where it has none.", _used
)
