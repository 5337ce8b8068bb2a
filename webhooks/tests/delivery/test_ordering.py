"""Ordered endpoints: one event of a customer after another. A retry delays only its own customer."""

import threading
from collections import defaultdict
from datetime import timedelta
from typing import Any

import orjson
import pytest
from aiohttp import web
from django.db import connection, transaction

from gateway import ids
from gateway.clock import isoformat, now
from gateway.database.statements import run
from tenants.models import Tenant
from tests.fixtures import Api
from tests.receiver import Received, Receiver
from webhooks import replay, wake_up
from webhooks.delivery import claimer, dispatcher, monitoring, ordering
from webhooks.delivery.caps import Room
from webhooks.delivery.claim_statements import Claimed, claim, claiming, finding_ready
from webhooks.delivery.ordering import Lines
from webhooks.events.envelope import NewEvent
from webhooks.events.publish import publish
from webhooks.models import Delivery, Endpoint

pytestmark = pytest.mark.django_db(transaction=True)

ROOM = Room(100, 100)


@pytest.fixture
def ordered(api: Api, receiver: Receiver) -> Endpoint:
    answer = api.post("/v1/webhooks", {"url": receiver.url, "ordered": True})
    assert answer.status_code == 201, answer.content
    assert answer.json()["ordered"] is True
    return Endpoint.objects.get()


@pytest.fixture
def one_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim only the first event of each customer."""
    monkeypatch.setattr(ordering, "LONGEST_LINE", 1)


def say(tenant: Tenant, customer: str, *texts: str, **members: Any) -> None:
    """Publish a customer's events in one transaction, like the events of one notification."""
    with transaction.atomic():
        publish(
            tenant_id=tenant.id,
            events=[
                NewEvent(
                    **{
                        "type": "message.inbound",
                        "environment": "live",
                        "phone_number_id": "10",
                        "wa_id": customer,
                        "dedupe_key": f"{customer}:{text}",
                        "data": b"{}",
                        "raw_path": "x",
                        **members,
                    }
                )
                for text in texts
            ],
        )


def claimed() -> list[str]:
    """The dedupe keys of the deliveries that a worker claims now."""
    return sorted(map(key_of, claim(ROOM)))


def key_of(delivery: Claimed) -> str:
    assert delivery.envelope is not None
    key: str = orjson.loads(delivery.envelope.body())["dedupe_key"]
    return key


def settle(status: str = "delivered", *, key: str, minutes: int = 10) -> None:
    """Set the result of the attempt to deliver an event."""
    event_id = ids_of()[key]
    later = now() + timedelta(minutes=minutes) if status == "failed" else None
    Delivery.objects.filter(event_id=event_id).update(status=status, next_attempt_at=later, leased_until=None)


def ids_of() -> dict[str, Any]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT dedupe_key, id FROM events")
        return dict(cursor.fetchall())


@pytest.mark.usefixtures("one_each")
def test_one_event_of_a_customer_is_under_way(tenant: Tenant, ordered: Endpoint) -> None:
    say(tenant, "91", "a", "b", "c")
    say(tenant, "92", "a", "b")
    say(tenant, "91", "other number", phone_number_id="20")
    say(tenant, "91", "no number", phone_number_id=None)
    assert claimed() == ["91:a", "91:no number", "91:other number", "92:a"]
    assert claimed() == []
    settle(key="91:a")
    assert claimed() == ["91:b"]


@pytest.mark.usefixtures("one_each")
@pytest.mark.parametrize(("status", "then"), [("failed", []), ("dead", ["91:b"]), ("delivered", ["91:b"])])
def test_a_retry_holds_back_its_customer_and_nobody_else(
    tenant: Tenant, ordered: Endpoint, status: str, then: list[str]
) -> None:
    say(tenant, "91", "a", "b", "c")
    assert claimed() == ["91:a"]
    settle(status, key="91:a")
    say(tenant, "92", "a")
    assert claimed() == sorted([*then, "92:a"])


