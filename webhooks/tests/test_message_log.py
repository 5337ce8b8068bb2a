"""The message log: one row per message, for any order, repetition and grouping of its events."""

import itertools
import threading
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import orjson
import pytest
from django.db import connection, transaction
from msgspec.structs import replace

from gateway import ids
from gateway.clock import now
from gateway.database import partitions
from gateway.database.statements import run
from tenants.models import Tenant
from tests.fixtures import wait_until, waiting_for_locks
from webhooks.events import retention
from webhooks.events.envelope import NewEvent
from webhooks.events.publish import Publication, publishing
from webhooks.models import Delivery, Event, EventPayload, Message
from webhooks.tests.messages import AT, SECOND, outbound, status, write
from webhooks.tests.publishing import uuid_at


def contents(message: Message) -> dict[str, Any]:
    """The contents of a row, without its creation time."""
    return {
        field.name: getattr(message, field.name)
        for field in Message._meta.get_fields()
        if field.name not in {"pk", "id", "month", "event_id"}
    } | {"status": message.status}


FOUR = [
    outbound(service_ms=3, upstream_ms=80),
    status("sent", pricing_category="utility", pricing_type="regular", billable=True),
    status("delivered"),
    status("read"),
]


@pytest.mark.django_db
class TestOneRow:
    def test_any_order_and_any_grouping_make_the_same_row(self, tenant: Tenant) -> None:
        found = set()
        for place, order in enumerate(itertools.permutations(FOUR)):
            for cut in (0, 1 + place % 3):
                Message.objects.all().delete()
                write(tenant, *(group for group in (list(order[:cut]), list(order[cut:])) if group))
                with connection.cursor() as cursor:
                    cursor.execute("DELETE FROM event_keys")
                (row,) = Message.objects.all()
                assert row.event_id is not None
                found.add(orjson.dumps(contents(row)))
        (only,) = found
        row = orjson.loads(only)
        assert row["status"] == "read"
        assert row["sent_at"] == datetime.fromtimestamp(AT["sent"], UTC).isoformat()
        assert (row["template"], row["pricing_category"], row["service_ms"], row["upstream_ms"]) == (
            "order_update",
            "utility",
            3,
            80,
        )

    def test_a_repeat_changes_nothing(self, tenant: Tenant) -> None:
        write(tenant, FOUR)
        before = Message.objects.values().get()
        write(tenant, FOUR, [FOUR[2]], [status("delivered", error_code=None)])
        assert Message.objects.values().get() == before

    def test_a_later_report_of_the_same_status_does_not_move_its_time(self, tenant: Tenant) -> None:
        write(tenant, [status("delivered")], [status("delivered", at_ms=(SECOND + 500) * 1000)])
        assert Message.objects.get().delivered_at == datetime.fromtimestamp(AT["delivered"], UTC)

    def test_failed_is_the_last_word(self, tenant: Tenant) -> None:
        for names in itertools.permutations(["sent", "delivered", "read", "failed"]):
            wamid = "-".join(names)
            for name in names:
                write(tenant, [status(name, wamid, error_code=131026 if name == "failed" else None)])
            row = Message.objects.get(key=wamid)
            assert (row.status, row.error_code) == ("failed", 131026), names

    def test_a_row_has_every_fact_of_its_message(self, tenant: Tenant) -> None:
        facts: dict[str, Any] = {
            "type": "template",
            "template": "order_update",
            "template_language": "en_US",
            "error_code": 131026,
            "pricing_category": "utility",
            "pricing_type": "regular",
            "billable": False,
            "batch_id": ids.uuid7(),
            "idx": 0,
            "service_ms": 3,
            "upstream_ms": 80,
            "referral_source_type": "ad",
            "referral_source_id": "17",
            "referral_ctwa_clid": "click",
        }
        members = {"waba_id": "1", "phone_number_id": "2", "wa_id": "3", "user_id": "IN.4"}
        write(tenant, [replace(outbound(**facts), **members)])
        row = Message.objects.get()
        shown = {name: getattr(row, name) for name in (*facts, *members)}
        assert shown == {**facts, **members}
        assert (row.direction, row.wamid, row.event_id) == ("outbound", "wamid.A", row.id)

    @pytest.mark.parametrize("is_together", [True, False])
    def test_what_is_known_first_stays(self, tenant: Tenant, is_together: bool) -> None:
        events = [
            status("sent", pricing_category="utility"),
            status("delivered", pricing_category="marketing", billable=True),
        ]
        write(tenant, *([events] if is_together else [[event] for event in events]))
        row = Message.objects.get()
        assert (row.pricing_category, row.billable) == ("utility", True)

    @pytest.mark.parametrize("is_together", [True, False])
    @pytest.mark.parametrize("turn", [1, -1])
    def test_the_code_is_that_of_the_first_failure(
        self, tenant: Tenant, turn: int, is_together: bool
    ) -> None:
        failures = [
            status("failed", at_ms=(SECOND + second) * 1000, error_code=code)
            for second, code in ((10, 131026), (20, 131047), (30, None))
        ][::turn]
        write(tenant, *([failures] if is_together else [[failure] for failure in failures]))
        row = Message.objects.get()
        assert (row.error_code, row.failed_at) == (131026, datetime.fromtimestamp(SECOND + 10, UTC))

    def test_what_a_status_says_of_itself_is_in_the_event(self, tenant: Tenant) -> None:
        write(tenant, [status("failed", error_code=131026)])
        assert Event.objects.values_list("status", "error_code").get() == ("failed", 131026)

    def test_a_message_without_an_id_is_known_by_its_event(self, tenant: Tenant) -> None:
        write(tenant, [outbound(None, status="failed", error_code=131030), outbound(None, status="unknown")])
        failed, unknown = Message.objects.order_by("id")
        assert failed.event_id is not None
        assert failed.key == ids.encode(ids.EVENT, failed.event_id)
        assert (failed.wamid, failed.status, unknown.status) == (None, "failed", "unknown")

    def test_tenants_and_environments_have_their_own(self, tenant: Tenant, other_tenant: Tenant) -> None:
        write(tenant, [outbound(), status("read")])
        write(other_tenant, [status("sent")])
        write(tenant, [status("delivered", environment="test")])
        rows = {(row.tenant_id, row.environment): row.status for row in Message.objects.all()}
        assert rows == {
            (tenant.id, "live"): "read",
            (other_tenant.id, "live"): "sent",
            (tenant.id, "test"): "delivered",
        }

    def test_events_of_no_message_make_no_row(self, tenant: Tenant) -> None:
        write(tenant, [NewEvent(type="batch.completed", environment="live", dedupe_key="b", data=b"{}")])
        write(tenant, [replace(status("read"), wamid=None)])
        assert not Message.objects.exists()


