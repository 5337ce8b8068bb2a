"""The delivery engine with receivers, workers, servers and clocks that misbehave."""

import asyncio
import gzip
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Self
from uuid import UUID

import pytest
import redis
from aiohttp import web
from django.conf import settings as django_settings
from django.db import connection, connections

from gateway import clock, ids, role_loop
from gateway.celery import app as celery_app
from gateway.clock import now
from gateway.outbound import addresses
from gateway.outbound.addresses import UnknownNameError
from gateway.role_loop import LoopThread
from tenants.models import Tenant
from tests.database_settings import read_only_for
from tests.fixtures import Api
from tests.receiver import Received, Receiver
from webhooks import wake_up
from webhooks.delivery import caps, dispatcher
from webhooks.delivery.caps import Room
from webhooks.delivery.claimer import DeliveryRate
from webhooks.models import Delivery, Endpoint
from webhooks.requests import signed_request
from webhooks.tests.delivering import publish_one

pytestmark = pytest.mark.django_db(transaction=True)

ROOT = Path(__file__).resolve().parents[3]


def test_what_beat_calls_delivers_without_any_wake_up_until_the_worker_stops(
    tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wake_up, "soon", lambda _fresh: None)
    monkeypatch.setattr(dispatcher, "_stopping", threading.Event())
    run, ended = dispatcher.run, threading.Event()

    def run_and_say() -> bool:
        goes_on = run()
        ended.set()
        return goes_on

    monkeypatch.setattr(dispatcher, "run", run_and_say)
    publish_one(tenant, "first")
    celery_app.loader.import_default_modules()
    schedule: dict[str, dict[str, Any]] = django_settings.CELERY_BEAT_SCHEDULE
    (entry,) = (entry for entry in schedule.values() if entry["task"] == "webhooks.tasks.deliver_due")
    assert entry["schedule"] <= 30.0

    worker = threading.Thread(target=celery_app.tasks["webhooks.tasks.deliver_due"].run)
    worker.start()
    try:
        receiver.wait_for(1)
        assert ended.wait(30), "this one lingers for no time: another has to find the second event"
        publish_one(tenant, "second")
        receiver.wait_for(2)
    finally:
        dispatcher.stop()
        worker.join(30)
    assert not worker.is_alive()
    queue = django_settings.CELERY_TASK_ROUTES["webhooks.tasks.deliver_due"]["queue"]
    assert queue == "deliveries", "a worker of its own, so nothing can hold it up"


def test_a_dispatcher_that_fails_begins_again_without_beat_or_a_wake_up(
    tenant: Tenant,
    endpoint: dict[str, Any],
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(wake_up, "soon", lambda _fresh: None)
    monkeypatch.setattr(dispatcher, "_stopping", threading.Event())
    monkeypatch.setattr(role_loop, "PAUSE_SECONDS", 0.01)
    claim_until_idle, failed = dispatcher._Dispatcher._claim_until_idle, threading.Event()

    async def fail_once(self: dispatcher._Dispatcher) -> None:
        if not failed.is_set():
            failed.set()
            raise RuntimeError("a mistake of the dispatcher's own")
        await claim_until_idle(self)

    monkeypatch.setattr(dispatcher._Dispatcher, "_claim_until_idle", fail_once)
    publish_one(tenant)
    with LoopThread(dispatcher):
        receiver.wait_for(1)
    assert failed.is_set()
    assert "loop_failed" in caplog.text


def test_a_tenant_gets_its_share_of_a_worker_and_no_more() -> None:
    busy, quiet = ids.uuid7(), ids.uuid7()
    ready = [(ids.uuid7(), busy, False) for _ in range(20)] + [(ids.uuid7(), quiet, False)]
    room = Room(400, 16, per_tenant=50, taken_by_tenant={busy: 30})
    shares = room.shares(ready)
    of_busy = sum(rows for endpoint_id, rows in shares.items() if endpoint_id != ready[-1][0])
    assert (of_busy, shares[ready[-1][0]]) == (20, 16)


def test_a_lost_database_connection_heals(
    tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
) -> None:
    def terminate_the_dispatchers() -> None:
        other = connections.create_connection("default")
        with other.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_start > %s",
                [began],
            )
        other.close()

    async def cut(request: Received) -> web.Response:
        if len(receiver.received) == 1:
            await asyncio.to_thread(terminate_the_dispatchers)
        return web.Response()

    receiver.answer = cut
    for number in range(5):
        publish_one(tenant, f"k{number}")
    began = now()
    dispatcher.run()
    connection.close()
    assert Delivery.objects.filter(status="delivered").count() == 5
    assert len(receiver.received) == 5, (
        "what was delivered while the database was away is recorded when it is back"
    )
    assert {got.headers["webhook-id"] for got in receiver.received} == {
        ids.encode("evt_", event_id) for event_id in Delivery.objects.values_list("event_id", flat=True)
    }


