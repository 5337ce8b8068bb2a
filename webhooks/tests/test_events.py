"""`GET /v1/events` and `GET /v1/events/{id}`: filters, pages, answers past retention, and the number of queries."""

from datetime import timedelta
from typing import Any

import orjson
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from gateway.clock import isoformat, now
from gateway.upstream.notifications.change import MessageFacts
from tenants.models import Tenant
from tests.fixtures import Api, assert_error
from webhooks.events import envelope, search
from webhooks.events.envelope import EVENT_TYPES
from webhooks.models import Delivery, Endpoint, Event, EventPayload
from webhooks.tests import publishing

pytestmark = pytest.mark.django_db
ENVELOPE_BEFORE_DATA = [
    "id",
    "type",
    "api_version",
    "created_at",
    "tenant_id",
    "waba_id",
    "phone_number_id",
    "display_phone_number",
    "wamid",
    "wa_id",
    "user_id",
    "dedupe_key",
]
FOR_LISTS = ["direction", "status", "error_code", "payload_available", "deliveries"]


def make(tenant: Tenant, kind: str = "message.inbound", **values: Any) -> Event:
    """Publish one event."""
    (event,) = publishing.make(tenant, kind, **values)
    return event


def found(api: Api, query: str = "") -> list[str]:
    answer = api.get(f"/v1/events?{query}")
    assert answer.status_code == 200, answer.content
    return [each["id"] for each in answer.json()["data"]]


@pytest.fixture
def endpoint(tenant: Tenant) -> Endpoint:
    return publishing.endpoint_of(tenant)


def test_an_item_says_how_its_message_stands(api: Api, tenant: Tenant) -> None:
    failed = MessageFacts(direction="outbound", status="failed", error_code=131026)
    make(tenant, "message.status", wamid="w", message=failed)
    make(tenant, "batch.completed")
    of_batch, of_status = api.get("/v1/events").json()["data"]
    shown = [(each["direction"], each["status"], each["error_code"]) for each in (of_status, of_batch)]
    assert shown == [("outbound", "failed", 131026), (None, None, None)]


def test_an_item_has_the_direction_of_its_type(api: Api, tenant: Tenant) -> None:
    for kind in EVENT_TYPES:
        Event.objects.create(tenant_id=tenant.id, type=kind, dedupe_key=kind, payload_expires_on="2030-01-01")
    items = api.get("/v1/events?limit=200").json()["data"]
    directions = {each["type"]: each["direction"] for each in items if each["direction"] is not None}
    assert len(items) == len(EVENT_TYPES)
    assert directions == {
        "message.inbound": "inbound",
        "message.outbound": "outbound",
        "message.echo": "outbound",
        "message.status": "outbound",
    }


def test_an_item_has_the_word_of_a_status(api: Api, tenant: Tenant) -> None:
    played = MessageFacts(direction="outbound", status="read", word="played")
    make(tenant, "message.status", wamid="w", message=played)
    (item,) = api.get("/v1/events").json()["data"]
    assert item["status"] == "played"


def test_an_item_is_the_envelope_without_data_and_raw(api: Api, tenant: Tenant, endpoint: Endpoint) -> None:
    event = make(
        tenant,
        waba_id="1",
        phone_number_id="2",
        display_phone_number="91",
        wamid="w",
        wa_id="3",
        user_id="IN.4",
    )
    (item,) = api.get("/v1/events").json()["data"]
    assert list(item) == [*ENVELOPE_BEFORE_DATA, "raw_path", *FOR_LISTS]
    stored = envelope.load([event.id], tenant_id=tenant.id)[event.id]
    assert stored is not None
    delivered = orjson.loads(stored.body())
    assert {name: item[name] for name in [*ENVELOPE_BEFORE_DATA, "raw_path"]} == {
        name: delivered[name] for name in [*ENVELOPE_BEFORE_DATA, "raw_path"]
    }
    assert item["payload_available"] is True
    assert item["deliveries"] == {"pending": 1, "delivered": 0, "failed": 0, "dead": 0}


