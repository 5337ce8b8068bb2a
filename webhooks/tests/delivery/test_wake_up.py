"""Fresh deliveries are claimed when they are published, and handed over. A lost signal costs time, never a delivery."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import msgspec
import orjson
import pytest
import redis
from django.conf import settings
from django.db import connection

from gateway import ids
from gateway.clock import now
from gateway.database.live_workers import Registration
from gateway.database.statements import Statements, run
from gateway.valkey.connection import VALKEY_UNAVAILABLE, valkey
from gateway.valkey.write_behind import Debounced
from tenants.models import Tenant
from tests.receiver import Receiver
from webhooks import wake_up
from webhooks.delivery import caps, claimer, dispatcher
from webhooks.delivery import claim_statements as claims
from webhooks.delivery.caps import BodyMemory, Room
from webhooks.delivery.claim_statements import Claimed, DatabaseClock, claim, taking_over
from webhooks.delivery.claimer import Claimer, WakeUpListener
from webhooks.events import envelope, publish
from webhooks.events.envelope import NewEvent
from webhooks.events.publish import HandedOver, Publication, publishing
from webhooks.models import Delivery, Endpoint
from webhooks.open_deliveries import StoredTarget
from webhooks.requests.signed_request import new_secret
from webhooks.tests.delivering import copied, publish_one
from webhooks.tests.delivery.conftest import HangingRequests
from webhooks.wake_up import (
    BUSY,
    FULL,
    LOOK,
    MOST_SIGNALS,
    REGISTER,
    ROOM,
    SIGNAL,
    Fresh,
    Packed,
    own_signals,
    report_script,
)

SECONDS = 10.0
FIRST, SECOND = "first", "second"
"""Names of dispatchers that only report that they are alive."""


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def one(**members: Any) -> HandedOver:
    return HandedOver(
        **{
            "id": ids.uuid7(),
            "event_id": ids.uuid7(),
            "endpoint_id": uuid4(),
            "tenant_id": uuid4(),
            "event_type": "message.inbound",
            "claimed_at": now(),
            "target": StoredTarget("https://a.example", "envelope", new_secret(), None, None, None, None),
            "envelope": None,
            **members,
        }
    )


def signals(valkey: redis.Redis, of: str = FIRST) -> list[bytes]:
    """The signals that wait for one dispatcher, then those that any dispatcher takes."""
    wake_up.flush()
    waiting: Any = [valkey.lrange(key, 0, -1) for key in (own_signals(of), SIGNAL)]
    return [signal for each in waiting for signal in each]


def handed_over(valkey: redis.Redis, of: str = FIRST) -> list[HandedOver]:
    return [each for signal in signals(valkey, of) for each in publish.unpacked(signal) or ()]


def hand_over(*deliveries: Packed) -> None:
    """Hand deliveries over in a signal of their own."""
    wake_up.soon(Fresh(deliveries))
    wake_up.flush()


def report(valkey: redis.Redis, name: str = FIRST, state: bytes = ROOM) -> None:
    """Report that a dispatcher is alive."""
    command: Any = valkey.execute_command
    command(*report_script(name, state))


def state_of(valkey: redis.Redis, name: str) -> Any:
    return valkey.get(f"{REGISTER}:{name}")


def registered(valkey: redis.Redis) -> Any:
    return [name.decode() for name in valkey.lrange(REGISTER, 0, -1)]  # type: ignore[union-attr]


def finding_nothing() -> Statements[claims.Ready]:
    """A poll that finds nothing due."""
    ready = yield from claims.finding_ready()
    return ready._replace(endpoints=[])


@pytest.fixture
def room(empty_valkey: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> redis.Redis:
    """Let a dispatcher report room, and this process receive the report."""
    # The signal of the endpoint's creation must not arrive in the middle of the test.
    wake_up.flush()
    monkeypatch.setattr(wake_up, "PATIENCE_MILLISECONDS", 60_000)
    monkeypatch.setattr(wake_up, "ALIVE_MILLISECONDS", 60_000)
    report(empty_valkey)
    wake_up.wake()
    empty_valkey.delete(own_signals(FIRST), SIGNAL)
    assert wake_up.may_hand_over()
    return empty_valkey


@contextmanager
def running(monkeypatch: pytest.MonkeyPatch, valkey: redis.Redis) -> Iterator[None]:
    """Run a dispatcher that has polled once and reported room."""
    monkeypatch.setattr(dispatcher, "LINGER_SECONDS", 60.0)
    monkeypatch.setattr(dispatcher, "_stopping", threading.Event())
    thread = threading.Thread(target=dispatcher.run)
    thread.start()
    try:
        wait_until(
            lambda: ROOM in [state_of(valkey, name) for name in registered(valkey)], "the dispatcher has room"
        )
        wake_up.wake()
        yield
    finally:
        dispatcher.stop()
        thread.join(SECONDS)
        connection.close()
    assert not thread.is_alive()


# --- Signals


@pytest.mark.parametrize("is_full", [False, True])
def test_a_signal_whose_answer_is_lost_hands_nothing_over_twice(
    room: redis.Redis, monkeypatch: pytest.MonkeyPatch, is_full: bool
) -> None:
    """The client repeats a call that took too long, although Valkey has run it."""
    if is_full:
        monkeypatch.setattr(wake_up, "MOST_SIGNALS", 0)
    delivery = one()
    released: list[Any] = []
    lost: list[Any] = []
    monkeypatch.setattr(wake_up, "_release", released.append)
    read = redis.connection.AbstractConnection.read_response

    def losing_one(*given: Any, **options: Any) -> Any:
        answer = read(*given, **options)
        if isinstance(answer, list) and not lost:
            lost.append(answer)
            raise redis.exceptions.TimeoutError
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(redis.connection.AbstractConnection, "read_response", losing_one)
        wake_up.pass_on([delivery.packed()])
    assert lost
    assert handed_over(room) == ([] if is_full else [delivery])
    assert len(released) == is_full


def test_a_hand_over_does_not_wait_for_the_next_poll(
    empty_valkey: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wake_up, "_debounced", Debounced(wake_up.flush, seconds=3600.0))
    report(empty_valkey)
    wake_up.soon(Fresh(has_unclaimed=True))
    wait_until(lambda: signals(empty_valkey) == [LOOK], "no poll was asked for")
    delivery = one()
    wake_up.soon(Fresh([delivery.packed()]))
    wait_until(lambda: handed_over(empty_valkey) == [delivery], "the delivery was not handed over")


def test_one_signal_asks_for_a_poll_and_hands_over(
    empty_valkey: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wake_up, "_debounced", Debounced(lambda: None, seconds=3600.0))
    report(empty_valkey)
    delivery = one()
    wake_up.soon(Fresh(has_unclaimed=True))
    wake_up.soon(Fresh([delivery.packed()]))
    assert LOOK in signals(empty_valkey)
    assert handed_over(empty_valkey) == [delivery]


def test_a_signal_carries_what_the_dispatcher_needs() -> None:
    whole = envelope.Envelope(
        id="evt_1", head=b'{"id":1}', data=b'"\xc3\xa9 1.10"', raw=b"{ }", raw_path=None
    )
    target = StoredTarget("https://a.example", "envelope", "secret", "before", now(), "headers", 7)
    delivery = one(envelope=whole, target=target)
    wake_up.reset()
    assert publish.unpacked(b"\x91" + delivery.packed().content) == [delivery]


@pytest.mark.parametrize("signal", [LOOK, b"", b"1", b"x" * 48, b"\x91\x91\x01"])
def test_any_other_signal_asks_to_look(signal: bytes) -> None:
    assert publish.unpacked(signal) is None


def test_many_hand_overs_are_several_signals(room: redis.Redis) -> None:
    deliveries = [one().packed() for _ in range(wake_up.MOST_HANDED_OVER + 1)]
    hand_over(*deliveries)
    assert len(signals(room)) == 2
    assert [each.id for each in handed_over(room)] == [each.id for each in deliveries]


def test_what_is_due_for_another_reason_than_an_event_asks_for_a_look(empty_valkey: redis.Redis) -> None:
    """For example, deliveries of an endpoint that is active again."""
    wake_up.after_commit()
    assert signals(empty_valkey) == [LOOK]


@pytest.mark.django_db(transaction=True)
def test_hand_overs_that_wait_are_bounded(room: redis.Redis) -> None:
    for _ in range(MOST_SIGNALS + 10):
        hand_over(one().packed())
    assert len(signals(room)) <= MOST_SIGNALS + 1
    assert signals(room)[-1] == LOOK, "what was refused is found by a look"


def test_what_a_closing_dispatcher_has_not_received_goes_to_another(
    room: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery = one()

    async def close_in_the_middle() -> None:
        closing = await waiting_listener()
        monkeypatch.setattr(wake_up, "unregister", hand_over_meanwhile)
        async with asyncio.timeout(SECONDS):
            await closing.close()

    def hand_over_meanwhile(name: str) -> None:
        room.rpush(own_signals(name), b"\x91" + delivery.packed().content)

    asyncio.run(close_in_the_middle())
    assert handed_over(room) == [delivery]
    assert signals(room)[-1] == LOOK


def test_a_closing_dispatcher_ends_its_wait(room: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claimer, "WAIT_SECONDS", 10 * SECONDS)
    wake_up.unregister(FIRST)

    async def close_at_rest() -> None:
        closing = await waiting_listener()
        async with asyncio.timeout(SECONDS):
            await closing.close()

    asyncio.run(close_at_rest())
    assert registered(room) == [], "nothing is handed over to it any more"


def test_a_request_to_look_outlives_the_hand_overs_after_it() -> None:
    listener = WakeUpListener(worker_id=1, in_flight=lambda: 0, has_room=lambda: True, on_signal=lambda: None)
    listener.take_in([], looks=True)
    listener.take_in([], looks=False)
    assert listener.receive() == ([], True)
    assert listener.receive() == ([], False), "it was reported once"


async def waiting_listener() -> WakeUpListener:
    """A listener that is waiting for signals in Valkey."""
    started = WakeUpListener(worker_id=1, in_flight=lambda: 0, has_room=lambda: True, on_signal=lambda: None)
    started.start()
    async with asyncio.timeout(SECONDS):
        while not any("blmpop" in each["cmd"] for each in await asyncio.to_thread(valkey().client_list)):
            await asyncio.sleep(0.01)
    return started


@pytest.mark.django_db
def test_it_is_quiet_while_no_delivery_is_open(tenant: Tenant, endpoint: dict[str, Any]) -> None:
    assert run(claims.finding_ready()).is_quiet
    publish_one(tenant)
    Delivery.objects.update(next_attempt_at=now() + timedelta(hours=1))
    found = run(claims.finding_ready())
    assert (found.is_quiet, found.endpoints) == (False, [])


# --- Which dispatcher gets a signal


def test_the_first_dispatcher_that_has_room_gets_each_signal(room: redis.Redis) -> None:
    report(room, SECOND)
    for _ in range(3):
        hand_over(one().packed())
    assert (len(signals(room, FIRST)), len(signals(room, SECOND))) == (3, 0)
    report(room, FIRST, FULL)
    wake_up.pass_on([one().packed()])
    assert (len(signals(room, FIRST)), len(signals(room, SECOND))) == (3, 2)
    assert wake_up.may_hand_over(), "the second has room"
    report(room, FIRST)
    hand_over(one().packed())
    assert len(signals(room, FIRST)) == 4, "it is still the first"


def test_a_busy_dispatcher_gets_signals_when_no_other_has_room(room: redis.Redis) -> None:
    report(room, FIRST, BUSY)
    report(room, SECOND)
    hand_over(one().packed())
    assert (len(signals(room, FIRST)), len(signals(room, SECOND))) == (0, 1)
    for state in (BUSY, FULL):
        report(room, SECOND, state)
        hand_over(one().packed())
    assert (len(signals(room, FIRST)), len(signals(room, SECOND))) == (2, 1)
    assert wake_up.may_hand_over(), "busy is not full"


@pytest.mark.parametrize(
    ("cpu", "has_room", "state"),
    [(0.6, True, ROOM), (0.8, True, BUSY), (0.1, False, FULL), (0.9, False, FULL)],
)
def test_a_dispatcher_says_that_it_is_busy_by_its_cpu_since_the_last_report(
    empty_valkey: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    cpu: float,
    has_room: bool,
    state: bytes,
) -> None:
    class Clock:
        """A clock that makes the process use a constant share of a core."""

        seconds = 0.0

        def monotonic(self) -> float:
            self.seconds = time.monotonic()
            return self.seconds

        def process_time(self) -> float:
            return cpu * self.seconds

    monkeypatch.setattr(claimer, "time", Clock())
    monkeypatch.setattr(claimer, "WAIT_SECONDS", 0.05)
    rounds = 0

    def says_room() -> bool:
        nonlocal rounds
        rounds += 1
        return has_room

    async def report_twice() -> bytes:
        reporting = WakeUpListener(
            worker_id=1, in_flight=lambda: 0, has_room=says_room, on_signal=lambda: None
        )
        reporting.start()
        async with asyncio.timeout(SECONDS):
            while rounds < 4:
                await asyncio.sleep(0.01)
        (name,) = registered(empty_valkey)
        said: bytes = state_of(empty_valkey, name)
        await reporting.close()
        return said

    assert asyncio.run(report_twice()) == state


def test_beyond_what_may_wait_for_the_first_dispatcher_the_second_gets_it(room: redis.Redis) -> None:
    report(room, SECOND)
    for _ in range(MOST_SIGNALS + 2):
        hand_over(one().packed())
    assert (len(signals(room, FIRST)), len(signals(room, SECOND))) == (MOST_SIGNALS, 2)


@pytest.mark.parametrize("by", ["the next signal", "another's report"])
@pytest.mark.parametrize("why", ["stuck", "gone"])
def test_another_takes_what_a_dispatcher_does_not_take_in_time(room: redis.Redis, by: str, why: str) -> None:
    delivery = one()
    hand_over(delivery.packed())
    report(room, SECOND)
    assert handed_over(room, SECOND) == [], "it is not late yet"
    if why == "stuck":
        room.delete(f"{own_signals(FIRST)}:patience")
    else:
        room.delete(f"{REGISTER}:{FIRST}")
    if by == "the next signal":
        wake_up.wake()
    else:
        report(room, SECOND)
    assert handed_over(room, SECOND) == [delivery]
    assert registered(room) == [SECOND]
    report(room, FIRST)
    assert registered(room) == [SECOND, FIRST], "it comes back as the last"


@pytest.mark.parametrize("other", [None, FULL])
def test_a_late_dispatcher_keeps_its_place_while_no_other_has_room(
    room: redis.Redis, other: bytes | None
) -> None:
    if other is not None:
        report(room, SECOND, other)
    hand_over(one().packed())
    room.delete(f"{own_signals(FIRST)}:patience")
    if other is not None:
        report(room, SECOND, other)
    hand_over(one().packed())
    assert room.llen(own_signals(FIRST)) == 2
    assert registered(room)[0] == FIRST
    assert wake_up.may_hand_over(), "it says that it has room"


def test_what_is_taken_in_time_is_no_reason_to_lose_the_place(room: redis.Redis) -> None:
    report(room, SECOND)
    hand_over(one().packed())
    room.delete(own_signals(FIRST), f"{own_signals(FIRST)}:patience")
    hand_over(one().packed())
    assert registered(room) == [FIRST, SECOND]
    assert len(signals(room, FIRST)) == 1


@pytest.mark.django_db(transaction=True)
def test_what_a_killed_dispatcher_was_handed_goes_out_long_before_its_lease_ends(
    tenant: Tenant,
    endpoint: dict[str, Any],
    receiver: Receiver,
    room: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wake_up, "PATIENCE_MILLISECONDS", 1)
    publish_one(tenant)
    assert len(handed_over(room, FIRST)) == 1
    monkeypatch.setattr(claimer, "finding_ready", finding_nothing)
    with running(monkeypatch, room):
        receiver.wait_for(1)


# --- Claiming at publish


@pytest.mark.django_db(transaction=True)
def test_a_fresh_delivery_is_claimed_and_handed_over(
    tenant: Tenant, endpoint: dict[str, Any], room: redis.Redis
) -> None:
    Endpoint.objects.update(circuit_generation=3)
    event_id = publish_one(tenant, raw=b'{"entry": [ 1.50 ]}', data='{"name": "Zoë \U0001f600"}'.encode())
    (given,) = handed_over(room)
    row = Delivery.objects.get()
    assert (given.id, given.event_id, given.endpoint_id, given.tenant_id) == (
        row.id,
        event_id,
        row.endpoint_id,
        tenant.id,
    )
    assert row.leased_until == row.next_attempt_at
    assert row.leased_until == given.claimed_at + timedelta(seconds=settings.DELIVERY_LEASE_SECONDS)
    assert claim(Room(10, 10)) == []
    (taken,) = run(taking_over([given], DatabaseClock.at(given.claimed_at)))
    assert taken.circuit_generation == 3
    stored = envelope.load([event_id], tenant_id=tenant.id)[event_id]
    assert stored is not None
    assert taken.envelope is not None
    assert taken.envelope.body() == stored.body()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "refuse",
    [
        lambda: Endpoint.objects.update(circuit_open_until="2999-01-01T00:00:00Z"),
        lambda: Endpoint.objects.update(secret_unreadable_since="2020-01-01T00:00:00Z"),
        lambda: Tenant.objects.update(status="suspended"),
        wake_up.reset,
    ],
    ids=["circuit open", "secret unreadable", "suspended", "no dispatcher"],
)
def test_what_cannot_go_out_at_once_is_not_claimed(
    tenant: Tenant, endpoint: dict[str, Any], room: redis.Redis, refuse: Callable[[], Any]
) -> None:
    refuse()
    publish_one(tenant)
    row = Delivery.objects.get()
    assert row.leased_until is None
    assert row.next_attempt_at is not None
    assert row.next_attempt_at <= now()
    assert signals(room) == [LOOK]


@pytest.mark.django_db(transaction=True)
def test_many_events_at_once_are_claimed_by_the_dispatcher(
    tenant: Tenant, endpoint: dict[str, Any], room: redis.Redis
) -> None:
    events = [
        NewEvent(type="meta.other", environment="live", dedupe_key=f"k{number}", data=b"{}")
        for number in range(publish.MOST_EVENTS + 1)
    ]
    published = run(publishing([Publication(tenant.id, events)]))
    assert published.deliveries == Fresh([], has_unclaimed=True)
    assert Delivery.objects.filter(leased_until=None).count() == len(events)


@pytest.mark.django_db(transaction=True)
def test_a_large_body_is_not_sent_along(tenant: Tenant, endpoint: dict[str, Any], room: redis.Redis) -> None:
    data = orjson.dumps("x" * publish.MOST_BODY_BYTES)
    event_id = publish_one(tenant, data=data)
    (given,) = handed_over(room)
    assert given.envelope is None
    (taken,) = run(taking_over([given], DatabaseClock.at(given.claimed_at)))
    assert taken.envelope is not None
    assert taken.envelope.data == data
    assert taken.event_id == event_id


# --- Rejected or lost signals


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("gone", ["dispatcher", "Valkey"])
def test_what_no_dispatcher_takes_is_released(
    tenant: Tenant,
    endpoint: dict[str, Any],
    room: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    gone: str,
) -> None:
    if gone == "dispatcher":
        wake_up.unregister(FIRST)
    else:

        class Broken:
            def eval(self, *_: Any) -> None:
                raise VALKEY_UNAVAILABLE[0]

        monkeypatch.setattr(wake_up, "valkey", Broken)
    publish_one(tenant)
    assert handed_over(room) == []
    assert len(claim(Room(10, 10))) == 1
    assert not wake_up.may_hand_over()


@pytest.mark.django_db(transaction=True)
def test_a_full_dispatcher_takes_one_more_and_no_other(
    tenant: Tenant, endpoint: dict[str, Any], room: redis.Redis
) -> None:
    report(room, state=FULL)
    publish_one(tenant, "k1")
    assert len(handed_over(room)) == 1
    publish_one(tenant, "k2")
    assert len(handed_over(room)) == 1
    assert Delivery.objects.filter(leased_until=None).count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_lost_hand_over_is_claimed_when_its_lease_runs_out(
    tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver, room: redis.Redis, settings: Any
) -> None:
    settings.DELIVERY_LEASE_SECONDS = 1
    publish_one(tenant)
    room.delete(own_signals(FIRST))
    assert claim(Room(10, 10)) == []
    wait_until(lambda: len(dispatched(receiver)) == 1, "the delivery arrives")
    assert Delivery.objects.get().status == "delivered"


def dispatched(receiver: Receiver) -> list[Any]:
    dispatcher.run()
    return receiver.received


# --- The dispatcher


@pytest.mark.django_db(transaction=True)
def test_a_dispatcher_that_ends_is_handed_nothing(
    tenant: Tenant,
    endpoint: dict[str, Any],
    receiver: Receiver,
    hanging: HangingRequests,
    empty_valkey: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The dispatcher's process may still publish while it waits for the last responses."""
    with running(monkeypatch, empty_valkey):
        wake_up.reset()
        wait_until(wake_up.may_hand_over, "it is the dispatcher of this process")
        publish_one(tenant, "k1")
        receiver.wait_for(1)
        dispatcher.stop()
        wake_up.reset()
        wait_until(lambda: wake_up.next_dispatcher(urgent=True) is None, "it is handed more while it ends")
        wait_until(lambda: not registered(empty_valkey), "other processes signal it while it ends")
        publish_one(tenant, "k2")
        assert len(receiver.received) == 1
        hanging.end()
    with running(monkeypatch, empty_valkey):
        wait_until(lambda: Delivery.objects.filter(status="delivered").count() == 2, "both are delivered")
    assert len(receiver.received) == 2