def test_a_stopping_worker_finishes_what_is_under_way_and_releases_the_rest(
    tenant: Tenant,
    endpoint: dict[str, Any],
    receiver: Receiver,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings.DELIVERY_CONCURRENCY = 2
    monkeypatch.setattr(dispatcher, "TENANT_SHARE", 2)
    stopping = threading.Event()
    monkeypatch.setattr(dispatcher, "_stopping", stopping)

    async def stop(request: Received) -> web.Response:
        dispatcher.stop()
        while await asyncio.to_thread(in_thread, leased) > 2:
            await asyncio.sleep(0.01)
        return web.Response()

    receiver.answer = stop
    for number in range(6):
        publish_one(tenant, f"k{number}")
    dispatcher.run()
    first = len(receiver.received)
    assert first <= 2, "what waited for its turn was not sent"
    assert Delivery.objects.filter(status="delivered").count() == first
    assert Delivery.objects.filter(status="pending", leased_until=None).count() == 6 - first
    stopping.clear()
    receiver.answer = lambda request: web.Response()
    dispatcher.run()
    assert Delivery.objects.filter(status="delivered").count() == 6
    assert len(receiver.received) == 6


def test_a_stopping_worker_ends_well_when_it_can_release_nothing(
    tenant: Tenant,
    endpoint: dict[str, Any],
    receiver: Receiver,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings.DELIVERY_CONCURRENCY = 1
    monkeypatch.setattr(dispatcher, "TENANT_SHARE", 2)
    # One delivery is under way, and one waits for its turn, so that there is something to release: no other sender
    # replaces the waiting one, and nothing is handed over, which would be released before.
    monkeypatch.setattr(caps, "SLOW_FACTOR", 0)
    monkeypatch.setattr(DeliveryRate, "ahead", lambda self: 1)
    monkeypatch.setattr(wake_up, "soon", lambda _fresh: None)
    monkeypatch.setattr(dispatcher, "_stopping", threading.Event())
    released = "OLD.leased_until IS NOT NULL AND NEW.leased_until IS NULL AND NEW.status = 'pending'"
    for number in range(6):
        publish_one(tenant, f"k{number}")
    with read_only_for(1, "UPDATE ON webhook_deliveries", when=released) as count:

        async def stop(request: Received) -> web.Response:
            dispatcher.stop()
            while await asyncio.to_thread(in_thread, count) < 1:
                await asyncio.sleep(0.01)
            return web.Response()

        receiver.answer = stop
        dispatcher.run()
        assert Delivery.objects.filter(status="delivered").count() == len(receiver.received) == 1
        assert leased() == 1, "what could not be released is left to its lease"


def leased() -> int:
    return Delivery.objects.filter(leased_until__isnull=False).count()


def in_thread(count: Callable[[], int]) -> int:
    """Count in a thread, and close its connection."""
    try:
        return count()
    finally:
        connection.close()


def test_what_waited_too_long_for_its_turn_is_left_to_its_lease(
    tenant: Tenant,
    endpoint: dict[str, Any],
    receiver: Receiver,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings.DELIVERY_CONCURRENCY = 1
    settings.DELIVERY_LEASE_SECONDS = 6
    monkeypatch.setattr(dispatcher, "TENANT_SHARE", 2)
    # No other sender replaces the waiting one.
    monkeypatch.setattr(caps, "SLOW_FACTOR", 0)

    async def slow(request: Received) -> web.Response:
        await asyncio.sleep(3.5 if len(receiver.received) == 1 else 0)
        return web.Response()

    receiver.answer = slow
    for number in range(2):
        publish_one(tenant, f"k{number}")
    dispatcher.run()
    assert len(receiver.received) == 1, "the other was sent although its lease was about to end"
    assert Delivery.objects.filter(status="pending", attempts=0, leased_until__isnull=False).count() == 1
    Delivery.objects.filter(status="pending").update(next_attempt_at=now())
    dispatcher.run()
    assert len(receiver.received) == 2
    assert Delivery.objects.filter(status="delivered", attempts=1).count() == 2


def test_without_valkey_beat_and_the_database_are_enough(
    tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable() -> None:
        raise redis.exceptions.ConnectionError

    monkeypatch.setattr(django_settings, "REDIS_URL", "redis://127.0.0.1:1/0")
    for module in (
        "webhooks.delivery.claimer",
        "webhooks.wake_up",
        "webhooks.delivery.monitoring",
        "gateway.monitoring.metrics",
    ):
        monkeypatch.setattr(f"{module}.valkey", unreachable)
    publish_one(tenant)
    dispatcher.run()
    receiver.wait_for(1)


@pytest.mark.parametrize("minutes", [-10, 10])
def test_a_worker_whose_clock_is_off_signs_and_retries_by_the_database(
    tenant: Tenant,
    endpoint: dict[str, Any],
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    minutes: int,
) -> None:
    true_now = now

    class Off(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Self:
            return super().now(tz) + timedelta(minutes=minutes)

    receiver.answer = lambda request: web.Response(status=500)
    publish_one(tenant)
    with monkeypatch.context() as patch:
        patch.setattr(clock, "datetime", Off)
        assert abs(now() - datetime.now(now().tzinfo)) > timedelta(minutes=9), "the clock is off"
        dispatcher.run()
        dispatcher.run()
    (got,) = receiver.wait_for(1)
    assert abs(int(got.headers["webhook-timestamp"]) - true_now().timestamp()) < 60
    delivery = Delivery.objects.get()
    assert delivery.next_attempt_at is not None
    assert abs(delivery.next_attempt_at - true_now()) < timedelta(minutes=1)


async def _drip(request: Received) -> web.StreamResponse:
    await asyncio.sleep(0.9)
    return web.Response(text="too late")


def _huge(status: int) -> web.Response:
    return web.Response(status=status, body=b"x" * 20 * 1024 * 1024)


def _bomb(request: Received) -> web.Response:
    body = gzip.compress(b"0" * 50 * 1024 * 1024)
    return web.Response(body=body, headers={"Content-Encoding": "gzip"})


@pytest.mark.parametrize(
    ("answer", "status", "error"),
    [
        (_drip, "failed", "timeout"),
        (lambda request: web.Response(status=302, headers={"Location": "/elsewhere"}), "failed", "http_3xx"),
        (lambda request: _huge(200), "delivered", None),
        (lambda request: _huge(500), "failed", "http_5xx"),
        (_bomb, "delivered", None),
        (lambda request: web.Response(headers={"X": "y" * 20_000}), "failed", "response_too_large"),
        (lambda request: web.Response(status=404, text="\0\ud7ff" * 9000), "failed", "http_4xx"),
    ],
)
def test_a_misbehaving_receiver_gets_its_word_and_costs_little(
    tenant: Tenant,
    endpoint: dict[str, Any],
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    answer: Any,
    status: str,
    error: str | None,
) -> None:
    if answer is _drip:
        monkeypatch.setattr(signed_request, "TOTAL_TIMEOUT", 0.3)
    receiver.answer = answer
    publish_one(tenant)
    dispatcher.run()
    delivery = Delivery.objects.get()
    assert (delivery.status, delivery.last_error) == (status, error)
    (entry,) = delivery.attempt_log
    assert len(json.dumps(delivery.answers)) < 16_000
    assert entry["ms"] < 5000
    assert [got.path for got in receiver.received] == ["/hook"]


def test_a_name_that_turns_to_a_private_address_is_not_called(
    tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver, settings: Any
) -> None:
    Endpoint.objects.update(url=receiver.url.replace("127.0.0.1", "localhost"))
    settings.WEBHOOK_ALLOW_PRIVATE_NETWORKS = False
    publish_one(tenant)
    dispatcher.run()
    assert Delivery.objects.get().last_error == "blocked_address"
    assert receiver.received == []


def test_names_and_ports_that_do_not_answer(
    tenant: Tenant, endpoint: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_such_name(*_: Any) -> Any:
        raise UnknownNameError

    monkeypatch.setattr(addresses.Names, "_query", no_such_name)
    for url, error in (("http://shop.example/", "dns_error"), ("http://127.0.0.1:9/", "connection_error")):
        Endpoint.objects.update(url=url)
        event_id: UUID = publish_one(tenant, url)
        dispatcher.run()
        assert Delivery.objects.get(event_id=event_id).last_error == error


def test_large_bodies_go_out_a_few_at_a_time(
    tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caps, "MOST_BYTES", 4_000_000)
    at_once = {"now": 0, "most": 0}

    async def slow(request: Received) -> web.Response:
        at_once["now"] += 1
        at_once["most"] = max(at_once.values())
        await asyncio.sleep(0.05)
        at_once["now"] -= 1
        return web.Response()

    receiver.answer = slow
    for number in range(8):
        publish_one(tenant, f"k{number}", raw=b'"' + b"x" * 400_000 + b'"')
    dispatcher.run()
    assert Delivery.objects.filter(status="delivered").count() == 8
    assert at_once["most"] <= 2


def test_a_worker_opens_as_many_files_as_it_may() -> None:
    code = (
        "import resource as r; from gateway import process_limits; hard = r.getrlimit(r.RLIMIT_NOFILE)[1];"
        "r.setrlimit(r.RLIMIT_NOFILE, (256, hard)); process_limits.raise_open_files();"
        "soft = r.getrlimit(r.RLIMIT_NOFILE)[0]; print(soft == min(65536, hard) or hard == r.RLIM_INFINITY)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


def test_what_waits_during_a_suspension_goes_out_after_it(
    api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
) -> None:
    receiver.answer = lambda request: web.Response(status=500)
    publish_one(tenant)
    dispatcher.run()
    Tenant.objects.filter(pk=tenant.id).update(status="suspended")
    Delivery.objects.update(next_attempt_at=now())
    dispatcher.run()
    assert Delivery.objects.get().attempts == 1, "no attempt is spent"
    receiver.answer = lambda request: web.Response()
    Tenant.objects.filter(pk=tenant.id).update(status="active")
    dispatcher.run()
    assert Delivery.objects.get().status == "delivered"