def test_what_a_retry_holds_back_says_so(api: Api, tenant: Tenant, ordered: Endpoint) -> None:
    """The reason is shown whether or not a worker has polled since, but only for the retry's customer."""
    say(tenant, "91", "a", "b")
    claim(ROOM)
    settle("failed", key="91:a")
    Endpoint.objects.update(consecutive_failures=1, failing_since=now())
    Delivery.objects.filter(event_id=ids_of()["91:a"]).update(last_error="http_5xx")
    say(tenant, "92", "a")
    due = Delivery.objects.get(event_id=ids_of()["91:a"]).next_attempt_at
    assert due is not None

    def shown() -> dict[str, tuple[Any, Any]]:
        answers = {}
        for key, event_id in ids_of().items():
            public = ids.encode(ids.EVENT, event_id)
            (listed,) = api.get(f"/v1/webhook-deliveries?event_id={public}").json()["data"]
            one = api.get(f"/v1/webhook-deliveries/{listed['id']}").json()
            states = {(row["last_error"], row["next_attempt_at"]) for row in (listed, one)}
            assert len(states) == 1
            answers[key] = states.pop()
        return answers

    for look in (lambda: None, claimed):
        look()
        found = shown()
        assert found["91:a"] == ("http_5xx", isoformat(due))
        assert found["91:b"] == ("waits_for_earlier_event", isoformat(due))
        assert found["92:a"][0] is None
    assert api.get(f"/v1/webhooks/{ordered.pk}").json()["health"]["retry_at"] == isoformat(due)
    first = Delivery.objects.get(event_id=ids_of()["91:a"])
    again = Delivery.objects.create(
        **{
            name: getattr(first, name)
            for name in ("tenant_id", "environment", "endpoint_id", "event_id", "customer_key")
        },
        id=ids.uuid7(),
        next_attempt_at=now(),
    )
    (replayed, _) = sorted(
        api.get(f"/v1/webhook-deliveries?event_id={ids.encode(ids.EVENT, first.event_id)}").json()["data"],
        key=lambda row: row["id"] != again.public_id,
    )
    assert replayed["last_error"] == "waits_for_earlier_event", "of two deliveries of an event, one is first"
    again.delete()
    until = now() + timedelta(hours=1)
    Endpoint.objects.update(circuit_open_until=until)
    assert shown()["91:b"] == ("circuit_open", isoformat(until))
    Endpoint.objects.update(circuit_open_until=None, ordered=False)
    assert shown()["91:b"][0] is None, "the endpoint is no longer ordered"


def test_a_call_waits_for_no_earlier_call(api: Api, tenant: Tenant, receiver: Receiver) -> None:
    assert api.post("/v1/webhooks", {"url": receiver.url}).status_code == 201
    for key in ("call:1", "call:2"):
        say(tenant, "91", "", type="meta.other", dedupe_key=key)
    settle("failed", key="call:1")
    later = ids.encode(ids.EVENT, ids_of()["call:2"])
    (shown,) = api.get(f"/v1/webhook-deliveries?event_id={later}").json()["data"]
    assert shown["last_error"] is None


def test_a_customers_events_come_as_one_line(tenant: Tenant, ordered: Endpoint) -> None:
    say(tenant, "91", *"abc")
    say(tenant, "92", "a")
    deliveries = claim(ROOM)
    lines = Lines()
    assert sorted(map(key_of, lines.heads(deliveries))) == ["91:a", "92:a"]
    (head,) = [each for each in deliveries if key_of(each) == "91:a"]
    following = lines.take_next(head)
    assert key_of(following) == "91:b"
    assert [key_of(each) for each in lines.break_off(following)] == ["91:c"]
    assert claimed() == [], "all are leased"


