"""`/v1/ledger` and `/v1/usage` over HTTP. The figures match the tables and contain only the caller's data."""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from django.db import connection
from django.test import Client
from pytest_django import Settings

from gateway import ids
from gateway.api.access_log import SEND_ROUTES
from gateway.clock import now
from gateway.request_log.models import ApiRequest
from gateway.request_log.tests.listening import listening
from gateway.upstream.notifications.change import MessageFacts, Status
from messaging import retention
from messaging.daily_ledger import tally
from messaging.daily_ledger.tally import Counting, day_of
from messaging.models import Batch, BatchItem
from messaging.sending.outbound import outcome_unknown
from messaging.tests.conftest import connected_number
from tenants import platform_apps
from tenants.credentials import api_keys
from tenants.models import PlatformApp, Tenant
from tests.browsers import text
from tests.fixtures import Api, assert_error
from tests.simulated import RunningSimulator
from webhooks.models import Delivery, Endpoint, Event
from webhooks.tests import publishing
from webhooks.tests.publishing import make, uuid_at

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("within_half_an_hour")]


def endpoint_of(tenant: Tenant, **values: Any) -> Endpoint:
    return publishing.endpoint_of(tenant, **{"event_types": ["message.inbound"], **values})


def settle(endpoint: Endpoint, *states: tuple[str, str | None]) -> list[Delivery]:
    """Give the endpoint's deliveries, oldest first, these states and last errors."""
    deliveries = list(Delivery.objects.filter(endpoint_id=endpoint.id).order_by("id"))
    for delivery, (status, error) in zip(deliveries, states, strict=True):
        delivery.status, delivery.last_error = status, error
        delivery.save(update_fields=["status", "last_error"])
    return deliveries


def replay_of(delivery: Delivery, status: str) -> None:
    Delivery.objects.create(
        tenant_id=delivery.tenant_id,
        endpoint_id=delivery.endpoint_id,
        event_id=delivery.event_id,
        event_type=delivery.event_type,
        status=status,
        is_replay=True,
        replay_of=delivery.id,
    )


def test_every_event_is_accounted_for_at_each_endpoint(api: Api, tenant: Tenant) -> None:
    first, second = endpoint_of(tenant), endpoint_of(tenant)
    make(tenant, count=6)
    make(tenant, "message.status", count=2)
    deliveries = settle(
        first,
        ("delivered", None),
        ("pending", None),
        ("failed", "http_5xx"),
        ("dead", "timeout"),
        ("dead", "payload_expired"),
        ("dead", "http_4xx"),
    )
    settle(second, *[("delivered", None)] * 6)
    replay_of(deliveries[5], "delivered")
    replay_of(deliveries[3], "dead")
    replay_of(deliveries[0], "delivered")
    answer = api.get("/v1/ledger").json()
    assert answer["events"] == {"accepted": 8, "with_endpoint": 6, "without_endpoint": 2}
    assert answer["endpoints"] == [
        {
            "endpoint_id": str(first.id),
            "accepted": 6,
            "delivered": 2,
            "waiting": 2,
            "dead": 1,
            "expired": 1,
            "balanced": True,
        },
        {
            "endpoint_id": str(second.id),
            "accepted": 6,
            "delivered": 6,
            "waiting": 0,
            "dead": 0,
            "expired": 0,
            "balanced": True,
        },
    ]
    assert (answer["balanced"], answer["hour"]) == (True, None)


@pytest.mark.usefixtures("within_half_an_hour")
def test_the_console_shows_the_ledger_of_a_day(tenant: Tenant, other_tenant: Tenant, browser: Client) -> None:
    assert "No events on" in text(browser, "/console/ledger")
    shop, gone = endpoint_of(tenant, url="https://shop.example/hook"), endpoint_of(tenant)
    make(tenant, count=2)
    settle(shop, ("delivered", None), ("dead", "timeout"))
    settle(gone, ("pending", None), ("pending", None))
    endpoint_of(other_tenant, url="https://stranger.example/")
    make(other_tenant, count=3)
    gone.delete()
    page = text(browser, "/console/ledger")
    assert "Balanced" in page
    assert "<dt>Accepted</dt><dd>2</dd>" in page
    (row,) = [line for line in page.split("<tr>") if "https://shop.example/hook" in line]
    assert re.findall(r'"amount">(\d+)<', row) == ["2", "1", "0", "1", "0"]
    assert "Deleted since" in page
    assert "stranger.example" not in page
    here = now().astimezone(ZoneInfo("Asia/Kolkata"))
    day = here.date()
    assert "<dt>Accepted</dt><dd>2</dd>" in text(browser, f"/console/ledger?day={day}&hour={here.hour}")
    in_utc = f"day={now():%Y-%m-%d}&hour={now().hour}"
    for query in (f"day={day - timedelta(days=1)}", in_utc):
        assert "No events on" in text(browser, f"/console/ledger?{query}")
    for wrong, problem in (
        (f"day={day + timedelta(days=1)}", "Must not be in the future."),
        ("day=1850-01-01", "Must be from 2000 on."),
    ):
        page = text(browser, f"/console/ledger?{wrong}")
        assert problem in page
        assert "Balanced" not in page, "no other day's figures under the refusal"
    browser.post("/console/preferences", {"environment": "test"})
    assert "No events on" in text(browser, "/console/ledger")


