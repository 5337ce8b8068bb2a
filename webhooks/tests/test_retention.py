"""Retention of bodies and keys: moves after a change of retention, and the weekly drop."""

from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import Any

import pytest
from django.db import connection

from gateway.clock import now
from gateway.database import partitions
from tenants.models import Tenant
from tests.fixtures import Api, in_threads
from webhooks import tasks
from webhooks.events import retention
from webhooks.models import Event, EventKey, EventPayload, RetentionMove, expires_on
from webhooks.tests.publishing import make, readable, uuid_at

DAY = timedelta(days=1)


def bodies_of(*events: Event) -> set[tuple[date, Any]]:
    """The partitions that have the bodies of events and of their notifications."""
    wanted = {body for event in events for body in (event.id, event.raw_id) if body}
    return set(EventPayload.objects.filter(id__in=wanted).values_list("expires_on", "id"))


def keep(tenant: Tenant, days: int) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(retention_days=days)


@pytest.mark.django_db
class TestMoves:
    @pytest.mark.parametrize("days", [30, 180, 365])
    def test_bodies_move_to_where_the_new_retention_puts_them(
        self, tenant: Tenant, other_tenant: Tenant, days: int
    ) -> None:
        events = [event for age in (0, 10, 20) for event in make(tenant, age=age * DAY, count=3)]
        own = make(tenant, "batch.completed", raw=None)
        theirs = make(other_tenant)
        before = bodies_of(*theirs)
        keep(tenant, days)
        assert retention.move_bodies() == 10
        for event in [*events, *own]:
            event.refresh_from_db()
            wanted = event.created_at.date() + (days + 1) * DAY
            assert event.payload_expires_on == wanted
            assert {day for day, _ in bodies_of(event)} == {wanted}
        assert all(readable(*events, *own, *theirs))
        assert bodies_of(*theirs) == before

    def test_moving_again_moves_nothing(self, tenant: Tenant) -> None:
        make(tenant)
        assert retention.move_bodies() == 0
        keep(tenant, 30)
        assert [retention.move_bodies() for _ in range(3)] == [1, 0, 0]

    def test_it_goes_on_where_it_stopped(self, tenant: Tenant) -> None:
        retention.move_bodies()
        events = [event for n in range(7) for event in make(tenant, age=n * DAY)]
        keep(tenant, 365)
        done = 0
        while step := retention.move_bodies(seconds=0.000_001, batch=2):
            assert step <= 2
            done += step
            assert all(readable(*events)), "nothing is unreadable half way"
        assert done == 7

    @pytest.mark.parametrize("size", [1, 2, 3, 50])
    def test_the_events_of_a_notification_stay_together_across_batches(
        self, tenant: Tenant, size: int
    ) -> None:
        long_ago = make(tenant, age=80 * DAY)
        events = make(tenant, count=10)
        keep(tenant, 180)
        retention.move_bodies(seconds=0.000_001, batch=size)
        while RetentionMove.objects.filter(after__isnull=False).exists():
            assert all(readable(*events, *long_ago))
            retention.move_bodies(seconds=0.000_001, batch=size)
        assert all(readable(*events, *long_ago))
        assert len({day for day, _ in bodies_of(*events)}) == 1

    def test_a_notification_over_midnight_lies_in_one_place(self, tenant: Tenant) -> None:
        midnight = now().replace(hour=0, minute=0, second=0, microsecond=0)
        events = make(tenant, age=now() - midnight - timedelta(milliseconds=5), count=10)
        assert len({event.created_at.date() for event in events}) == 2
        keep(tenant, 30)
        retention.move_bodies()
        assert len({day for day, _ in bodies_of(*events)}) == 1
        assert all(readable(*events))

    def test_a_delivery_that_reads_while_bodies_move_finds_them(self, tenant: Tenant) -> None:
        events = make(tenant, count=3)
        keep(tenant, 365)
        statements: list[str] = []

        def move_after_the_first(execute: Any, sql: str, *rest: Any) -> Any:
            result = execute(sql, *rest)
            statements.append(sql)
            if len(statements) == 1:
                retention.move_bodies()
            return result

        with connection.execute_wrapper(move_after_the_first):
            assert all(readable(*events))

    def test_a_longer_retention_brings_no_dropped_body_back(self, tenant: Tenant) -> None:
        (event,) = make(tenant, age=100 * DAY)
        EventPayload.objects.all().delete()
        keep(tenant, 365)
        retention.move_bodies()
        assert readable(event) == [False]

    def test_a_shorter_retention_counts_at_once(self, tenant: Tenant, api: Api) -> None:
        young, old = make(tenant, age=29 * DAY) + make(tenant, age=31 * DAY)
        assert readable(young, old) == [True, True]
        assert api.patch("/v1/tenant", {"retention_days": 30}).status_code == 200
        assert readable(young, old) == [True, False]
        assert api.get(f"/v1/events/{old.public_id}").json()["event"] is None

    def test_a_shorter_retention_deletes_the_bodies_that_are_past_it(self, tenant: Tenant) -> None:
        ended, last = make(tenant, age=60 * DAY) + make(tenant, age=30 * DAY)
        keep(tenant, 30)
        assert retention.move_bodies() == 2
        assert bodies_of(ended) == set()
        assert {day for day, _ in bodies_of(last)} == {expires_on(last.created_at, 30)}
        assert partitions.rows_in_default()["event_payloads"] == 0
        keep(tenant, 365)
        retention.move_bodies()
        assert readable(ended, last) == [False, True], "a longer retention brings nothing back"

    def test_tenants_made_with_another_retention_need_no_move(self, db: None) -> None:
        made = Tenant.objects.create(name="Short", status="active", retention_days=30)
        (event,) = make(made)
        assert event.payload_expires_on == expires_on(event.created_at, 30)
        assert retention.move_bodies() == 0