def test_a_line_ends_before_an_event_that_is_not_due(tenant: Tenant, ordered: Endpoint) -> None:
    """Between two due events is one that failed, or that another worker has locked."""
    say(tenant, "91", *"abcd")
    settle("failed", key="91:c")
    assert claimed() == ["91:a", "91:b"]


def test_a_line_ends_before_an_event_that_somebody_else_changes(tenant: Tenant, ordered: Endpoint) -> None:
    say(tenant, "91", *"abc")
    is_locked, may_end = threading.Event(), threading.Event()

    def lock() -> None:
        with transaction.atomic():
            Delivery.objects.select_for_update().get(tenant_id=tenant.id, event_id=ids_of()["91:b"])
            is_locked.set()
            assert may_end.wait(10)
        connection.close()

    other = threading.Thread(target=lock)
    other.start()
    try:
        assert is_locked.wait(10)
        assert claimed() == ["91:a"]
    finally:
        may_end.set()
        other.join()


def test_what_one_customer_has_waiting_hides_no_other(
    tenant: Tenant, ordered: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ordering, "SCANNED_CUSTOMERS", 3)
    say(tenant, "91", *map(str, range(100)))
    say(tenant, "92", "a")
    claimed_of = {key_of(each)[:2] for each in claim(Room(2, 2))}
    assert claimed_of == {"91", "92"}
    for customer in range(10):
        say(tenant, f"a{customer}", "a", "b")
        claim(ROOM)
    fresh = {f"{customer}:a" for customer in range(93, 99)}
    for customer in range(93, 99):
        say(tenant, str(customer), "a")
    found = {key for _ in range(200) for key in claimed()}
    assert found >= fresh, "each claim begins at another customer"


def test_fresh_events_go_before_replays(tenant: Tenant, ordered: Endpoint) -> None:
    for customer in range(20):
        say(tenant, f"b{customer}", "a")
    say(tenant, "", *map(str, range(20)), wa_id=None)
    Delivery.objects.update(is_replay=True)
    fresh = {f"c{customer}:a" for customer in range(8)} | {":fresh"}
    for customer in range(8):
        say(tenant, f"c{customer}", "a")
    say(tenant, "", "fresh", wa_id=None)
    assert {key_of(each) for _ in range(3) for each in claim(Room(3, 3))} == fresh
    assert len(claimed()) == 40


def test_an_event_of_nobody_waits_for_nobody(tenant: Tenant, ordered: Endpoint) -> None:
    say(tenant, "91", "a")
    for text in "abc":
        say(tenant, "-", text, wa_id=None)
    lines = Lines()
    assert len(lines.heads(claim(ROOM))) == 4


def test_what_was_made_before_the_endpoint_was_ordered_goes_out_too(
    api: Api, tenant: Tenant, ordered: Endpoint
) -> None:
    api.patch(f"/v1/webhooks/{ordered.id}", {"ordered": False})
    say(tenant, "91", "a", "b")
    api.patch(f"/v1/webhooks/{ordered.id}", {"ordered": True})
    say(tenant, "91", "c")
    lines = Lines()
    assert sorted(map(key_of, lines.heads(claim(ROOM)))) == ["91:a", "91:b", "91:c"]


def test_what_waits_when_the_endpoint_is_no_longer_ordered_goes_out_at_once(
    api: Api, tenant: Tenant, ordered: Endpoint, receiver: Receiver
) -> None:
    keys = [f"91:{number:02}" for number in range(60)]
    say(tenant, "91", *(key.removeprefix("91:") for key in keys))
    api.patch(f"/v1/webhooks/{ordered.id}", {"ordered": False})
    assert {each.customer_key for each in claim(Room(1, 1))} == {None}, "it forms no line"
    Delivery.objects.update(next_attempt_at=now(), leased_until=None)
    dispatcher.run()
    assert sorted(got.json["dedupe_key"] for got in receiver.received) == keys
    assert Delivery.objects.filter(status="delivered", leased_until=None).count() == len(keys)


