"""Time-partitioned tables: created ahead, dropped after retention, and no row is lost when maintenance is late."""

from datetime import UTC, date, datetime, timedelta
from uuid import UUID, uuid4

import psycopg
import pytest
from django.core.management import call_command
from django.db import OperationalError, connection

from gateway import ids
from gateway.clock import now
from gateway.database import partitions
from gateway.database.transactions import is_lock_limit
from webhooks.events import retention
from webhooks.models import Event, EventPayload

pytestmark = pytest.mark.django_db


def partition_of(table: str, column: str, value: UUID) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT tableoid::regclass::text FROM {table} WHERE {column} = %s", [value])  # noqa: S608
        return str(cursor.fetchone()[0])


def event_at(moment: datetime) -> UUID:
    event_id = UUID(int=ids.first_at(moment).int | uuid4().int & ((1 << 62) - 1))
    Event.objects.create(
        id=event_id, tenant_id=uuid4(), type="meta.other", dedupe_key="k", payload_expires_on=date(2026, 1, 1)
    )
    return event_id


def test_migrate_makes_what_partitions_are_missing() -> None:
    day = now() + timedelta(days=7)
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE api_requests_p{day:%Y_%m_%d}")
    assert partitions.missing()["api_requests"] == 1
    call_command("migrate", verbosity=0)
    assert partitions.missing()["api_requests"] == 0


def test_partitions_are_made_ahead_and_defaults_are_empty() -> None:
    through = partitions.through()
    assert set(through) >= {"events", "event_payloads", "webhook_deliveries"}
    ahead = {name: datetime.fromisoformat(str(moment)) - now() for name, moment in through.items()}
    assert ahead["events"] > timedelta(days=60)
    assert ahead["event_payloads"] > timedelta(days=365)
    assert ahead["webhook_deliveries"] > timedelta(days=27)
    assert set(partitions.rows_in_default().values()) == {0}


def test_a_row_lands_in_the_partition_of_its_time() -> None:
    moment = now()
    event_id = event_at(moment)
    assert partition_of("events", "id", event_id) == f"events_p{moment:%Y_%m}"
    assert Event.objects.get(pk=event_id).created_at == moment.replace(
        microsecond=moment.microsecond // 1000 * 1000
    )


def test_rows_that_the_default_caught_move_when_their_partition_is_made() -> None:
    moment = datetime(2031, 5, 20, 12, tzinfo=UTC)
    event_id = event_at(moment)
    assert partition_of("events", "id", event_id) == "events_default"
    assert partitions.rows_in_default()["events"] == 1
    partitions.maintain(moment.date())
    assert partition_of("events", "id", event_id) == "events_p2031_05"
    assert partitions.rows_in_default()["events"] == 0


def test_maintenance_twice_changes_nothing() -> None:
    before = partitions.through()
    partitions.maintain()
    partitions.maintain()
    assert partitions.through() == before


def test_a_week_of_bodies_is_dropped_when_its_last_day_is_over() -> None:
    today = now().date()
    monday = today - timedelta(days=today.weekday())
    kept = EventPayload(expires_on=monday, id=uuid4(), tenant_id=uuid4(), body=b"{}")
    kept.save(force_insert=True)
    partitions.maintain(monday + timedelta(days=6))
    assert EventPayload.objects.filter(id=kept.id).exists()
    partitions.maintain(monday + timedelta(days=7))
    assert not EventPayload.objects.filter(id=kept.id).exists()


def test_rows_past_retention_are_deleted_from_the_default_partition() -> None:
    today = now().date()
    monday = today - timedelta(days=today.weekday())
    for day in (monday - timedelta(days=1), monday + timedelta(days=800)):
        EventPayload(expires_on=day, id=uuid4(), tenant_id=uuid4(), body=b"{}").save(force_insert=True)
    assert partitions.rows_in_default()["event_payloads"] == 2
    partitions.maintain()
    assert partitions.rows_in_default()["event_payloads"] == 1


