"""Senders: requests that wait long for their answers occupy no sender, and the number of such requests is limited."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from tenants.models import Tenant
from tests.receiver import Receiver
from webhooks.delivery import caps, claimer, dispatcher, senders
from webhooks.delivery.caps import BodyMemory, InFlight, InFlightCaps, Room
from webhooks.delivery.senders import Senders, Sending
from webhooks.models import Delivery
from webhooks.tests.delivering import copied, publish_one
from webhooks.tests.delivery.conftest import HangingRequests
from webhooks.tests.delivery.test_in_flight_caps import handed_over
from webhooks.tests.delivery.test_wake_up import running, wait_until

SECONDS = 10.0


class Requests:
    """Requests that end when a test says so, and the senders that send them."""

    def __init__(self, *, count: int, most_slow: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(senders, "SLOW_SECONDS", 0.01)
        monkeypatch.setattr(caps, "SLOW_FACTOR", most_slow // count)
        self.caps = InFlightCaps(capacity=count, of_tenant=1_000, bodies=BodyMemory())
        self.under_way: list[Sending] = []
        self.may_end = asyncio.Event()
        self.made_room = 0
        self.senders = Senders(
            self.caps, count=count, send=self._send, on_end=self.under_way.remove, on_room=self._note_room
        )
        self.senders.start()

    async def _send(self, sending: Sending) -> None:
        self.under_way.append(sending)
        await self.may_end.wait()

    def _note_room(self) -> None:
        self.made_room += 1

    def put(self, endpoint: InFlight | None = None) -> InFlight:
        endpoint = endpoint or InFlight(16)
        # The deliveries do not matter here.
        self.senders.put(None, endpoint, InFlight(16))  # type: ignore[arg-type]
        return endpoint

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS):
            while not holds():
                await asyncio.sleep(0.001)

    async def finish(self) -> None:
        self.may_end.set()
        async with asyncio.timeout(SECONDS):
            await self.senders.finish()


def with_requests(
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    most_slow: int,
    check: Callable[[Requests], Awaitable[None]],
) -> None:
    async def run() -> None:
        requests = Requests(count=count, most_slow=most_slow, monkeypatch=monkeypatch)
        await check(requests)
        await requests.finish()
        assert (requests.senders.open, requests.senders.in_flight, requests.caps.slow) == (0, 0, 0)

    asyncio.run(run())


def test_slow_requests_leave_their_senders_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(requests: Requests) -> None:
        hanging = [requests.put() for _ in range(2)]
        await requests.until(lambda: requests.caps.slow == 2)
        assert (requests.senders.open, requests.senders.in_flight) == (0, 2)
        assert requests.made_room > 0
        assert [share.cap for share in hanging] == [8, 8], "halved before the time-out"
        requests.put()
        await requests.until(lambda: len(requests.under_way) == 3)

    with_requests(monkeypatch, 2, 4, check)


def test_the_senders_stay_as_many_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(requests: Requests) -> None:
        for _ in range(6):
            requests.put()
        await requests.until(lambda: requests.caps.slow == 6)
        requests.may_end.set()
        await requests.until(lambda: requests.caps.slow == 0)
        await requests.until(lambda: len(requests.senders._tasks) == 2)

    with_requests(monkeypatch, 2, 8, check)


@pytest.mark.parametrize("is_late", [True, False])
def test_a_loop_that_comes_late_sends_no_more_at_once(monkeypatch: pytest.MonkeyPatch, is_late: bool) -> None:
    """If other processes use the core, the loop only seems to wait for receivers. More senders would not help, and a
    crash would repeat all open requests.
    """
    monkeypatch.setattr(senders, "FEW_SENDERS", 2)
    monkeypatch.setattr(senders, "BUSY_CPU", float("inf"))
    monkeypatch.setattr(senders, "LATE_SECONDS", 0.0 if is_late else float("inf"))

    async def check(requests: Requests) -> None:
        monkeypatch.setattr(senders, "SLOW_SECONDS", 60.0)
        for _ in range(9):
            requests.put()
        await requests.until(lambda: len(requests.under_way) >= 2)
        for _ in range(2):
            requests.senders._adapt()
        assert len(requests.senders._tasks) == (2 if is_late else 8)

    with_requests(monkeypatch, 8, 8, check)


def test_slow_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(requests: Requests) -> None:
        for _ in range(7):
            requests.put()
        await requests.until(lambda: len(requests.under_way) == 6)
        await asyncio.sleep(5 * senders.SLOW_SECONDS)
        assert requests.caps.slow == 4
        assert requests.senders.open == 3, "two are under way, and one waits for a sender"
        assert len(requests.under_way) == 6

    with_requests(monkeypatch, 2, 4, check)


def test_while_too_many_are_slow_an_endpoint_that_has_one_gets_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(caps, "SLOW_FACTOR", 1)
    each = InFlightCaps(capacity=2, of_tenant=100, bodies=BodyMemory())
    hanging, other = handed_over(), handed_over()
    share, _ = each.of(endpoint_id=hanging.endpoint_id, tenant_id=hanging.tenant_id)

    def allowed(room: Room) -> int:
        return room.of_endpoint(hanging.endpoint_id)

    assert each.begin_slow(share)
    assert (each.within_caps([hanging, other]), allowed(each.room(10))) == ([hanging, other], 8)
    assert each.begin_slow(share)
    assert (each.within_caps([hanging, other]), allowed(each.room(10))) == ([other], 0)
    assert not each.begin_slow(share)
    each.end_slow(share)
    assert (each.within_caps([hanging, other]), allowed(each.room(10))) == ([hanging, other], 4)


@pytest.mark.django_db(transaction=True)
def test_endpoints_that_hang_keep_no_sender_from_another_tenants_endpoint(
    tenant: Tenant,
    other_tenant: Tenant,
    endpoint: dict[str, Any],
    receiver: Receiver,
    hanging: HangingRequests,
    empty_valkey: redis.Redis,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings.DELIVERY_CONCURRENCY = 2
    monkeypatch.setattr(dispatcher, "TENANT_SHARE", 2)
    monkeypatch.setattr(senders, "SLOW_SECONDS", 0.05)
    for _ in range(3):
        copied(endpoint["id"], tenant, f"{receiver.url}/hanging")
    copied(endpoint["id"], other_tenant, f"{receiver.url}/healthy")
    with running(monkeypatch, empty_valkey):
        publish_one(tenant)
        receiver.wait_for(4)
        publish_one(other_tenant)
        assert receiver.wait_for(5)[-1].path.endswith("/healthy")
        hanging.end()
        wait_until(lambda: Delivery.objects.filter(status="delivered").count() == 5, "all are delivered")
    assert len(receiver.received) == 5


def test_more_is_claimed_ahead_the_faster_deliveries_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1.0, 2.0, 2.05])
    monkeypatch.setattr(claimer, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    rate = claimer.DeliveryRate()
    ahead = []
    for _ in range(3):
        rate.ended += 100
        ahead.append(rate.ahead())
    # A quarter of a second at 50, then at 75 a second. The last measurement is too short to count.
    assert ahead == [12, 18, 18]


def test_a_request_that_crashes_costs_no_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    """More requests crash than there are senders, also calls."""

    async def check(requests: Requests) -> None:
        async def crash(sending: Sending) -> None:
            requests.under_way.append(sending)
            raise ValueError

        send, requests.senders._send = requests.senders._send, crash
        for _ in range(4):
            requests.put()
        requests.senders.send_call(None, InFlight(16), InFlight(16))  # type: ignore[arg-type]
        await requests.until(lambda: requests.senders.in_flight == 0)
        requests.senders._send = send
        requests.put()
        await requests.until(lambda: len(requests.under_way) == 1)

    with_requests(monkeypatch, 2, 4, check)
