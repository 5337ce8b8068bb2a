"""`GET /v1/events/stream`: skips no event, shows no other tenant's events, is limited, and ends with its key."""

import asyncio
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote
from uuid import UUID

import psycopg
import pytest
import redis
from asgiref.sync import async_to_sync
from django.db import OperationalError, connection, transaction

from gateway import ids
from gateway.database.statements import run
from gateway.valkey.connection import VALKEY_UNAVAILABLE
from tenants.credentials import api_keys, key_cache
from tenants.models import PlatformApp, Tenant
from tests.fixtures import assert_error, in_threads, wait_until
from tests.front import running
from tests.raw_server import raw_server
from web import admission, open_streams, stream_response
from web import listener as http_listener
from web.open_streams import Listener
from web.routes import Application
from web.tests.client import FrontClient
from webhooks import stream as reading
from webhooks import wake_up
from webhooks.events.envelope import EXPLICIT_TYPES, NewEvent
from webhooks.events.publish import publish
from webhooks.models import Event
from webhooks.tests.publishing import make

pytestmark = pytest.mark.django_db(transaction=True)

SECONDS = 20.0


class Stream:
    """A client of the stream, on a connection of its own."""

    def __init__(self, address: tuple[str, int], key: str, query: str = "", **headers: str) -> None:
        self.connection = http.client.HTTPConnection(*address, timeout=SECONDS)
        sent = {"Authorization": f"Bearer {key}"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        self.connection.request("GET", f"/v1/events/stream{query}", headers=sent)
        self.response = self.connection.getresponse()
        self.last_id = ""

    def block(self) -> dict[str, str]:
        """The next block of lines, by field. A comment's field is ''."""
        fields: dict[str, str] = {}
        while line := self.response.readline():
            text = line.decode().rstrip("\n")
            if not text:
                break
            name, _, value = text.partition(":")
            value = value.removeprefix(" ")
            fields[name] = f"{fields[name]}\n{value}" if name in fields else value
        self.last_id = fields.get("id", self.last_id)
        return fields

    def event(self) -> dict[str, Any]:
        """The next event, skipping heartbeats."""
        deadline = time.monotonic() + SECONDS
        while block := self.block():
            if "data" in block:
                value: dict[str, Any] = json.loads(block["data"]) if "event" not in block else block
                return value
            assert time.monotonic() < deadline, "nothing but heartbeats"
        raise AssertionError("the stream ended")

    def close(self) -> None:
        self.connection.close()
        self.response.close()


Open = Callable[..., Stream]


@pytest.fixture(autouse=True, scope="module")
def _streams_are_checked_at_once() -> Iterator[None]:
    """Check credentials every 0.1 s, in the whole module.

    The hub outlives a test: an interval set by each test would begin only after the hub's current, long sleep.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(open_streams, "KEEP_SECONDS", 0.1)
        yield


@pytest.fixture
def listen(front_address: tuple[str, int], key: api_keys.NewKey) -> Iterator[Open]:
    """Open streams. When the test ends, they are closed and removed from the server."""
    streams: list[Stream] = []

    def open_(query: str = "", *, by: str = key.key, **headers: str) -> Stream:
        stream = Stream(front_address, by, query, **headers)
        streams.append(stream)
        if stream.response.status == 200:
            stream.block()
        return stream

    yield open_
    for stream in streams:
        stream.close()
    hub = stream_response._hub
    wait_until(lambda: hub is None or not hub._all(), "a closed stream was not removed")


def new(kind: str = "message.inbound", **values: Any) -> NewEvent:
    members = {"type": kind, "environment": "live", "dedupe_key": str(ids.uuid7()), "data": b'{"n":1.50}'}
    return NewEvent(**{**members, **values})


def publish_one(
    tenant: Tenant, kind: str = "message.inbound", raw: bytes | None = None, **values: Any
) -> str:
    with transaction.atomic():
        (event_id,) = publish(tenant_id=tenant.id, events=[new(kind, **values)], raw=raw)
    return ids.encode(ids.EVENT, event_id)


def test_a_key_that_cannot_be_read_closes_no_other_stream(tenant: Tenant, empty_valkey: redis.Redis) -> None:
    """Keys of open streams are read together. One key here has a time that Python cannot represent."""
    keys = [api_keys.create(name=str(n), environment="live", tenant=tenant) for n in range(3)]
    with connection.cursor() as cursor:
        cursor.execute("UPDATE tenants_apikey SET expires_at = 'infinity' WHERE id = %s", [keys[1].row.id])
    credentials = [admission.Credential(key.key, None) for key in keys]
    empty_valkey.flushdb()
    key_cache.clear_process_cache()
    assert async_to_sync(admission.still_admitted)(credentials) == [True, False, True]


@pytest.mark.parametrize(
    "place", [(key_cache, "remember_many"), (admission, "caller_for")], ids=["all", "one"]
)
def test_an_outage_of_the_database_ends_no_stream(
    key: api_keys.NewKey, monkeypatch: pytest.MonkeyPatch, place: tuple[Any, str]
) -> None:
    def away(*_: Any) -> None:
        raise OperationalError("the connection is lost")

    monkeypatch.setattr(*place, away)
    assert async_to_sync(admission.still_admitted)([admission.Credential(key.key, None)]) == [True]


def test_a_process_that_stops_says_so_on_its_streams(listen: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_response, "_is_stopping", False)
    stream, application = listen(), SimpleNamespace(_loops=[])

    async def stop() -> None:
        Application.stop(application)  # type: ignore[arg-type]

    running.run(stop())
    assert stream.event() == {"event": "closed", "data": "stopping"}
    assert listen().response.status == 503


def test_an_event_arrives_exactly_as_webhooks_deliver_it(
    listen: Open, tenant: Tenant, front: FrontClient, key: api_keys.NewKey
) -> None:
    stream = listen()
    assert stream.response.getheader("Content-Type") == "text/event-stream"
    assert stream.response.getheader("X-Service-Request-Id", "").startswith("req_")
    assert stream.response.getheader("X-Accel-Buffering") == "no", "nginx would hold events back"
    event_id = publish_one(tenant, "meta.other")
    shown = front.ask("GET", f"/v1/events/{event_id}", Authorization=f"Bearer {key.key}")
    assert stream.event() == json.loads(shown.content)["event"]


def test_a_stream_begins_with_the_delay_and_the_place_to_go_on_from() -> None:
    lines = reading.opening(reading.BEGINNING).decode().split("\n")
    assert lines == ["retry: 1000", f"id: {reading.BEGINNING}", ": alive", "", ""]


def test_line_ends_between_the_tokens_of_an_event_stay_within_the_event() -> None:
    sent = reading.event(reading.BEGINNING, b'{"a":\r\n1,\r"b":\n2}').decode()
    first, *lines, blank, end = sent.split("\n")
    assert first == f"id: {reading.BEGINNING}"
    assert lines == ['data: {"a":', "data: 1,", 'data: "b":', "data: 2}"]
    assert (blank, end) == ("", "")


def test_a_signal_brings_it_at_once(listen: Open, tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_streams, "YOUNG_SECONDS", 0.0)
    stream = listen()
    hub = stream_response._hub
    assert hub is not None
    wait_until(lambda: hub._is_subscribed, "the hub receives no signals")
    monkeypatch.setattr(open_streams, "POLL_SECONDS", 600.0)
    # This process's cache from earlier tests does not match Valkey, which has been emptied since.
    monkeypatch.setattr(wake_up._signals, "_listening", False)
    # Within a second, every publishing process knows that a stream is open.
    wait_until(_publishers_know, "the listener is not announced")
    arrived = threading.Event()
    published: list[str] = []

    def publish() -> None:
        # On a busy machine the hub's registration may expire, and one signal may be lost.
        while not arrived.wait(0.5):
            published.append(publish_one(tenant, f"k{len(published)}"))
        connection.close()

    publisher = threading.Thread(target=publish)
    publisher.start()
    try:
        assert stream.event()["id"]
    finally:
        arrived.set()
        publisher.join(SECONDS)
    assert published


def test_a_stream_that_has_just_begun_does_not_wait_for_the_poll(
    listen: Open, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    listen()  # From now on the hub receives signals and polls rarely.
    hub = stream_response._hub
    assert hub is not None
    wait_until(lambda: hub._is_subscribed, "the hub receives no signals")
    monkeypatch.setattr(open_streams, "POLL_SECONDS", 600.0)
    monkeypatch.setattr(open_streams, "YOUNG_SECONDS", SECONDS)
    monkeypatch.setattr(wake_up, "fresh", lambda _: None)
    for _ in range(2):
        stream = listen()
        event_id = publish_one(tenant)
        while stream.event()["id"] != event_id:
            pass


def test_a_signal_during_a_look_brings_its_event_at_once(
    listen: Open, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look has read already which transactions have ended, so it does not find the event."""
    monkeypatch.setattr(open_streams, "YOUNG_SECONDS", 0.0)
    monkeypatch.setattr(wake_up, "fresh", lambda _: None)
    stream = listen()
    hub = stream_response._hub
    assert hub is not None
    wait_until(lambda: hub._is_subscribed and not hub._due, "the first look at the stream does not end")
    monkeypatch.setattr(open_streams, "POLL_SECONDS", 600.0)
    has_looked, has_published, look = threading.Event(), threading.Event(), reading.look

    def looked(wanted: Sequence[reading.Wanted]) -> Any:
        found = yield from look(wanted)
        if not has_looked.is_set():
            has_looked.set()
            assert has_published.wait(SECONDS)
            hub._signalled([tenant.id])
        return found

    monkeypatch.setattr(reading, "look", looked)
    hub._tasks[0].get_loop().call_soon_threadsafe(hub._signalled, [tenant.id])
    assert has_looked.wait(SECONDS)
    event_id = publish_one(tenant)
    has_published.set()
    assert stream.event()["id"] == event_id


def _publishers_know() -> bool:
    wake_up.fresh([])
    return wake_up._signals._listening


def test_without_valkey_the_poll_brings_it(
    listen: Open, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhooks.wake_up.fresh", lambda tenants: None)
    monkeypatch.setattr(open_streams, "POLL_SECONDS", 0.2)
    monkeypatch.setattr(open_streams, "YOUNG_SECONDS", 0.0)
    stream = listen()
    hub = stream_response._hub
    assert hub is not None
    wait_until(lambda: not hub._due, "the first look at the stream does not end")
    event_id = publish_one(tenant)
    assert stream.event()["id"] == event_id


def test_an_event_whose_transaction_ends_late_is_not_skipped(listen: Open, tenant: Tenant) -> None:
    """A committed event can be read while an older transaction is open. The stream must wait until the older
    transaction has ended.
    """
    stream = listen()
    begun, may_commit = threading.Event(), threading.Event()
    late: list[str] = []

    def slow() -> None:
        try:
            with transaction.atomic():
                late.extend(map(str, publish(tenant_id=tenant.id, events=[new()])))
                begun.set()
                assert may_commit.wait(SECONDS)
        finally:
            connection.close()

    thread = threading.Thread(target=slow)
    thread.start()
    assert begun.wait(SECONDS)
    early = publish_one(tenant)
    hub = stream_response._hub
    assert hub is not None
    (listener,) = hub._all()
    looks = {None, open_streams.ANY_LOOK, open_streams.THIS_LOOK}
    wait_until(lambda: listener.until not in looks, "nobody looked while it was open")
    assert listener.is_idle, "an event was handed over although an older transaction is open"
    may_commit.set()
    thread.join()
    ((late_id),) = late
    assert [stream.event()["id"], stream.event()["id"]] == [ids.encode(ids.EVENT, UUID(late_id)), early]


def test_an_id_made_long_before_the_commit_is_not_skipped(listen: Open, tenant: Tenant) -> None:
    old_id = ids.uuid7()
    stream = listen()
    first = publish_one(tenant)
    assert stream.event()["id"] == first
    again = publish_one(tenant, id=old_id)
    assert stream.event()["id"] == again


def test_it_goes_on_from_the_last_event_without_loss(listen: Open, tenant: Tenant) -> None:
    stream = listen()
    first = publish_one(tenant)
    assert stream.event()["id"] == first
    stream.close()
    missed = [publish_one(tenant) for _ in range(reading.PAGE * 2 + 3)]
    again = listen(Last_Event_ID=stream.last_id)
    assert [again.event()["id"] for _ in missed] == missed


@pytest.mark.parametrize("query", ["", "?type=message.inbound"])
def test_stored_events_arrive_page_by_page_without_the_poll(
    listen: Open, tenant: Tenant, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    stream = listen(query)
    stream.close()
    kinds = ["message.status", *["message.inbound"] * reading.PAGE * 2]
    stored = [publish_one(tenant, kind) for kind in kinds]
    wanted = stored[1:] if query else stored
    hub = stream_response._hub
    assert hub is not None
    wait_until(lambda: hub._is_subscribed, "the hub receives no signals")
    monkeypatch.setattr(open_streams, "POLL_SECONDS", 600.0)
    monkeypatch.setattr(open_streams, "YOUNG_SECONDS", 0.0)
    again = listen(query, Last_Event_ID=stream.last_id)
    assert [again.event()["id"] for _ in wanted] == wanted


def test_it_goes_on_from_before_the_first_event(listen: Open, tenant: Tenant) -> None:
    stream = listen()
    stream.close()
    missed = publish_one(tenant)
    assert listen(Last_Event_ID=stream.last_id).event()["id"] == missed


def test_it_goes_on_from_an_events_own_id(listen: Open, tenant: Tenant, other_tenant: Tenant) -> None:
    first, second = publish_one(tenant), publish_one(tenant)
    assert listen(Last_Event_ID=first).event()["id"] == second
    foreign = publish_one(other_tenant)
    in_sandbox = publish_one(tenant, environment="test")
    for unknown in (foreign, in_sandbox, "evt_nothing", "1.x", ids.encode(ids.EVENT, ids.uuid7())):
        stream = listen(Last_Event_ID=unknown)
        assert stream.response.status == 400


def test_a_place_of_no_moment_is_refused_and_stops_no_other_stream(listen: Open, tenant: Tenant) -> None:
    """One statement looks up the places of all streams, so an error would affect all."""
    stream = listen()
    latest = ids.encode(ids.EVENT, UUID(int=2**128 - 1))
    refused = listen(Last_Event_ID=f"0.{latest}").response
    error = json.loads(refused.read())["error"]
    assert (refused.status, error["code"]) == (400, "invalid_request")
    assert error["details"]["fields"] == {"Last-Event-ID": ["Names no event of yours."]}
    published = publish_one(tenant)
    assert stream.event()["id"] == published


def test_a_stream_whose_place_cannot_be_read_ends_alone(
    listen: Open, tenant: Tenant, other_tenant: Tenant
) -> None:
    """Streams are polled together. An error of one stream must not stop the others."""
    other_key = api_keys.create(name="k", environment="live", tenant=other_tenant)
    unreadable, other = listen(), listen(by=other_key.key)
    hub = stream_response._hub
    assert hub is not None
    wait_until(lambda: not hub._due, "the first look at the streams does not end")
    (listener,) = hub._of_tenant[tenant.id]
    listener.after = reading.Position(0, UUID(int=2**128 - 1))
    for each in (tenant, other_tenant):
        publish_one(each)
    assert other.event()["tenant_id"] == str(other_tenant.id)
    assert unreadable.event() == {"event": "closed", "data": "failed"}


def test_a_stream_that_left_while_news_for_it_were_looked_for_is_not_kept(
    listen: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = listen()
    hub = stream_response._hub
    assert hub is not None
    looking, has_left, was_asked = threading.Event(), threading.Event(), threading.Event()

    async def finds_all(_: open_streams.Hub, listeners: list[Listener]) -> list[Listener]:
        looking.set()
        await asyncio.to_thread(has_left.wait, SECONDS)
        asyncio.get_running_loop().call_soon(was_asked.set)
        return listeners

    monkeypatch.setattr(open_streams.Hub, "_with_news", finds_all)
    assert looking.wait(SECONDS)
    stream.close()
    wait_until(lambda: not hub._all(), "the stream was not removed")
    has_left.set()
    assert was_asked.wait(SECONDS)
    assert not hub._due


@pytest.mark.parametrize("event_id", [ids.uuid7(), UUID(int=0)], ids=["of an event", "of a heartbeat"])
def test_a_position_beyond_all_transactions_restarts_the_stream(
    listen: Open, tenant: Tenant, event_id: UUID
) -> None:
    """Such positions exist after a restore without a new epoch."""
    [first] = make(tenant, age=reading.LATEST + timedelta(days=5))
    second = publish_one(tenant)
    stream = listen(Last_Event_ID=str(reading.Position(2**62, event_id)))
    assert [stream.event()["id"] for _ in range(2)] == [first.public_id, second]


def test_a_place_before_any_event_is_good_as_long_as_the_events_are_kept(
    listen: Open, tenant: Tenant, other_tenant: Tenant
) -> None:
    stream = listen()
    stream.close()
    make(other_tenant, age=timedelta(days=88))
    make(tenant, age=timedelta(days=87), environment="test")
    missed = [make(tenant, age=timedelta(days=days))[0].public_id for days in (80, 60, 1)]
    again = listen(Last_Event_ID=stream.last_id)
    assert [again.event()["id"] for _ in missed] == missed


def test_a_place_before_any_event_passes_by_no_transaction_that_is_under_way(
    listen: Open, tenant: Tenant
) -> None:
    stream = listen()
    stream.close()
    with transaction.atomic():
        slow = publish_one(tenant)
        [quick] = in_threads(lambda: publish_one(tenant))
        again = listen(Last_Event_ID=stream.last_id)
    assert [again.event()["id"] for _ in range(2)] == [slow, quick]


def test_a_place_before_any_event_goes_on_at_the_lowest_transaction(tenant: Tenant) -> None:
    """As a text, 10 would be lower than 9."""
    events = [UUID(str(ids.decode(ids.EVENT, publish_one(tenant)))) for _ in range(2)]
    for event, transaction_id in zip(events, (10, 9), strict=True):
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE events SET position = %s::text::xid8 WHERE id = %s", [transaction_id, event]
            )
    place = f"5.{ids.encode(ids.EVENT, UUID(int=0))}"
    found = run(reading.place_of(place, tenant_id=tenant.id, environment="live"))
    assert found == reading.Position(9, UUID(int=events[1].int - 1))


def test_an_open_stream_goes_on_in_a_new_epoch(listen: Open, tenant: Tenant) -> None:
    stream = listen()
    before = publish_one(tenant)
    assert stream.event()["id"] == before
    reading.begin_epoch()
    since = publish_one(tenant)
    assert stream.event()["id"] == since
    publish_one(tenant)
    assert listen(Last_Event_ID=before).event()["id"] == since


def test_filters(listen: Open, tenant: Tenant) -> None:
    stream = listen("?type=message.status,batch.completed&phone_number_id=1")
    publish_one(tenant, phone_number_id="1")
    publish_one(tenant, "message.status", phone_number_id="2")
    wanted = publish_one(tenant, "message.status", phone_number_id="1")
    assert stream.event()["id"] == wanted
    wrong = (
        "?type=nothing",
        "?type=",
        "?x=1",
        "?phone_number_id=1&phone_number_id=2",
        "?filter=no",
        "?filter={}",
    )
    for query in (
        *wrong,
        f"?phone_number_id={'1' * 65}",
        "?phone_number_id=%00",
        "?type=message.inbound," * 200,
    ):
        assert listen(query).response.status == 400, query
    assert listen(f"?phone_number_id={'1' * 64}").response.status == 200


def test_types_that_must_be_named_come_only_when_they_are(listen: Open, tenant: Tenant) -> None:
    named = listen(f"?type={','.join(EXPLICIT_TYPES)}")
    every = listen(by=api_keys.create(name="e", environment="live", tenant=tenant).key)
    published = {kind: publish_one(tenant, kind) for kind in (*EXPLICIT_TYPES, "message.inbound")}
    assert every.event()["id"] == published["message.inbound"]
    assert [named.event()["id"] for _ in EXPLICIT_TYPES] == [published[kind] for kind in EXPLICIT_TYPES]


def test_a_filter_by_content(listen: Open, tenant: Tenant) -> None:
    wanted_only = listen("?filter=" + quote(json.dumps({"data.message.type": "button"})))
    publish_one(tenant, data=b'{"message":{"type":"text"}}')
    wanted = publish_one(tenant, data=b'{"message":{"type":"button"}}')
    assert wanted_only.event()["id"] == wanted


def test_a_key_that_is_limited_to_numbers_receives_only_their_events(listen: Open, tenant: Tenant) -> None:
    limited = api_keys.create(
        name="n", environment="live", tenant=tenant, phone_number_ids=["100", "200"]
    ).key
    every, one = listen(by=limited), None
    for number in (None, "300", "200"):
        last = publish_one(tenant, phone_number_id=number)
    assert every.event()["id"] == last
    one = listen("?phone_number_id=100", by=limited)
    publish_one(tenant, phone_number_id="200")
    last = publish_one(tenant, phone_number_id="100")
    assert one.event()["id"] == last
    assert listen("?phone_number_id=300", by=limited).response.status == 400


def test_a_limited_key_receives_only_the_change_of_its_event(listen: Open, tenant: Tenant) -> None:
    limited = api_keys.create(name="n", environment="live", tenant=tenant, phone_number_ids=["100"]).key
    own, whole = listen(by=limited), listen("?phone_number_id=100")
    raw = b'{"entry": [{"id": "1", "changes": [{"value": "secret"}]}, {"id": "1", "changes": [{"value": 1.0}]}]}'
    publish_one(tenant, raw=raw, raw_path="entry[1].changes[0].value", phone_number_id="100")
    assert own.event()["raw"] == {"entry": [{"id": "1", "changes": [{"value": 1.0}]}]}
    assert whole.event()["raw"] == json.loads(raw)


@pytest.mark.parametrize("scopes", [["messages"], ["events"]])
def test_it_needs_the_scope_of_events(listen: Open, tenant: Tenant, scopes: list[str]) -> None:
    key = api_keys.create(name="s", environment="live", tenant=tenant, scopes=scopes).key
    assert listen(by=key).response.status == (200 if scopes == ["events"] else 403)


def test_a_credential_without_the_scope_is_not_admitted_any_longer(tenant: Tenant) -> None:
    keys = [
        api_keys.create(name="s", environment="live", tenant=tenant, scopes=[scope]).key
        for scope in ("events", "messages")
    ]
    credentials = [admission.Credential(key, None) for key in keys]
    assert async_to_sync(admission.still_admitted)(credentials) == [True, False]


def test_another_tenant_and_the_other_environment_receive_nothing(
    listen: Open, tenant: Tenant, other_tenant: Tenant
) -> None:
    test_key = api_keys.create(name="t", environment="test", tenant=tenant).key
    other_key = api_keys.create(name="o", environment="live", tenant=other_tenant).key
    in_test, of_other = listen(by=test_key), listen(by=other_key)
    publish_one(tenant)
    tests_own = publish_one(tenant, environment="test")
    others_own = publish_one(other_tenant)
    assert in_test.event()["id"] == tests_own
    assert of_other.event()["id"] == others_own


def test_the_newest_stream_of_a_key_ends_the_one_before(listen: Open, tenant: Tenant) -> None:
    first = listen()
    second = listen()
    assert first.event() == {"event": "closed", "data": "replaced"}
    event_id = publish_one(tenant)
    assert second.event()["id"] == event_id


def test_a_platforms_streams_of_its_tenants_stay_open_beside_each_other(
    listen: Open, platform_app: PlatformApp
) -> None:
    by = api_keys.create(name="p", environment="live", app=platform_app).key
    shops = [Tenant.objects.create(name=name, app=platform_app, status="active") for name in ("A", "B")]
    streams = [listen(by=by, X_Service_Tenant=str(shop.id)) for shop in shops]
    events = [publish_one(shop) for shop in shops]
    assert [stream.event()["id"] for stream in streams] == events


def test_a_live_platform_key_reads_the_test_events_of_a_sandbox_tenant(
    listen: Open, platform_app: PlatformApp
) -> None:
    by = api_keys.create(name="p", environment="live", app=platform_app).key
    shop = Tenant.objects.create(name="Try", app=platform_app, status="active", sandbox=True)
    stream = listen(by=by, X_Service_Tenant=str(shop.id))
    event_id = publish_one(shop, environment="test")
    assert stream.event()["id"] == event_id


def test_a_stream_of_the_key_at_another_process_ends_this_one(
    listen: Open, key: api_keys.NewKey, empty_valkey: redis.Redis
) -> None:
    stream = listen()
    hub = stream_response._hub
    assert hub is not None
    (listener,) = hub._all()
    empty_valkey.set(f"streams:key:{listener.slot}", "another connection")
    assert stream.event() == {"event": "closed", "data": "replaced"}


def test_a_tenant_holds_a_bounded_number_of_streams(
    listen: Open, tenant: Tenant, other_tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_streams, "STREAMS_PER_TENANT", 2)
    keys = [api_keys.create(name="k", environment="live", tenant=tenant).key for _ in range(3)]
    kept = [listen(by=each) for each in keys[:2]]
    assert listen(by=keys[2]).response.status == 429
    assert (
        listen(by=api_keys.create(name="o", environment="live", tenant=other_tenant).key).response.status
        == 200
    )
    assert listen(by=keys[0]).response.status == 200, "a key takes the place of its own former stream"
    kept[1].close()
    wait_until(lambda: listen(by=keys[2]).response.status == 200, "a closed stream keeps its place")


def test_a_renewal_under_way_does_not_keep_the_slot_of_a_closed_stream(
    listen: Open, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_streams, "STREAMS_PER_TENANT", 1)
    renew, release = open_streams.StreamSlots.renew, open_streams.StreamSlots.release
    renewing, released = threading.Event(), asyncio.Event()

    async def renew_after_the_release(
        slots: open_streams.StreamSlots, listeners: Sequence[Listener]
    ) -> list[bool]:
        renewing.set()
        await released.wait()
        return await renew(slots, listeners)

    async def release_first(slots: open_streams.StreamSlots, listener: Listener) -> None:
        await release(slots, listener)
        released.set()

    monkeypatch.setattr(open_streams.StreamSlots, "renew", renew_after_the_release)
    monkeypatch.setattr(open_streams.StreamSlots, "release", release_first)
    stream = listen()
    assert renewing.wait(SECONDS)
    stream.close()
    other = api_keys.create(name="k", environment="live", tenant=tenant).key
    wait_until(lambda: listen(by=other).response.status == 200, "a closed stream keeps its place")


def test_a_renewal_does_not_end_a_stream_that_waits_for_its_slot(
    listen: Open, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key's former stream is open in another process, so the new one waits."""
    renew, acquire = open_streams.StreamSlots.renew, open_streams.StreamSlots.acquire
    rounds = 0

    async def counted(slots: open_streams.StreamSlots, listeners: Sequence[Listener]) -> list[bool]:
        nonlocal rounds
        kept = await renew(slots, listeners)
        rounds += 1
        return kept

    async def late(slots: open_streams.StreamSlots, listener: Listener) -> bool:
        await slots._valkey.set(f"streams:key:{listener.slot}", "elsewhere")
        began = rounds
        while rounds < began + 2:
            await asyncio.sleep(0.01)
        return await acquire(slots, listener)

    listen(by=api_keys.create(name="k", environment="live", tenant=tenant).key)
    monkeypatch.setattr(open_streams.StreamSlots, "renew", counted)
    monkeypatch.setattr(open_streams.StreamSlots, "acquire", late)
    stream = listen()
    event_id = publish_one(tenant)
    assert stream.event()["id"] == event_id


def test_the_bound_counts_the_streams_of_other_processes(
    listen: Open, tenant: Tenant, monkeypatch: pytest.MonkeyPatch, empty_valkey: redis.Redis
) -> None:
    monkeypatch.setattr(open_streams, "STREAMS_PER_TENANT", 1)
    empty_valkey.zadd(f"streams:tenant:{tenant.id}", {"elsewhere": time.time() + 30})
    assert listen().response.status == 429
    empty_valkey.zadd(f"streams:tenant:{tenant.id}", {"elsewhere": time.time() - 1})
    assert listen().response.status == 200


def test_a_stream_waits_two_seconds_at_most_for_a_hanging_valkey(settings: Any) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(10_000):
            pass

    async def seconds() -> float:
        hub = open_streams.Hub()
        began = time.monotonic()
        with pytest.raises(VALKEY_UNAVAILABLE):
            await hub._slots.renew([])
        waited = time.monotonic() - began
        await hub.close()
        return waited

    with raw_server(silent) as url:
        settings.REDIS_URL = url.replace("http", "redis")
        assert asyncio.run(seconds()) < 2.0


def test_the_bound_holds_without_valkey(
    listen: Open, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> bool:
        raise redis.exceptions.ConnectionError

    monkeypatch.setattr(open_streams.StreamSlots, "acquire", away)
    monkeypatch.setattr(open_streams, "STREAMS_PER_TENANT", 1)
    assert listen().response.status == 200
    other = api_keys.create(name="k", environment="live", tenant=tenant).key
    assert listen(by=other).response.status == 429


def test_the_streams_of_all_tenants_leave_connections_for_other_calls(
    listen: Open, other_tenant: Tenant, front: FrontClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert open_streams.MOST_STREAMS + http_listener.MOST_BODIES < http_listener.MOST_CONNECTIONS
    monkeypatch.setattr(open_streams, "MOST_STREAMS", 1)
    assert listen().response.status == 200
    other = api_keys.create(name="k", environment="live", tenant=other_tenant).key
    assert listen(by=other).response.status == 503
    assert front.ask("GET", "/v1/health").status_code == 200


def test_a_revoked_key_ends_its_stream(listen: Open, tenant: Tenant, key: api_keys.NewKey) -> None:
    stream = listen()
    api_keys.revoke(keys=key.row.__class__.objects.for_tenant(tenant.id), key_id=key.row.id)
    key_cache.clear_process_cache()
    assert stream.event() == {"event": "closed", "data": "unauthorized"}
    # The limit is two rounds of checks plus the lifetime of a key in the process's cache, because one round may come
    # just before the revocation.
    assert 2 * 8.0 + key_cache.PROCESS_SECONDS + key_cache.FRESH_SECONDS < 30


def test_a_suspension_ends_the_streams(listen: Open, tenant: Tenant) -> None:
    stream = listen()
    tenant.status = "suspended"
    tenant.save()
    key_cache.clear_process_cache()
    key_cache.write_tenant(tenant)
    assert stream.event() == {"event": "closed", "data": "unauthorized"}


def test_a_heartbeat_comes_while_nothing_happens(
    listen: Open, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_streams, "HEARTBEAT_SECONDS", 0.1)
    stream = listen("?type=message.status")
    place = stream.last_id
    assert stream.block()[""] == "alive"
    assert stream.last_id == place, "nothing has happened since"
    publish_one(tenant)
    wait_until(
        lambda: bool(stream.block()) and stream.last_id != place, "the place stays before what is left out"
    )


def test_a_client_that_takes_nothing_is_dropped(
    listen: Open, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_listener, "TAKE_SECONDS", 0.2)
    listen()
    hub = stream_response._hub
    assert hub is not None
    large = b'{"x":"' + b"x" * 4_000_000 + b'"}'
    for _ in range(6):
        publish_one(tenant, data=large)
    wait_until(lambda: not hub._all(), "it holds its megabytes for ever")


def test_a_database_that_is_away_does_not_end_it(
    listen: Open, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_streams, "AGAIN_SECONDS", 0.1)
    stream = listen()
    first = publish_one(tenant)
    assert stream.event()["id"] == first
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND query LIKE '%%e.position%%'"
        )
    second = publish_one(tenant)
    assert stream.event()["id"] == second


def test_a_stream_whose_place_is_not_found_in_time_is_refused_and_can_be_repeated(
    front: FrontClient, key: api_keys.NewKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_response, "START_SECONDS", 0.0)
    answer = front.ask("GET", "/v1/events/stream", Authorization=f"Bearer {key.key}")
    assert answer.status_code == 503
    assert json.loads(answer.content)["error"]["code"] == "service_unavailable"


def test_a_strangers_stream_is_refused(front: FrontClient) -> None:
    assert_error(front.ask("GET", "/v1/events/stream"), 401, "unauthorized")  # type: ignore[arg-type]


def test_its_headers_can_be_asked_for_alone(front: FrontClient, key: api_keys.NewKey) -> None:
    answer = front.ask("HEAD", "/v1/events/stream", Authorization=f"Bearer {key.key}")
    assert (answer.status_code, answer["Content-Type"]) == (200, "text/event-stream")


def test_asking_for_its_headers_ends_no_open_stream(
    listen: Open, tenant: Tenant, front: FrontClient, key: api_keys.NewKey
) -> None:
    stream = listen()
    assert front.ask("HEAD", "/v1/events/stream", Authorization=f"Bearer {key.key}").status_code == 200
    event_id = publish_one(tenant)
    assert stream.event()["id"] == event_id


@pytest.mark.parametrize(
    ("statement", "condition"),
    [(reading._AFTER, "ROW("), (reading._FIRST, '"position" >=')],
    ids=["the next events", "the first event"],
)
def test_the_stream_is_read_by_its_index(tenant: Tenant, statement: str, condition: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off; SET enable_sort = off")
        cursor.execute(
            "EXPLAIN " + statement,
            {
                "tenant_id": tenant.id,
                "environment": "live",
                "transaction": "5",
                "places": [1],
                "owners": [tenant.id],
                "environments": ["live"],
                "transactions": ["5"],
                "events": [ids.uuid7()],
                "settled": "9",
                "first": ids.uuid7(),
                "end": UUID(int=ids.uuid7().int + 2**80),
            },
        )
        plan = "\n".join(line for (line,) in cursor.fetchall())
        cursor.execute("RESET enable_seqscan; RESET enable_sort")
    assert "tenant_id_environment_position_id" in plan or "by_position" in plan, plan
    assert condition in plan.partition("Index Cond")[2].partition("\n")[0], plan


def test_rows_of_the_former_version_get_a_place_too(tenant: Tenant) -> None:
    Event.objects.create(
        tenant_id=tenant.id, type="message.inbound", dedupe_key="x", payload_expires_on="2030-01-01"
    )
    with psycopg.connect(**connection.get_connection_params()) as other:
        ((found,),) = other.execute("SELECT position IS NOT NULL FROM events").fetchall()
    assert found