@pytest.mark.django_db(transaction=True)
def test_two_workers_move_the_same_tenant(tenant: Tenant) -> None:
    events = [event for n in range(30) for event in make(tenant, age=n * DAY, count=2)]
    retention.move_bodies()
    keep(tenant, 365)
    moved = in_threads(*[partial(retention.move_bodies, batch=5)] * 3)
    while step := retention.move_bodies():
        moved.append(step)
    assert sum(moved) == 60
    assert all(readable(*events))


@pytest.mark.django_db
class TestDrop:
    def test_a_week_of_bodies_goes_when_its_last_day_is_over_and_metadata_stays(self, tenant: Tenant) -> None:
        (event,) = make(tenant)
        expiry = event.payload_expires_on
        week = expiry - timedelta(days=expiry.weekday())
        partitions.maintain(today=week + timedelta(days=6))
        assert readable(event) == [True]
        partitions.maintain(today=week + timedelta(days=7))
        assert not EventPayload.objects.exists()
        assert readable(event) == [False]
        assert Event.objects.filter(pk=event.pk).exists()

    @pytest.mark.parametrize("weekday", range(7))
    def test_no_body_is_dropped_within_its_retention(self, weekday: int, tenant: Tenant) -> None:
        """Maintenance on any weekday keeps every body whose retention ends today or later."""
        today = now().date() + timedelta(days=weekday)
        partitions.make_from("event_payloads", today - timedelta(days=14))
        kept = set()
        for days in Tenant.Retention.values:
            for left in range(-14, 8):
                made = datetime.combine(today + timedelta(days=left - days), time(23, 59, 59), UTC)
                body = EventPayload.objects.create(
                    id=uuid_at(made), tenant_id=tenant.id, expires_on=expires_on(made, days), body=b"{}"
                )
                if left >= 0:
                    kept.add(body.id)
        partitions.maintain(today=today)
        stored = set(EventPayload.objects.values_list("id", flat=True))
        assert kept <= stored
        assert len(stored) < len(Tenant.Retention.values) * 22, "what is over was dropped"


@pytest.mark.django_db
def test_keys_are_pruned_after_eight_days(tenant: Tenant) -> None:
    for hours in (0, 8 * 24 - 1, 8 * 24 + 1, 500):
        EventKey.objects.create(
            tenant_id=tenant.id, dedupe_key=str(hours), created_at=now() - timedelta(hours=hours)
        )
    assert retention.prune_keys() == 2
    assert sorted(EventKey.objects.values_list("dedupe_key", flat=True)) == ["0", "191"]
    assert retention.prune_keys() == 0
    EventKey.objects.update(created_at=now() - timedelta(days=9))
    tasks.prune_event_keys.run()
    assert not EventKey.objects.exists()


@pytest.mark.django_db
def test_the_walk_needs_no_scan(tenant: Tenant) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off")
        cursor.execute("EXPLAIN " + retention._NEXT, [tenant.id, "01000000-0000-7000-8000-000000000000", 500])
        assert "Seq Scan" not in "\n".join(line for (line,) in cursor.fetchall())