@pytest.mark.django_db
class TestMonths:
    def message_of(self, tenant: Tenant, moment: datetime) -> UUID:
        event = outbound()
        event_id = uuid_at(moment)
        write(tenant, [replace(event, id=event_id)])
        return event_id

    @pytest.mark.parametrize("days", [20, 40, 80])
    def test_a_status_finds_its_message_in_an_earlier_month(self, tenant: Tenant, days: int) -> None:
        event_id = self.message_of(tenant, now() - timedelta(days=days))
        write(tenant, [status("read")])
        row = Message.objects.get()
        assert (row.id, row.event_id, row.status) == (event_id, event_id, "read")

    @pytest.mark.parametrize(("days", "shown"), [(10, 10), (200, 180), (-5, 0)])
    def test_an_old_chat_is_logged_when_it_was_sent_within_half_a_year(
        self, tenant: Tenant, days: int, shown: int
    ) -> None:
        sent = now() - timedelta(days=days)
        write(tenant, [outbound(is_history=True, at_ms=int(sent.timestamp() * 1000))])
        row = Message.objects.get()
        assert abs(row.created_at - (now() - timedelta(days=shown))) < timedelta(minutes=1)
        assert row.is_history

    def test_a_send_that_is_reported_late_finds_the_status_that_came_first(self, tenant: Tenant) -> None:
        write(tenant, [status("read")])
        event_id = self.message_of(tenant, now() - timedelta(days=40))
        row = Message.objects.get()
        assert (row.event_id, row.status) == (event_id, "read")

    def test_a_month_without_a_partition_keeps_one_row_before_and_after_it_is_made(
        self, tenant: Tenant
    ) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP TABLE messages_p{now():%Y_%m}")
        write(tenant, [outbound()], [status("read")])
        assert partitions.rows_in_default()["messages"] == 1
        partitions.maintain()
        write(tenant, [status("delivered")])
        row = Message.objects.get()
        assert (row.status, row.delivered_at is not None, row.event_id is not None) == ("read", True, True)
        assert partitions.rows_in_default()["messages"] == 0