def test_a_second_claim_of_a_customer_drops_nothing_of_the_first(tenant: Tenant, ordered: Endpoint) -> None:
    """A lease may end while its delivery waits in the dispatcher."""
    lines = Lines()
    for texts in ("abc", "def"):
        say(tenant, "91", *texts)
        lines.heads(claim(ROOM))
        Delivery.objects.update(status="delivered", next_attempt_at=None, leased_until=None)
    assert [key_of(each) for each in lines.break_all()] == ["91:b", "91:c", "91:e", "91:f"]


def test_an_ordered_endpoint_at_a_rate_gets_one_event_of_a_customer_a_slot(
    api: Api, tenant: Tenant, ordered: Endpoint
) -> None:
    api.patch(f"/v1/webhooks/{ordered.id}", {"rate_per_second": 100})
    say(tenant, "91", "a", "b")
    assert claimed() == ["91:a"]


def test_an_event_that_was_committed_late_waits_for_the_newer_one_that_is_under_way(
    tenant: Tenant, ordered: Endpoint
) -> None:
    older = ids.uuid7()
    say(tenant, "91", "newer")
    claim(ROOM)
    say(tenant, "91", "older", id=older)
    assert claimed() == []
    settle(key="91:newer")
    assert claimed() == ["91:older"]


def test_two_workers_never_have_two_events_of_a_customer(tenant: Tenant, ordered: Endpoint) -> None:
    older = ids.uuid7()
    say(tenant, "91", "newer")
    has_claimed, may_commit = threading.Event(), threading.Event()
    first: list[list[Claimed]] = []

    def claim_and_wait() -> None:
        with transaction.atomic():
            first.append(run(claiming(run(finding_ready()), ROOM)).deliveries)
            has_claimed.set()
            assert may_commit.wait(10)
        connection.close()

    worker = threading.Thread(target=claim_and_wait)
    worker.start()
    assert has_claimed.wait(10)
    say(tenant, "91", "older", id=older)
    try:
        assert claimed() == [], "the first worker's claim is not committed yet"
    finally:
        may_commit.set()
        worker.join()
    assert [key_of(each) for each in first[0]] == ["91:newer"]
    assert claimed() == []


