"""Monitoring of deliveries: the section of `/v1/admin/health`, the metrics page, the mail of a disabled endpoint."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from aiohttp import web
from django.test import Client

from gateway.clock import now
from gateway.monitoring import metrics
from tenants.models import OutboundMail, Tenant
from tests.fixtures import Api
from tests.receiver import Receiver
from webhooks import replay
from webhooks.delivery import dispatcher
from webhooks.delivery.caps import Room
from webhooks.delivery.claim_statements import claim
from webhooks.models import Delivery, Endpoint, ReplayChunk
from webhooks.tests.delivering import copied, publish_one

pytestmark = pytest.mark.django_db(transaction=True)
TOKEN = "scraper-token"


def health(staff_api: Api) -> dict[str, Any]:
    answer = staff_api.get("/v1/admin/health")
    assert answer.status_code == 200, answer.content
    names = ("retries_due", "oldest_due_retry_at", "dead_24h", "endpoints_circuit_open")
    return {name: answer.json()[name] for name in names}


def scrape(settings: Any) -> dict[str, float]:
    settings.METRICS_TOKEN = TOKEN
    answer = Client().get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 200
    lines = [line for line in answer.content.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_health_counts_due_retries_dead_deliveries_and_open_circuits(
    staff_api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
) -> None:
    quiet = {"retries_due": 0, "oldest_due_retry_at": None, "dead_24h": 0, "endpoints_circuit_open": 0}
    assert health(staff_api) == quiet
    receiver.answer = lambda request: web.Response(status=500)
    for number in range(10):
        publish_one(tenant, f"k{number}")
    dispatcher.run()
    assert health(staff_api) == {**quiet, "endpoints_circuit_open": 1}
    Delivery.objects.update(next_attempt_at=now() - timedelta(minutes=1))
    found = health(staff_api)
    assert found["retries_due"] == 10
    assert found["oldest_due_retry_at"].endswith("Z")
    Delivery.objects.filter(pk=Delivery.objects.first().pk).update(  # type: ignore[union-attr]
        status="dead", dead_at=now() - timedelta(hours=23)
    )
    Delivery.objects.filter(pk=Delivery.objects.last().pk).update(  # type: ignore[union-attr]
        status="dead", dead_at=now() - timedelta(hours=25)
    )
    assert (health(staff_api)["dead_24h"], health(staff_api)["retries_due"]) == (1, 8)
    for status in ("paused", "disabled"):
        Endpoint.objects.update(status=status)
        assert health(staff_api) == {**quiet, "dead_24h": 1}, "what does not work on purpose is not late"
    Endpoint.objects.update(status="active", circuit_open_until=None)
    assert health(staff_api)["retries_due"] == 8
    Tenant.objects.filter(pk=tenant.pk).update(status="suspended")
    assert health(staff_api)["retries_due"] == 0


def test_metrics_count_attempts_by_outcome_and_their_age(
    tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver, settings: Any
) -> None:
    publish_one(tenant, "k1")
    dispatcher.run()
    receiver.answer = lambda request: web.Response(status=404)
    settings.WEBHOOK_RETRY_SCHEDULE = []
    publish_one(tenant, "k2")
    dispatcher.run()
    publish_one(tenant, "k3")
    Endpoint.objects.all().delete()
    dispatcher.run()
    found = scrape(settings)
    assert found["gateway_deliveries_claimed_total"] == 2
    assert found["gateway_delivery_attempts_total"] == 1
    assert found['gateway_delivery_failures_total{error="http_4xx"}'] == 1
    assert found['gateway_deliveries_dead_total{reason="http_4xx"}'] == 1
    assert found['gateway_deliveries_dead_total{reason="endpoint_deleted"}'] == 1
    assert found["gateway_delivery_first_attempt_age_seconds_count"] == 2
    assert found['gateway_delivery_first_attempt_age_seconds_bucket{le="+Inf"}'] == 2
    assert found["gateway_deliveries_oldest_due_age_seconds"] == 0
    assert found['gateway_default_partition_rows{table="events"}'] == 0


FIRST_ATTEMPTS = "gateway_delivery_first_attempt_age_seconds_count"


@pytest.mark.parametrize("held", [{"rate_per_second": 100}, {"ordered": True}])
def test_first_attempts_that_the_endpoint_holds_back_are_not_counted(
    tenant: Tenant, endpoint: dict[str, Any], settings: Any, held: dict[str, Any]
) -> None:
    Endpoint.objects.update(**held)
    for n in range(2):
        publish_one(tenant, f"k{n}", wa_id="919800000001")
    dispatcher.run()
    assert set(Delivery.objects.values_list("status", flat=True)) == {"delivered"}
    assert scrape(settings).get(FIRST_ATTEMPTS, 0) == 0


def test_a_replay_is_not_counted_as_a_first_attempt(
    tenant: Tenant, endpoint: dict[str, Any], settings: Any
) -> None:
    publish_one(tenant)
    Delivery.objects.update(is_replay=True)
    dispatcher.run()
    assert scrape(settings).get(FIRST_ATTEMPTS, 0) == 0


def test_metrics_show_what_waits_and_what_a_dead_worker_left(
    tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver, settings: Any
) -> None:
    publish_one(tenant)
    Delivery.objects.update(next_attempt_at=now() - timedelta(minutes=2))
    assert 119 < scrape(settings)["gateway_deliveries_oldest_due_age_seconds"] < 130
    for status in ("paused", "disabled"):
        later = now() + timedelta(minutes=1)
        Endpoint.objects.update(status=status, circuit_open_until=later, secret_unreadable_since=now())
        found = scrape(settings)
        assert found["gateway_deliveries_oldest_due_age_seconds"] == 0
        assert found["gateway_endpoints_circuit_open"] == found["gateway_endpoints_secret_unreadable"] == 0
    Endpoint.objects.update(status="active")
    found = scrape(settings)
    assert found["gateway_endpoints_circuit_open"] == found["gateway_endpoints_secret_unreadable"] == 1
    Endpoint.objects.update(circuit_open_until=now())
    assert scrape(settings)["gateway_endpoints_circuit_open"] == 0, (
        "nothing holds its deliveries back any more"
    )
    Endpoint.objects.update(circuit_open_until=None, secret_unreadable_since=None)
    assert len(claim(Room(10, 10))) == 1
    Delivery.objects.update(next_attempt_at=now())
    dispatcher.run()
    assert scrape(settings)["gateway_deliveries_rescued_total"] == 1
    assert Delivery.objects.get().leased_until is None


@pytest.mark.parametrize(
    ("circuit", "rate", "slot", "is_late"),
    [
        (1, None, None, False),
        (-1, None, None, False),
        (None, 5, 1, False),
        (None, 5, -1, True),
        (None, 5, None, True),
    ],
)
def test_what_an_endpoint_itself_holds_back_is_not_late(
    tenant: Tenant,
    endpoint: dict[str, Any],
    receiver: Receiver,
    settings: Any,
    circuit: int | None,
    rate: int | None,
    slot: int | None,
    is_late: bool,
) -> None:
    """Otherwise the endpoint of one tenant would page the operator. The other endpoint still counts."""
    publish_one(tenant)
    Delivery.objects.update(next_attempt_at=now() - timedelta(minutes=3))

    def in_minutes(count: int | None) -> datetime | None:
        return None if count is None else now() + timedelta(minutes=count)

    Endpoint.objects.update(
        circuit_open_until=in_minutes(circuit), rate_per_second=rate, paced_until=in_minutes(slot)
    )
    assert (scrape(settings)["gateway_deliveries_oldest_due_age_seconds"] > 179) is is_late
    copied(endpoint["id"], tenant, receiver.url)
    Endpoint.objects.exclude(pk=endpoint["id"]).update(circuit_open_until=None, rate_per_second=None)
    publish_one(tenant, "k2")
    Delivery.objects.exclude(endpoint_id=endpoint["id"]).update(next_attempt_at=now() - timedelta(minutes=2))
    assert scrape(settings)["gateway_deliveries_oldest_due_age_seconds"] > (179 if is_late else 119)


def test_counts_of_several_processes_add_up_and_survive_a_lost_valkey(
    settings: Any, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    from redis.exceptions import ConnectionError as Lost

    from webhooks.delivery import monitoring

    def unreachable() -> None:
        raise Lost

    before = scrape(settings).get("gateway_deliveries_claimed_total", 0)
    monitoring.CLAIMED.add(2)
    with monkeypatch.context() as patch:
        patch.setattr(metrics, "valkey", unreachable)
        metrics.flush()
    metrics.flush()
    monitoring.CLAIMED.add(3)
    metrics.flush()
    assert scrape(settings)["gateway_deliveries_claimed_total"] == before + 5


def test_metrics_answer_a_scraper_that_asks_by_address(settings: Any, db: None) -> None:
    settings.METRICS_TOKEN, settings.SECURE_SSL_REDIRECT = TOKEN, True
    answer = Client().get("/metrics", headers={"Authorization": f"Bearer {TOKEN}", "Host": "10.1.2.3:8000"})
    assert answer.status_code == 200


def test_without_the_token_there_is_no_metrics_page(settings: Any, db: None) -> None:
    headers: tuple[dict[str, str], ...] = (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer "},
    )
    for settings.METRICS_TOKEN in ("", TOKEN):
        for header in headers:
            assert Client().get("/metrics", headers=header).status_code == 404, header


@pytest.mark.parametrize("reason", ["gone", "failing"])
def test_a_disabled_endpoint_is_mailed_about_once(
    tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver, settings: Any, reason: str
) -> None:
    settings.EMAIL_MODE = "log"
    settings.WEBHOOK_RETRY_SCHEDULE = [5.0]
    Tenant.objects.filter(pk=tenant.id).update(contact_email="owner@traders.example")
    receiver.answer = lambda request: web.Response(status=410 if reason == "gone" else 500)
    Endpoint.objects.update(failing_since=now() - timedelta(days=6), consecutive_failures=30)
    for number in range(3):
        publish_one(tenant, f"k{number}")
    if reason == "failing":
        Delivery.objects.update(attempts=1, status="failed")
    dispatcher.run()
    row = Endpoint.objects.get()
    assert row.status == "disabled"
    assert row.disabled_at is not None
    (mail,) = OutboundMail.objects.all()
    assert mail.to == "owner@traders.example"
    assert receiver.url in mail.text
    assert ("410" in mail.text.replace(receiver.url, "")) == (reason == "gone")


def test_an_endpoint_that_fails_for_days_without_a_dead_delivery_stays(
    tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
) -> None:
    receiver.answer = lambda request: web.Response(status=500)
    Endpoint.objects.update(failing_since=now() - timedelta(days=6), consecutive_failures=30)
    publish_one(tenant)
    dispatcher.run()
    assert Endpoint.objects.get().status == "active"
    assert OutboundMail.objects.count() == 0


def test_replays_that_are_late_show(settings: Any, endpoint: dict[str, Any]) -> None:
    before = scrape(settings)
    assert before["gateway_replay_chunks_waiting"] == before["gateway_replays_oldest_due_age_seconds"] == 0
    chunk = {"endpoint_id": endpoint["id"], "missed": False, "source_ids": []}
    ReplayChunk.objects.create(**chunk, due_at=now() + timedelta(minutes=5))
    assert scrape(settings)["gateway_replays_oldest_due_age_seconds"] == 0
    for minutes in (5, 1):
        ReplayChunk.objects.create(**chunk, due_at=now() - timedelta(minutes=minutes))
    after = scrape(settings)
    assert after["gateway_replay_chunks_waiting"] == 3
    assert 299 < after["gateway_replays_oldest_due_age_seconds"] < 330


def test_replays_that_have_to_wait_are_not_late(
    settings: Any,
    tenant: Tenant,
    endpoint: dict[str, Any],
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chunk = {"missed": False, "source_ids": [], "due_at": now() - timedelta(minutes=5)}
    ReplayChunk.objects.create(endpoint_id=endpoint["id"], **chunk)
    for status in ("paused", "disabled"):
        Endpoint.objects.update(status=status)
        assert scrape(settings)["gateway_replays_oldest_due_age_seconds"] == 0
    Endpoint.objects.update(status="active")
    publish_one(tenant)
    monkeypatch.setattr(replay, "MOST_WAITING", 1)
    assert scrape(settings)["gateway_replays_oldest_due_age_seconds"] == 0, (
        "the endpoint's open deliveries go first"
    )
    copied(endpoint["id"], tenant, receiver.url)
    other = Endpoint.objects.exclude(pk=endpoint["id"]).get()
    ReplayChunk.objects.create(endpoint=other, **chunk | {"due_at": now() - timedelta(minutes=2)})
    assert 119 < scrape(settings)["gateway_replays_oldest_due_age_seconds"] < 150
    Delivery.objects.all().delete()
    assert scrape(settings)["gateway_replays_oldest_due_age_seconds"] > 299
