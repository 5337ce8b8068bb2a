"""The mirror of templates: each account is read when it is due, and older data never overwrites newer data."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import orjson
import pytest
from django.db import connection as database

from gateway.clock import now
from gateway.upstream.calls import GraphAnswer
from gateway.upstream.templates import TemplateGraph
from messaging import tasks
from messaging.message_templates import mirror, template_management
from messaging.message_templates.mirror import MirrorChanges
from messaging.models import MessageTemplate, TemplateMirror
from messaging.tests.conftest import connected_number
from messaging.tests.message_templates.bodies import order_update
from phone_numbers.connection import state
from phone_numbers.models import BusinessAccount, PhoneNumber
from phone_numbers.tests.test_connection import in_threads
from tenants.models import Tenant
from tests.fixtures import Api
from tests.simulated import RunningSimulator, SimulatedAccount

pytestmark = pytest.mark.django_db

Jobs = list[dict[str, str]]


@pytest.fixture(autouse=True)
def queued(monkeypatch: pytest.MonkeyPatch) -> Jobs:
    """The enqueued tasks. No worker runs them."""
    jobs: Jobs = []

    def enqueue(task: str, **job: str) -> bool:
        assert task == tasks.sync_templates.name
        jobs.append(job)
        return True

    monkeypatch.setattr(mirror, "enqueue", enqueue)
    return jobs


@pytest.fixture
def sync_due(queued: Jobs) -> Callable[[], None]:
    """A function that runs the tasks of beat and the workers."""

    def run() -> None:
        tasks.start_due_template_syncs()
        while queued:
            tasks.sync_templates(**queued.pop(0))

    return run


def make_due() -> None:
    TemplateMirror.objects.update(next_sync_at=now() - timedelta(seconds=1))


def view(template_id: str = "1", **values: Any) -> dict[str, Any]:
    return {
        "id": template_id,
        "name": f"template_{template_id}",
        "language": "en_US",
        "status": "APPROVED",
        "category": "UTILITY",
        **values,
    }


def mirrored() -> dict[str, str]:
    """The status of each template that is not deleted, by id."""
    return dict(MessageTemplate.objects.filter(deleted_at=None).values_list("template_id", "status"))


def test_a_new_account_is_read_at_once_and_then_every_six_hours(
    api: Api, number: PhoneNumber, simulator: RunningSimulator, sync_due: Callable[[], None], queued: Jobs
) -> None:
    assert api.post("/v1/templates", order_update()).status_code == 200
    MessageTemplate.objects.all().delete()
    TemplateMirror.objects.all().delete()
    sync_due()
    assert [row.name for row in MessageTemplate.objects.all()] == ["order_update"]
    assert timedelta(hours=5) < TemplateMirror.objects.get().next_sync_at - now() < timedelta(hours=6)
    tasks.start_due_template_syncs()
    assert queued == []


def test_a_failing_account_is_put_off_and_the_others_go_on(
    tenant: Tenant,
    other_tenant: Tenant,
    number: PhoneNumber,
    simulator: RunningSimulator,
    sync_due: Callable[[], None],
) -> None:
    other = connected_number(other_tenant, simulator.account())
    simulator.faults(
        {"action": "error", "code": 2, "match": {"path": f"{number.account.waba_id}/message_templates"}}
    )
    waits = []
    for turn in range(1, 4):
        make_due()
        sync_due()
        due = TemplateMirror.objects.get(account=number.account)
        assert due.failures == turn
        waits.append(due.next_sync_at - now())
    assert timedelta(seconds=40) < waits[0] < waits[1] < waits[2]
    assert TemplateMirror.objects.get(account=other.account).failures == 0
    simulator.faults()
    make_due()
    sync_due()
    assert TemplateMirror.objects.get(account=number.account).failures == 0


def test_an_account_whose_token_no_key_opens_is_put_off_and_the_others_go_on(
    tenant: Tenant,
    other_tenant: Tenant,
    number: PhoneNumber,
    simulator: RunningSimulator,
    sync_due: Callable[[], None],
) -> None:
    other = connected_number(other_tenant, simulator.account())
    with database.cursor() as cursor:
        cursor.execute(
            "UPDATE numbers_businessaccount SET access_token = 'broken' WHERE id = %s", [number.account_id]
        )
    sync_due()
    poisoned = TemplateMirror.objects.get(account=number.account_id)
    assert (poisoned.failures, poisoned.read_at) == (1, None)
    assert poisoned.next_sync_at > now()
    assert TemplateMirror.objects.get(account=other.account).read_at is not None


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("poisoned", [view("7" * 65), view("7", components=nested(300))])
def test_a_template_that_cannot_be_stored_costs_itself_alone(number: PhoneNumber, poisoned: Any) -> None:
    views = [view("1"), poisoned, view("2\0", name="a\0b" * 300, language="\0", status="x" * 99)]
    changes = mirror.store_list(number.account, views, read_at=now())
    assert (changes.synced, changes.added) == (2, 2)
    assert set(mirrored()) == {"1", "2\ufffd"}


def test_an_answer_that_is_no_list_removes_nothing(
    api: Api, number: PhoneNumber, sync_due: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror.store_list(number.account, [view("1")], read_at=now())
    for body in (b"<html>maintenance</html>", b'{"data":null}', b"{}", b'{"data":[{"id":"\\ud800"}]}'):
        page = GraphAnswer(200, body, {}, 1.0)
        monkeypatch.setattr(TemplateGraph, "pages", lambda *_, page=page: iter([page]))
        make_due()
        sync_due()
        assert set(mirrored()) == {"1"}, body
        assert api.post("/v1/templates/sync", {"waba_id": number.account.waba_id}).status_code == 502
    assert TemplateMirror.objects.get().failures == 4


def test_an_account_whose_token_does_not_work_waits_until_it_does(
    number: PhoneNumber, simulator: RunningSimulator, sync_due: Callable[[], None], queued: Jobs
) -> None:
    state.token_failed(waba_id=number.account.waba_id)
    tasks.start_due_template_syncs()
    assert queued == []
    BusinessAccount.objects.update(token_invalid_at=None)
    tasks.start_due_template_syncs()
    assert len(queued) == 1


def test_a_throttled_account_waits_as_long_as_the_upstream_says(
    number: PhoneNumber, simulator: RunningSimulator, sync_due: Callable[[], None]
) -> None:
    simulator.faults({"action": "error", "code": 133016, "match": {"path": "message_templates"}})
    sync_due()
    assert TemplateMirror.objects.get().next_sync_at > now() + timedelta(minutes=59)


def test_a_claimed_account_is_due_again_only_after_a_crash(number: PhoneNumber, queued: Jobs) -> None:
    tasks.start_due_template_syncs()
    tasks.start_due_template_syncs()
    assert len(queued) == 1
    make_due()
    tasks.start_due_template_syncs()
    assert len(queued) == 2
    assert TemplateMirror.objects.get().read_at is None


def test_a_claim_that_another_took_over_is_not_run(
    number: PhoneNumber, simulator: RunningSimulator, account: SimulatedAccount, queued: Jobs
) -> None:
    tasks.start_due_template_syncs()
    make_due()
    tasks.sync_templates(**queued.pop())
    assert "GET message_templates" not in simulator.calls(account.waba_id)


def test_a_hint_during_a_sync_is_read_after_it(
    number: PhoneNumber, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch, queued: Jobs
) -> None:
    store = mirror.store_list

    def hinted_meanwhile(account: BusinessAccount, *arguments: Any, **more: Any) -> MirrorChanges:
        mirror.reread_soon(account)
        return store(account, *arguments, **more)

    monkeypatch.setattr(mirror, "store_list", hinted_meanwhile)
    tasks.start_due_template_syncs()
    tasks.sync_templates(**queued.pop())
    assert TemplateMirror.objects.get().next_sync_at < now() + timedelta(minutes=1)


def test_hints_about_a_large_account_are_gathered_for_longer(number: PhoneNumber) -> None:
    mirror.store_list(number.account, [view(str(index)) for index in range(1000)], read_at=now())
    TemplateMirror.objects.update(next_sync_at=now() + timedelta(hours=6))
    mirror.change(number.account, "7", {"status": "PAUSED"})
    wait = TemplateMirror.objects.get().next_sync_at - now()
    assert timedelta(seconds=60) < wait < timedelta(seconds=80)


class TestOlderNews:
    """A list is read before a change and stored after the change."""

    def test_a_list_read_before_a_creation_does_not_remove_it(self, number: PhoneNumber) -> None:
        read_at = now()
        mirror.store_one(number.account, view("1", status="PENDING"), since=now(), at=now())
        changes = mirror.store_list(number.account, [], read_at=read_at)
        assert changes == MirrorChanges(synced=0)
        assert mirrored() == {"1": "PENDING"}

    def test_a_list_read_before_a_deletion_does_not_bring_it_back(self, number: PhoneNumber) -> None:
        mirror.store_list(number.account, [view()], read_at=now())
        read_at = now()
        mirror.delete(number.account, template_id="1")
        mirror.store_list(number.account, [view()], read_at=read_at)
        assert mirrored() == {}
        changes = mirror.store_list(number.account, [], read_at=now())
        assert changes == MirrorChanges(synced=0), "its removal was counted by the deletion"
        assert not MessageTemplate.objects.exists()

    def test_what_the_upstream_still_lists_after_a_deletion_is_back(self, number: PhoneNumber) -> None:
        mirror.store_list(number.account, [view()], read_at=now())
        mirror.delete(number.account, name="template_1")
        mirror.store_list(number.account, [view(status="PENDING_DELETION")], read_at=now())
        assert mirrored() == {"1": "PENDING_DELETION"}

    def test_a_list_read_before_an_event_does_not_undo_it(self, number: PhoneNumber) -> None:
        mirror.store_list(number.account, [view(status="PENDING")], read_at=now())
        read_at = now()
        mirror.change(number.account, "1", {"status": "APPROVED"})
        mirror.store_list(number.account, [view(status="PENDING")], read_at=read_at)
        assert mirrored() == {"1": "APPROVED"}

    def test_an_older_list_changes_nothing_after_a_newer_one(self, number: PhoneNumber) -> None:
        older, newer = now() - timedelta(seconds=1), now()
        mirror.store_list(number.account, [view("2")], read_at=newer)
        changes = mirror.store_list(number.account, [view("1")], read_at=older)
        assert changes == MirrorChanges(synced=1)
        assert mirrored() == {"2": "APPROVED"}

    def test_an_answer_to_an_edit_does_not_undo_an_event_that_came_before_it(
        self, number: PhoneNumber
    ) -> None:
        mirror.store_list(number.account, [view()], read_at=now())
        began = now()
        mirror.change(number.account, "1", {"status": "REJECTED"})
        mirror.change(number.account, "1", {"status": "PENDING"}, since=began)
        assert mirrored() == {"1": "REJECTED"}


@pytest.mark.django_db(transaction=True)
def test_two_syncs_at_once_do_no_harm(
    tenant: Tenant, number: PhoneNumber, account: SimulatedAccount, simulator: RunningSimulator
) -> None:
    """Many syncs run simultaneously, with creations between them. No call fails, and each template exists once."""
    simulator.control("PUT", "settings", {"templates": {"review_ms": 600_000}})
    api_bodies = [order_update(f"race_{index}") for index in range(3)]
    for body in api_bodies:
        template_management.create(number.account, body=orjson.dumps(body), members=body)
    MessageTemplate.objects.all().delete()
    TemplateMirror.objects.all().delete()

    def read() -> None:
        mirror.read_all(BusinessAccount.objects.get(pk=number.account_id))

    def create(name: str) -> Callable[[], object]:
        body = order_update(name)
        return partial(template_management.create, number.account, body=orjson.dumps(body), members=body)

    for turn in range(4):
        in_threads(read, create(f"race_{10 + turn}"), read, read)
        assert MessageTemplate.objects.count() == 4 + turn
    mirror.read_all(number.account)
    listed = {row["id"] for row in simulator.control("GET", f"accounts/{account.waba_id}")["templates"]}
    assert set(mirrored()) == listed
