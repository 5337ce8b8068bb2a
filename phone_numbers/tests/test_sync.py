"""The sync: the data that it reads, one run at a time for each account, and failing accounts, which do not affect
others.
"""

import random
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection as database

from gateway.clock import isoformat, now
from gateway.monitoring import admin_health
from gateway.upstream import oauth
from gateway.upstream.calls import UpstreamUnreachable
from phone_numbers import admin, onboarding, registration, sync, tasks, tokens
from phone_numbers.connection import state
from phone_numbers.models import BusinessAccount, PhoneNumber, RedeemedCode
from phone_numbers.sync import store_view
from phone_numbers.tests.reading import moves, published, rows_besides
from phone_numbers.tests.test_connection import in_threads, make_account, make_number, state_of
from phone_numbers.tokens import graph_of
from tenants.audit import GATEWAY, Actor
from tenants.models import Tenant
from tests.scripted_graph import ScriptedGraph
from tests.simulated import RunningSimulator, SimulatedAccount
from webhooks.models import Endpoint

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def queued(monkeypatch: pytest.MonkeyPatch) -> list[tuple[UUID, datetime]]:
    """The enqueued tasks. No worker runs them."""
    jobs: list[tuple[UUID, datetime]] = []

    def enqueue(task: str, *, account_id: str, lease: str) -> bool:
        assert task == tasks.sync_account.name
        jobs.append((UUID(account_id), datetime.fromisoformat(lease)))
        return True

    monkeypatch.setattr(sync, "enqueue", enqueue)
    return jobs


def connect(simulator: RunningSimulator, tenant: Tenant, **values: Any) -> SimulatedAccount:
    account = simulator.account(**values)
    connect_again(tenant, account)
    return account


def connect_again(tenant: Tenant, account: SimulatedAccount) -> None:
    onboarding.connect(
        actor=Actor(),
        tenant_id=tenant.id,
        environment="live",
        waba_id=account.waba_id,
        access_token=account.access_token,
    )


def make_due() -> None:
    BusinessAccount.objects.update(next_sync_at=now() - timedelta(seconds=1))


def sync_all(queued: list[tuple[UUID, datetime]]) -> None:
    """Make every account due and run the tasks of beat and the workers."""
    make_due()
    sync.start_due()
    while queued:
        account_id, lease = queued.pop(0)
        sync.run(account_id=account_id, lease=lease)


def test_numbers_account_and_subscription_are_read_again(
    simulator: RunningSimulator, tenant: Tenant, endpoint: Endpoint, queued: list[Any]
) -> None:
    account = connect(simulator, tenant)
    simulator.change_number(
        account.phone_number_id, quality_rating="YELLOW", verified_name="New name", throughput="HIGH"
    )
    simulator.change_account(account.waba_id, name="New account name")
    sync_all(queued)
    number = PhoneNumber.objects.select_related("account").get()
    assert (number.quality_rating, number.verified_name) == ("YELLOW", "New name")
    assert number.throughput_level == "HIGH"
    assert number.account.name == "New account name"
    assert number.account.synced_at is not None
    assert number.account.sync_lease_until is None
    assert number.account.next_sync_at > now() + timedelta(hours=5)
    assert state_of(number) == ("connected", None)
    simulator.change_account(account.waba_id, subscribed=False)
    sync_all(queued)
    assert state_of(number) == ("disconnected", "not_subscribed")


def test_a_number_that_the_account_no_longer_lists_is_disconnected(
    simulator: RunningSimulator, tenant: Tenant, endpoint: Endpoint, queued: list[Any]
) -> None:
    connect(simulator, tenant)
    PhoneNumber.objects.update(phone_number_id="404")
    sync_all(queued)
    number = PhoneNumber.objects.get()
    assert state_of(number) == ("disconnected", "deregistered")
    assert (number.registered, number.registered_at) == (False, None)


def test_a_failing_account_is_put_off_and_the_others_go_on(
    simulator: RunningSimulator, tenant: Tenant, other_tenant: Tenant, queued: list[Any]
) -> None:
    failing, fine = connect(simulator, tenant), connect(simulator, other_tenant)
    simulator.faults({"action": "error", "code": 2, "match": {"path": f"{failing.waba_id}/phone_numbers"}})
    waits = []
    for _ in range(3):
        sync_all(queued)
        row = BusinessAccount.objects.get(waba_id=failing.waba_id)
        assert row.sync_lease_until is None
        waits.append((row.next_sync_at - now()).total_seconds())
    assert 40 < waits[0] < 80
    assert waits[0] < waits[1] < waits[2]
    assert row.sync_failures == 3
    assert BusinessAccount.objects.get(waba_id=fine.waba_id).sync_failures == 0
    simulator.faults()
    sync_all(queued)
    row.refresh_from_db()
    assert row.sync_failures == 0