@pytest.mark.django_db
class TestExpunge:
    def test_customer_and_message_ids_leave(self, tenant: Tenant, other_tenant: Tenant) -> None:
        write(tenant, FOUR, [outbound("wamid.B")])
        write(other_tenant, FOUR)
        retention.expunge(Event.objects.for_tenant(tenant.id).filter(wamid="wamid.A"))
        gone, stays = Message.objects.filter(tenant_id=tenant.id).order_by("id")
        assert (gone.key, gone.wamid, gone.wa_id, gone.user_id) == (f"expunged:{gone.id}", None, None, None)
        assert gone.status == "read"
        assert (stays.key, stays.wa_id) == ("wamid.B", "919812345678")
        assert Message.objects.get(tenant_id=other_tenant.id).key == "wamid.A"

    def test_the_rows_that_stay_name_nobody_and_quote_nothing(self, tenant: Tenant) -> None:
        facts = {"referral_source_id": "17", "referral_ctwa_clid": "click"}
        write(tenant, [replace(outbound(**facts), user_id="IN.7", raw_path="entry[0]")])
        event = Event.objects.get()
        delivery = Delivery.objects.create(
            tenant_id=tenant.id,
            endpoint_id=ids.uuid7(),
            event_id=event.id,
            event_type=event.type,
            status="failed",
            attempts=1,
            attempt_log=[{"at": "2026-11-01T00:00:00Z", "error": "http_5xx"}],
            answers={"0": {"at": "2026-11-01T00:00:00Z", "headers": {}, "body": "no such customer"}},
            customer_key=5,
        )
        assert retention.expunge(Event.objects.all()) == 1
        message = Message.objects.get()
        assert (message.wa_id, message.user_id, message.referral_ctwa_clid) == (None, None, None)
        assert (message.referral_source_id, message.template) == ("17", "order_update")
        event.refresh_from_db()
        assert (event.wamid, event.wa_id, event.user_id) == (None, None, None)
        assert event.dedupe_key == f"expunged:{event.id}"
        delivery.refresh_from_db()
        assert (delivery.attempt_log, delivery.answers, delivery.customer_key) == ([], None, None)
        assert (delivery.status, delivery.attempts) == ("failed", 1)
        assert not EventPayload.objects.exists()

    def test_a_repeat_of_the_upstream_brings_nothing_back(self, tenant: Tenant) -> None:
        write(tenant, [FOUR[2]])
        retention.expunge(Event.objects.for_tenant(tenant.id))
        write(tenant, [FOUR[2]])
        assert [row.wamid for row in Message.objects.all()] == [None]


@pytest.mark.django_db(transaction=True)
def test_plans_of_an_empty_month_do_not_scan_it_as_it_grows(tenant: Tenant) -> None:
    def rows_scanned() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_stat_force_next_flush()")
            cursor.execute(
                "SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE relname LIKE 'messages%%'"
            )
            return int(cursor.fetchone()[0])

    for number in range(10):
        run(publishing([Publication(tenant.id, [status("sent", f"wamid.first{number}")])]), prepared=True)
    before = rows_scanned()
    wamids = [f"wamid.{number:03}" for number in range(300)]
    for name in ("sent", "delivered"):
        for start in range(0, 300, 30):
            events = [status(name, wamid) for wamid in wamids[start : start + 30]]
            run(publishing([Publication(tenant.id, events)]), prepared=True)
    assert rows_scanned() - before < 300


@pytest.mark.django_db(transaction=True)
class TestRaces:
    def together(self, *works: Any) -> list[BaseException]:
        """Run each work in a thread. All are inside their transactions before the first commits or is blocked."""
        errors: list[BaseException] = []

        def run(work: Any) -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - the test checks the error
                errors.append(error)
            finally:
                connection.close()

        threads = [threading.Thread(target=run, args=[work]) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in threads)
        return errors

    def test_a_status_and_its_send_at_the_same_moment_make_one_row(self, tenant: Tenant) -> None:
        for number in range(10):
            wamid, barrier = f"wamid.{number}", threading.Barrier(2)

            def work(event: NewEvent, barrier: threading.Barrier = barrier) -> None:
                with transaction.atomic():
                    barrier.wait(10)
                    write(tenant, [event])

            assert not self.together(
                lambda wamid=wamid, work=work: work(outbound(wamid)),
                lambda wamid=wamid, work=work: work(status("delivered", wamid)),
            )
            row = Message.objects.get(key=wamid)
            assert (row.status, row.event_id is not None, row.template) == ("delivered", True, "order_update")

    def test_groups_that_name_the_same_messages_in_other_orders_do_not_deadlock(self, tenant: Tenant) -> None:
        first, middle, last = wamids = ["wamid.0", "wamid.1", "wamid.2"]
        write(tenant, [outbound(wamid) for wamid in wamids])

        def release_when_both_wait() -> None:
            with transaction.atomic():
                Message.objects.select_for_update().get(tenant_id=tenant.id, key=middle)
                held.set()
                wait_until(lambda: waiting_for_locks() == 2, "the two groups did not meet")

        def work(name: str, order: list[str]) -> None:
            assert held.wait(10)
            write(tenant, [status(name, wamid) for wamid in order])

        held = threading.Event()
        errors = self.together(
            release_when_both_wait,
            lambda: work("sent", [first, middle, last]),
            lambda: work("delivered", [last, middle, first]),
        )
        assert not errors
        assert {row.status for row in Message.objects.all()} == {"delivered"}
        assert all(row.sent_at and row.delivered_at for row in Message.objects.all())