def test_events_of_many_days_are_read_together(tenant: Tenant) -> None:
    events = [each for age in range(5) for each in publishing.make(tenant, age=timedelta(days=age), count=2)]
    found = envelope.load([event.id for event in events], tenant_id=tenant.id)
    for event in events:
        stored, alone = found[event.id], envelope.load([event.id], tenant_id=tenant.id)[event.id]
        assert stored is not None
        assert alone is not None
        assert stored.body() == alone.body()


def test_one_event_is_the_envelope_exactly_as_delivered(api: Api, tenant: Tenant, endpoint: Endpoint) -> None:
    raw = b'{ "a" : "caf\\u00e9 \\/",\n "n": 12345678901234567890.10 }'
    event = make(tenant, raw=raw)
    answer = api.get(f"/v1/events/{event.public_id}")
    assert answer.status_code == 200
    stored = envelope.load([event.id], tenant_id=tenant.id)[event.id]
    assert stored is not None
    assert answer.content.startswith(
        b'{"event":' + stored.body() + b',"payload_available":true,"deliveries":['
    )
    assert raw in answer.content
    (delivery,) = answer.json()["deliveries"]
    listed = api.get(f"/v1/webhook-deliveries?event_id={event.public_id}").json()["data"]
    assert [delivery] == listed


def test_the_deliveries_of_an_event_are_listed_from_a_time_on(
    api: Api, tenant: Tenant, endpoint: Endpoint
) -> None:
    event = make(tenant, age=timedelta(hours=2))
    again = publishing.dead_delivery(endpoint, event, is_replay=True)
    query = f"/v1/webhook-deliveries?event_id={event.public_id}"
    assert len(api.get(query).json()["data"]) == 2
    listed = api.get(f"{query}&from={isoformat(now() - timedelta(hours=1))}").json()["data"]
    assert [each["id"] for each in listed] == [again.public_id]


@pytest.mark.parametrize("age_days", [89, 91])
def test_past_retention_the_metadata_stays(
    api: Api, tenant: Tenant, endpoint: Endpoint, age_days: int
) -> None:
    """The default retention is 90 days. The body may be stored for longer, because its partition is dropped weekly."""
    event = make(tenant, age=timedelta(days=age_days))
    kept = age_days < 90
    assert EventPayload.objects.filter(id=event.id).exists()
    one = api.get(f"/v1/events/{event.public_id}").json()
    assert (one["event"] is not None) is one["payload_available"] is kept
    assert len(one["deliveries"]) == 1
    (item,) = api.get("/v1/events").json()["data"]
    assert item["payload_available"] is kept


def test_a_body_that_is_gone_is_not_available(api: Api, tenant: Tenant) -> None:
    event = make(tenant)
    EventPayload.objects.filter(id=event.id).delete()
    one = api.get(f"/v1/events/{event.public_id}").json()
    assert (one["event"], one["payload_available"]) == (None, False)
    assert api.get("/v1/events").json()["data"][0]["payload_available"] is False


def test_an_event_without_its_notification_is_available(api: Api, tenant: Tenant) -> None:
    event = make(tenant)
    assert event.raw_id
    EventPayload.objects.filter(id=event.raw_id).delete()
    one = api.get(f"/v1/events/{event.public_id}").json()
    assert (one["event"]["raw"], one["event"]["raw_path"], one["payload_available"]) == (None, None, True)
    assert one["event"]["data"]["message"]
    assert api.get("/v1/events").json()["data"][0]["payload_available"] is True


def test_events_of_the_service_itself_have_no_raw(api: Api, tenant: Tenant) -> None:
    data = (
        b'{"id":"bat_01K94R0MEG70080000000000ZZ","status":"completed","total":1,"accepted":1,"failed":0,"skipped":0,'
        b'"rate_per_sec":80,"client_ref":null,"created_at":"2026-11-01T07:05:00.000Z",'
        b'"started_at":"2026-11-01T07:05:00.412Z","completed_at":"2026-11-01T07:06:41.118Z"}'
    )
    event = make(tenant, "batch.completed", raw=None, raw_path=None, data=data)
    one = api.get(f"/v1/events/{event.public_id}").json()["event"]
    assert (one["raw"], one["raw_path"]) == (None, None)
    assert api.get("/v1/events").json()["data"][0]["payload_available"] is True


