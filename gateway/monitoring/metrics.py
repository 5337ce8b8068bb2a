"""Metrics for Prometheus: counted in each process, summed in Valkey, shown by any web process at `/metrics`.

Counters and histograms are in one hash of Valkey, so they are correct for any number of processes and hosts. They
restart from zero when Valkey restarts, as Prometheus expects of counters. Gauges are evaluated at the scrape. Code that
counts calls `add` or `observe`, which each cost a dictionary look-up, and regularly calls `flush`. Each app registers
its metrics in its module `monitoring`.
"""

import hmac
import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseNotFound
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from gateway.valkey.connection import VALKEY_UNAVAILABLE, valkey

log = structlog.get_logger(__name__)

KEY = "metrics"
GAUGE_SECONDS = 2.0
GAUGES_SECONDS = 5.0
"""Time limit of all database gauges together. `GAUGE_SECONDS` is that of one. A scraper waits ten seconds. Each scrape
uses a connection of its process, so without limits, scrapes that wait for a locked table would leave no connection for
API calls.
"""
UP, UNREADABLE = "gateway_valkey_up", "gateway_metrics_unreadable"
_SEPARATOR = "|"

_pending: defaultdict[str, float] = defaultdict(float)
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Counter:
    """A count that only grows. `label` is the name of its label, if it has one."""

    name: str
    help: str
    label: str | None = None

    def __post_init__(self) -> None:
        _counters.append(self)

    def add(self, amount: float = 1, label: str = "") -> None:
        """Count. The next `flush` makes the count visible to all processes."""
        _note({f"{self.name}{_SEPARATOR}{label}": amount})


@dataclass(frozen=True, slots=True)
class Histogram:
    """Durations in seconds, counted in buckets. `buckets` are the buckets' upper bounds."""

    name: str
    help: str
    buckets: Sequence[float] = field(default=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 1000))

    def __post_init__(self) -> None:
        _histograms.append(self)

    def observe(self, *seconds: float) -> None:
        """Count durations."""
        amounts = {f"{self.name}{_SEPARATOR}sum": sum(seconds)}
        for each in seconds:
            bucket = f"{self.name}{_SEPARATOR}{bisect_left(self.buckets, each)}"
            amounts[bucket] = amounts.get(bucket, 0) + 1
        _note(amounts)


class _Gauge(NamedTuple):
    name: str
    help: str
    label: str | None
    values: Callable[[], dict[str, float]]
    of_valkey: bool


_counters: list[Counter] = []
_histograms: list[Histogram] = []
_gauges: list[_Gauge] = []


def gauge(
    name: str,
    help: str,  # noqa: A002 - Prometheus's word
    value: Callable[[], float | None],
    *,
    of_valkey: bool = False,
) -> None:
    """Register a value that is evaluated at each scrape. None means unknown.

    With `of_valkey`, the value is skipped while Valkey is unavailable. Otherwise each such value would wait for a
    time-out, and the scraper would give up.
    """

    def values() -> dict[str, float]:
        found = value()
        return {} if found is None else {"": found}

    _gauges.append(_Gauge(name, help, None, values, of_valkey))


def labelled_gauge(name: str, help: str, label: str, values: Callable[[], dict[str, float]]) -> None:  # noqa: A002
    """Register values by label, evaluated at each scrape."""
    _gauges.append(_Gauge(name, help, label, values, of_valkey=False))


def names() -> list[str]:
    """The names of all metrics."""
    counted = [counter.name for counter in _counters] + [histogram.name for histogram in _histograms]
    return [*counted, *(each.name for each in _gauges), UP, UNREADABLE]


def _note(amounts: Mapping[str, float]) -> None:
    with _lock:
        for name, amount in amounts.items():
            _pending[name] += amount


def is_pending() -> bool:
    """Whether `flush` has something to add."""
    return bool(_pending)


def flush() -> None:
    """Add this process's counts to the shared counts. Without Valkey they wait for the next flush."""
    with _lock:
        amounts = dict(_pending)
        _pending.clear()
    if not amounts:
        return
    try:
        with valkey().pipeline(transaction=False) as pipeline:
            for name, amount in amounts.items():
                pipeline.hincrbyfloat(KEY, name, amount)
            pipeline.execute()
    except VALKEY_UNAVAILABLE:
        _note(amounts)