def test_an_account_whose_token_no_key_opens_is_put_off_and_the_others_go_on(
    simulator: RunningSimulator, tenant: Tenant, endpoint: Endpoint, queued: list[Any]
) -> None:
    poisoned, fine = connect(simulator, tenant), connect(simulator, tenant)
    with database.cursor() as cursor:
        cursor.execute(
            "UPDATE numbers_businessaccount SET access_token = 'broken' WHERE waba_id = %s",
            [poisoned.waba_id],
        )
    simulator.change_number(fine.phone_number_id, quality_rating="RED")
    sync_all(queued)
    assert PhoneNumber.objects.get(phone_number_id=fine.phone_number_id).quality_rating == "RED"
    row = BusinessAccount.objects.get(waba_id=poisoned.waba_id)
    assert (row.sync_failures, row.sync_lease_until) == (1, None)
    assert row.next_sync_at > now()


def test_a_view_that_cannot_be_stored_costs_its_number_alone(
    simulator: RunningSimulator,
    tenant: Tenant,
    endpoint: Endpoint,
    queued: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    account = connect(simulator, tenant, numbers=3)
    poisoned, *others = account.phone_number_ids
    for phone_number_id in account.phone_number_ids:
        simulator.change_number(phone_number_id, quality_rating="RED")

    def store(number: PhoneNumber, view: Any, **values: Any) -> None:
        if number.phone_number_id == poisoned:
            raise ValueError("a view that no column takes")
        store_view(number, view, **values)

    monkeypatch.setattr(sync, "store_view", store)
    sync_all(queued)
    red = PhoneNumber.objects.filter(quality_rating="RED").values_list("phone_number_id", flat=True)
    assert set(red) == set(others)
    assert BusinessAccount.objects.get().sync_failures == 0


def test_a_token_that_no_key_opens_does_not_keep_others_from_being_warned(tenant: Tenant) -> None:
    ends = now() + timedelta(hours=20)
    accounts = [make_account(tenant) for _ in range(3)]
    BusinessAccount.objects.update(token_expires_at=ends)
    with database.cursor() as cursor:
        cursor.execute(
            "UPDATE numbers_businessaccount SET access_token = 'broken' WHERE id = %s", [accounts[0].pk]
        )
    tokens.warn_of_ends()
    assert {data["waba_id"] for data in published(tenant, "token.expiring")} == {a.waba_id for a in accounts}


def test_an_account_that_cannot_be_warned_does_not_keep_others_from_it(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounts = [make_account(tenant) for _ in range(3)]
    BusinessAccount.objects.update(token_expires_at=now() + timedelta(hours=20))
    token_expiring = state.token_expiring

    def expiring(account: BusinessAccount, **values: Any) -> None:
        if account.pk == accounts[0].pk:
            raise ValueError("poisoned")
        token_expiring(account, **values)

    monkeypatch.setattr(state, "token_expiring", expiring)
    tokens.warn_of_ends()
    reported = {data["waba_id"] for data in published(tenant, "token.expiring")}
    assert reported == {account.waba_id for account in accounts[1:]}


def test_a_throttled_account_waits_as_long_as_the_upstream_says(
    simulator: RunningSimulator, tenant: Tenant, queued: list[Any]
) -> None:
    account = connect(simulator, tenant)
    simulator.faults({"action": "error", "code": 133016, "match": {"path": f"{account.waba_id}/phone"}})
    sync_all(queued)
    assert BusinessAccount.objects.get().next_sync_at > now() + timedelta(minutes=59)


def test_no_answer_puts_off_as_well(
    simulator: RunningSimulator, tenant: Tenant, queued: list[Any], settings: Any
) -> None:
    connect(simulator, tenant)
    settings.META_GRAPH_URL = "http://127.0.0.1:9"
    sync_all(queued)
    row = BusinessAccount.objects.get()
    assert (row.sync_failures, row.sync_lease_until) == (1, None)


def test_what_a_command_did_after_the_read_stands(
    simulator: RunningSimulator, tenant: Tenant, endpoint: Endpoint
) -> None:
    connect(simulator, tenant)
    number = PhoneNumber.objects.get()
    read_before = now()
    onboarding.record_registered(number, pin="123456")
    store_view(number, {"platform_type": "NOT_APPLICABLE", "quality_rating": "RED"}, read_at=read_before)
    assert state_of(number) == ("connected", None)
    assert number.quality_rating == "RED"
    sync._mark_unregistered(number, read_at=read_before)
    assert state_of(number) == ("connected", None), "registered since the list was read that lacks it"
    read_before = now()
    registration.deregister(number, actor=GATEWAY)
    store_view(number, {"platform_type": "CLOUD_API", "status": "CONNECTED"}, read_at=read_before)
    assert state_of(number) == ("disconnected", "deregistered")


@pytest.mark.parametrize(("apps", "expected"), [([], False), (["9"], False), (["9", "own"], True)])
def test_only_the_services_own_subscription_counts(
    tenant: Tenant, graph: ScriptedGraph, settings: Any, apps: list[str], expected: bool
) -> None:
    settings.META_APP_ID = "own"
    account = make_account(tenant)
    listed = [{"whatsapp_business_api_data": {"id": app, "name": "An app"}} for app in apps]
    graph.answers("GET", f"/{account.waba_id}/subscribed_apps", {"data": listed})
    sync.read_subscription(account)
    account.refresh_from_db()
    assert account.subscribed is expected


def test_a_subscription_that_is_made_while_it_is_read_stands(
    simulator: RunningSimulator, tenant: Tenant, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(simulator, tenant)
    account = BusinessAccount.objects.get()

    def not_yet(*_: Any) -> bool:
        onboarding.subscribe(account)
        return False

    monkeypatch.setattr(type(graph_of(account)), "subscribed_to_us", not_yet)
    sync.read_subscription(account)
    account.refresh_from_db()
    assert account.subscribed


def test_a_claimed_account_is_not_claimed_again_until_its_lease_ends(
    tenant: Tenant, queued: list[Any]
) -> None:
    account = make_account(tenant)
    assert sync.start_due() == 1
    make_due()
    assert sync.start_due() == 0
    BusinessAccount.objects.filter(pk=account.pk).update(sync_lease_until=now() - timedelta(seconds=1))
    assert sync.start_due() == 1
    assert len(queued) == 2


@pytest.mark.parametrize(
    ("due", "lease", "is_claimed"),
    [
        (-1, None, True),
        (1, None, False),
        (-1, -1, True),
        (1, -1, True),
        (-1, 1, False),
        (1, 1, False),
    ],
)
def test_an_account_is_claimed_when_it_is_due_or_its_lease_has_ended(
    tenant: Tenant, queued: list[Any], due: int, lease: int | None, is_claimed: bool
) -> None:
    make_account(tenant)
    ends = None if lease is None else now() + timedelta(minutes=lease)
    BusinessAccount.objects.update(next_sync_at=now() + timedelta(minutes=due), sync_lease_until=ends)
    assert (sync.start_due(), len(queued)) == (is_claimed, is_claimed)


def test_the_accounts_that_are_due_for_longest_come_first(
    tenant: Tenant, queued: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync, "BATCH", 2)
    accounts = [make_account(tenant) for _ in range(3)]
    for account, minutes in zip(accounts, (1, 3, 2), strict=True):
        rows = BusinessAccount.objects.filter(pk=account.pk)
        rows.update(next_sync_at=now() - timedelta(minutes=minutes))
    assert [sync.start_due(), sync.start_due()] == [2, 1]
    assert {account_id for account_id, _ in queued[:2]} == {accounts[1].pk, accounts[2].pk}


@pytest.mark.parametrize(
    ("failures", "minutes"), [(0, 1), (1, 2), (2, 4), (8, 256), (9, 360), (19, 360), (20, 360), (500, 360)]
)
def test_each_failure_doubles_the_wait_up_to_the_interval(
    monkeypatch: pytest.MonkeyPatch, failures: int, minutes: int
) -> None:
    monkeypatch.setattr(random, "uniform", lambda *_: 1)
    error = UpstreamUnreachable("timeout", 0.0, is_unsent=False)
    expected = (min(failures + 1, 20), timedelta(minutes=minutes))
    assert sync.after_failure(failures, error) == expected


def test_a_sync_changes_nothing_of_other_accounts(
    simulator: RunningSimulator, tenant: Tenant, endpoint: Endpoint, queued: list[Any]
) -> None:
    """Meta's view of both accounts differs from the stored one, and only one is read."""
    accounts = [connect(simulator, tenant) for _ in range(2)]
    PhoneNumber.objects.update(quality_rating=None)
    BusinessAccount.objects.update(
        name="", taken_away="account_restricted", facts_changed_at=None, token_checked_at=None
    )
    for account in accounts:
        simulator.change_account(account.waba_id, subscribed=False)
    number = PhoneNumber.objects.get(phone_number_id=accounts[1].phone_number_id)
    lease = now() + timedelta(minutes=1)
    BusinessAccount.objects.update(sync_lease_until=lease)
    before = rows_besides(number)
    sync.run(account_id=number.account_id, lease=lease)
    assert rows_besides(number) == before
    row = BusinessAccount.objects.get(pk=number.account_id)
    assert (row.subscribed, row.taken_away, row.sync_lease_until) == (False, None, None)


def test_a_run_whose_lease_was_taken_over_does_nothing(
    simulator: RunningSimulator, tenant: Tenant, queued: list[Any]
) -> None:
    account = connect(simulator, tenant)
    make_due()
    sync.start_due()
    account_id, old_lease = queued.pop()
    BusinessAccount.objects.update(sync_lease_until=now() - timedelta(seconds=1))
    sync.start_due()
    before = simulator.calls(account.waba_id)
    sync.run(account_id=account_id, lease=old_lease)
    assert simulator.calls(account.waba_id) == before


@pytest.mark.parametrize("fails", [False, True])
def test_a_run_that_was_overtaken_at_its_end_leaves_the_lease_of_the_next(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    account, newer = make_account(tenant), now() + timedelta(minutes=5)

    def overtaken(_: sync._Run) -> None:
        BusinessAccount.objects.update(sync_lease_until=newer)
        if fails:
            raise UpstreamUnreachable("timeout", 0.0, is_unsent=False)

    monkeypatch.setattr(sync._Run, "read", overtaken)
    sync.run(account_id=account.pk, lease=now())
    account.refresh_from_db()
    assert (account.sync_lease_until, account.sync_failures, account.synced_at) == (newer, 0, None)


def test_a_hint_during_a_run_has_the_account_read_once_more(
    simulator: RunningSimulator,
    tenant: Tenant,
    queued: list[Any],
    django_capture_on_commit_callbacks: Any,
) -> None:
    account = connect(simulator, tenant)
    make_due()
    sync.start_due()
    with django_capture_on_commit_callbacks(execute=True):
        sync.request_sync(waba_id=account.waba_id)
    assert len(queued) == 1
    account_id, lease = queued.pop()
    sync.run(account_id=account_id, lease=lease)
    assert sync.start_due() == 1


def test_a_hint_begins_when_what_it_is_about_is_committed(
    tenant: Tenant, queued: list[Any], django_capture_on_commit_callbacks: Any
) -> None:
    account, other = make_account(tenant), make_account(tenant)
    BusinessAccount.objects.update(next_sync_at=now() + timedelta(hours=1))
    with django_capture_on_commit_callbacks(execute=True):
        sync.request_sync(waba_id=account.waba_id)
        assert queued == []
    assert [account_id for account_id, _ in queued] == [account.pk]
    assert BusinessAccount.objects.get(pk=other.pk).next_sync_at > now() + timedelta(minutes=59)


@pytest.mark.django_db(transaction=True)
def test_two_beats_that_look_at_the_same_moment_claim_an_account_once(
    tenant: Tenant, queued: list[Any]
) -> None:
    make_account(tenant)

    def another_beat_before_the_lease(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith("UPDATE"):
            in_threads(sync.start_due)
        return execute(sql, params, many, context)

    with database.execute_wrapper(another_beat_before_the_lease):
        sync.start_due()
    assert len(queued) == 1


def test_a_token_that_fails_the_daily_check_is_reported_once_and_comes_back(
    simulator: RunningSimulator, tenant: Tenant, endpoint: Endpoint, queued: list[Any]
) -> None:
    account = connect(simulator, tenant)
    number = PhoneNumber.objects.get()
    simulator.control("PATCH", "tokens", {"access_token": account.access_token, "invalidated": True})
    BusinessAccount.objects.update(token_checked_at=now() - timedelta(days=1))
    for _ in range(2):
        sync_all(queued)
    assert state_of(number) == ("disconnected", "token_invalid")
    assert len(published(tenant, "token.invalid")) == 1
    simulator.control("PATCH", "tokens", {"access_token": account.access_token, "invalidated": False})
    sync_all(queued)
    assert state_of(number) == ("connected", None)
    assert [move[:2] for move in moves(tenant)] == [
        ("pending", "connected"),
        ("connected", "disconnected"),
        ("disconnected", "connected"),
    ]


def test_a_token_that_is_called_valid_but_opens_nothing_does_not_come_and_go(
    simulator: RunningSimulator, tenant: Tenant, endpoint: Endpoint, queued: list[Any]
) -> None:
    account = connect(simulator, tenant)
    simulator.faults({"action": "error", "code": 190, "match": {"path": f"/{account.waba_id}"}})
    for _ in range(3):
        sync_all(queued)
    assert state_of(PhoneNumber.objects.get()) == ("disconnected", "token_invalid")
    assert len(moves(tenant)) == 2
    simulator.faults()
    sync_all(queued)
    assert state_of(PhoneNumber.objects.get()) == ("connected", None)


def test_a_token_that_does_not_work_is_checked_again_soon_with_back_off(
    simulator: RunningSimulator, tenant: Tenant, endpoint: Endpoint, queued: list[Any]
) -> None:
    account = connect(simulator, tenant)
    BusinessAccount.objects.update(sync_failures=20)  # of a former token
    state.token_failed(waba_id=account.waba_id)
    simulator.faults({"action": "error", "code": 190, "match": {"path": f"/{account.waba_id}"}})
    waits = []
    for _ in range(3):
        sync_all(queued)
        row = BusinessAccount.objects.get()
        assert row.sync_lease_until is None
        waits.append((row.next_sync_at - now()).total_seconds())
    assert 40 < waits[0] < 80
    assert waits[0] < waits[1] < waits[2]
    simulator.faults()
    sync_all(queued)
    row.refresh_from_db()
    assert (row.sync_failures, row.token_invalid_at) == (0, None)
    assert row.next_sync_at > now() + timedelta(hours=5)


def test_the_end_of_a_token_is_reported_seven_days_and_one_day_before(tenant: Tenant) -> None:
    account = make_account(tenant)
    lasting = make_account(tenant)
    BusinessAccount.objects.filter(pk=lasting.pk).update(token_expires_at=now() + timedelta(days=30))

    def ends_in(**duration: int) -> None:
        BusinessAccount.objects.filter(pk=account.pk).update(
            token_expires_at=end, data_access_expires_at=now() + timedelta(**duration)
        )

    end = now() + timedelta(days=40)
    ends_in(days=8)
    assert tokens.warn_of_ends() == 0
    ends_in(days=6)
    assert [tokens.warn_of_ends(), tokens.warn_of_ends()] == [1, 0]
    ends_in(hours=20)
    assert [tokens.warn_of_ends(), tokens.warn_of_ends()] == [1, 0]
    reported = published(tenant, "token.expiring")
    assert [data["waba_id"] for data in reported] == [account.waba_id] * 2
    assert all(data["expires_at"].endswith("Z") for data in reported)


@pytest.mark.parametrize(
    ("former", "end", "warned_again"),
    [(1, 1, False), (2, 1, False), (1, 2, True), (1, None, True)],
)
def test_the_warnings_come_again_only_for_a_later_end_or_after_none(
    tenant: Tenant, former: int, end: int | None, warned_again: bool
) -> None:
    """Ends are in days from now. A token that never ends may later be replaced by one that does."""
    account = make_account(tenant)
    at = now()
    account.token_expires_at = at + timedelta(days=former)
    account.token_warned_days = 1
    ends = at + timedelta(days=end) if end else None
    tokens.set_ends(account, oauth.TokenFacts(True, "1", (), ends, None))
    assert account.token_warned_days == (None if warned_again else 1)


@pytest.mark.django_db(transaction=True)
def test_two_beats_at_once_report_an_end_once(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    make_account(tenant)
    BusinessAccount.objects.update(token_expires_at=now() + timedelta(hours=20), token_warned_days=7)
    both, token_expiring, counts = threading.Barrier(2), state.token_expiring, []

    def expiring(account: BusinessAccount, *, days: int) -> None:
        with suppress(threading.BrokenBarrierError):
            both.wait(0.5)
        token_expiring(account, days=days)

    monkeypatch.setattr(state, "token_expiring", expiring)
    in_threads(*[lambda: counts.append(tokens.warn_of_ends())] * 2)
    assert sorted(counts) == [0, 1]
    assert len(published(tenant, "token.expiring")) == 1


MOMENT, DAY = timedelta(microseconds=1), timedelta(days=1)


@pytest.mark.parametrize("column", ["token_expires_at", "data_access_expires_at"])
@pytest.mark.parametrize(
    ("warned", "ends_in", "warnings"),
    [
        (None, 7 * DAY + MOMENT, []),
        (None, 7 * DAY, [7]),
        (None, DAY, [1]),
        (None, -DAY, [1]),
        (7, DAY + MOMENT, []),
        (7, DAY, [1]),
        (1, timedelta(hours=1), []),
        (1, 7 * DAY, []),
    ],
)
def test_each_warning_of_a_tokens_end_comes_once(
    tenant: Tenant,
    monkeypatch: pytest.MonkeyPatch,
    column: str,
    warned: int | None,
    ends_in: timedelta,
    warnings: list[int],
) -> None:
    account, moment = make_account(tenant), now().replace(microsecond=0)
    monkeypatch.setattr(tokens, "now", lambda: moment)
    rows, end = BusinessAccount.objects.filter(pk=account.pk), moment + ends_in
    rows.update(token_expires_at=moment + 90 * DAY, data_access_expires_at=moment + 90 * DAY)
    for invalid_at in (moment, None):
        rows.update(**{column: end, "token_invalid_at": invalid_at, "token_warned_days": warned})
        assert tokens.warn_of_ends() == (0 if invalid_at else len(warnings))
    assert published(tenant, "token.expiring") == [
        {"waba_id": account.waba_id, "expires_at": isoformat(end)} for _ in warnings
    ]
    account.refresh_from_db()
    assert account.token_warned_days == (warnings[0] if warnings else warned)


@pytest.mark.parametrize(
    ("checked", "end", "invalid", "is_due"),
    [
        (None, None, False, True),
        (timedelta(hours=23), None, False, False),
        (timedelta(hours=23) + MOMENT, None, False, True),
        (MOMENT, None, True, True),
        (timedelta(hours=1), timedelta(), False, True),
        (timedelta(hours=1), -MOMENT, False, False),
        (timedelta(hours=1), timedelta(hours=1), False, False),
        (timedelta(hours=1), timedelta(hours=1) - MOMENT, False, True),
    ],
)
def test_a_token_is_checked_daily_and_once_after_its_end(
    tenant: Tenant,
    monkeypatch: pytest.MonkeyPatch,
    checked: timedelta | None,
    end: timedelta | None,
    invalid: bool,
    is_due: bool,
) -> None:
    """`checked` and `end` are how long ago."""
    moment = now()
    monkeypatch.setattr(tokens, "now", lambda: moment)
    account = make_account(tenant)
    account.token_checked_at = None if checked is None else moment - checked
    account.data_access_expires_at = None if end is None else moment - end
    account.token_invalid_at = moment if invalid else None
    assert tokens.check_is_due(account) is is_due


@pytest.mark.parametrize(
    ("facts", "opens", "is_invalid"),
    [
        ({"is_valid": True}, 200, False),
        ({"is_valid": True}, 190, True),
        ({"is_valid": True}, 131000, False),
        ({"is_valid": True, "app_id": "1"}, 200, True),
        ({"is_valid": False}, 200, True),
        (None, 200, False),
    ],
)
def test_a_doubted_token_fails_only_when_meta_refuses_it_again(
    tenant: Tenant,
    graph: ScriptedGraph,
    settings: Any,
    facts: dict[str, Any] | None,
    opens: int,
    is_invalid: bool,
) -> None:
    number = make_number(make_account(tenant))
    make_number(make_account(tenant))
    ends = [now().replace(microsecond=0) + timedelta(days=days) for days in (3, 5)]
    expires, data_expires = (int(end.timestamp()) for end in ends)
    times = {"expires_at": expires, "data_access_expires_at": data_expires}
    data = {"app_id": settings.META_APP_ID, **times, **(facts or {})}
    error = {"error": {"code": opens, "message": "No"}}
    graph.answers("GET", "/debug_token", {"data": data} if facts else error, status=200 if facts else 500)
    account, ok = number.account, opens == 200
    graph.answers("GET", f"/{account.waba_id}", {"id": "1"} if ok else error, status=200 if ok else 400)
    before = rows_besides(number)
    tokens.question(waba_id=account.waba_id, token=account.access_token)
    account.refresh_from_db()
    assert (account.token_invalid_at is not None) is is_invalid
    stored = [account.token_expires_at, account.data_access_expires_at]
    assert stored == (ends if facts is not None and not is_invalid else [None, None])
    assert rows_besides(number) == before
    asked = len(graph.received)
    BusinessAccount.objects.update(token_questioned_at=None)
    tokens.question(waba_id=account.waba_id, token=account.access_token)
    assert (len(graph.received) == asked) is is_invalid


@pytest.mark.parametrize(
    ("before", "view", "after"),
    [
        ((False, None), {"platform_type": "CLOUD_API", "status": "CONNECTED"}, (True, "read")),
        (
            (False, None),
            {
                "platform_type": "CLOUD_API",
                "status": "CONNECTED",
                "last_onboarded_time": "2026-01-02T03:04:05+0000",
            },
            (True, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ),
        (
            (True, datetime(2025, 1, 1, tzinfo=UTC)),
            {"platform_type": "CLOUD_API", "status": "CONNECTED"},
            (True, datetime(2025, 1, 1, tzinfo=UTC)),
        ),
        (
            (True, datetime(2025, 1, 1, tzinfo=UTC)),
            {"status": "DISCONNECTED"},
            (False, None),
        ),
        (
            (False, datetime(2025, 1, 1, tzinfo=UTC)),
            {"platform_type": "CLOUD_API", "status": "CONNECTED"},
            (True, "read"),
        ),
        ((True, None), {}, (True, None)),
        ((True, None), {"status": "DISCONNECTED"}, (False, None)),
        ((False, None), {}, (False, None)),
    ],
)
def test_a_view_of_meta_sets_the_registration(
    tenant: Tenant, before: Any, view: dict[str, Any], after: Any
) -> None:
    number, read_at = make_number(make_account(tenant)), now()
    PhoneNumber.objects.update(registered=before[0], registered_at=before[1])
    view = {**view, "verified_name": "N" * 300, "quality_rating": "Q" * 30, "name_status": None}
    store_view(number, view, read_at=read_at)
    number.refresh_from_db()
    assert (number.registered, number.registered_at) == (
        after[0],
        read_at if after[1] == "read" else after[1],
    )
    assert (number.verified_name, number.quality_rating) == ("N" * 255, "Q" * 20)
    assert number.meta_snapshot == view
    assert number.refreshed_at is not None


def test_a_token_that_many_calls_doubt_at_once_is_asked_about_once(
    simulator: RunningSimulator, tenant: Tenant
) -> None:
    account = connect(simulator, tenant)
    before = simulator.total()
    for _ in range(3):
        tokens.question(waba_id=account.waba_id, token=account.access_token)
    assert simulator.calls_since(before, "/debug_token") == 1
    BusinessAccount.objects.update(token_questioned_at=now() - 2 * tokens.QUESTION_INTERVAL)
    tokens.question(waba_id=account.waba_id, token=account.access_token)
    assert simulator.calls_since(before, "/debug_token") == 2


def test_the_refusal_of_a_token_that_was_replaced_asks_nothing_about_the_new_one(
    simulator: RunningSimulator, tenant: Tenant
) -> None:
    """A call with the old token began before the tenant connected again."""
    account = connect(simulator, tenant)
    before = simulator.total()
    tokens.question(waba_id=account.waba_id, token="EAA-of-before")
    assert simulator.total() == before
    assert BusinessAccount.objects.get(waba_id=account.waba_id).token_invalid_at is None


def test_what_is_said_of_a_former_token_is_not_stored_for_the_new_one(
    simulator: RunningSimulator, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(simulator, tenant, variant="expiring")
    token_facts = oauth.token_facts

    def facts_while_the_token_changes(answer: Any) -> oauth.TokenFacts:
        row = BusinessAccount.objects.get()
        row.access_token, row.token_expires_at, row.token_checked_at = "a new token", None, None
        row.save()
        return token_facts(answer)

    former = BusinessAccount.objects.get()
    monkeypatch.setattr(oauth, "token_facts", facts_while_the_token_changes)
    tokens.check(former)
    row = BusinessAccount.objects.get()
    assert (row.access_token, row.token_expires_at, row.token_checked_at) == ("a new token", None, None)


@pytest.mark.parametrize("again", ["check", "connect"])
def test_a_later_end_of_the_same_token_is_reported_again(
    simulator: RunningSimulator, tenant: Tenant, again: str
) -> None:
    account = connect(simulator, tenant, variant="expiring")
    assert tokens.warn_of_ends() == 1
    for ends_in, events in ((timedelta(days=6, hours=12), 2), (timedelta(days=5), 2)):
        end = int((now() + ends_in).timestamp())
        simulator.control("PATCH", "tokens", {"access_token": account.access_token, "expires_at": end})
        if again == "check":
            tokens.check(BusinessAccount.objects.get())
        else:
            connect_again(tenant, account)
        tokens.warn_of_ends()
        assert len(published(tenant, "token.expiring")) == events


def test_the_end_of_a_new_token_is_reported_again(simulator: RunningSimulator, tenant: Tenant) -> None:
    account = connect(simulator, tenant, variant="expiring")
    assert tokens.warn_of_ends() == 1
    fresh = simulator.control("POST", "tokens", {"waba_id": account.waba_id, "variant": "60_days"})
    onboarding.connect(
        actor=Actor(),
        tenant_id=tenant.id,
        environment="live",
        waba_id=account.waba_id,
        access_token=fresh["access_token"],
    )
    row = BusinessAccount.objects.get()
    assert row.token_warned_days is None
    assert row.token_expires_at is not None
    assert row.token_expires_at > now() + timedelta(days=59)


def test_the_warnings_of_a_token_come_again_for_a_later_end_alone(tenant: Tenant) -> None:
    account, end = make_account(tenant), now() + timedelta(days=3)
    for later, warned in ((timedelta(), 7), (timedelta(seconds=-1), 7), (timedelta(seconds=1), None)):
        account.token_expires_at, account.token_warned_days = end, 7
        tokens.set_ends(account, oauth.TokenFacts(True, "1", (), end + later, None))
        assert account.token_warned_days == warned, later


def test_the_health_report_counts_tokens(tenant: Tenant) -> None:
    soon, later = now() + timedelta(days=3), now() + timedelta(days=30)
    for ends_at, invalid_at in ((soon, None), (soon, now()), (later, None), (later, now()), (None, None)):
        account = make_account(tenant)
        BusinessAccount.objects.filter(pk=account.pk).update(
            token_expires_at=ends_at, token_invalid_at=invalid_at
        )
    report = admin_health.report()
    assert report["tokens"] == {"expiring": 1, "invalid": 2}
    assert [(card.title, card.value) for card in admin._cards(report)] == [
        ("Tokens expiring", 1),
        ("Tokens invalid", 2),
    ]


@pytest.mark.parametrize(("health", "lifted"), [("AVAILABLE", True), ("LIMITED", True), ("BLOCKED", False)])
def test_a_ban_that_ended_without_a_word_is_lifted_by_the_sync(
    simulator: RunningSimulator,
    tenant: Tenant,
    endpoint: Endpoint,
    queued: list[Any],
    health: str,
    lifted: bool,
) -> None:
    """After its ban, a limited account can send within limits. A blocked account cannot send."""
    account = connect(simulator, tenant)
    number = PhoneNumber.objects.get()
    with state.facts_change(tenant_id=tenant.id):
        BusinessAccount.objects.update(taken_away="account_restricted", facts_changed_at=now())
    sync_all(queued)
    assert state_of(number) == ("disconnected", "account_restricted")
    BusinessAccount.objects.update(facts_changed_at=now() - timedelta(hours=2))
    simulator.control("PATCH", f"accounts/{account.waba_id}", {"health": {"BUSINESS": health}})
    sync_all(queued)
    restricted = ("disconnected", "account_restricted")
    assert state_of(number) == (("connected", None) if lifted else restricted)


def test_tokens_of_old_codes_are_pruned(tenant: Tenant) -> None:
    for age in (timedelta(hours=1), timedelta(hours=25)):
        RedeemedCode.objects.create(
            tenant=tenant,
            environment="live",
            code_hash=str(age),
            access_token="EAAold",
            created_at=now() - age,
        )
    onboarding.prune_redeemed_codes()
    assert RedeemedCode.objects.count() == 1


def test_numbers_of_one_account_are_left_as_they_are_by_another(tenant: Tenant, endpoint: Endpoint) -> None:
    one, two = make_number(make_account(tenant)), make_number(make_account(tenant))
    state.recompute(tenant_id=tenant.id, waba_id=one.account.waba_id)
    assert state_of(one) == ("connected", None)
    assert state_of(two) == ("pending", "not_subscribed")
