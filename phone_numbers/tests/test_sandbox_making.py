"""A sandbox is created after a sign-up is confirmed, again after a failure, and once by simultaneous calls."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.test import TestCase
from pytest_django import Settings

from gateway.clock import now
from gateway.ids import first_at
from phone_numbers import tasks
from phone_numbers.models import BusinessAccount, PhoneNumber, sandbox_number_id_of, sandbox_waba_id_of
from phone_numbers.sandbox import control
from phone_numbers.tests.test_connection import make_account, make_number
from tenants import platform_apps
from tenants.credentials import api_keys
from tenants.models import PlatformApp, Tenant
from tenants.signals import sandbox_wanted
from tests.simulated import RunningSimulator
from tests.threads import outcomes

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("simulator")]

NOWHERE = "http://127.0.0.1:9"


def confirmed() -> Tenant:
    """A tenant whose e-mail address has just been confirmed."""
    return Tenant.objects.create(name="Shop", created_via="signup")


def state_of(tenant: Tenant) -> list[tuple[str, str]]:
    rows = PhoneNumber.objects.for_tenant(tenant.id).order_by("id")
    return list(rows.values_list("phone_number_id", "connection_state"))


def test_a_confirmation_queues_the_making(monkeypatch: pytest.MonkeyPatch) -> None:
    queued: list[Any] = []
    monkeypatch.setattr(control, "enqueue", lambda task, **values: queued.append((task, values)))
    tenant = confirmed()
    with TestCase.captureOnCommitCallbacks(execute=True):
        sandbox_wanted.send(Tenant, tenant_id=tenant.id)
        assert queued == [], "nothing is queued before the commit"
    assert queued == [("phone_numbers.tasks.make_sandbox", {"tenant_id": str(tenant.id)})]
    tasks.make_sandbox(tenant_id=str(tenant.id))
    assert state_of(tenant) == [(sandbox_number_id_of(tenant.id), "connected")]
    tenant.refresh_from_db()
    assert tenant.status == Tenant.Status.PENDING_APPROVAL
    assert not tenant.number_connected, "its number came by itself: connecting one is still to do"


def test_a_test_key_and_a_platforms_sandbox_tenant_queue_the_making(monkeypatch: pytest.MonkeyPatch) -> None:
    queued: list[Any] = []
    monkeypatch.setattr(control, "enqueue", lambda task, **values: queued.append(values["tenant_id"]))
    platform = PlatformApp.objects.create(name="Desk")
    older = Tenant.objects.create(name="Older", status=Tenant.Status.ACTIVE, created_via="app")
    with TestCase.captureOnCommitCallbacks(execute=True):
        first, live = (
            platform_apps.create_for_app(
                app_id=platform.id, name="Shop", external_ref=ref, retention_days=30, sandbox=sandbox
            )
            for ref, sandbox in (("a", True), ("b", False))
        )
        api_keys.create(name="server", environment="live", tenant=live)
        api_keys.create(name="laptop", environment="test", tenant=older)
    assert queued == [str(first.id), str(older.id)]
    assert control.make_missing() == 1, "what failed for a platform's tenant is made by the next round"
    assert state_of(first) == [(sandbox_number_id_of(first.id), "connected")]
    control.make(older.id)
    with TestCase.captureOnCommitCallbacks(execute=True):
        api_keys.create(name="another", environment="test", tenant=older)
    assert len(queued) == 2, "one that is made is not made again"


def test_the_number_of_a_sandbox_tenant_is_its_connected_number() -> None:
    tenant = Tenant.objects.create(name="Shop", created_via="app", status=Tenant.Status.ACTIVE, sandbox=True)
    control.make(tenant.id)
    tenant.refresh_from_db()
    assert tenant.number_connected


def test_a_confirmation_without_a_sandbox_queues_nothing(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    settings.SANDBOX_GRAPH_URL = ""
    monkeypatch.setattr(control, "enqueue", lambda *_, **__: pytest.fail("queued"))
    with TestCase.captureOnCommitCallbacks(execute=True):
        sandbox_wanted.send(Tenant, tenant_id=confirmed().id)
    assert control.make_missing() == 0


def test_what_failed_is_made_by_the_next_round(settings: Settings, simulator: RunningSimulator) -> None:
    tenants = [confirmed() for _ in range(control.MOST_FAILURES + 2)]
    settings.SANDBOX_GRAPH_URL = NOWHERE
    tasks.make_sandbox(tenant_id=str(tenants[0].id))
    tasks.make_missing_sandboxes()
    assert all(state_of(tenant) == [] for tenant in tenants)
    settings.SANDBOX_GRAPH_URL = simulator.url
    assert control.make_missing() == len(tenants)
    assert [state_of(tenant) for tenant in tenants] == [
        [(sandbox_number_id_of(tenant.id), "connected")] for tenant in tenants
    ]
    assert control.make_missing() == 0, "what exists is left alone"
    BusinessAccount.objects.filter(tenant=tenants[0]).update(subscribed=False)
    assert control.make_missing() == 1, "one whose events would not arrive is completed"
    assert BusinessAccount.objects.get(tenant=tenants[0]).subscribed


def test_a_round_gives_up_while_the_simulator_is_away(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(control.MOST_FAILURES + 2):
        confirmed()
    settings.SANDBOX_GRAPH_URL = NOWHERE
    tried: list[Any] = []

    def make(tenant_id: UUID) -> bool:
        tried.append(tenant_id)
        return False

    monkeypatch.setattr(control, "try_to_make", make)
    control.make_missing()
    assert len(tried) == control.MOST_FAILURES


def test_a_world_that_cannot_be_made_stops_no_other(
    simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    poisoned, good = confirmed(), confirmed()
    make = control.make

    def make_or_fail(tenant_id: UUID) -> Any:
        if tenant_id == poisoned.pk:
            raise ValueError("bad row")
        return make(tenant_id)

    monkeypatch.setattr(control, "make", make_or_fail)
    assert control.make_missing() == 1
    assert state_of(good)


def test_only_tenants_that_confirmed_an_address_are_sought() -> None:
    made_by_an_app = Tenant.objects.create(name="Shop", created_via="app", status=Tenant.Status.ACTIVE)
    rejected = confirmed()
    Tenant.objects.filter(pk=rejected.pk).update(status=Tenant.Status.REJECTED)
    assert control.make_missing() == 0
    assert state_of(made_by_an_app) == []


def test_missing_sandboxes_are_sought_for_a_week(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[UUID] = []

    def make(tenant_id: UUID) -> bool:
        found.append(tenant_id)
        return True

    monkeypatch.setattr(control, "try_to_make", make)
    at = now()
    rows = {
        (status, via, days): Tenant.objects.create(
            id=first_at(at - timedelta(days=days, milliseconds=place)),
            name="Shop",
            status=status,
            created_via=via,
        ).pk
        for place, status in enumerate(Tenant.Status.values)
        for via, days in (("signup", 6.9), ("signup", 7.1), ("app", 0.1), ("staff", 0.2))
    }
    control.make_missing()
    expected = {rows[status, "signup", 6.9] for status in ("pending_approval", "active")}
    assert set(found) == expected


def test_half_a_world_is_completed(simulator: RunningSimulator) -> None:
    tenant = confirmed()
    simulator.faults({"match": {"path": "/subscribed_apps$"}, "action": "error", "code": 131016})
    assert not control.try_to_make(tenant.id)
    assert state_of(tenant) == [(sandbox_number_id_of(tenant.id), "pending")]
    simulator.faults()
    assert [number.connection_state for number in control.ensure(tenant.id)] == ["connected"]


def test_a_simulator_that_lost_the_world_gets_it_back(
    simulator: RunningSimulator, other_tenant: Tenant
) -> None:
    make_number(make_account(other_tenant))
    tenant = confirmed()
    (number,) = control.ensure(tenant.id)
    token = BusinessAccount.objects.get(waba_id=sandbox_waba_id_of(tenant.id)).access_token
    simulator.control("POST", "reset")
    said = control.write(tenant.id, {"from": "919812345678", "text": "Hello"})
    assert said["phone_number_id"] == number.phone_number_id
    account = simulator.control("GET", f"accounts/{sandbox_waba_id_of(tenant.id)}")
    assert account["access_tokens"] == [token]
    displayed = [row["display_phone_number"] for row in account["phone_numbers"]]
    assert displayed == [number.display_phone_number]
    assert account["subscribed"]


@pytest.mark.django_db(transaction=True)
def test_first_uses_at_the_same_moment_make_one_world(tenant: Tenant) -> None:
    assert outcomes(*[lambda: len(control.ensure(tenant.id))] * 4) == [1] * 4
    assert state_of(tenant) == [(sandbox_number_id_of(tenant.id), "connected")]
