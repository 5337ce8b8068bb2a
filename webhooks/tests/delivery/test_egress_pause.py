"""The egress proxy is unavailable: deliveries wait without using up attempts, and no endpoint's health suffers."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pytest_django import Settings

from gateway.clock import now
from gateway.outbound import client
from gateway.outbound.client import Answer
from gateway.outbound.tests.test_egress_proxy import Proxy
from tenants.models import Tenant
from tests.fixtures import Api
from tests.receiver import Receiver
from webhooks.delivery import dispatcher
from webhooks.models import Delivery, Endpoint
from webhooks.tests.delivering import publish_one

pytestmark = pytest.mark.django_db(transaction=True)

EVENTS = 25
"""Enough failures to open a circuit, by number or by share."""


class ThreadedProxy:
    """A proxy that can be started and stopped on the same port."""

    def __init__(self) -> None:
        self.proxy = Proxy()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.server: asyncio.Server | None = None
        self.port = 0
        self.start()
        self._run(self._stop())

    def start(self) -> None:
        self.server = self._run(asyncio.start_server(self.proxy.handle, "127.0.0.1", self.port))
        self.port = self.server.sockets[0].getsockname()[1]

    def close(self) -> None:
        self._run(self._stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)
        self.loop.close()

    async def _stop(self) -> None:
        if self.server is not None:
            self.server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(10)


@pytest.fixture
def proxy(settings: Settings, endpoint: dict[str, Any]) -> Iterator[ThreadedProxy]:
    """A proxy that is not running. All requests after the creation of `endpoint` use it."""
    proxy = ThreadedProxy()
    settings.WEBHOOK_PROXY_URL = f"http://127.0.0.1:{proxy.port}"
    yield proxy
    proxy.close()


def counters() -> tuple[Any, ...]:
    endpoint = Endpoint.objects.get()
    return (
        endpoint.status,
        endpoint.consecutive_failures,
        endpoint.failing_since,
        endpoint.circuit_open_until,
        endpoint.window_failures,
    )


def test_deliveries_wait_for_the_proxy_and_then_arrive(
    proxy: ThreadedProxy, tenant: Tenant, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "EGRESS_PAUSE_SECONDS", 0.0)
    for number in range(EVENTS):
        publish_one(tenant, f"k{number}")
    Delivery.objects.filter(event_id=Delivery.objects.order_by("id")[0].event_id).update(
        attempts=11, status="failed"
    )
    before = counters()

    dispatcher.run()

    rows = Delivery.objects.order_by("id")
    assert [(row.status, row.attempts, row.last_error) for row in rows] == [
        ("failed", 11, "egress_proxy_away"),
        *[("pending", 0, "egress_proxy_away")] * (EVENTS - 1),
    ]
    assert {(row.leased_until, len(row.attempt_log)) for row in rows} == {(None, 0)}
    assert all(row.next_attempt_at is not None and row.next_attempt_at > now() for row in rows)
    assert counters() == before == ("active", 0, None, None, 0)

    proxy.start()
    Delivery.objects.update(next_attempt_at=now())
    dispatcher.run()

    receiver.wait_for(EVENTS)
    assert {row.status for row in rows.all()} == {"delivered"}
    assert sorted(row.attempts for row in rows.all()) == [*[1] * (EVENTS - 1), 12]
    assert len(proxy.proxy.asked) >= 1


def test_a_probe_that_the_proxy_kept_back_neither_opens_nor_closes_a_circuit(
    proxy: ThreadedProxy, tenant: Tenant
) -> None:
    publish_one(tenant)
    Endpoint.objects.update(circuit_open_until=now(), circuit_opened=2, consecutive_failures=10)
    dispatcher.run()
    endpoint = Endpoint.objects.get()
    assert (endpoint.circuit_opened, endpoint.consecutive_failures) == (2, 10)
    assert endpoint.circuit_open_until is not None
    assert Delivery.objects.get().last_error == "egress_proxy_away"


def test_an_ordered_delivery_keeps_its_place(
    proxy: ThreadedProxy, tenant: Tenant, receiver: Receiver
) -> None:
    Endpoint.objects.update(ordered=True)
    members: dict[str, Any] = {"phone_number_id": "10", "wa_id": "919800000001"}
    for key in ("first", "second", "third"):
        publish_one(tenant, key, **members)
    dispatcher.run()
    assert not Delivery.objects.filter(customer_key=None).exists()
    proxy.start()
    # The first delivery stays rescheduled, and the next events of its customer wait for it.
    first = Delivery.objects.order_by("event_id")[0]
    Delivery.objects.exclude(pk=first.pk).update(next_attempt_at=now())
    dispatcher.run()
    assert receiver.received == []
    Delivery.objects.update(next_attempt_at=now())
    for _ in range(3):
        dispatcher.run()
    assert [got.json["dedupe_key"] for got in receiver.received] == ["first", "second", "third"]


def test_a_backlog_is_not_claimed_again_and_again(
    proxy: ThreadedProxy, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """During the pause, only claimed deliveries are rescheduled. Nothing else is written."""
    monkeypatch.setattr(dispatcher, "EGRESS_PAUSE_SECONDS", 600.0)
    for number in range(4 * EVENTS):
        publish_one(tenant, f"k{number}")
    dispatcher.run()
    untouched = Delivery.objects.filter(last_error=None, status="pending", attempts=0, leased_until=None)
    assert untouched.count() >= 2 * EVENTS


def test_the_dispatcher_is_at_rest_during_the_pause(
    proxy: ThreadedProxy, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "EGRESS_PAUSE_SECONDS", 1.0)
    monkeypatch.setattr(dispatcher, "LINGER_SECONDS", 0.5)
    claim = dispatcher._Dispatcher._claim
    claims: list[Any] = []

    async def counted(self: dispatcher._Dispatcher, *given: Any) -> Any:
        claims.append(given)
        return await claim(self, *given)

    monkeypatch.setattr(dispatcher._Dispatcher, "_claim", counted)
    for number in range(dispatcher.EGRESS_FAILURES):
        publish_one(tenant, f"k{number}")
    dispatcher.run()
    put_off = Delivery.objects.filter(last_error="egress_proxy_away")
    assert put_off.count() == dispatcher.EGRESS_FAILURES
    assert len(claims) <= 20


def test_a_proxy_that_fails_by_chance_stops_nobody(
    proxy: ThreadedProxy, tenant: Tenant, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy.start()
    real, calls = client._connected, []

    async def flaky(*args: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionRefusedError
        return await real(*args)

    monkeypatch.setattr(client, "_connected", flaky)
    for number in range(3):
        publish_one(tenant, f"k{number}")
    dispatcher.run()
    assert len(receiver.wait_for(2)) == 2
    assert sorted(Delivery.objects.values_list("status", flat=True)) == ["delivered", "delivered", "pending"]


def test_failures_in_a_row_pause_and_an_answer_between_them_does_not() -> None:
    pause, ok = dispatcher.EgressPause(), Answer(200, None, 1, b"", None)
    away = Answer(None, "egress_proxy_away", 1, b"", None)
    for answer in (away, away, ok, away, away):
        pause.note(answer)
        assert not pause.is_on
    pause.note(away)
    assert pause.is_on


def test_a_single_replay_says_so_and_counts_nothing(
    proxy: ThreadedProxy, api: Api, tenant: Tenant, receiver: Receiver
) -> None:
    publish_one(tenant)
    Delivery.objects.update(status="dead", next_attempt_at=None)
    source = Delivery.objects.get()
    answer = api.post(f"/v1/webhook-deliveries/{source.public_id}/replay")
    assert answer.status_code == 200, answer.content
    assert (answer.json()["status"], answer.json()["attempts"]) == ("dead", 0)
    replayed = api.get(f"/v1/webhook-deliveries/{answer.json()['id']}").json()
    assert replayed["last_error"] == "egress_proxy_away"
    assert counters() == ("active", 0, None, None, 0)
