"""Metrics of answers: how many of which status, by kind of route, and the service's own time for them.

Counted in memory by both doors; a thread of each web process adds the counts to everybody's every few seconds.
"""

import threading

from gateway.monitoring import metrics
from gateway.monitoring.metrics import Counter, Histogram

FLUSH_SECONDS = 5.0

ANSWERS = Counter(
    "gateway_answers_total",
    "Answers by kind of route and class of status, as in `notifications_2xx`.",
    label="answer",
)
OWN_SECONDS = Histogram(
    "gateway_answer_own_seconds",
    "The service's own time for an answer of the API, without the upstream's.",
    buckets=(0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
)

_stopped = threading.Event()


def count(path: str, status: int, own_ms: float) -> None:
    """Count an answer. Health checks are not counted."""
    kind = _kind(path)
    if kind is None:
        return
    ANSWERS.add(label=f"{kind}_{status // 100}xx")
    if kind != "pages":
        OWN_SECONDS.observe(own_ms / 1000)


def _kind(path: str) -> str | None:
    if path == "/upstream/webhook":
        return "notifications"
    if path.startswith("/v1/health") or path == "/metrics":
        return None
    if path.endswith("/messages"):
        return "sends"
    return "api" if path.startswith(("/v1/", "/v2")) else "pages"


def start_flushing() -> None:
    """Start the thread that hands the counts over; for web processes."""
    threading.Thread(target=_flush_now_and_then, name="answers", daemon=True).start()


def _flush_now_and_then() -> None:
    while not _stopped.wait(FLUSH_SECONDS):
        metrics.flush()