@pytest.mark.parametrize(
    "table",
    [
        retention.EVENTS,
        retention.PAYLOADS,
        retention.DELIVERIES,
        retention.MESSAGES,
    ],
)
def test_a_detached_partition_is_missed_and_attached_again(table: partitions.PartitionedTable) -> None:
    today = now().date()
    name = table.partition_name(table.start_of(today))
    through = partitions.through()
    assert partitions.covers(today)
    assert set(partitions.missing().values()) == {0}
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table.name} DETACH PARTITION {name}")
    assert not partitions.covers(today)
    assert partitions.missing()[table.name] == 1
    assert partitions.through() == through, "the last one does not show the gap"
    partitions.maintain()
    assert partitions.covers(today)


def test_a_partition_that_is_attached_again_keeps_its_rows_and_takes_those_of_the_default() -> None:
    moment = now()
    kept = event_at(moment)
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE events DETACH PARTITION events_p{moment:%Y_%m}")
    caught = event_at(moment)
    assert partition_of("events", "id", caught) == "events_default"
    partitions.maintain()
    assert {partition_of("events", "id", each) for each in (kept, caught)} == {f"events_p{moment:%Y_%m}"}


@pytest.mark.parametrize(
    ("day", "week", "month"),
    [
        (date(2026, 11, 21), date(2026, 11, 16), date(2026, 11, 1)),
        (date(2026, 12, 31), date(2026, 12, 28), date(2026, 12, 1)),
        (date(2027, 1, 1), date(2026, 12, 28), date(2027, 1, 1)),
    ],
)
def test_weeks_begin_on_monday_and_months_on_the_first(day: date, week: date, month: date) -> None:
    assert retention.DELIVERIES.start_of(day) == week
    assert retention.DELIVERIES.after(week) == week + timedelta(days=7)
    assert retention.EVENTS.start_of(day) == month
    assert retention.EVENTS.after(month).day == 1
    assert retention.EVENTS.start_from_name(retention.EVENTS.partition_name(month)) == month
    assert retention.EVENTS.start_from_name("events_default") is None


def test_days_follow_each_other_and_months_have_any_length() -> None:
    days, months = partitions._tables["api_requests"], retention.EVENTS
    for day, following in ((date(2026, 12, 31), date(2027, 1, 1)), (date(2028, 2, 28), date(2028, 2, 29))):
        assert (days.start_of(day), days.after(day)) == (day, following)
        assert days.start_from_name(days.partition_name(day)) == day
    for month in range(1, 13):
        following = date(2026, month + 1, 1) if month < 12 else date(2027, 1, 1)
        assert months.after(date(2026, month, 1)) == following
    assert ids.created_at(UUID(days.bound(date(2026, 12, 31)))) == datetime(2026, 12, 31, tzinfo=UTC)
    assert retention.PAYLOADS.bound(date(2026, 12, 31)) == "2026-12-31"


def test_a_partition_is_not_attached_while_a_dump_reads_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise all later statements on the table would wait for the end of the dump too."""
    monkeypatch.setattr(partitions, "LOCK_WAIT", "50ms")
    with psycopg.connect(**{**connection.get_connection_params(), "autocommit": False}) as dump:
        dump.execute("SET LOCAL idle_in_transaction_session_timeout = '5s'")
        dump.execute("LOCK TABLE events_default IN ACCESS SHARE MODE")
        with pytest.raises(OperationalError) as raised:
            partitions.make_from("events", date(2031, 5, 1))
        assert is_lock_limit(raised.value)
        dump.execute("SELECT")


def test_a_table_that_fails_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    first, *_, last = partitions._tables
    make = partitions._make

    def failing(table: partitions.PartitionedTable, day: date, today: date) -> None:
        if table.name == first:
            raise ValueError("broken")
        make(table, day, today)

    monkeypatch.setattr(partitions, "_make", failing)
    later = now().date() + timedelta(days=800)
    before = partitions.through()

    with pytest.raises(ValueError, match="broken"):
        partitions.maintain(later)

    after = partitions.through()
    assert after[first] == before[first]
    assert str(after[last]) > str(before[last])
