"""`GET /v1/analytics`: the figures equal a recount, for any order and repetition of statuses."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest
from django.db import connection
from msgspec.structs import replace

from gateway.clock import now
from gateway.upstream.notifications.change import MessageFacts
from tenants.credentials import api_keys
from tenants.models import Tenant
from tests.fixtures import Api, assert_error
from webhooks import replay, tasks
from webhooks.analytics import rollup, statistics
from webhooks.events.envelope import NewEvent
from webhooks.models import Delivery, Figure, FigureChange, FigureDue, Message
from webhooks.tests.messages import SECOND, outbound, status, write
from webhooks.tests.publishing import endpoint_of, uuid_at

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("within_half_an_hour")]

RANGE = "from=2020-01-01T00:00:00Z&to=2020-02-01T00:00:00Z"


def count_all() -> None:
    """Collect all changes and count every hour now, even if it is not due."""
    for _ in range(2):
        rollup.roll_up()
        FigureDue.objects.update(due_at=now() - timedelta(seconds=1))
    rollup.roll_up()


def around(moment: datetime, interval: str = "day") -> str:
    begin, end = moment - timedelta(days=2), moment + timedelta(days=1)
    return f"from={begin:%Y-%m-%dT%H:%M:%SZ}&to={end:%Y-%m-%dT%H:%M:%SZ}&interval={interval}"


def figures(api: Api, query: str) -> dict[str, Any]:
    answer = api.get(f"/v1/analytics?{query}")
    assert answer.status_code == 200, answer.content
    body: dict[str, Any] = answer.json()
    return body


def traffic(seed: int) -> list[NewEvent]:
    """Sends of three hours, and their statuses of all kinds in any order, some of them twice."""
    chance = random.Random(seed)
    events: list[NewEvent] = []
    for number in range(60):
        wamid, moment = f"wamid.{seed}.{number}", now() - timedelta(hours=number % 3)
        category = chance.choice(["utility", "marketing"])
        sent = outbound(wamid, template=chance.choice(["a", None]), at_ms=SECOND * 1000)
        events.append(replace(sent, id=uuid_at(moment), phone_number_id=str(number % 2)))
        words = chance.sample(["sent", "delivered", "read", "failed"], chance.randint(0, 4))
        for word in words:
            report = status(
                word,
                wamid,
                at_ms=(SECOND + chance.randint(1, 5_000)) * 1000,
                pricing_category=category,
                error_code=chance.choice([131026, 131047]) if word == "failed" else None,
            )
            events += [report] * chance.randint(1, 2)
    chance.shuffle(events)
    return events


@pytest.mark.parametrize("seed", range(3))
def test_figures_are_a_recount(api: Api, tenant: Tenant, seed: int) -> None:
    events = traffic(seed)
    for start in range(0, len(events), 17):
        write(tenant, events[start : start + 17])
        if start % 2:
            count_all()
    count_all()
    body = figures(api, around(now(), "hour") + "&group_by=phone_number_id,template,direction")
    assert body["pending_hours"] == 0
    shown = {
        (each["start"][:13], each["phone_number_id"], each["template"]): each for each in body["messages"]
    }
    recount: dict[tuple[str, str, str], Counter[str]] = {}
    for row in Message.objects.all():
        key = (row.created_at.strftime("%Y-%m-%dT%H"), row.phone_number_id or "", row.template or "")
        counts = recount.setdefault(key, Counter())
        counts["sent"] += any((row.accepted_at, row.sent_at, row.delivered_at, row.read_at))
        counts["delivered"] += bool(row.delivered_at or row.read_at)
        counts["read"] += bool(row.read_at)
        counts["failed"] += bool(row.failed_at)
        counts[f"code {row.error_code}"] += bool(row.failed_at)
        counts[f"category {row.pricing_category}"] += bool(row.pricing_category)
    assert set(shown) == set(recount)
    for key, counts in recount.items():
        listed = shown[key]
        assert {name: listed[name] for name in ("sent", "delivered", "read", "failed")} == {
            name: counts[name] for name in ("sent", "delivered", "read", "failed")
        }
        assert listed["failed_by_code"] == {
            name[5:]: count for name, count in counts.items() if name.startswith("code 1") and count
        }
        assert listed["pricing"] == {
            name[9:]: count
            for name, count in counts.items()
            if name.startswith("category ") and count and name != "category None"
        }


@pytest.mark.parametrize(
    ("seconds", "median"), [([1, 2, 3], 2), ([0, 0, 90], 0), ([120, 120, 500], 120), ([5_000] * 3, 4_834)]
)
def test_medians_are_exact_to_two_minutes_and_within_five_percent_beyond(
    api: Api, tenant: Tenant, seconds: list[int], median: int
) -> None:
    for number, delay in enumerate(seconds):
        wamid = f"wamid.{number}"
        write(tenant, [outbound(wamid)], [status("delivered", wamid, at_ms=(SECOND + delay) * 1000)])
    count_all()
    (day,) = figures(api, around(now()))["messages"]
    found = day["median_seconds_to_delivered"]
    assert found == median or (max(seconds) > 120 and 0.95 * 5_000 <= found <= 5_000)


def test_each_message_counts_by_all_that_is_known_of_it(api: Api, tenant: Tenant) -> None:
    inbound = MessageFacts(
        direction="inbound", status="received", is_message=True, referral_source_id="A" * 50
    )
    write(
        tenant,
        [outbound("wamid.unknown", status="unknown"), outbound("wamid.accepted")],
        [outbound("wamid.failed", status="failed", error_code=131026)],
        [status("read", "wamid.read"), status("sent", "wamid.sent", pricing_category="utility")],
        [outbound("wamid.quick"), status("read", "wamid.quick", at_ms=(SECOND + 7) * 1000)],
        [outbound("wamid.old", is_history=True, at_ms=None)],
        [replace(outbound("wamid.I"), type="message.inbound", dedupe_key="in", message=inbound)],
    )
    count_all()
    (day,) = figures(api, around(now()))["messages"]
    del day["start"]
    assert day == {
        "received": 1,
        "sent": 4,
        "delivered": 2,
        "read": 2,
        "failed": 1,
        "failed_by_code": {"131026": 1},
        "unknown": 1,
        "pricing": {"utility": 1},
        "referrals": {"A" * 40: 1},
        "median_seconds_to_delivered": None,
        "median_seconds_to_read": 7,
    }


@pytest.mark.parametrize(("interval", "hours"), [("hour", 7 * 24), ("day", 92 * 24)])
def test_a_range_is_as_long_as_the_interval_allows(api: Api, interval: str, hours: int) -> None:
    begin = datetime(2026, 1, 1, 0, 30, tzinfo=UTC)
    for more, is_taken in ((0, True), (48, False)):
        end = begin + timedelta(hours=hours + more)
        query = f"from={begin:%Y-%m-%dT%H:%M:%SZ}&to={end:%Y-%m-%dT%H:%M:%SZ}&interval={interval}"
        assert (api.get(f"/v1/analytics?{query}").status_code == 200) is is_taken


@pytest.mark.parametrize(("milliseconds", "counted"), [(0, 0), (1, 1), (999, 1)])
def test_a_range_includes_the_hour_that_has_just_begun(
    tenant: Tenant, milliseconds: int, counted: int
) -> None:
    hour = datetime(2026, 11, 30, 20, tzinfo=UTC)
    Figure.objects.create(
        tenant_id=tenant.id, environment="live", hour=int(hour.timestamp()) // 3600, phone_number_id="1",
        template="", direction="outbound", measure="sent", value="", count=1,
    )  # fmt: skip
    found = statistics.read(
        tenant_id=tenant.id,
        environment="live",
        begin=hour - timedelta(hours=1),
        end=hour + timedelta(milliseconds=milliseconds),
        interval="day",
        groups=(),
        equal={},
    )
    assert sum(sums.counts["sent"] for sums in found.messages) == counted


def test_an_hour_belongs_to_the_day_in_which_its_middle_lies(tenant: Tenant) -> None:
    india, noon = ZoneInfo("Asia/Kolkata"), datetime(2026, 11, 10, 12, tzinfo=UTC)
    for hours, count in ((5, 1), (6, 20), (29, 300), (30, 4_000)):
        Figure.objects.create(
            tenant_id=tenant.id,
            environment="live",
            hour=rollup.hour_of(noon) + hours,
            direction="outbound",
            measure="sent",
            count=count,
        )
    found = statistics.read(
        tenant_id=tenant.id, environment="live", begin=noon, end=noon + timedelta(days=2), interval="day",
        groups=(), equal={}, zone=india,
    )  # fmt: skip
    assert [(day.start.isoformat(), day.counts["sent"]) for day in found.messages] == [
        ("2026-11-10T00:00:00+05:30", 1),
        ("2026-11-11T00:00:00+05:30", 320),
        ("2026-11-12T00:00:00+05:30", 4_000),
    ]


@pytest.mark.parametrize(("slow", "expected"), [(1, 10), (2, 900)])
def test_ninety_five_percent_are_at_or_below_the_percentile(slow: int, expected: int) -> None:
    counted = {"ms": {"900": slow, "10": 20 - slow}}
    assert statistics.Sums(now(), {}, by_value=counted).percentile("ms", 0.95) == expected
    assert statistics.Sums(now(), {}).percentile("ms", 0.95) is None


def test_a_status_that_comes_later_changes_the_hour_of_its_message(api: Api, tenant: Tenant) -> None:
    moment = now() - timedelta(hours=5)
    write(tenant, [replace(outbound(), id=uuid_at(moment))])
    count_all()
    write(tenant, [status("read")])
    assert rollup.roll_up() == 0, "an older hour is not counted again at once"
    # The hour of the message, and the current hour, which has the status's deliveries.
    assert figures(api, around(now()))["pending_hours"] == 2
    count_all()
    (hour,) = figures(api, around(now(), "hour"))["messages"]
    assert (hour["start"][:13], hour["sent"], hour["read"]) == (moment.strftime("%Y-%m-%dT%H"), 1, 1)


def test_webhooks(api: Api, tenant: Tenant) -> None:
    endpoint_of(tenant)
    for number in range(4):
        write(tenant, [outbound(f"wamid.{number}")])
    count_all()
    (day,) = figures(api, around(now()))["webhooks"]
    assert (day["delivered"], day["failed"], day["open"], day["p95_ms"]) == (0, 0, 4, None)
    done = list(Delivery.objects.order_by("id").values_list("pk", flat=True))
    first = Delivery.objects.get(pk=done[0])
    again = replay.replay_delivery(tenant_id=tenant.id, environment="live", delivery_id=first.pk)
    assert again.is_replay
    Delivery.objects.filter(pk__in=done[:3]).update(status="delivered", last_response_ms=40)
    Delivery.objects.filter(pk=done[3]).update(status="dead")
    count_all()
    (day,) = figures(api, around(now()))["webhooks"]
    assert (day["delivered"], day["failed"], day["open"], day["p95_ms"]) == (3, 1, 0, 40)
    narrowed = figures(api, around(now()) + "&phone_number_id=404")
    assert narrowed["webhooks"] == [day], "a delivery has no number"
    assert not FigureDue.objects.exists()


def test_tenants_and_environments_are_apart(api: Api, other_api: Api, tenant: Tenant) -> None:
    write(tenant, [outbound()], [replace(outbound("wamid.T"), environment="test", dedupe_key="t")])
    count_all()
    test_api = Api(api_keys.create(name="t", environment="test", tenant=tenant).key)
    assert [day["sent"] for day in figures(api, around(now()))["messages"]] == [1]
    assert [day["sent"] for day in figures(test_api, around(now()))["messages"]] == [1]
    assert figures(other_api, around(now()))["messages"] == []


def test_filters(api: Api, tenant: Tenant) -> None:
    inbound = MessageFacts(direction="inbound", status="received", is_message=True)
    write(tenant, [outbound(), replace(outbound("wamid.I"), type="message.inbound", message=inbound)])
    count_all()
    for query, sent, received in (
        ("", 1, 1),
        ("&direction=inbound", 0, 1),
        ("&direction=outbound", 1, 0),
        ("&template=order_update", 1, 0),
        ("&phone_number_id=200300400500600", 1, 1),
    ):
        (day,) = figures(api, around(now()) + query)["messages"]
        assert (day["sent"], day["received"]) == (sent, received)
    assert figures(api, around(now()) + "&phone_number_id=1")["messages"] == []
    by_default = figures(api, around(now()).removesuffix("&interval=day"))
    assert by_default["messages"] == figures(api, around(now()))["messages"]


def test_one_hour_that_cannot_be_counted_stops_no_other(
    api: Api, tenant: Tenant, other_tenant: Tenant, other_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tenant, [outbound()])
    write(other_tenant, [outbound()])
    rollup.roll_up()
    FigureDue.objects.filter(tenant_id=tenant.id).update(due_at=now() - timedelta(minutes=2))
    FigureDue.objects.filter(tenant_id=other_tenant.id).update(due_at=now() - timedelta(minutes=1))
    count = rollup._count

    def broken(scope: dict[str, Any]) -> None:
        if scope["tenant_id"] == tenant.id:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1 / 0")
        count(scope)

    monkeypatch.setattr(rollup, "_count", broken)
    rollup.roll_up()
    assert [day["sent"] for day in figures(other_api, around(now()))["messages"]] == [1]
    assert figures(api, around(now()))["pending_hours"] == 1


@pytest.mark.django_db(transaction=True)
def test_hours_are_counted_by_one_process_at_a_time(api: Api, tenant: Tenant) -> None:
    write(tenant, [outbound("wamid.1")])
    rollup.roll_up()
    FigureDue.objects.update(due_at=now() - timedelta(seconds=1))
    write(tenant, [outbound("wamid.2")])
    with psycopg.connect(**connection.get_connection_params()) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", [rollup._LOCK])
        assert rollup.roll_up() == 0
        assert (Figure.objects.exists(), FigureChange.objects.exists()) == (False, True)
    count_all()
    assert [day["sent"] for day in figures(api, around(now()))["messages"]] == [2]


def test_figures_say_up_to_when_they_are_complete(
    api: Api, other_api: Api, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    def as_of(caller: Api = api) -> datetime:
        return datetime.fromisoformat(figures(caller, around(now()))["as_of"])

    before = now()
    assert as_of() >= before - timedelta(milliseconds=1)
    write(tenant, [outbound("wamid.1", at_ms=SECOND * 1000)])
    noted = before - timedelta(minutes=3)
    FigureChange.objects.update(noted_at=noted)
    millisecond = timedelta(milliseconds=1)
    assert abs(as_of() - noted) < millisecond, "what is noted and not gathered is not in the figures"
    assert figures(api, around(now()))["pending_hours"] == 1
    assert as_of(other_api) >= before - millisecond, "another's note says nothing of these"
    rollup._gather()
    write(tenant, [status("delivered", "wamid.1", at_ms=SECOND * 1000)])
    rollup._gather()
    assert abs(as_of() - noted) < millisecond, "a later note does not hide the oldest"
    FigureDue.objects.update(due_at=now() - timedelta(seconds=1))
    rollup.roll_up()
    assert as_of() >= before - millisecond
    write(tenant, [outbound("wamid.2", at_ms=SECOND * 1000)])
    FigureChange.objects.update(noted_at=noted)
    monkeypatch.setattr(statistics, "NOTES_READ", 1)
    assert abs(as_of(other_api) - noted) < millisecond, "beyond the notes that are read, the oldest counts"


def test_a_young_hour_is_counted_again_soon(tenant: Tenant) -> None:
    write(tenant, [outbound("wamid.1", at_ms=SECOND * 1000)])
    rollup._gather()
    due = FigureDue.objects.get()
    age = now().timestamp() - due.hour * 3600
    wait = (due.due_at - now()).total_seconds()
    assert wait <= age * rollup.YOUNG_AGAIN_AFTER
    assert wait <= 73


def test_further_changes_do_not_put_a_recount_off(tenant: Tenant) -> None:
    write(tenant, [outbound("wamid.1", at_ms=SECOND * 1000)])
    rollup._gather()
    due_at = now() - timedelta(seconds=1)
    FigureDue.objects.update(due_at=due_at)
    write(tenant, [status("delivered", "wamid.1", at_ms=SECOND * 1000)])
    rollup._gather()
    assert FigureDue.objects.get().due_at == due_at


def test_an_older_hour_is_counted_again_after_a_twentieth_of_its_age(tenant: Tenant) -> None:
    write(tenant, [replace(outbound(), id=uuid_at(now() - timedelta(hours=40)))])
    rollup._gather()
    due = FigureDue.objects.earliest("hour")
    age = now().timestamp() - due.hour * 3600
    assert 0.049 * age < (due.due_at - now()).total_seconds() <= 0.05 * age


def test_old_figures_leave(tenant: Tenant) -> None:
    write(tenant, [replace(outbound(), id=uuid_at(now() - timedelta(days=900)))], [outbound("wamid.B")])
    count_all()
    assert Figure.objects.values("hour").distinct().count() == 2
    tasks.prune_figures.run()
    assert Figure.objects.values("hour").distinct().count() == 1
    assert not FigureChange.objects.exists()


def test_what_cannot_be_answered_is_400(api: Api) -> None:
    for query in (
        "",
        "from=2020-01-01T00:00:00Z",
        "from=2020-01-02T00:00:00Z&to=2020-01-01T00:00:00Z",
        "from=2020-01-01T00:00:00Z&to=2020-01-01T00:00:00Z",
        "from=2020-01-01T00:00:00Z&to=2021-01-01T00:00:00Z",
        *(
            f"{RANGE}&{more}"
            for more in ("interval=hour", "interval=week", "group_by=country", "direction=up")
        ),
    ):
        assert_error(api.get(f"/v1/analytics?{query}"), 400, "invalid_request")


def test_too_many_groups_are_refused(api: Api, tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tenant, [outbound(f"wamid.{number}", template=str(number)) for number in range(5)])
    count_all()
    monkeypatch.setattr(statistics, "MOST_ROWS", 4)
    assert_error(api.get(f"/v1/analytics?{around(now())}&group_by=template"), 400, "invalid_request")
