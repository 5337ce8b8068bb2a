"""The metrics show failures of Valkey, beat, the send journal and a metric even if these failures raise no error."""

from datetime import timedelta
from typing import Any

import psycopg
import pytest
import redis
from django.db import connection
from django.test import Client

from gateway.clock import isoformat, now
from gateway.monitoring import metrics
from gateway.valkey.connection import valkey
from messaging.sending import journal, journal_replay
from tenants.credentials import key_cache_repair
from webhooks.delivery import monitoring

pytestmark = pytest.mark.django_db

TOKEN = "scraper-token"


def scrape(settings: Any) -> dict[str, float]:
    metrics.flush()
    settings.METRICS_TOKEN = TOKEN
    page = Client().get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert page.status_code == 200
    lines = [line for line in page.content.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_a_valkey_that_may_evict_or_is_full(settings: Any, empty_valkey: redis.Redis) -> None:
    found = scrape(settings)
    assert found["gateway_valkey_up"] == 1
    assert found["gateway_valkey_evicts"] == found["gateway_valkey_memory_used_ratio"] == 0
    used = int(empty_valkey.info("memory")["used_memory"])
    empty_valkey.config_set("maxmemory", used * 4)
    empty_valkey.config_set("maxmemory-policy", "allkeys-lru")
    try:
        found = scrape(settings)
        assert found["gateway_valkey_evicts"] == 1
        assert 0.1 < found["gateway_valkey_memory_used_ratio"] < 0.9
    finally:
        empty_valkey.config_set("maxmemory-policy", "noeviction")
        empty_valkey.config_set("maxmemory", 0)


def test_a_valkey_that_hangs_holds_up_no_scrape(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def hangs() -> None:
        asked.append(1)
        raise redis.exceptions.TimeoutError

    metrics.flush()
    for module in (monitoring, metrics, key_cache_repair, metrics):
        monkeypatch.setattr(module, "valkey", hangs)
    found = scrape(settings)
    assert found["gateway_valkey_up"] == found["gateway_metrics_unreadable"] == 0
    assert len(asked) == 1, "each question would take two seconds, and the scraper waits for ten"
    unknown = {
        "gateway_deliveries_in_flight",
        "gateway_periodic_tasks_age_seconds",
        "gateway_valkey_evicts",
        "gateway_valkey_memory_used_ratio",
        "gateway_deliveries_rescued_total",
        "gateway_delivery_first_attempt_age_seconds_count",
    }
    assert unknown & set(found) == set(), "not known, so not shown"


def test_beat_that_stopped(settings: Any, empty_valkey: redis.Redis) -> None:
    found = scrape(settings)
    assert "gateway_periodic_tasks_age_seconds" not in found
    assert found["gateway_metrics_unreadable"] == 0
    key_cache_repair.reconcile()
    assert scrape(settings)["gateway_periodic_tasks_age_seconds"] < 30
    valkey().hset(key_cache_repair.STATE, "last_run_at", isoformat(now() - timedelta(minutes=6)))
    assert 359 < scrape(settings)["gateway_periodic_tasks_age_seconds"] < 390


def test_a_journal_with_a_send_that_cannot_be_replayed(settings: Any, tmp_path: Any) -> None:
    def left(state: str) -> float:
        return scrape(settings).get(f'gateway_sends_left_in_journal_total{{state="{state}"}}', 0)

    settings.DATA_DIR = tmp_path
    journal.directory().mkdir()
    before = left("failed")
    assert journal_replay.replay()
    assert left("failed") == before
    (journal.directory() / "1.failed").touch()
    for looks in (1, 2):
        assert journal_replay.replay()
        assert left("failed") == before + looks, "every look counts it, until it is gone"


def test_a_locked_table_costs_its_own_metrics_and_no_connection(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "GAUGE_SECONDS", 0.3)
    with psycopg.connect(**{**connection.get_connection_params(), "autocommit": False}) as other:
        # Postgres ends this session, so a scrape without a time-out fails the test instead of hanging.
        other.execute("SET LOCAL idle_in_transaction_session_timeout = '20s'")
        other.execute("LOCK TABLE tenants_outboundmail IN ACCESS EXCLUSIVE MODE")
        found = scrape(settings)
        other.execute("SELECT")
    assert found["gateway_metrics_unreadable"] == 2
    assert "gateway_kept_notifications" in found
    assert "gateway_mail_oldest_due_age_seconds" not in found


def test_gauges_that_are_slow_together_leave_the_scraper_its_answer(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "GAUGES_SECONDS", 0.0)
    found = scrape(settings)
    assert found["gateway_metrics_unreadable"] > 5
    assert "gateway_valkey_memory_used_ratio" in found


def test_a_metric_that_cannot_be_read(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert scrape(settings)["gateway_metrics_unreadable"] == 0

    def broken() -> float:
        raise ValueError

    monkeypatch.setattr(
        metrics, "_gauges", [*metrics._gauges, metrics._Gauge("gateway_broken", "", None, broken, False)]
    )
    assert scrape(settings)["gateway_metrics_unreadable"] == 1
