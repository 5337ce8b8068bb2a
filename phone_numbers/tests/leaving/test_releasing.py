"""Release of numbers: rows that are deleted, rows that stay, and tenants that can connect the number next."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection as database
from django.db.models import Q
from django.test import Client
from django.urls import reverse

from billing import usage
from gateway.clock import now
from messaging.models import MessageTemplate
from messaging.tests.incoming import notification, post, text_change
from phone_numbers import leaving, onboarding, sync
from phone_numbers.connection import state
from phone_numbers.models import BusinessAccount, NumberStateInterval, PhoneNumber, RedeemedCode
from phone_numbers.sandbox import control
from phone_numbers.tests.conftest import verified_endpoint
from phone_numbers.tests.reading import moves, published
from phone_numbers.tests.test_connection import make_account, make_number
from tenants.audit import Actor
from tenants.models import AuditEntry, Tenant, User
from tests.fixtures import Api, assert_error
from tests.scripted_graph import ScriptedGraph
from tests.simulated import RunningSimulator, SimulatedAccount
from tests.threads import at_once
from webhooks.models import Endpoint, Event

pytestmark = pytest.mark.django_db

CONNECT = "/v1/numbers/connect"


def connect(api: Api, account: SimulatedAccount, **values: Any) -> Any:
    body = {"waba_id": account.waba_id, "access_token": account.access_token, **values}
    return api.post(CONNECT, body)


def subscribed(simulator: RunningSimulator, account: SimulatedAccount) -> bool:
    return bool(simulator.control("GET", f"accounts/{account.waba_id}")["subscribed"])


def has_connected(tenant: Tenant) -> bool:
    """Whether the step `number_connected` of the checklist is done."""
    return Tenant.objects.filter(pk=tenant.pk, number_connected=True).exists()


def audited(tenant: Tenant) -> list[str]:
    entries = AuditEntry.objects.filter(tenant_id=tenant.id, target_type__in=["number", "account"])
    return list(entries.order_by("id").values_list("action", flat=True))


def test_an_account_leaves_with_its_token_and_numbers_and_another_tenant_can_connect_it(
    api: Api,
    other_api: Api,
    tenant: Tenant,
    other_tenant: Tenant,
    endpoint: Endpoint,
    simulator: RunningSimulator,
) -> None:
    account = simulator.account(2)
    answer = api.post(CONNECT, {"waba_id": account.waba_id, "code": account.code})
    assert answer.status_code == 200
    row = BusinessAccount.objects.get()
    MessageTemplate.objects.create(
        tenant=tenant,
        account=row,
        environment="live",
        template_id="1",
        name="order",
        language="en_US",
        status="APPROVED",
        category="UTILITY",
        document="{}",
        changed_at=now(),
    )
    assert RedeemedCode.objects.exists()
    assert_error(connect(other_api, account), 409, "conflict")

    answer = api.delete(f"/v1/accounts/{account.waba_id}")
    assert (answer.status_code, answer.json()) == (
        200,
        {"waba_id": account.waba_id, "phone_number_ids": account.phone_number_ids, "released": True},
    )
    assert not subscribed(simulator, account)
    for model in (BusinessAccount, PhoneNumber, RedeemedCode, MessageTemplate):
        assert not model._default_manager.exists(), model
    assert api.get("/v1/numbers").json()["data"] == []
    assert_error(api.delete(f"/v1/accounts/{account.waba_id}"), 404, "not_found")
    assert moves(tenant)[-2:] == [("connected", "disconnected", "released")] * 2
    assert not has_connected(tenant)
    assert audited(tenant) == ["account.connect", "account.release"]

    verified_endpoint(other_tenant)
    assert connect(other_api, account).status_code == 200
    assert subscribed(simulator, account)
    assert {number.tenant for number in PhoneNumber.objects.all()} == {other_tenant}
    assert len(published(tenant, "number.connection")) == len(moves(tenant)), "no event of the new owner's"


def test_a_number_leaves_and_the_last_one_takes_its_account_along(
    api: Api, tenant: Tenant, endpoint: Endpoint, simulator: RunningSimulator
) -> None:
    account = simulator.account(2)
    connect(api, account)
    first, second = account.phone_number_ids
    answer = api.delete(f"/v1/numbers/{first}")
    assert (answer.status_code, answer.json()) == (200, {"phone_number_id": first, "released": True})
    assert_error(api.get(f"/v1/numbers/{first}"), 404, "not_found")
    assert api.get(f"/v1/numbers/{second}").json()["connection_state"] == "connected"
    assert subscribed(simulator, account)
    assert has_connected(tenant)
    assert api.delete(f"/v1/numbers/{second}").status_code == 200
    assert not BusinessAccount.objects.exists()
    assert not subscribed(simulator, account)
    assert not has_connected(tenant)
    assert audited(tenant) == ["account.connect", "number.release", "number.release", "account.release"]


def test_a_release_that_stops_at_the_upstream_is_finished_by_a_repeat(
    api: Api, tenant: Tenant, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = simulator.account()
    connect(api, account)

    def stop(_: BusinessAccount) -> None:
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(leaving, "unsubscribe", stop)
        with pytest.raises(SystemExit):
            api.delete(f"/v1/numbers/{account.phone_number_id}")
    assert api.delete(f"/v1/numbers/{account.phone_number_id}").status_code == 200
    assert not BusinessAccount.objects.exists()


def test_a_number_that_comes_during_the_release_of_the_last_one_is_not_subscribed(
    api: Api, tenant: Tenant, endpoint: Endpoint, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = simulator.account(1)
    connect(api, account)
    unsubscribe = leaving.unsubscribe

    def meanwhile(row: BusinessAccount) -> None:
        simulator.control("POST", f"accounts/{account.waba_id}/phone_numbers", {})
        assert connect(api, account).status_code == 200
        unsubscribe(row)

    monkeypatch.setattr(leaving, "unsubscribe", meanwhile)
    assert api.delete(f"/v1/numbers/{account.phone_number_id}").status_code == 200
    (number,) = api.get("/v1/numbers").json()["data"]
    assert (number["connection_state"], number["connection_detail"]) == ("disconnected", "not_subscribed")
    assert not subscribed(simulator, account)


def test_a_number_of_the_sandbox_does_not_count_for_one_that_left(
    api: Api, tenant: Tenant, endpoint: Endpoint, simulator: RunningSimulator
) -> None:
    control.ensure(tenant.id)
    account = simulator.account(1)
    connect(api, account)
    assert has_connected(tenant)
    assert api.delete(f"/v1/numbers/{account.phone_number_ids[0]}").status_code == 200
    assert not has_connected(tenant)


def test_a_number_that_comes_back_has_events_of_its_own_again(
    api: Api, tenant: Tenant, endpoint: Endpoint, simulator: RunningSimulator
) -> None:
    account = simulator.account()
    for _ in range(2):
        connect(api, account)
        api.delete(f"/v1/numbers/{account.phone_number_id}")
    once = [("pending", "connected", None), ("connected", "disconnected", "released")]
    assert moves(tenant) == once * 2


def test_usage_keeps_the_time_of_a_number_that_left(
    api: Api, tenant: Tenant, endpoint: Endpoint, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "MIN_CONNECTED", timedelta())
    account = simulator.account()
    connect(api, account)
    began = now()
    (before,) = usage.active_numbers(tenant_id=tenant.id, start=tenant.created_at, end=began)
    api.delete(f"/v1/numbers/{account.phone_number_id}")
    (after,) = usage.active_numbers(tenant_id=tenant.id, start=tenant.created_at, end=now())
    assert after.phone_number_id == before.phone_number_id == account.phone_number_id
    assert after.display_phone_number == before.display_phone_number
    assert not NumberStateInterval.objects.filter(to_at__isnull=True).exists()


@pytest.mark.parametrize("trouble", ["token", "silence"])
def test_leaving_works_without_the_upstream(
    api: Api, tenant: Tenant, simulator: RunningSimulator, settings: Any, trouble: str
) -> None:
    account = simulator.account()
    connect(api, account)
    if trouble == "token":
        simulator.control("PATCH", "tokens", {"access_token": account.access_token, "invalidated": True})
    else:
        settings.META_GRAPH_URL = "http://127.0.0.1:9"
    assert api.delete(f"/v1/accounts/{account.waba_id}").status_code == 200
    assert not BusinessAccount.objects.exists()


def test_a_row_whose_secrets_no_key_opens_can_leave(
    api: Api, tenant: Tenant, simulator: RunningSimulator
) -> None:
    account = simulator.account()
    connect(api, account)
    with database.cursor() as cursor:
        cursor.execute("UPDATE numbers_businessaccount SET access_token = 'broken'")
        cursor.execute("UPDATE numbers_phonenumber SET pin = 'broken'")
    assert api.delete(f"/v1/numbers/{account.phone_number_id}").status_code == 200
    assert not BusinessAccount.objects.exists()


def test_what_the_upstream_removed_moves_to_the_next_tenant(
    api: Api, other_api: Api, tenant: Tenant, other_tenant: Tenant, simulator: RunningSimulator
) -> None:
    account = simulator.account()
    connect(api, account)
    PhoneNumber.objects.update(pin="271828")
    assert_error(connect(other_api, account), 409, "conflict")
    BusinessAccount.objects.update(taken_away="account_removed")
    assert connect(other_api, account).status_code == 200
    number = PhoneNumber.objects.get()
    assert (number.tenant, number.pin) == (other_tenant, None)
    assert audited(tenant) == ["account.connect", "account.move"]
    assert audited(other_tenant) == ["account.connect"]
    moved = AuditEntry.objects.get(tenant_id=tenant.id, action="account.move")
    taken = AuditEntry.objects.get(tenant_id=other_tenant.id)
    assert "acting_key" not in moved.details, "the former owner must not read the key of the new one"
    assert "acting_key" in taken.details
    assert_error(connect(api, account), 409, "conflict")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("way", ["released", "removed by the upstream"])
def test_events_of_the_next_tenant_never_reach_the_former_one(
    api: Api, other_api: Api, tenant: Tenant, other_tenant: Tenant, simulator: RunningSimulator, way: str
) -> None:
    """The web process has looked the owner up a moment before the account moves."""
    account = simulator.account()
    connect(api, account)

    def notify(wamid: str) -> list[UUID]:
        body = notification((account.waba_id, [text_change(account.phone_number_id, wamid)]))
        assert post(body).status_code == 200
        return list(Event.objects.filter(wamid=wamid).values_list("tenant_id", flat=True))

    assert notify("wamid.1") == [tenant.id]
    if way == "released":
        assert api.delete(f"/v1/accounts/{account.waba_id}").status_code == 200
    else:
        BusinessAccount.objects.update(taken_away="account_removed")
    assert connect(other_api, account).status_code == 200
    assert notify("wamid.2") == [other_tenant.id]


def test_what_the_upstream_removed_and_its_owner_connects_again_keeps_its_rows(
    api: Api, tenant: Tenant, simulator: RunningSimulator
) -> None:
    account = simulator.account()
    connect(api, account)
    PhoneNumber.objects.update(pin="271828")
    before = list(PhoneNumber.objects.values_list("pk", "pin"))
    BusinessAccount.objects.update(taken_away="account_removed")
    assert connect(api, account).status_code == 200
    assert list(PhoneNumber.objects.values_list("pk", "pin")) == before
    assert audited(tenant) == ["account.connect", "account.connect"]


@pytest.mark.parametrize(
    ("of_account", "unsubscribes"),
    [
        ({}, True),
        ({"taken_away": "account_restricted"}, True),
        ({"taken_away": "account_removed"}, False),
        ({"token_invalid_at": now()}, False),
    ],
)
def test_an_account_is_unsubscribed_while_meta_takes_its_token(
    api: Api, tenant: Tenant, graph: ScriptedGraph, of_account: dict[str, Any], unsubscribes: bool
) -> None:
    account = make_account(tenant)
    BusinessAccount.objects.update(**of_account)
    graph.always_answers({"success": True})
    assert api.delete(f"/v1/accounts/{account.waba_id}").status_code == 200
    expected = [("DELETE", f"/{account.waba_id}/subscribed_apps")] if unsubscribes else []
    assert [(call.method, call.path) for call in graph.received] == expected


def test_a_release_deletes_the_sign_up_codes_of_its_tenant_and_environment_alone(
    api: Api, tenant: Tenant, other_tenant: Tenant
) -> None:
    owners = [(tenant, "live"), (tenant, "test"), (other_tenant, "live")]
    for owner, environment in owners:
        RedeemedCode.objects.create(tenant=owner, environment=environment, code_hash="x", access_token="EAAx")
    account = make_account(tenant)
    BusinessAccount.objects.update(taken_away="account_removed")
    api.delete(f"/v1/accounts/{account.waba_id}")
    kept = RedeemedCode.objects.order_by("id").values_list("tenant_id", "environment")
    assert list(kept) == [(owner.id, environment) for owner, environment in owners[1:]]


def test_a_release_is_audited_with_its_numbers_and_ends_their_intervals_alone(
    api: Api, tenant: Tenant, endpoint: Endpoint
) -> None:
    leaves, stays = make_number(make_account(tenant)), make_number(make_account(tenant))
    BusinessAccount.objects.update(token_invalid_at=now())
    for invalid_at in (None, now()):
        with state.facts_change(tenant_id=tenant.id):
            BusinessAccount.objects.update(token_invalid_at=invalid_at)
    first = NumberStateInterval.objects.get(number=leaves, to_at__isnull=False)
    api.delete(f"/v1/numbers/{leaves.phone_number_id}")
    entries = AuditEntry.objects.filter(target_type__in=["number", "account"]).order_by("id")
    acting = "acting_key"
    details = [{name: value for name, value in entry.details.items() if name != acting} for entry in entries]
    assert [(entry.action, entry.target_id) for entry in entries] == [
        ("number.release", leaves.phone_number_id),
        ("account.release", leaves.account.waba_id),
    ]
    assert details == [{"waba_id": leaves.account.waba_id}, {"phone_number_ids": []}]
    ended = NumberStateInterval.objects.filter(phone_number_id=leaves.phone_number_id).order_by("id")
    shown = ("number_id", "display_phone_number", "environment", "connection_state")
    copied = (None, leaves.display_phone_number, "live")
    assert list(ended.values_list(*shown)) == [(*copied, "connected"), (*copied, "disconnected")]
    assert ended[0].to_at == first.to_at
    assert NumberStateInterval.objects.filter(number=stays, to_at__isnull=True).count() == 1


@pytest.mark.parametrize("place", ["account", "number"])
def test_what_meta_restricted_stays_with_its_tenant(
    api: Api, other_api: Api, tenant: Tenant, simulator: RunningSimulator, place: str
) -> None:
    account = simulator.account()
    connect(api, account)
    rows = BusinessAccount.objects if place == "account" else PhoneNumber.objects
    rows.update(taken_away="account_restricted")
    assert_error(connect(other_api, account), 409, "conflict")
    assert [number.tenant for number in PhoneNumber.objects.all()] == [tenant]


def test_a_removed_number_that_moves_leaves_the_other_numbers_of_its_tenant(
    other_api: Api, tenant: Tenant, other_tenant: Tenant, simulator: RunningSimulator
) -> None:
    held = [make_number(make_account(tenant)) for _ in range(3)]
    account = simulator.account()
    moving = PhoneNumber.objects.filter(pk=held[1].pk)
    moving.update(taken_away="account_removed", phone_number_id=account.phone_number_id)
    assert connect(other_api, account).status_code == 200
    assert list(PhoneNumber.objects.for_tenant(tenant.id).order_by("id")) == [held[0], held[2]]
    entry = AuditEntry.objects.get(action="number.move")
    assert (entry.tenant_id, entry.actor_user_id) == (tenant.id, None)
    assert entry.details == {"new_tenant_id": str(other_tenant.id)}


@pytest.mark.parametrize(("removed", "is_moved"), [(1, False), (2, True)])
def test_an_account_moves_when_meta_has_removed_all_its_numbers(
    api: Api, other_api: Api, tenant: Tenant, simulator: RunningSimulator, removed: int, is_moved: bool
) -> None:
    account = simulator.account(2)
    connect(api, account)
    chosen = account.phone_number_ids[:removed]
    PhoneNumber.objects.filter(phone_number_id__in=chosen).update(taken_away="account_removed")
    answer = connect(other_api, account)
    if is_moved:
        assert answer.status_code == 200
    else:
        assert_error(answer, 409, "conflict")
    kept = [] if is_moved else account.phone_number_ids
    assert [
        number.phone_number_id for number in PhoneNumber.objects.for_tenant(tenant.id).order_by("id")
    ] == kept
    assert audited(tenant) == ["account.connect", *(["account.move"] if is_moved else [])]


def test_a_sign_up_whose_number_is_held_elsewhere_takes_no_account(
    api: Api, other_api: Api, tenant: Tenant, simulator: RunningSimulator
) -> None:
    account, elsewhere = simulator.account(), simulator.account()
    connect(other_api, elsewhere)
    PhoneNumber.objects.update(phone_number_id=account.phone_number_id)
    body = {
        "code": account.code,
        "waba_id": account.waba_id,
        "phone_number_id": account.phone_number_id,
    }
    assert_error(api.post("/v1/numbers/embedded-signup", body), 409, "conflict")
    assert not BusinessAccount.objects.for_tenant(tenant.id).exists()
    assert audited(tenant) == []


def test_one_number_held_elsewhere_does_not_block_the_rest(
    api: Api, other_api: Api, other_tenant: Tenant, simulator: RunningSimulator
) -> None:
    account, elsewhere = simulator.account(2), simulator.account()
    connect(other_api, elsewhere)
    held, free = account.phone_number_ids
    PhoneNumber.objects.update(phone_number_id=held)
    answer = connect(api, account).json()
    assert [number["phone_number_id"] for number in answer["numbers"]] == [free]
    assert answer["held_elsewhere"] == [held]
    assert PhoneNumber.objects.get(phone_number_id=held).tenant == other_tenant
    body = {"code": account.code, "waba_id": account.waba_id, "phone_number_id": held}
    assert_error(api.post("/v1/numbers/embedded-signup", body), 409, "conflict")
    PhoneNumber.objects.filter(phone_number_id=held).update(taken_away="account_removed")
    answer = connect(api, account).json()
    assert {number["phone_number_id"] for number in answer["numbers"]} == {held, free}
    assert answer["held_elsewhere"] == []
    assert audited(other_tenant) == ["account.connect", "number.move"]


def test_staff_release_a_number_and_an_account_and_nobody_else_does(
    api: Api, tenant: Tenant, staff: User, simulator: RunningSimulator
) -> None:
    account = simulator.account(2)
    connect(api, account)
    number = PhoneNumber.objects.order_by("id").first()
    row = BusinessAccount.objects.get()
    assert number is not None
    browser, pressed = Client(), {"_form_submitted": "on"}
    support = User.objects.create_user("support@service.example", "a long enough password", is_staff=True)
    release_number = reverse("admin:numbers_phonenumber_release", args=[number.pk])
    release_account = reverse("admin:numbers_businessaccount_release", args=[row.pk])
    browser.force_login(support)
    for path in (release_number, release_account):
        assert browser.post(path, pressed).status_code in {302, 403}
    assert PhoneNumber.objects.count() == 2
    browser.force_login(staff)
    assert browser.post(release_number, pressed).status_code == 302
    assert PhoneNumber.objects.count() == 1
    assert browser.post(release_account, pressed).status_code == 302
    assert not BusinessAccount.objects.exists()
    entries = AuditEntry.objects.filter(action__endswith=".release")
    assert [entry.actor_user_id for entry in entries] == [staff.pk] * 2


@pytest.mark.parametrize("operation", ["register", "deregister", "two-step"])
def test_number_operations_are_audited_with_the_acting_key(
    api: Api, key: Any, tenant: Tenant, simulator: RunningSimulator, operation: str
) -> None:
    account = simulator.account()
    connect(api, account)
    body = {"pin": "271828"} if operation == "two-step" else {}
    assert api.post(f"/v1/numbers/{account.phone_number_id}/{operation}", body).status_code == 200
    entry = AuditEntry.objects.filter(tenant_id=tenant.id).latest("id")
    assert entry.action == f"number.{operation.replace('-', '_')}"
    assert (entry.target_id, entry.details["acting_key"]) == (account.phone_number_id, key.row.prefix)
    assert "271828" not in str(entry.details)


@pytest.mark.django_db(transaction=True)
def test_of_two_tenants_that_claim_a_removed_account_at_once_one_gets_all_of_it(
    tenant: Tenant, other_tenant: Tenant, simulator: RunningSimulator
) -> None:
    account = simulator.account(3)
    former = Tenant.objects.create(name="Former", status=Tenant.Status.ACTIVE)
    for _ in range(5):
        PhoneNumber.objects.all().delete()
        BusinessAccount.objects.all().delete()
        claim(former, account)
        BusinessAccount.objects.update(taken_away="account_removed")
        raised = at_once(lambda: claim(tenant, account), lambda: claim(other_tenant, account))
        assert [type(error).__name__ for error in raised] == ["Conflict"]
        owners = {number.tenant_id for number in PhoneNumber.objects.all()}
        assert owners == {BusinessAccount.objects.get().tenant_id}
        assert PhoneNumber.objects.count() == 3


def claim(tenant: Tenant, account: SimulatedAccount) -> None:
    onboarding.connect(
        tenant_id=tenant.id,
        environment="live",
        waba_id=account.waba_id,
        access_token=account.access_token,
        actor=Actor(),
    )


@pytest.mark.django_db(transaction=True)
def test_a_release_beside_a_sync_and_changes_of_facts_leaves_nothing_behind(
    tenant: Tenant, endpoint: Endpoint, simulator: RunningSimulator
) -> None:
    account = simulator.account(2)
    for _ in range(5):
        claim(tenant, account)
        row = BusinessAccount.objects.get()
        ((account_id, lease),) = sync._claim(Q())
        raised = at_once(
            lambda row=row: leaving.release_account(row, actor=Actor()),  # type: ignore[misc]
            lambda i=account_id, at=lease: sync.run(account_id=i, lease=at),  # type: ignore[misc]
            lambda: state.recompute(tenant_id=tenant.id),
            lambda: state.token_failed(waba_id=account.waba_id),
        )
        assert raised == []
        assert not PhoneNumber.objects.exists()
        assert not BusinessAccount.objects.exists()
        assert not NumberStateInterval.objects.filter(to_at__isnull=True).exists()
