"""The connection state: the pure function, its table in the docs, and the stored and published results."""

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.clock import now
from phone_numbers import senders_and_owners
from phone_numbers.connection import state
from phone_numbers.connection.state import ConnectionFacts, connection_of
from phone_numbers.models import BusinessAccount, PhoneNumber
from phone_numbers.tests.conftest import verified_endpoint
from phone_numbers.tests.reading import moves, published, rows_besides
from tenants.models import Tenant
from tests.fixtures import a_lock_is_waited_for, wait_until
from tests.threads import at_once
from webhooks.endpoints.lifecycle import endpoints_changed
from webhooks.models import Endpoint, Event
from webhooks.tests.publishing import endpoint_of

ALL_WELL = ConnectionFacts(
    taken_away=None,
    token_valid=True,
    subscribed=True,
    registered=True,
    endpoint_verified=True,
    ever_connected=True,
)
facts = st.builds(
    ConnectionFacts,
    taken_away=st.sampled_from([None, "account_removed", "account_restricted"]),
    token_valid=st.booleans(),
    subscribed=st.booleans(),
    registered=st.booleans(),
    endpoint_verified=st.booleans(),
    ever_connected=st.booleans(),
)


@given(facts)
def test_connected_exactly_when_all_three_hold_and_nothing_was_taken_away(
    given_facts: ConnectionFacts,
) -> None:
    connection, detail = connection_of(given_facts)
    all_hold = replace(given_facts, ever_connected=True) == ALL_WELL
    assert (connection == "connected") == all_hold == (detail is None)


@given(facts)
def test_a_number_that_never_was_connected_is_only_disconnected_by_the_upstream_side(
    f: ConnectionFacts,
) -> None:
    connection, detail = connection_of(replace(f, ever_connected=False))
    if connection == "disconnected":
        assert detail in {"account_removed", "account_restricted", "token_invalid"}


@given(facts)
def test_lacking_only_the_endpoint_is_pending(f: ConnectionFacts) -> None:
    lacking = replace(ALL_WELL, endpoint_verified=False, ever_connected=f.ever_connected)
    assert connection_of(lacking) == ("pending", "no_verified_endpoint")


@given(facts, st.booleans())
def test_fixing_one_fact_never_makes_it_worse(f: ConnectionFacts, ever: bool) -> None:
    rank = {"disconnected": 0, "pending": 1, "connected": 2}
    before = connection_of(f)
    for fixed in (
        replace(f, taken_away=None),
        replace(f, token_valid=True),
        replace(f, subscribed=True),
        replace(f, registered=True),
        replace(f, endpoint_verified=True),
    ):
        assert rank[connection_of(fixed).state] >= rank[before.state]


@pytest.fixture
def account(tenant: Tenant) -> BusinessAccount:
    return make_account(tenant)


@pytest.fixture
def number(account: BusinessAccount) -> PhoneNumber:
    return make_number(account)


def make_account(tenant: Tenant) -> BusinessAccount:
    """A subscribed account with a working token."""
    return BusinessAccount.objects.create(
        tenant=tenant,
        environment="live",
        waba_id=str(uuid4().int)[:15],
        access_token="EAAtestTOKEN0123456789",
        subscribed=True,
    )


def make_number(account: BusinessAccount, digits: str = "919800000001") -> PhoneNumber:
    """A registered number."""
    return PhoneNumber.objects.create(
        account=account,
        tenant=account.tenant,
        environment=account.environment,
        phone_number_id=str(uuid4().int)[:15],
        display_phone_number=f"+{digits}",
        digits=digits,
        registered=True,
        connection_detail="not_subscribed",
    )


def state_of(number: PhoneNumber) -> tuple[str, str | None]:
    number.refresh_from_db()
    return number.connection_state, number.connection_detail


@pytest.mark.django_db
def test_an_endpoint_that_appears_connects_and_one_that_goes_makes_pending(
    tenant: Tenant, number: PhoneNumber
) -> None:
    state.recompute(tenant_id=tenant.id)
    assert state_of(number) == ("pending", "no_verified_endpoint")
    endpoint = verified_endpoint(tenant)
    endpoints_changed.send(sender=Endpoint, tenant_id=tenant.id, environment="live")
    assert state_of(number) == ("connected", None)
    assert Tenant.objects.filter(pk=tenant.pk, number_connected=True).exists()
    Endpoint.objects.filter(pk=endpoint.pk).update(status=Endpoint.Status.DISABLED)
    endpoints_changed.send(sender=Endpoint, tenant_id=tenant.id, environment="live")
    assert state_of(number) == ("pending", "no_verified_endpoint")
    assert Tenant.objects.filter(pk=tenant.pk, number_connected=False).exists()
    assert moves(tenant) == [
        ("pending", "connected", None),
        ("connected", "pending", "no_verified_endpoint"),
    ]