def test_events_arrive_in_their_order_through_the_dispatcher(
    tenant: Tenant, ordered: Endpoint, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.WEBHOOK_RETRY_SCHEDULE = [600.0]
    # A dispatcher that waited for the next poll, rather than for the record of the previous event, would be too late.
    monkeypatch.setattr(dispatcher, "LINGER_SECONDS", 0.5)
    monkeypatch.setattr(dispatcher, "POLL_SECONDS", 2.0)
    texts = [f"{number:02}" for number in range(12)]
    failures = iter([True, False])

    def answer(request: Received) -> web.Response:
        fails = request.json["dedupe_key"] == "92:03" and next(failures, False)
        return web.Response(status=500 if fails else 200)

    receiver.answer = answer
    for customer in ("91", "92", "93"):
        say(tenant, customer, *texts)
    dispatcher.run()
    assert Delivery.objects.filter(status="delivered").count() == 27, "one customer waits for a retry"
    assert not Delivery.objects.exclude(leased_until=None), "what was behind it is given back"
    Delivery.objects.exclude(next_attempt_at=None).update(next_attempt_at=now())
    dispatcher.run()
    arrived: defaultdict[str, list[str]] = defaultdict(list)
    for got in receiver.received:
        customer, _, text = got.json["dedupe_key"].partition(":")
        arrived[customer].append(text)
    assert arrived["91"] == arrived["93"] == texts
    assert arrived["92"] == [*texts[:4], *texts[3:]]
    assert set(Delivery.objects.values_list("customer_key", flat=True)) == {None}, "it names nobody when done"


@pytest.mark.parametrize(("line_seconds", "most_claims"), [(5.0, 4), (0.0, 40)])
def test_the_next_event_goes_as_soon_as_the_one_before_has_arrived(
    tenant: Tenant,
    ordered: Endpoint,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    line_seconds: float,
    most_claims: int,
) -> None:
    """There is no claim between the two events, unless the line takes too long."""
    monkeypatch.setattr(dispatcher, "LINGER_SECONDS", 0.5)
    monkeypatch.setattr(dispatcher, "LINE_SECONDS", line_seconds)
    claims: list[int] = []

    def counted(*args: Any) -> Any:
        claim = yield from claiming(*args)
        claims.append(len(claim.deliveries))
        return claim

    monkeypatch.setattr(claimer, "claiming", counted)
    texts = [f"{number:02}" for number in range(12)]
    say(tenant, "91", *texts)
    dispatcher.run()
    assert [got.json["dedupe_key"] for got in receiver.received] == [f"91:{text}" for text in texts]
    assert len([claimed for claimed in claims if claimed]) <= most_claims
    assert Delivery.objects.filter(status="delivered").count() == 12


def test_a_dispatcher_that_stops_releases_what_waits_in_a_line(
    tenant: Tenant, ordered: Endpoint, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "_stopping", threading.Event())

    def answer(_: Received) -> web.Response:
        dispatcher.stop()
        return web.Response()

    receiver.answer = answer
    say(tenant, "91", *map(str, range(100, 150)))
    dispatcher.run()
    sent = len(receiver.received)
    assert sent == 1
    assert Delivery.objects.filter(status="delivered").count() == sent
    assert Delivery.objects.filter(status="pending", leased_until=None).count() == 50 - sent


def test_what_waits_for_an_earlier_event_is_not_late(tenant: Tenant, ordered: Endpoint) -> None:
    say(tenant, "91", "a", "b")
    Delivery.objects.update(next_attempt_at=now() - timedelta(minutes=2))
    assert 119 < monitoring._oldest_due_age() < 130
    settle("failed", key="91:a")
    assert monitoring._oldest_due_age() == 0
    say(tenant, "92", "a")
    assert monitoring._oldest_due_age() > 0


@pytest.mark.usefixtures("one_each")
def test_missed_events_are_replayed_in_their_order(
    api: Api, tenant: Tenant, ordered: Endpoint, receiver: Receiver
) -> None:
    Endpoint.objects.update(status="paused")
    say(tenant, "91", "a", "b", "c")
    Endpoint.objects.update(status="active")
    range_ = {"from": isoformat(now() - timedelta(hours=1)), "to": isoformat(now() + timedelta(hours=1))}
    api.post(f"/v1/webhooks/{ordered.id}/replay", {**range_, "status": ["missed"]})
    replay.release_due()
    assert claimed() == ["91:a"]
    assert claimed() == []


def test_an_endpoint_that_is_not_ordered_takes_all_at_once(
    api: Api, tenant: Tenant, ordered: Endpoint, receiver: Receiver
) -> None:
    assert api.patch(f"/v1/webhooks/{ordered.id}", {"ordered": False}).json()["ordered"] is False
    say(tenant, "91", "a", "b")
    assert set(Delivery.objects.values_list("customer_key", flat=True)) == {None}
    assert claimed() == ["91:a", "91:b"]


def test_a_delivery_in_order_or_at_a_rate_is_not_claimed_at_publish(
    api: Api, tenant: Tenant, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wake_up, "may_hand_over", lambda: True)
    settings: tuple[dict[str, Any], ...] = ({}, {"ordered": True}, {"rate_per_second": 5})
    endpoints = [api.post("/v1/webhooks", {"url": receiver.url, **given}).json()["id"] for given in settings]
    with transaction.atomic():
        # The dispatcher polls before the commit. After the commit, no dispatcher takes the hand-over, and the lease is
        # released.
        say(tenant, "91", "a")
        leased = {str(row.endpoint_id): row.leased_until is not None for row in Delivery.objects.all()}
    assert [leased[endpoint] for endpoint in endpoints] == [True, False, False]
