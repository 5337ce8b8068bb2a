"""Metrics of Valkey: whether it may evict, and how full its memory is."""

from typing import Any

from gateway.monitoring import metrics
from gateway.valkey.connection import valkey


def _memory() -> dict[str, Any]:
    facts: dict[str, Any] = valkey().info("memory")
    return facts


def _evicts() -> bool:
    return bool(_memory()["maxmemory_policy"] != "noeviction")


def _used() -> float:
    facts = _memory()
    return float(facts["used_memory"] / facts["maxmemory"]) if facts["maxmemory"] else 0.0


metrics.gauge(
    "gateway_valkey_evicts",
    "1 when Valkey's maxmemory-policy is not noeviction, else 0.",
    _evicts,
    of_valkey=True,
)
metrics.gauge(
    "gateway_valkey_memory_used_ratio",
    "Used memory of Valkey by its maxmemory; 0 where it has none.",
    _used,
    of_valkey=True,
)