@pytest.mark.django_db(transaction=True)
def test_beyond_an_endpoints_room_each_goes_out_once(
    tenant: Tenant,
    endpoint: dict[str, Any],
    receiver: Receiver,
    empty_valkey: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(caps, "FIRST_CAP", 1)
    count = 12
    with running(monkeypatch, empty_valkey):
        wait_until(wake_up.may_hand_over, "the process knows of the room")
        for number in range(count):
            publish_one(tenant, f"k{number}")
        wait_until(lambda: Delivery.objects.filter(status="delivered").count() == count, "all are delivered")
    assert len(receiver.received) == count
    assert len({got.json["id"] for got in receiver.received}) == count


@pytest.mark.django_db(transaction=True)
def test_beside_an_endpoint_at_its_cap_fresh_deliveries_of_others_are_handed_over(
    tenant: Tenant,
    other_tenant: Tenant,
    endpoint: dict[str, Any],
    receiver: Receiver,
    hanging: HangingRequests,
    empty_valkey: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cap, waiting = caps.FIRST_CAP, 4
    copied(endpoint["id"], other_tenant, f"{receiver.url}/healthy")
    # Longer than the test takes, so no poll finds a delivery. Each delivery was handed over, or was found when a
    # request ended.
    monkeypatch.setattr(dispatcher, "POLL_SECONDS", 6 * SECONDS)
    with running(monkeypatch, empty_valkey):
        for number in range(cap + waiting):
            publish_one(tenant, f"k{number}")
        receiver.wait_for(cap)
        # A poll's result is reported once the next signal has been received.
        for _ in range(3):
            wake_up.wake()
            wait_until(lambda: not signals(empty_valkey), "the dispatcher has received the signal")
        wake_up.wake()
        assert wake_up.may_hand_over()
        with monkeypatch.context() as without_claims:
            without_claims.setattr(claimer, "finding_ready", finding_nothing)
            publish_one(other_tenant)
            assert receiver.wait_for(cap + 1)[-1].path == "/hook/healthy"
        hanging.end()
        receiver.wait_for(cap + 1 + waiting)


@pytest.mark.django_db(transaction=True)
def test_what_is_handed_over_does_not_wait_for_a_look(
    tenant: Tenant,
    endpoint: dict[str, Any],
    receiver: Receiver,
    empty_valkey: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A poll walks through all endpoints with open deliveries, so many broken endpoints make it slow."""
    with running(monkeypatch, empty_valkey), long_look(monkeypatch):
        publish_one(tenant)
        receiver.wait_for(1, seconds=SECONDS)
    assert Delivery.objects.get().status == "delivered"
    assert len(receiver.received) == 1


@contextmanager
def long_look(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep the running dispatcher in the middle of a poll."""
    looks, ends = threading.Event(), threading.Event()
    look = Claimer.look

    async def last(self: Claimer, room: int) -> list[Claimed]:
        looks.set()
        await asyncio.to_thread(ends.wait, 6 * SECONDS)
        return await look(self, room)

    wait_until(wake_up.may_hand_over, "the process knows of the room")
    with monkeypatch.context() as patched:
        patched.setattr(Claimer, "look", last)
        try:
            assert looks.wait(SECONDS)
            yield
        finally:
            ends.set()


def publish_without_body(tenant: Tenant) -> None:
    """Publish a delivery whose body is too large for its hand-over, so that taking it over needs a statement."""
    publish_one(tenant, "large", data=orjson.dumps("x" * publish.MOST_BODY_BYTES))
    assert Delivery.objects.get().leased_until is not None, "it is handed over"


@pytest.mark.django_db(transaction=True)
def test_what_needs_a_statement_is_sent_after_the_look(
    tenant: Tenant,
    endpoint: dict[str, Any],
    receiver: Receiver,
    empty_valkey: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running(monkeypatch, empty_valkey):
        with long_look(monkeypatch):
            publish_without_body(tenant)
        (got,) = receiver.wait_for(1, seconds=SECONDS)
    assert len(got.json["data"]) == publish.MOST_BODY_BYTES
    assert Delivery.objects.get().attempts == 1


@pytest.mark.django_db(transaction=True)
def test_an_endpoint_whose_secret_cannot_be_read_holds_no_other_back(
    tenant: Tenant,
    endpoint: dict[str, Any],
    receiver: Receiver,
    empty_valkey: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copied(endpoint["id"], tenant, f"{receiver.url}/healthy")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE webhooks_endpoint SET secret = 'gAAAA' WHERE id = %s", [endpoint["id"]])
    with running(monkeypatch, empty_valkey):
        with long_look(monkeypatch):
            publish_one(tenant)
            (got,) = receiver.wait_for(1, seconds=SECONDS)
        unreadable = Endpoint.objects.filter(secret_unreadable_since__isnull=False)
        wait_until(lambda: [str(each.id) for each in unreadable.all()] == [endpoint["id"]], "a look finds it")
    assert got.path == "/hook/healthy"
    assert len(receiver.received) == 1


@pytest.mark.django_db(transaction=True)
def test_a_dispatcher_that_ends_releases_what_awaits_a_claim(
    tenant: Tenant,
    endpoint: dict[str, Any],
    receiver: Receiver,
    empty_valkey: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running(monkeypatch, empty_valkey), long_look(monkeypatch):
        publish_without_body(tenant)
        dispatcher.stop()
    row = Delivery.objects.get()
    assert row.leased_until is None
    assert row.next_attempt_at is not None
    assert row.next_attempt_at <= now()
    assert receiver.received == []


@pytest.mark.django_db(transaction=True)
def test_a_lease_that_is_handed_over_names_the_dispatcher_that_had_room(
    tenant: Tenant, endpoint: dict[str, Any], room: redis.Redis
) -> None:
    name = wake_up.name_of("host:1", 7)
    wake_up.unregister(FIRST)
    report(room, name)
    wake_up.wake()
    publish_one(tenant)
    (given,) = [each for each in handed_over(room, name) if each]
    assert (given.leased_by, Delivery.objects.get().leased_by) == (7, 7)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_claimed_meanwhile", [False, True])
def test_what_was_handed_over_to_another_is_bound_before_it_is_sent(
    tenant: Tenant, endpoint: dict[str, Any], room: redis.Redis, is_claimed_meanwhile: bool
) -> None:
    """The other dispatcher may have died since, which ends its leases."""
    publish_one(tenant)
    (given,) = handed_over(room)
    given = msgspec.structs.replace(given, leased_by=7)
    Delivery.objects.update(leased_by=7)
    if is_claimed_meanwhile:
        Delivery.objects.update(leased_until=now() + timedelta(hours=1), leased_by=8)

    clock = DatabaseClock.at(now())
    asking = Claimer(caps.InFlightCaps(capacity=8, of_tenant=8, bodies=BodyMemory()), Registration())
    asking.clock = clock
    assert asking.take_at_once([given]) is None, "it takes a statement"
    assert asking.take_call(given) == [], "so does a call"
    taken = run(taking_over([given], clock, 9))
    assert [each.id for each in taken] == ([] if is_claimed_meanwhile else [given.id])
    assert Delivery.objects.get().leased_by == (8 if is_claimed_meanwhile else 9)


@pytest.mark.django_db(transaction=True)
def test_an_old_hand_over_is_left_to_its_lease(
    tenant: Tenant,
    endpoint: dict[str, Any],
    receiver: Receiver,
    room: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The hand-over's dispatcher was stopped meanwhile, so another dispatcher may have the delivery already."""
    publish_one(tenant)
    (given,) = handed_over(room)
    room.flushdb()
    taken_by_another = now() + timedelta(seconds=settings.DELIVERY_LEASE_SECONDS)
    Delivery.objects.update(leased_until=taken_by_another, next_attempt_at=taken_by_another)
    old = given.claimed_at - timedelta(seconds=settings.DELIVERY_LEASE_SECONDS)
    late = msgspec.structs.replace(given, claimed_at=old)
    # A dispatcher that has not polled yet does not know the database's time, and accepts no hand-over.
    with running(monkeypatch, room):
        room.rpush(SIGNAL, b"\x91" + late.packed().content)
        wait_until(lambda: not room.exists(SIGNAL), "the dispatcher received the signal")
        publish_one(tenant, "fresh")
        receiver.wait_for(1)
    (sent,) = receiver.received
    assert sent.headers["webhook-id"] != ids.encode(ids.EVENT, given.event_id)
    assert Delivery.objects.get(pk=given.id).leased_until == taken_by_another


@pytest.mark.django_db(transaction=True)
def test_a_secret_that_became_unreadable_is_found_by_a_look(
    tenant: Tenant, endpoint: dict[str, Any], room: redis.Redis
) -> None:
    publish_one(tenant)
    (given,) = handed_over(room)
    spoilt = msgspec.structs.replace(given, target=given.target._replace(secret="gAAAA"))
    assert run(taking_over([spoilt], DatabaseClock.at(given.claimed_at))) == []


# --- Room


def test_what_is_left_due_waits_for_a_cap_or_for_room() -> None:
    full, slow, other, quick, waiting = (uuid4() for _ in range(5))
    busy, calm = uuid4(), uuid4()
    room = Room(
        40, 16, taken={full: 16}, caps={slow: 2, quick: 30}, per_tenant=10, taken_by_tenant={busy: 10}
    )
    tenants = {full: calm, slow: calm, other: busy, quick: busy, waiting: calm}
    found = room.unserved(tenants, {slow: 2, quick: 6, waiting: 1}, [full, slow, other])
    assert found == ({full, slow}, {busy}, False)
    # A quick endpoint beyond its tenant's cap gets the remaining room, so only the lack of room limits it. The same
    # applies to an endpoint below every cap.
    assert room.unserved(tenants, {quick: 6}, [quick]).lacks_room
    assert room.unserved(tenants, {waiting: 1}, [waiting]).lacks_room