def test_the_ledger_opens_with_the_day_of_the_member(
    browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour after midnight in India, it is still the day before in UTC."""
    at = now().astimezone(ZoneInfo("Asia/Kolkata")).replace(hour=0, minute=1)
    monkeypatch.setattr("console.daily_ledger.now", lambda: at.astimezone(UTC))
    for query in ("", "?hour=0"):
        assert f'name="day" value="{at:%Y-%m-%d}"' in text(browser, f"/console/ledger{query}")


def test_the_first_hour_of_a_day_is_not_the_day(tenant: Tenant, browser: Client) -> None:
    noon = now().astimezone(ZoneInfo("Asia/Kolkata")).replace(hour=12, minute=30) - timedelta(days=1)
    make(tenant, age=now() - noon)
    for hour, is_empty in ((0, True), (12, False)):
        page = text(browser, f"/console/ledger?day={noon:%Y-%m-%d}&hour={hour}")
        assert ("No events on" in page) == is_empty


def test_the_console_says_when_a_day_cannot_be_counted(tenant: Tenant, browser: Client) -> None:
    with tally.counting(instead=""):
        answer = browser.get("/console/ledger")
    assert answer.status_code == 503
    assert "Other figures are being counted" in answer.content.decode()


def test_a_delivery_too_many_unbalances_the_ledger(api: Api, tenant: Tenant) -> None:
    endpoint = endpoint_of(tenant)
    (event,) = make(tenant)
    doubled = Delivery.objects.get(endpoint_id=endpoint.id)
    doubled.id = UUID(int=event.id.int + 1)
    doubled._state.adding = True
    doubled.save(force_insert=True)
    answer = api.get("/v1/ledger").json()
    assert (answer["balanced"], answer["endpoints"][0]["balanced"]) == (False, False)


def test_a_delivery_without_its_event_unbalances_the_ledger(api: Api, tenant: Tenant) -> None:
    endpoint_of(tenant)
    make(tenant, count=2)[0].delete()
    assert api.get("/v1/ledger").json()["balanced"] is False


def test_a_message_recorded_twice_unbalances_the_ledger(api: Api, tenant: Tenant) -> None:
    make(tenant, "message.outbound", wamid="wamid.1", raw=None, raw_path=None)
    make(tenant, "message.outbound", wamid="wamid.2", raw=None, raw_path=None)
    answer = api.get("/v1/ledger").json()
    assert (answer["sends"]["accepted"], answer["sends"]["doubled"], answer["balanced"]) == (2, 0, True)
    make(tenant, "message.outbound", wamid="wamid.1", raw=None, raw_path=None)
    answer = api.get("/v1/ledger").json()
    assert (answer["sends"]["accepted"], answer["sends"]["doubled"], answer["balanced"]) == (3, 1, False)


def test_a_wamid_of_another_kind_environment_or_week_is_not_recorded_twice(
    api: Api, tenant: Tenant, other_tenant: Tenant
) -> None:
    sent: dict[str, Any] = {"kind": "message.outbound", "wamid": "wamid.1", "raw": None, "raw_path": None}
    make(tenant, **sent, age=tally.DOUBLE_WITHIN + timedelta(days=2))
    make(tenant, **{**sent, "kind": "message.status"})
    make(tenant, **sent, environment="test")
    make(other_tenant, **sent)
    make(tenant, **sent)
    assert api.get("/v1/ledger").json()["sends"]["doubled"] == 0
    yesterday = timedelta(days=1)
    make(tenant, **{**sent, "wamid": "wamid.2"}, age=yesterday)
    make(tenant, **{**sent, "wamid": "wamid.2"})
    assert api.get("/v1/ledger").json()["sends"]["doubled"] == 1, "also of an earlier day"


def test_failed_items_and_unknown_outcomes_are_counted(
    api: Api, tenant: Tenant, other_tenant: Tenant
) -> None:
    for owner, environment in ((tenant, "live"), (tenant, "test"), (other_tenant, "live")):
        batch = Batch.objects.create(
            tenant=owner, environment=environment, phone_number_id="1", total=3, rate_per_sec=80
        )
        for idx, response in enumerate(
            (b'{"error":{"code":131026}}', b'{"error":{"code":"outcome_unknown"}}')
        ):
            BatchItem.objects.create(
                batch=batch, idx=idx, status="failed", body=b"", response=response, sent_at=now()
            )
        BatchItem.objects.create(batch=batch, idx=2, status="pending", body=b"{}")
    sends = api.get("/v1/ledger").json()["sends"]
    assert (sends["failed"], sends["outcome_unknown"]) == (1, 1)


def test_erased_messages_stay_counted(
    platform_app: PlatformApp, app_key: api_keys.NewKey, tenant: Tenant, api: Api
) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(app=platform_app)
    statuses: tuple[Status, ...] = ("accepted", "failed", "unknown")
    events = [
        make(
            tenant,
            "message.outbound",
            wamid="wamid.1" if status == "accepted" else None,
            message=MessageFacts("outbound", status, is_message=True),
            raw=None,
        )[0]
        for status in statuses
    ]
    batch = Batch.objects.create(
        tenant=tenant, environment="live", phone_number_id="1", total=2, rate_per_sec=80
    )
    for event, response in zip(events[1:], (b'{"error":{}}', outcome_unknown({"to": "+91"})), strict=True):
        batch.items.create(idx=len(response), status="failed", response=response, event_id=event.id)

    def counted() -> list[Any]:
        (line,) = Api(app_key.key).get("/v1/usage").json()["data"]
        return [api.get("/v1/ledger").json()["sends"], line["sent"]]

    before = counted()
    assert [before[0][name] for name in ("accepted", "failed", "outcome_unknown")] == [1, 1, 1]
    assert retention.expunge(tenant_id=tenant.id) == 3
    assert counted() == before
    assert not [item for item in batch.items.all() if b"+91" in bytes(item.response or b"")]


@pytest.mark.parametrize("is_open", [True, False])
def test_an_item_of_an_old_batch_counts_on_the_day_when_a_retry_failed(
    api: Api, tenant: Tenant, is_open: bool
) -> None:
    batch = Batch.objects.create(
        id=ids.first_at(now() - timedelta(days=20)),
        tenant=tenant,
        environment="live",
        phone_number_id="1",
        total=1,
        rate_per_sec=80,
        completed_at=None if is_open else now(),
    )
    BatchItem.objects.create(batch=batch, idx=0, status="failed", body=b"", response=b"{}", sent_at=now())
    assert api.get("/v1/ledger").json()["sends"]["failed"] == 1


def request_at(moment: datetime, tenant: Tenant, **values: Any) -> None:
    """Log a single send that the upstream refused."""
    row: dict[str, Any] = {"environment": "live", "method": "POST", "route": "/v1/messages", "status": 400}
    row |= {"error_code": "131026", "own_ms": 1, "upstream_ms": 5}
    ApiRequest.objects.create(**{"id": uuid_at(moment), "tenant_id": tenant.id, **row, **values})


def test_an_hour_counts_what_happened_from_its_begin_to_before_its_end(api: Api, tenant: Tenant) -> None:
    begin = (now() - timedelta(days=1)).replace(hour=12, minute=0, second=0, microsecond=0)
    hour, least = timedelta(hours=1), timedelta(milliseconds=1)
    values = {"tenant": tenant, "environment": "live", "phone_number_id": "1", "total": 8, "rate_per_sec": 80}
    batch = Batch.objects.create(id=ids.first_at(begin - hour), **values)
    unknown = b'{"error":{"code":"outcome_unknown"}}'
    for place, moment in enumerate((begin - least, begin, begin + hour - least, begin + hour)):
        Event.objects.create(
            id=uuid_at(moment),
            tenant_id=tenant.id,
            type="message.outbound",
            dedupe_key=str(place),
            wamid=f"wamid.{place}",
            payload_expires_on="2030-01-01",
        )
        for idx, response in ((place, b"{}"), (4 + place, unknown)):
            BatchItem.objects.create(
                batch=batch, idx=idx, status="failed", body=b"", response=response, sent_at=moment
            )
        for code in ("131026", "meta_unreachable"):
            request_at(moment, tenant, error_code=code)
    answer = api.get(f"/v1/ledger?day={begin:%Y-%m-%d}&hour=12").json()
    assert answer["events"] == {"accepted": 2, "with_endpoint": 0, "without_endpoint": 2}
    names = ("accepted", "failed", "outcome_unknown", "refused", "unanswered")
    assert answer["sends"] == {**dict.fromkeys(names, 2), "doubled": 0}


def test_only_own_single_sends_that_the_upstream_refused_are_refused(
    api: Api, tenant: Tenant, other_tenant: Tenant
) -> None:
    for route in SEND_ROUTES:
        request_at(now(), tenant, route=route)
    request_at(now(), other_tenant)
    others: list[dict[str, Any]] = [
        {"environment": "test"},
        {"method": "GET"},
        {"route": "/v1/messages/read"},
        {"status": 200},
        {"upstream_ms": 0},
    ]
    for values in others:
        request_at(now(), tenant, **values)
    sends = api.get("/v1/ledger").json()["sends"]
    assert (sends["refused"], sends["unanswered"]) == (len(SEND_ROUTES), 0)


log_calls = pytest.fixture(listening)


@pytest.mark.django_db(transaction=True)
def test_single_sends_that_were_not_accepted_are_counted_from_the_request_log(
    api: Api, tenant: Tenant, simulator: RunningSimulator, log_calls: Callable[[], None], settings: Settings
) -> None:
    number = connected_number(tenant, simulator.account())
    message = {"from": number.phone_number_id, "to": "+919812345678", "type": "text", "text": {"body": "x"}}
    wrong = {**message, "type": "template", "template": {"name": "none", "language": {"code": "en"}}}

    def send(body: dict[str, Any], key: str) -> int:
        return int(api.post("/v1/messages", body, **{"Idempotency-Key": key}).status_code)

    assert send(message, "a") == 200
    # The idempotency record answers the repeat, so Meta is called once.
    assert [send(wrong, "b"), send(wrong, "b")] == [404, 404]
    assert send({**message, "from": "1"}, "c") == 400, "refused by the service, not by the upstream"
    front = api.post(f"/v23.0/{number.phone_number_id}/messages", {**wrong, "messaging_product": "whatsapp"})
    assert front.status_code == 404
    settings.META_GRAPH_URL = "http://127.0.0.1:9"
    assert send(message, "d") == 502
    log_calls()
    sends = api.get("/v1/ledger").json()["sends"]
    assert (sends["accepted"], sends["refused"], sends["unanswered"]) == (1, 2, 1)
    before = now() - timedelta(days=8)
    old = api.get(f"/v1/ledger?day={before:%Y-%m-%d}").json()["sends"]
    assert (old["refused"], old["unanswered"]) == (None, None), "the request log does not reach back"
    settings.REQUEST_LOG_DAYS = 0
    assert api.get("/v1/ledger").json()["sends"]["refused"] is None


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("prefix", ["", "/v23.0"])
def test_every_cloud_api_path_of_a_send_is_counted_and_a_read_mark_is_not(
    api: Api,
    tenant: Tenant,
    simulator: RunningSimulator,
    log_calls: Callable[[], None],
    settings: Settings,
    prefix: str,
) -> None:
    number = f"{prefix}/{connected_number(tenant, simulator.account()).phone_number_id}"
    settings.META_GRAPH_URL = "http://127.0.0.1:9"
    message = {"messaging_product": "whatsapp", "to": "919812345678", "type": "text", "text": {"body": "x"}}
    read = {"messaging_product": "whatsapp", "status": "read", "message_id": "wamid.1"}
    sends_and_mark = [("messages", message), *[("marketing_messages", message)] * 2, ("messages", read)]
    for edge, body in sends_and_mark:
        assert api.post(f"{number}/{edge}", body).status_code == 502
    log_calls()
    sends = api.get("/v1/ledger").json()["sends"]
    assert (sends["refused"], sends["unanswered"]) == (0, 3)
    version = "/{version}" if prefix else ""
    assert [call["route"] for call in api.get("/v1/requests?method=POST").json()["data"]] == [
        "/v1/messages/read",
        *[version + "/{node}/marketing_messages"] * 2,
        version + "/{node}/messages",
    ]


def test_of_a_day_that_the_request_log_covers_in_part_no_refused_sends_are_counted(
    api: Api, tenant: Tenant, settings: Settings
) -> None:
    settings.REQUEST_LOG_DAYS = 3
    whole, part = (now() - timedelta(days=days) for days in (2, 3))
    for day, expected in ((whole, 0), (part, None)):
        sends = api.get(f"/v1/ledger?day={day:%Y-%m-%d}").json()["sends"]
        assert (sends["refused"], sends["unanswered"]) == (expected, expected)
    sends = api.get(f"/v1/ledger?day={part:%Y-%m-%d}&hour={part.hour}").json()["sends"]
    assert sends["refused"] is None
    if part.hour < 23:
        sends = api.get(f"/v1/ledger?day={part:%Y-%m-%d}&hour={part.hour + 1}").json()["sends"]
        assert sends["refused"] == 0


@pytest.mark.django_db(transaction=True)
def test_what_the_upstream_refused_of_an_agent_is_counted_and_logged_as_its_call_of_the_api(
    api: Api, tenant: Tenant, simulator: RunningSimulator, log_calls: Callable[[], None]
) -> None:
    connected_number(tenant, simulator.account())
    template = {"type": "template", "template": {"name": "none", "language": {"code": "en"}}}
    arguments = {"to": ["+919812345678"], "message": template, "idempotency_key": "agent-1"}
    call = {"name": "send_message", "arguments": arguments}
    accept = {"Accept": "application/json, text/event-stream"}
    answer = api.post("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}, **accept)
    assert answer.json()["result"]["isError"]
    log_calls()
    assert api.get("/v1/ledger").json()["sends"]["refused"] == 1
    lines = {line["route"]: line for line in api.get("/v1/requests").json()["data"]}
    inner, outer = lines["/v1/messages"], lines["/mcp"]
    assert (inner["method"], inner["status"], inner["error_code"]) == ("POST", 404, "132001")
    assert outer["id"] == answer["X-Service-Request-Id"] != inner["id"]
    assert inner["key_prefix"] == outer["key_prefix"]
    assert 0 < inner["upstream_ms"] == outer["upstream_ms"]


def test_a_day_and_an_hour_are_those_of_utc(api: Api, tenant: Tenant) -> None:
    endpoint_of(tenant)
    yesterday = now() - timedelta(days=1)
    for hour in (0, 12):
        make(tenant, age=now() - yesterday.replace(hour=hour, minute=30, second=0, microsecond=0))
    make(tenant)
    path = f"/v1/ledger?day={yesterday:%Y-%m-%d}"
    assert api.get(path).json()["events"]["accepted"] == 2
    for hour, accepted in ((0, 1), (1, 0), (12, 1), (13, 0)):
        answer = api.get(f"{path}&hour={hour}").json()
        assert (answer["hour"], answer["events"]["accepted"]) == (hour, accepted)
        assert sum(each["accepted"] for each in answer["endpoints"]) == accepted
    for wrong in ("day=2999-01-01", "day=2026-W01-1", "day=20261121", "day=x", "hour=24"):
        assert_error(api.get(f"/v1/ledger?{wrong}"), 400, "invalid_request")


def test_nobody_counts_anothers_events(api: Api, other_api: Api, tenant: Tenant) -> None:
    endpoint_of(tenant)
    make(tenant, "message.outbound", wamid="wamid.1", raw=None, raw_path=None)
    make(tenant)
    test_api = Api(api_keys.create(name="t", environment="test", tenant=tenant).key)
    for stranger in (other_api, test_api):
        answer = stranger.get("/v1/ledger").json()
        assert (answer["events"]["accepted"], answer["endpoints"], answer["sends"]["accepted"]) == (0, [], 0)


def test_what_takes_too_long_asks_for_less(api: Api, tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "SECONDS", 0.0)
    error = assert_error(api.get("/v1/ledger"), 400, "invalid_request")
    assert "each `hour`" in error["message"]


@pytest.mark.django_db(transaction=True)
def test_a_statement_ends_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "SECONDS", 0.05)
    with (
        tally.counting(instead="Ask for less.") as counted,
        pytest.raises(Exception, match="Ask for less"),
    ):
        counted.rows("SELECT pg_sleep(5)", {})
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        assert cursor.fetchone()[0] == "0"


def test_one_call_counts_at_a_time(api: Api) -> None:
    with tally.counting(instead=""):
        assert_error(api.get("/v1/ledger"), 429, "too_many_in_flight")
    assert api.get("/v1/ledger").status_code == 200


@pytest.mark.parametrize(
    ("day", "hours"), [(date(2027, 3, 28), 23), (date(2027, 6, 1), 24), (date(2027, 10, 31), 25)]
)
def test_a_day_on_which_the_clocks_change_is_shorter_or_longer(day: date, hours: int) -> None:
    span = day_of(day, zone=ZoneInfo("Europe/Berlin"))
    assert span.end - span.begin == timedelta(hours=hours)


@pytest.mark.parametrize("statement", ["_EVENTS", "_ENDPOINTS", "_SENDS"])
def test_the_statements_walk_indexes(tenant: Tenant, statement: str) -> None:
    span = day_of(now().date(), 3)
    parameters: dict[str, Any] = {
        "tenant_id": tenant.id,
        "environment": "live",
        **span.ids,
        "earliest": ids.first_at(span.begin),
    }
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute(f"EXPLAIN {getattr(tally, statement)}", parameters)
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "Seq Scan" not in plan, plan
    partitions = set(re.findall(r"on (webhook_deliveries_p\w+|events_p\w+)", plan))
    assert len([name for name in partitions if name.startswith("events_p")]) <= 1 or statement != "_EVENTS"


class TestUsage:
    def test_a_line_for_each_tenant_of_the_platform(
        self, platform_app: PlatformApp, app_key: api_keys.NewKey, other_tenant: Tenant
    ) -> None:
        mine = Tenant.objects.create(name="Shop", app=platform_app, status="active", external_ref="s1")
        sandbox = Tenant.objects.create(name="Try", app=platform_app, status="active", sandbox=True)
        endpoint_of(mine, event_types=["*"])
        make(mine, count=3)
        make(mine, "message.status")
        make(mine, "message.outbound", wamid="wamid.1", raw=None, raw_path=None)
        make(mine, "message.outbound", wamid=None, raw=None, raw_path=None)
        make(mine, environment="test")
        make(sandbox, environment="test")
        make(other_tenant, count=5)
        Delivery.objects.filter(event_type="message.inbound").update(status="delivered")
        rows = Api(app_key.key).get("/v1/usage").json()["data"]
        assert rows == [
            {
                "tenant_id": str(sandbox.id),
                "name": "Try",
                "external_ref": None,
                **dict(zip(tally.COLUMNS, (0, 1, 0, 1, 0, 0), strict=True)),
            },
            {
                "tenant_id": str(mine.id),
                "name": "Shop",
                "external_ref": "s1",
                **dict(zip(tally.COLUMNS, (1, 3, 1, 6, 6, 3), strict=True)),
            },
        ]
        test_key = platform_apps.create_app_key(app_id=platform_app.id, name="t", environment="test")
        assert [row["name"] for row in Api(test_key.key).get("/v1/usage").json()["data"]] == ["Try"]

    def test_a_day_or_a_month(self, platform_app: PlatformApp, app_key: api_keys.NewKey) -> None:
        mine = Tenant.objects.create(name="Shop", app=platform_app, status="active")
        make(mine)
        make(mine, age=timedelta(days=40))
        api = Api(app_key.key)

        def events(query: str) -> int:
            return int(api.get(f"/v1/usage?{query}").json()["data"][0]["events"])

        long_ago = now() - timedelta(days=40)
        assert events(f"day={now():%Y-%m-%d}") == 1
        assert events(f"month={long_ago:%Y-%m}") == 1
        assert events(f"day={now() - timedelta(days=1):%Y-%m-%d}") == 0
        for wrong in ("month=2999-01", "month=x", "month=2026-11-01", f"day={now():%Y-%m-%d}&month=2026-01"):
            assert_error(api.get(f"/v1/usage?{wrong}"), 400, "invalid_request")

    def test_pages(self, platform_app: PlatformApp, app_key: api_keys.NewKey) -> None:
        for name in "abc":
            Tenant.objects.create(name=name, app=platform_app, status="active")
        api = Api(app_key.key)
        first = api.get("/v1/usage?limit=2").json()
        second = api.get(f"/v1/usage?limit=2&cursor={first['next_cursor']}").json()
        assert [row["name"] for row in first["data"] + second["data"]] == ["c", "b", "a"]

    def test_a_tenants_key_has_no_usage(self, api: Api) -> None:
        assert_error(api.get("/v1/usage"), 403, "forbidden")


def test_counting_needs_no_row(tenant: Tenant) -> None:
    with tally.counting(instead="") as counted:
        assert isinstance(counted, Counting)
        assert tally.count_usage(counted, tenants=[], span=day_of(now().date())) == []