@pytest.mark.django_db
def test_an_unverified_or_foreign_endpoint_does_not_count(
    tenant: Tenant, other_tenant: Tenant, number: PhoneNumber
) -> None:
    verified_endpoint(other_tenant)
    endpoint = verified_endpoint(tenant)
    Endpoint.objects.filter(pk=endpoint.pk).update(verified_at=None)
    state.recompute(tenant_id=tenant.id)
    assert state_of(number) == ("pending", "no_verified_endpoint")


@pytest.mark.django_db
@pytest.mark.parametrize(("own", "other"), [("live", "test"), ("test", "live")])
def test_an_endpoint_counts_for_numbers_of_its_own_environment_alone(
    tenant: Tenant, number: PhoneNumber, own: str, other: str
) -> None:
    PhoneNumber.objects.update(environment=own)
    endpoint = verified_endpoint(tenant)
    for environment, expected in ((other, ("pending", "no_verified_endpoint")), (own, ("connected", None))):
        Endpoint.objects.filter(pk=endpoint.pk).update(environment=environment)
        state.recompute(tenant_id=tenant.id)
        assert state_of(number) == expected
    assert set(Event.objects.values_list("environment", flat=True)) == {own}, (
        "its events are its environment's"
    )


@pytest.mark.django_db
def test_recomputing_without_a_change_publishes_nothing(
    tenant: Tenant, endpoint: Endpoint, number: PhoneNumber
) -> None:
    for _ in range(3):
        state.recompute(tenant_id=tenant.id)
    assert moves(tenant) == [("pending", "connected", None)]


@pytest.mark.django_db
def test_the_same_change_again_is_a_new_event(
    tenant: Tenant, endpoint: Endpoint, number: PhoneNumber
) -> None:
    for subscribed in (True, False, True, False):
        BusinessAccount.objects.update(subscribed=subscribed)
        state.recompute(tenant_id=tenant.id)
    assert moves(tenant) == [
        ("pending", "connected", None),
        ("connected", "disconnected", "not_subscribed"),
        ("disconnected", "connected", None),
        ("connected", "disconnected", "not_subscribed"),
    ]


@pytest.mark.django_db
def test_the_event_names_account_and_number(tenant: Tenant, endpoint: Endpoint, number: PhoneNumber) -> None:
    state.recompute(tenant_id=tenant.id)
    event = Event.objects.get(type="number.connection")
    assert event.waba_id == number.account.waba_id
    assert event.phone_number_id == number.phone_number_id
    assert event.display_phone_number == number.digits, "as in every other event"
    assert event.raw_path is None


@pytest.mark.django_db
@pytest.mark.parametrize("chosen", ["environment", "waba_id", "phone_number_id"])
def test_a_change_of_facts_recomputes_the_numbers_that_it_names(tenant: Tenant, chosen: str) -> None:
    for environment in ("live", "test"):
        endpoint_of(tenant, environment=environment, verified_at=now())
    named = make_number(make_account(tenant))
    others = [make_number(make_account(tenant))]
    PhoneNumber.objects.filter(pk=named.pk).update(environment="test")
    if chosen == "phone_number_id":
        others.append(make_number(named.account))
    value = {"environment": "test", "waba_id": named.waba_id, "phone_number_id": named.phone_number_id}[
        chosen
    ]
    state.recompute(tenant_id=tenant.id, **{chosen: value})
    assert state_of(named) == ("connected", None)
    assert {state_of(other) for other in others} == {("pending", "not_subscribed")}


@pytest.mark.django_db
def test_the_event_of_a_number_without_digits_has_no_display_number(
    tenant: Tenant, number: PhoneNumber
) -> None:
    PhoneNumber.objects.update(digits="")
    state.recompute(tenant_id=tenant.id)
    assert Event.objects.get(type="number.connection").display_phone_number is None


@pytest.mark.django_db
def test_a_failing_token_is_reported_once_and_disconnects(
    tenant: Tenant, endpoint: Endpoint, number: PhoneNumber
) -> None:
    state.recompute(tenant_id=tenant.id)
    for _ in range(2):
        state.token_failed(waba_id=number.account.waba_id, token="EAAtestTOKEN0123456789")
    assert state_of(number) == ("disconnected", "token_invalid")
    assert published(tenant, "token.invalid") == [{"waba_id": number.account.waba_id, "expires_at": None}]
    assert moves(tenant)[1:] == [("connected", "disconnected", "token_invalid")]


@pytest.mark.django_db
def test_the_event_of_a_token_belongs_to_the_accounts_environment(
    tenant: Tenant, account: BusinessAccount
) -> None:
    BusinessAccount.objects.update(environment="test")
    state.token_failed(waba_id=account.waba_id)
    assert Event.objects.get(type="token.invalid").environment == "test"


@pytest.mark.django_db
def test_a_failing_token_is_that_of_its_account_alone(tenant: Tenant, endpoint: Endpoint) -> None:
    first, failing, last = (make_number(make_account(tenant)) for _ in range(3))
    state.recompute(tenant_id=tenant.id)
    before = rows_besides(failing)
    state.token_failed(waba_id=failing.account.waba_id)
    assert rows_besides(failing) == before
    assert [state_of(each)[0] for each in (first, failing, last)] == [
        "connected",
        "disconnected",
        "connected",
    ]