class _Everything(Collector):
    def collect(self) -> Iterable[Metric]:
        try:
            stored = {name.decode(): float(value) for name, value in valkey().hgetall(KEY).items()}
            is_up = True
        except VALKEY_UNAVAILABLE:
            stored, is_up = {}, False
        if is_up:
            # As 0, they would look like counters that began again, and Prometheus would count the next values as new.
            for counter in _counters:
                yield _counter(counter, stored)
            for histogram in _histograms:
                yield _histogram(histogram, stored)
        yield GaugeMetricFamily(UP, "1 while Valkey answers, else 0.", value=is_up)
        unreadable = 0
        ends_at = time.monotonic() + GAUGES_SECONDS
        for each in _gauges:
            if each.of_valkey and not is_up:
                continue
            try:
                found = each.values() if each.of_valkey else _from_database(each, ends_at)
            except Exception:
                log.exception("gauge_unreadable", gauge=each.name)
                unreadable += 1
                continue
            family = GaugeMetricFamily(each.name, each.help, labels=[each.label] if each.label else [])
            for value, amount in found.items():
                family.add_metric([value] if each.label else [], amount)
            yield family
        yield GaugeMetricFamily(
            UNREADABLE,
            "Metrics that are missing from this answer because they could not be read.",
            value=unreadable,
        )


def _from_database(gauge: _Gauge, ends_at: float) -> dict[str, float]:
    """The values of a gauge. Raises TimeoutError when the time limit of all gauges is over."""
    if time.monotonic() > ends_at:
        raise TimeoutError
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('statement_timeout', %s, true)", [str(int(GAUGE_SECONDS * 1000))])
        found = gauge.values()
        # In a test, this transaction is part of the test's own, which continues.
        cursor.execute("SELECT set_config('statement_timeout', '0', true)")
        return found


def _counter(counter: Counter, stored: dict[str, float]) -> Metric:
    family = CounterMetricFamily(counter.name, counter.help, labels=[counter.label] if counter.label else [])
    prefix = counter.name + _SEPARATOR
    found = {key.removeprefix(prefix): value for key, value in stored.items() if key.startswith(prefix)}
    for label, value in (found if counter.label else {"": found.get("", 0.0)}).items():
        family.add_metric([label] if counter.label else [], value)
    return family


def _histogram(histogram: Histogram, stored: dict[str, float]) -> Metric:
    below, buckets = 0.0, []
    for number, bound in enumerate([*map(str, histogram.buckets), "+Inf"]):
        below += stored.get(f"{histogram.name}{_SEPARATOR}{number}", 0.0)
        buckets.append((bound, below))
    family = HistogramMetricFamily(histogram.name, histogram.help)
    family.add_metric([], buckets, sum_value=stored.get(f"{histogram.name}{_SEPARATOR}sum", 0.0))
    return family


_registry = CollectorRegistry()
_registry.register(_Everything())


def metrics_page(request: HttpRequest) -> HttpResponse:
    """`GET /metrics` for a scraper with METRICS_TOKEN. All others get a 404."""
    token = settings.METRICS_TOKEN.encode()
    sent = request.headers.get("Authorization", "").encode()
    if not token or not hmac.compare_digest(sent, b"Bearer " + token):
        return HttpResponseNotFound()
    return HttpResponse(generate_latest(_registry), content_type=CONTENT_TYPE_LATEST)


# --- Metrics of Valkey: whether it may evict keys, and how full its memory is.


def _memory() -> dict[str, Any]:
    facts: dict[str, Any] = valkey().info("memory")
    return facts


def _evicts() -> bool:
    return bool(_memory()["maxmemory_policy"] != "noeviction")


def _used() -> float:
    facts = _memory()
    return float(facts["used_memory"] / facts["maxmemory"]) if facts["maxmemory"] else 0.0


gauge(
    "gateway_valkey_evicts",
    "1 when Valkey's maxmemory-policy is not noeviction, else 0.",
    _evicts,
    of_valkey=True,
)
gauge(
    "gateway_valkey_memory_used_ratio",
    "Used memory of Valkey divided by its maxmemory; 0 if it has no maxmemory.",
    _used,
    of_valkey=True,
)