class TestFilters:
    @pytest.fixture
    def events(self, tenant: Tenant, other_tenant: Tenant) -> dict[str, str]:
        rows = {
            "inbound": make(
                tenant,
                age=timedelta(hours=4),
                waba_id="1",
                phone_number_id="10",
                wamid="wamid.a=",
                wa_id="91",
            ),
            "status": make(
                tenant,
                "message.status",
                age=timedelta(hours=3),
                waba_id="1",
                phone_number_id="11",
                wamid="wamid.a=",
                wa_id="92",
                user_id="IN.7",
            ),
            "template": make(tenant, "template.status", age=timedelta(hours=2), waba_id="2"),
            "inbound2": make(tenant, age=timedelta(hours=1), waba_id="2", phone_number_id="10", wa_id="92"),
        }
        make(other_tenant, waba_id="1", phone_number_id="10", wamid="wamid.a=", wa_id="91")
        return {row.public_id: name for name, row in rows.items()}

    def test_several_together(self, api: Api, events: dict[str, str]) -> None:
        for query, expected in (
            ("type=template.status,message.status", "template status"),
            ("type=message.inbound, message.inbound", "inbound2 inbound"),
            ("wamid=wamid.a%3D", "status inbound"),
            ("wa_id=%2B92&type=message.status", "status"),
            ("waba_id=1&phone_number_id=10&wa_id=91&wamid=wamid.a%3D&type=message.inbound", "inbound"),
            ("user_id=IN.8", ""),
        ):
            assert [events[event_id] for event_id in found(api, query)] == expected.split(), query

    def test_from_is_inclusive_and_to_exclusive_to_the_millisecond(
        self, api: Api, events: dict[str, str]
    ) -> None:
        moments = {each["id"]: each["created_at"] for each in api.get("/v1/events").json()["data"]}
        by_name = {name: moments[event_id] for event_id, name in events.items()}
        query = f"from={by_name['status']}&to={by_name['inbound2']}"
        assert [events[event_id] for event_id in found(api, query)] == ["template", "status"]
        turned = f"from={by_name['inbound2']}&to={by_name['status']}"
        assert_error(api.get(f"/v1/events?{turned}"), 400, "invalid_request")

    def test_what_cannot_be_read_is_400_and_names_the_parameter(self, api: Api) -> None:
        limits = ("limit=0", "limit=201", "limit=x", "cursor=!", "cursor=bm90LWEtdXVpZA")
        types, times = ("type=message.unknown", "type=", "type=*"), ("from=yesterday", "to=2026-13-01")
        for query in (*types, *times, *limits, "wa_id=%00", "wamid=" + "x" * 600):
            error = assert_error(api.get(f"/v1/events?{query}"), 400, "invalid_request")
            assert list(error["details"]["fields"]) == [query.split("=")[0]], query


def test_a_full_last_page_has_no_next(api: Api, tenant: Tenant) -> None:
    make(tenant)
    make(tenant)
    assert api.get("/v1/events?limit=2").json()["next_cursor"] is None
    assert api.get("/v1/events?limit=1").json()["next_cursor"] is not None


# Twenty events of each value, and as many of another tenant. A walk through all events, or through all events of the
# tenant, would cost more than a walk through the narrowest index.
_MANY = """
INSERT INTO events (id, tenant_id, environment, type, waba_id, phone_number_id, wamid, wa_id, dedupe_key,
                    payload_expires_on)
SELECT (lpad(to_hex((floor(extract(epoch FROM now()) * 1000))::bigint - n), 12, '0') || '70008'
        || lpad(to_hex(2 * n + place), 15, '0'))::uuid, owner, 'live',
       CASE n %% 50 WHEN 1 THEN 'template.status' ELSE 'message.inbound' END, n %% 50, n %% 50, 'w' || n %% 50,
       n %% 50, n, current_date + 30
FROM generate_series(1, 1000) AS n CROSS JOIN (VALUES (0, %s::uuid), (1, gen_random_uuid())) AS each (place, owner)
"""