@pytest.mark.django_db
def test_a_token_that_was_replaced_meanwhile_is_left_alone(
    tenant: Tenant, endpoint: Endpoint, number: PhoneNumber
) -> None:
    state.recompute(tenant_id=tenant.id)
    state.token_failed(waba_id=number.account.waba_id, token="EAAtheOldOne")
    state.token_failed(waba_id="0")
    assert state_of(number) == ("connected", None)
    assert published(tenant, "token.invalid") == []


@pytest.mark.django_db
def test_events_touch_their_numbers(
    tenant: Tenant, number: PhoneNumber, django_capture_on_commit_callbacks: Callable[..., Any]
) -> None:
    def touch() -> datetime | None:
        routes = senders_and_owners.route(
            waba_ids=[], phone_number_ids=[number.phone_number_id], environments=[number.environment]
        )
        with django_capture_on_commit_callbacks(execute=True):
            state.touch_last_event(routes.numbers.values())
        number.refresh_from_db()
        return number.last_event_at

    other = make_number(number.account)
    first = touch()
    assert first is not None
    other.refresh_from_db()
    assert other.last_event_at is None
    assert (now() - first).total_seconds() < 5
    assert touch() == first, "within a second the row is left alone"
    PhoneNumber.objects.update(last_event_at=first - timedelta(seconds=2))
    again = touch()
    assert again is not None
    assert again > first


def in_threads(*jobs: Callable[[], object]) -> None:
    """Run the jobs at the same moment. Raises the first error."""
    for error in at_once(*jobs):
        raise error


@pytest.mark.django_db(transaction=True)
def test_causes_at_the_same_moment_neither_lose_nor_double_an_event(tenant: Tenant) -> None:
    """Simultaneously, an endpoint is verified, the account is subscribed, and the number is registered."""
    for turn in range(4):
        account = make_account(tenant)
        number = make_number(account)
        BusinessAccount.objects.filter(pk=account.pk).update(subscribed=False)
        PhoneNumber.objects.filter(pk=number.pk).update(registered=False)
        Endpoint.objects.all().delete()
        state.recompute(tenant_id=tenant.id)

        def subscribe(account: BusinessAccount = account) -> None:
            with state.facts_change(tenant_id=tenant.id, waba_id=account.waba_id):
                BusinessAccount.objects.filter(pk=account.pk).update(subscribed=True)

        def register(number: PhoneNumber = number) -> None:
            with state.facts_change(tenant_id=tenant.id, phone_number_id=number.phone_number_id):
                PhoneNumber.objects.filter(pk=number.pk).update(registered=True)

        def verify() -> None:
            with state.facts_change(tenant_id=tenant.id):
                verified_endpoint(tenant)

        def look() -> None:
            state.recompute(tenant_id=tenant.id)

        in_threads(subscribe, register, verify, look)
        assert state_of(number) == ("connected", None), f"turn {turn}"
        events = Event.objects.filter(type="number.connection", phone_number_id=number.phone_number_id)
        number.refresh_from_db()
        assert events.count() == number.connection_changes, f"turn {turn}"


@pytest.mark.django_db(transaction=True)
def test_an_endpoint_that_is_verified_beside_an_onboarding_connects_the_number(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The onboarding finds no endpoint yet. The endpoint is verified before the onboarding commits its number."""
    account = make_account(tenant)
    has_looked, may_commit, has_verified = threading.Event(), threading.Event(), threading.Event()
    recompute = state._recompute

    def look(*chosen: Any) -> None:
        recompute(*chosen)
        if not has_looked.is_set():
            has_looked.set()
            assert may_commit.wait(30)

    def onboard() -> None:
        with state.facts_change(tenant_id=tenant.id, waba_id=account.waba_id):
            make_number(account)

    def verify() -> None:
        assert has_looked.wait(30)
        verified_endpoint(tenant)
        state.recompute(tenant_id=tenant.id)
        has_verified.set()

    def let_go() -> None:
        wait_until(lambda: has_verified.is_set() or a_lock_is_waited_for(), "neither waits nor is done")
        may_commit.set()

    monkeypatch.setattr(state, "_recompute", look)
    in_threads(onboard, verify, let_go)
    assert state_of(PhoneNumber.objects.get()) == ("connected", None)


@pytest.mark.django_db(transaction=True)
def test_a_token_that_fails_in_many_threads_is_reported_once(tenant: Tenant) -> None:
    number = make_number(make_account(tenant))
    verified_endpoint(tenant)
    state.recompute(tenant_id=tenant.id)
    waba_id = number.account.waba_id
    in_threads(*[lambda: state.token_failed(waba_id=waba_id)] * 6)
    assert len(published(tenant, "token.invalid")) == 1
    assert moves(tenant) == [("pending", "connected", None), ("connected", "disconnected", "token_invalid")]
