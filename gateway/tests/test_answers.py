"""Metrics of answers: counted by kind and class of status. A broken gauge does not stop the flushing thread."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import redis
from django.test import Client

from gateway import celery
from gateway.api import access_log
from gateway.monitoring import metrics
from gateway.outbound.client import once
from gateway.outbound.connection import Answer
from tests.fixtures import Api, assert_error

TOKEN = "a-token-of-the-scraper"


def scrape(settings: Any) -> dict[str, float]:
    settings.METRICS_TOKEN = TOKEN
    page = Client().get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert page.status_code == 200
    lines = [line for line in page.content.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


@pytest.mark.django_db(transaction=True)
def test_answers_are_counted_by_kind_and_status(settings: Any) -> None:
    metrics.flush()
    before = scrape(settings)
    client = Client()
    client.post("/upstream/webhook", b"{}", content_type="application/json")
    client.post("/v1/messages", b"{}", content_type="application/json")
    client.get("/v1/tenant")
    client.get("/v1/health")
    client.get("/nowhere")
    metrics.flush()
    after = scrape(settings)
    grown = {name: value - before.get(name, 0.0) for name, value in after.items() if "gateway_answer" in name}
    counted = {
        name.split('"')[1]: value for name, value in grown.items() if "answers_total" in name and value
    }
    assert counted == {"notifications_4xx": 1, "sends_4xx": 1, "api_4xx": 1, "pages_4xx": 1}
    assert grown["gateway_answer_own_seconds_count"] == 3


KINDS = [
    ("POST", "/v1/messages", "sends"),
    ("POST", "/{node}/messages", "sends"),
    ("POST", "/{version}/{node}/messages", "sends"),
    ("GET", "/v1/messages", "api"),
    ("POST", "/v1/messages/batch", "api"),
    ("POST", "/{node}/media", "api"),
    ("POST", "/upload:{session}", "api"),
    ("POST", "/{version}/upload:{session}", "api"),
    ("POST", "/mcp", "api"),
    ("POST", "/internal/razorpay/webhook", "api"),
    ("POST", "/upstream/flows/{endpoint_id}", "flows"),
    ("GET", "/upstream/webhook", "notifications"),
    ("POST", "/upstream/webhook", "notifications"),
    ("GET", "/login", "pages"),
    ("GET", "/v1/health", None),
    ("GET", "/v1/health/ready", None),
    ("GET", "/metrics", None),
]


@pytest.mark.django_db
def test_each_route_counts_as_its_kind_and_probes_do_not_count(settings: Any) -> None:
    metrics.flush()
    before = scrape(settings)
    for method, route, _ in KINDS:
        access_log.count(method, route, route, 299, 1.0)
    for path in ("/v25.0/1/x", "/v1/nothing", "/nothing", "/1/messages"):
        access_log.count("POST", None, path, 500, 1.0)
    metrics.flush()
    grown = Counter({name: int(value - before.get(name, 0)) for name, value in scrape(settings).items()})
    expected = Counter(f"{kind}_2xx" for *_, kind in KINDS if kind)
    expected += Counter({"api_5xx": 2, "pages_5xx": 2})
    assert (
        +Counter({name.split('"')[1]: count for name, count in grown.items() if "answers_total{" in name})
        == expected
    )
    assert grown["gateway_answer_own_seconds_count"] == expected.total() - 3, "the time of pages is not"


@pytest.mark.django_db
def test_the_time_of_a_tenants_server_is_not_the_services(settings: Any) -> None:
    metrics.flush()
    before = scrape(settings)["gateway_answer_own_seconds_sum"]
    access_log.start_timing()
    once(lambda _: asyncio.sleep(0, Answer(200, None, 50, b"", None)), allow_private=True)
    assert access_log._tenant_ms.get() > 0
    access_log.add_tenant_ms(50.0)
    access_log.count("POST", "/v1/webhook-endpoints/{endpoint_id}/verify", "", 200, 50.0)
    metrics.flush()
    assert scrape(settings)["gateway_answer_own_seconds_sum"] == before


@pytest.mark.django_db(transaction=True)
def test_billing_that_is_off_is_no_failure(settings: Any, api: Api) -> None:
    settings.BILLING_ENABLED = False
    metrics.flush()
    before = scrape(settings)
    assert_error(api.get("/v1/billing"), 503, "billing_disabled")
    metrics.flush()
    assert {name: value for name, value in scrape(settings).items() if "answers_total" in name} == {
        name: value for name, value in before.items() if "answers_total" in name
    }


def test_the_time_of_an_answer_is_split_into_the_services_and_metas() -> None:
    access_log.start_timing()
    assert access_log.split_ms(12.34) == (12.3, 0.0)
    access_log.add_upstream_ms(30.0)
    access_log.add_upstream_ms(20.06)
    assert access_log.split_ms(60.16) == (10.1, 50.1)
    assert access_log.split_ms(40.0) == (0.0, 40.0), "calls beside each other wait longer than the whole"
    access_log.start_timing()
    assert access_log.split_ms(40.0) == (40.0, 0.0)


@pytest.mark.django_db
def test_a_duration_counts_in_each_bucket_that_it_does_not_exceed(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "_histograms", [])
    waits = metrics.Histogram("gateway_test_waits", "", buckets=(0.1, 1, 10))
    waits.observe(0.05, 0.1)
    waits.observe(0.11, 1, 10.5)
    metrics.flush()
    found = {name: value for name, value in scrape(settings).items() if name.startswith("gateway_test_waits")}
    assert [found[f'gateway_test_waits_bucket{{le="{bound}"}}'] for bound in ("0.1", "1", "10", "+Inf")] == [
        2, 4, 4, 5,
    ]  # fmt: skip
    assert (found["gateway_test_waits_count"], round(found["gateway_test_waits_sum"], 2)) == (5, 11.76)


@pytest.mark.django_db
@pytest.mark.parametrize("token", ["", TOKEN])
@pytest.mark.parametrize("sent", ["", "Bearer ", f"Bearer {TOKEN}x", TOKEN, f"bearer {TOKEN}", "Bearer é"])
def test_only_the_scraper_sees_the_metrics(settings: Any, token: str, sent: str) -> None:
    settings.METRICS_TOKEN = token
    assert Client().get("/metrics", headers={"Authorization": sent}).status_code == 404


def test_counts_that_valkey_did_not_take_wait_for_the_next_flush(
    monkeypatch: pytest.MonkeyPatch, empty_valkey: redis.Redis
) -> None:
    metrics.flush()
    access_log.ANSWERS.add(2, label="api_2xx")
    with monkeypatch.context() as patch:
        patch.setattr(metrics, "valkey", lambda: redis.Redis.from_url("unix:///nonexistent", retry=None))
        metrics.flush()
    access_log.ANSWERS.add(label="api_2xx")
    metrics.flush()
    metrics.flush()
    assert empty_valkey.hget(metrics.KEY, "gateway_answers_total|api_2xx") == b"3"


@pytest.mark.django_db
def test_a_gauge_that_cannot_be_read_leaves_the_others(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> float:
        raise RuntimeError

    others = metrics._gauges
    monkeypatch.setattr(metrics, "_gauges", [])
    metrics.gauge("gateway_broken", "", broken)
    metrics._gauges.extend(others)
    found = scrape(settings)
    assert "gateway_deliveries_in_flight" in found
    assert "gateway_broken" not in found


@pytest.mark.parametrize("begin", [access_log.start_flushing, celery._begin_monitoring])
def test_a_web_process_and_a_worker_hand_their_counts_over(
    monkeypatch: pytest.MonkeyPatch, empty_valkey: redis.Redis, begin: Callable[[], None]
) -> None:
    monkeypatch.setattr(access_log, "FLUSH_SECONDS", 0.01)
    access_log.ANSWERS.add(label="api_2xx")
    begin()
    try:
        deadline = time.monotonic() + 10
        while not empty_valkey.hexists(metrics.KEY, "gateway_answers_total|api_2xx"):
            assert time.monotonic() < deadline, "the counts were not handed over"
            time.sleep(0.01)
    finally:
        access_log._stopped.set()
        for thread in threading.enumerate():
            if thread.name == "answers":
                thread.join(5)
        access_log._stopped.clear()