class TestCost:
    @pytest.mark.parametrize(
        "path", ["/v1/events?limit=200", "/v1/events?type=message.inbound,message.status"]
    )
    def test_four_queries_however_many_events(
        self, api: Api, tenant: Tenant, endpoint: Endpoint, path: str
    ) -> None:
        api.get(path)
        for more in (1, 30):
            for _ in range(more):
                make(tenant)
            with CaptureQueriesContext(connection) as queries:
                assert len(api.get(path).json()["data"]) >= more
            # Recent rows do not fill the page, so the oldest row is searched. Prepared statements are not recorded.
            assert len([each for each in queries if "SAVEPOINT" not in (each["sql"] or "")]) == 4

    def test_a_page_of_recent_events_takes_two_queries(self, api: Api, tenant: Tenant) -> None:
        for _ in range(3):
            make(tenant)
        api.get("/v1/events?limit=2")
        with CaptureQueriesContext(connection) as queries:
            assert len(api.get("/v1/events?limit=2").json()["data"]) == 2
        assert len([each for each in queries if "SAVEPOINT" not in (each["sql"] or "")]) == 2

    def test_one_event_in_five_queries(self, api: Api, tenant: Tenant, endpoint: Endpoint) -> None:
        event = make(tenant)
        api.get("/v1/events")
        with CaptureQueriesContext(connection) as queries:
            assert api.get(f"/v1/events/{event.public_id}").status_code == 200
        assert len([each for each in queries if "SAVEPOINT" not in (each["sql"] or "")]) == 5

    def test_each_filter_walks_an_index(self, api: Api, tenant: Tenant) -> None:
        """An index returns the rows of each filter in the page's order, so no plan needs a table scan or a sort."""
        with connection.cursor() as cursor:
            cursor.execute(_MANY, [tenant.id])
            cursor.execute("ANALYZE events")
        api.get("/v1/events")
        searches = {}
        for query, index in (
            ("type=template.status", "tenant_id_type"),
            ("waba_id=1", "tenant_id_waba"),
            ("phone_number_id=1", "tenant_id_phone"),
            ("wamid=w1", "tenant_id_wamid"),
            ("wa_id=1", "tenant_id_wa_id"),
        ):
            with CaptureQueriesContext(connection) as queries:
                api.get(f"/v1/events?{query}")
            searches[index] = next(each["sql"] for each in queries if "FROM events" in (each["sql"] or ""))
        with connection.cursor() as cursor:
            cursor.execute(
                "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off"
            )
            for index, search in searches.items():
                cursor.execute("EXPLAIN " + search)
                plan = "\n".join(line for (line,) in cursor.fetchall())
                assert "Seq Scan" not in plan, index
                assert index in plan


@pytest.mark.parametrize(
    "event_id", ["evt_1", "evt_", "1", "dlv_01J00000000000000000000000", "evt_01J00000000000000000000000"]
)
def test_what_is_no_event_is_404(api: Api, event_id: str) -> None:
    assert_error(api.get(f"/v1/events/{event_id}"), 404, "not_found")


def test_a_page_counts_the_deliveries_of_each_of_its_events(
    api: Api, tenant: Tenant, endpoint: Endpoint
) -> None:
    for days in (2, 1, 0):
        make(tenant, age=timedelta(days=days))
    counts = [item["deliveries"]["pending"] for item in api.get("/v1/events").json()["data"]]
    assert counts == [1, 1, 1]


def test_deliveries_of_every_status_are_counted(
    api: Api, tenant: Tenant, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = make(tenant)
    for status in Delivery.Status.values * 2:
        Delivery.objects.create(
            tenant_id=tenant.id,
            endpoint_id=endpoint.id,
            event_id=event.id,
            event_type=event.type,
            status=status,
        )
    (item,) = api.get("/v1/events").json()["data"]
    assert item["deliveries"] == {"pending": 3, "delivered": 2, "failed": 2, "dead": 2}
    shown = [each["id"] for each in api.get(f"/v1/events/{event.public_id}").json()["deliveries"]]
    newest_first = [row.public_id for row in Delivery.objects.order_by("-id")]
    assert (len(shown), shown) == (9, newest_first)
    monkeypatch.setattr(search, "MAX_DELIVERIES", 4)
    answer = api.get(f"/v1/events/{event.public_id}").json()
    assert [each["id"] for each in answer["deliveries"]] == newest_first[:4]
