"""Operations on one number: Meta's verbatim responses, the stored changes, and the permissions."""

import threading
from functools import partial
from typing import Any

import pytest
from django.db import connection as database
from django.db import transaction
from django.test.utils import CaptureQueriesContext

from gateway.clock import now
from phone_numbers import onboarding, tokens
from phone_numbers.connection.state import facts_change, recompute
from phone_numbers.models import BusinessAccount, PhoneNumber
from phone_numbers.tests.reading import moves, published, rows_besides
from phone_numbers.tests.test_connection import in_threads, make_account, make_number
from tenants.models import Tenant
from tests.fixtures import Api, a_lock_is_waited_for, assert_error, assert_service_headers, wait_until
from tests.scripted_graph import ScriptedGraph
from tests.simulated import RunningSimulator, SimulatedAccount
from webhooks.models import Endpoint

pytestmark = pytest.mark.django_db


@pytest.fixture
def account(api: Api, endpoint: Endpoint, simulator: RunningSimulator) -> SimulatedAccount:
    """An account with one connected number, registered with the PIN 271828."""
    account = simulator.account()
    body = {"code": account.code, "waba_id": account.waba_id, "phone_number_id": account.phone_number_id}
    assert api.post("/v1/numbers/embedded-signup", {**body, "pin": "271828"}).status_code == 200
    return account


def path(account: SimulatedAccount, operation: str = "") -> str:
    return f"/v1/numbers/{account.phone_number_id}{operation and '/' + operation}"


def state(api: Api, account: SimulatedAccount) -> tuple[str, str | None]:
    body = api.get(path(account)).json()
    return body["connection_state"], body["connection_detail"]


def test_deregister_and_register_again_with_the_kept_pin(
    api: Api, tenant: Tenant, account: SimulatedAccount
) -> None:
    answer = api.post(path(account, "deregister"))
    assert (answer.status_code, answer.json()) == (200, {"success": True})
    assert state(api, account) == ("disconnected", "deregistered")
    assert api.get(path(account)).json()["registered_at"] is None
    answer = api.post(path(account, "register"))
    assert (answer.status_code, answer.json()) == (200, {"success": True})
    assert state(api, account) == ("connected", None)
    assert api.get(path(account)).json()["registered_at"] is not None
    assert moves(tenant) == [
        ("pending", "connected", None),
        ("connected", "disconnected", "deregistered"),
        ("disconnected", "connected", None),
    ]


@pytest.mark.django_db(transaction=True)
def test_two_registrations_at_once_use_one_pin(tenant: Tenant) -> None:
    """The second call arrives after the first has chosen a PIN and before the first commits it."""
    number = make_number(make_account(tenant))
    found: list[str] = []

    def choose() -> None:
        found.append(onboarding.stored_or_new_pin(number))

    with transaction.atomic():
        first = onboarding.stored_or_new_pin(number)
        second = threading.Thread(target=lambda: in_threads(choose))
        second.start()
        wait_until(a_lock_is_waited_for, "the second one does not wait")
    second.join(30)
    number.refresh_from_db()
    assert [number.pin] == found == [first]


def test_a_wrong_pin_is_the_upstreams_error_and_changes_nothing(api: Api, account: SimulatedAccount) -> None:
    api.post(path(account, "deregister"))
    answer = api.post(path(account, "register"), {"pin": "000000"})
    assert answer.status_code == 400
    assert answer["X-Service-Error-Source"] == "meta"
    assert (answer.json()["source"], answer.json()["error"]["code"]) == ("meta", 133005)
    assert_service_headers(answer)
    assert state(api, account) == ("disconnected", "deregistered")
    assert api.post(path(account, "register")).status_code == 200


def test_too_many_registrations_are_429(
    api: Api, account: SimulatedAccount, simulator: RunningSimulator
) -> None:
    simulator.faults({"action": "error", "code": 133016, "match": {"path": "/register"}})
    answer = api.post(path(account, "register"))
    assert answer.status_code == 429
    assert int(answer["Retry-After"]) >= 60
    assert answer.json()["error"]["code"] == 133016


@pytest.mark.parametrize("operation", ["register", "deregister"])
def test_a_coexistence_number_is_never_registered_or_deregistered(
    api: Api, simulator: RunningSimulator, operation: str
) -> None:
    account = simulator.account([{"coexistence": True}])
    api.post("/v1/numbers/connect", {"waba_id": account.waba_id, "code": account.code})
    assert_error(api.post(path(account, operation)), 409, "conflict")
    assert f"POST {operation}" not in simulator.calls(account.phone_number_id)


def test_the_two_step_pin_is_kept_for_the_next_registration(
    api: Api, account: SimulatedAccount, simulator: RunningSimulator
) -> None:
    answer = api.post(path(account, "two-step"), {"pin": "314159"})
    assert (answer.status_code, answer.json()) == (200, {"success": True})
    assert simulator.number(account.waba_id, account.phone_number_id)["pin"] == "314159"
    api.post(path(account, "deregister"))
    assert api.post(path(account, "register")).status_code == 200


def test_an_operation_changes_nothing_of_other_numbers(
    api: Api, tenant: Tenant, other_tenant: Tenant, account: SimulatedAccount
) -> None:
    number = PhoneNumber.objects.get()
    for each in (number.account, make_account(tenant), make_account(other_tenant)):
        make_number(each)
    PhoneNumber.objects.exclude(pk=number.pk).update(pin="111111", pin_is_untold=True)
    for owner in (tenant, other_tenant):
        recompute(tenant_id=owner.id)
    before = rows_besides(number)
    for operation, body in (
        ("deregister", None),
        ("register", {"pin": "271828"}),
        ("two-step", {"pin": "314159"}),
        ("register", None),
        ("subscribe", None),
    ):
        assert api.post(path(account, operation), body).status_code == 200
        assert rows_besides(number) == before, operation
    assert api.get(f"{path(account)}?refresh=true").status_code == 200
    assert api.delete(path(account)).status_code == 200
    assert rows_besides(number) == before


def test_a_number_migrates_from_another_provider(
    api: Api, account: SimulatedAccount, simulator: RunningSimulator
) -> None:
    answer = api.post(
        "/v1/numbers/migrate", {"waba_id": account.waba_id, "cc": "91", "phone_number": "9800555501"}
    )
    assert answer.status_code == 200, answer.content
    assert list(answer.json()) == ["id"]
    moved = f"/v1/numbers/{answer.json()['id']}"
    shown = api.get(moved).json()
    assert (shown["connection_state"], shown["connection_detail"]) == ("pending", "not_registered")
    assert (shown["display_phone_number"], shown["waba_id"]) == ("+919800555501", account.waba_id)
    answer = api.post(f"{moved}/request-code", {"code_method": "SMS", "language": "en_US"})
    assert (answer.status_code, answer.json()) == (200, {"success": True})
    wrong = api.post(f"{moved}/verify-code", {"code": "1"})
    assert (wrong.status_code, wrong.json()["source"]) == (400, "meta")
    code = simulator.number(account.waba_id, moved.rpartition("/")[2])["verification_code"]
    answer = api.post(f"{moved}/verify-code", {"code": f"{code[:3]}-{code[3:]}"})
    assert answer.status_code == 200
    assert answer.json()["success"] is True
    registered = api.post(f"{moved}/register").json()
    pin = PhoneNumber.objects.get(phone_number_id=moved.rpartition("/")[2]).pin
    assert registered == {"success": True, "pin": pin}, "a PIN that was made is returned"
    assert api.post(f"{moved}/register").json() == {"success": True}, "once"
    assert api.get(moved).json()["connection_state"] == "connected"


def test_a_number_that_was_added_at_metas_own_path_can_be_used_there(
    api: Api, account: SimulatedAccount, simulator: RunningSimulator
) -> None:
    given = {"cc": "91", "phone_number": "9800555504", "migrate_phone_number": True}
    answer = api.post(f"/v25.0/{account.waba_id}/phone_numbers", given)
    assert answer.status_code == 200, answer.content
    own_id = answer.json()["id"]
    asked = {"code_method": "SMS", "language": "en_US"}
    assert api.post(f"/v25.0/{own_id}/request_code", asked).json() == {"success": True}
    code = simulator.number(account.waba_id, own_id)["verification_code"]
    assert api.post(f"/v25.0/{own_id}/verify_code", {"code": code}).json()["success"] is True
    registered = {"messaging_product": "whatsapp", "pin": "123456"}
    assert api.post(f"/v25.0/{own_id}/register", registered).json() == {"success": True}
    shown = api.get(f"/v1/numbers/{own_id}").json()
    assert (shown["connection_state"], shown["display_phone_number"]) == ("connected", "+919800555504")


def test_migrating_into_a_foreign_account_is_refused(other_api: Api, account: SimulatedAccount) -> None:
    body = {"waba_id": account.waba_id, "cc": "91", "phone_number": "9800555502"}
    error = assert_error(other_api.post("/v1/numbers/migrate", body), 400, "invalid_request")
    assert "waba_id" in error["details"]["fields"]


def test_a_live_key_reaches_nothing_of_the_test_environment(
    api: Api, tenant: Tenant, graph: ScriptedGraph
) -> None:
    number = make_number(make_account(tenant))
    BusinessAccount.objects.update(environment="test")
    PhoneNumber.objects.update(environment="test")
    before, waba_id = rows_of(tenant), number.waba_id
    assert_error(api.delete(f"/v1/accounts/{waba_id}"), 404, "not_found")
    for operation in ("register", "deregister", "subscribe"):
        assert_error(api.post(f"/v1/numbers/{number.phone_number_id}/{operation}"), 404, "not_found")
    body = {"waba_id": waba_id, "cc": "91", "phone_number": "9800555502"}
    assert list(
        assert_error(api.post("/v1/numbers/migrate", body), 400, "invalid_request")["details"]["fields"]
    ) == ["waba_id"]
    assert (rows_of(tenant), graph.received) == (before, [])


def rows_of(tenant: Tenant) -> list[Any]:
    """All columns of a tenant's numbers and accounts."""
    return [
        *PhoneNumber.objects.for_tenant(tenant.id).values(),
        *BusinessAccount.objects.for_tenant(tenant.id).values(),
    ]


def test_a_number_that_cannot_be_migrated_is_the_upstreams_error(
    api: Api, account: SimulatedAccount, simulator: RunningSimulator
) -> None:
    simulator.account([{"display_phone_number": "+91 98005 55503", "locked_elsewhere": True}])
    body = {"waba_id": account.waba_id, "cc": "91", "phone_number": "9800555503"}
    answer = api.post("/v1/numbers/migrate", body)
    assert (answer.status_code, answer.json()["error"]["error_subcode"]) == (400, 2388103)


def test_subscribe_repairs(
    api: Api, tenant: Tenant, account: SimulatedAccount, simulator: RunningSimulator
) -> None:
    BusinessAccount.objects.update(subscribed=False)
    simulator.change_account(account.waba_id, subscribed=False)
    answer = api.post(path(account, "subscribe"))
    assert answer.status_code == 200
    assert answer.json() == {
        "phone_number_id": account.phone_number_id,
        "connection_state": "connected",
        "connection_detail": None,
    }
    assert simulator.control("GET", f"accounts/{account.waba_id}")["subscribed"] is True


@pytest.mark.parametrize(
    ("taken_away", "status", "detail"),
    [
        ("account_removed", "CONNECTED", None),
        ("account_removed", "DISCONNECTED", "account_removed"),
        ("account_restricted", "CONNECTED", "account_restricted"),
    ],
)
def test_subscribe_brings_back_a_removed_number_that_meta_lists_as_connected(
    api: Api,
    account: SimulatedAccount,
    simulator: RunningSimulator,
    taken_away: str,
    status: str,
    detail: str,
) -> None:
    with facts_change(tenant_id=PhoneNumber.objects.get().tenant_id):
        PhoneNumber.objects.update(taken_away=taken_away)
    simulator.change_number(account.phone_number_id, status=status)
    assert api.post(path(account, "subscribe")).json()["connection_detail"] == detail


def test_a_repair_does_not_depend_on_what_is_read_afterwards(
    api: Api, account: SimulatedAccount, simulator: RunningSimulator
) -> None:
    BusinessAccount.objects.update(subscribed=False, token_invalid_at=now())
    unread = [f"/{account.phone_number_id}", "/debug_token"]
    simulator.faults(*({"action": "error", "code": 2, "match": {"path": path}} for path in unread))
    answer = api.post(path(account, "subscribe"))
    assert (answer.status_code, answer.json()["connection_detail"]) == (200, "token_invalid")
    assert BusinessAccount.objects.get().subscribed
    simulator.faults({"action": "error", "code": 2, "match": {"path": "/debug_token"}})
    assert api.get(f"{path(account)}?refresh=true").status_code == 200


def test_refresh_reads_again_and_shows_the_snapshot(
    api: Api, account: SimulatedAccount, simulator: RunningSimulator
) -> None:
    simulator.change_number(
        account.phone_number_id, quality_rating="RED", messaging_limit_tier="TIER_10K", throughput="HIGH"
    )
    assert api.get(path(account)).json()["quality_rating"] == "GREEN"
    refreshed = api.get(f"{path(account)}?refresh=true").json()
    assert refreshed["quality_rating"] == "RED"
    assert refreshed["messaging_limit_tier"] == "TIER_10K"
    assert refreshed["throughput_level"] == "HIGH"
    assert refreshed["meta_snapshot"]["id"] == account.phone_number_id
    assert refreshed["meta_snapshot"]["quality_rating"] == "RED"
    stored = api.get(path(account)).json()
    assert stored["quality_rating"] == "RED"
    assert "meta_snapshot" not in stored


def test_refresh_sees_that_the_number_is_gone(
    api: Api, account: SimulatedAccount, simulator: RunningSimulator
) -> None:
    simulator.change_number(account.phone_number_id, status="DISCONNECTED", platform_type="NOT_APPLICABLE")
    body = api.get(f"{path(account)}?refresh=true").json()
    assert (body["connection_state"], body["connection_detail"]) == ("disconnected", "deregistered")


def test_refresh_sees_whether_the_account_is_subscribed(
    api: Api, account: SimulatedAccount, simulator: RunningSimulator
) -> None:
    for is_subscribed, detail in ((False, "not_subscribed"), (True, None)):
        simulator.change_account(account.waba_id, subscribed=is_subscribed)
        assert api.get(f"{path(account)}?refresh=true").json()["connection_detail"] == detail
    simulator.faults({"action": "error", "code": 2, "match": {"path": "/subscribed_apps"}})
    assert api.get(f"{path(account)}?refresh=true").json()["connection_detail"] is None


def test_a_refresh_must_be_a_boolean(api: Api, account: SimulatedAccount) -> None:
    error = assert_error(api.get(f"{path(account)}?refresh=maybe"), 400, "invalid_request")
    assert "refresh" in error["details"]["fields"]


def test_the_business_profile_passes_both_ways_verbatim(
    api: Api, account: SimulatedAccount, simulator: RunningSimulator
) -> None:
    sent = (
        b'{ "messaging_product":"whatsapp", "about":"caf\\u00e9", "websites":["https:\\/\\/e.example\\/"] }'
    )
    answer = api.post(path(account, "business-profile"), sent)
    assert (answer.status_code, answer.json()) == (200, {"success": True})
    received = simulator.control("GET", f"requests?node={account.phone_number_id}&limit=1")["data"][0]
    assert received["path"].endswith("/whatsapp_business_profile")
    profile = api.get(path(account, "business-profile")).json()["data"][0]
    assert profile["about"] == "café"
    assert profile["websites"] == ["https://e.example/"]


def test_the_profiles_bytes_go_up_and_down_as_they_are(
    api: Api, tenant: Tenant, graph: ScriptedGraph
) -> None:
    account = BusinessAccount.objects.create(
        tenant=tenant, environment="live", waba_id="1", access_token="EAAprofile"
    )
    PhoneNumber.objects.create(account=account, tenant=tenant, environment="live", phone_number_id="2")
    down = b'{"data" : [ {"about":"\\u00e9","big":12345678901234567890} ]}'
    graph.answers("GET", "/2/whatsapp_business_profile", down)
    up = b'{"messaging_product": "whatsapp",  "about":"\\u00e9 \\/", "new_field": 1.10}'
    graph.answers("POST", "/2/whatsapp_business_profile", b'{"success":true}')
    assert api.get("/v1/numbers/2/business-profile").content == down
    assert api.post("/v1/numbers/2/business-profile", up).status_code == 200
    posted = graph.received[-1]
    assert posted.body == up
    assert posted.headers["authorization"] == "Bearer EAAprofile"


def test_a_profile_that_is_no_object_is_refused(api: Api, account: SimulatedAccount) -> None:
    for body in (b"[]", b"not json", b'"text"'):
        assert_error(api.post(path(account, "business-profile"), body), 400, "invalid_request")


def test_a_token_that_meta_refuses_is_401_and_reported(
    api: Api, tenant: Tenant, account: SimulatedAccount, simulator: RunningSimulator
) -> None:
    token = BusinessAccount.objects.get().access_token
    simulator.control("PATCH", "tokens", {"access_token": token, "invalidated": True})
    answer = api.get(path(account, "business-profile"))
    assert answer.status_code == 401
    assert (answer.json()["source"], answer.json()["error"]["code"]) == ("meta", 190)
    assert state(api, account) == ("disconnected", "token_invalid")
    assert published(tenant, "token.invalid") == [{"waba_id": account.waba_id, "expires_at": None}]


@pytest.mark.parametrize("repair", ["subscribe", "refresh"])
def test_a_token_that_works_again_repairs_the_number(
    api: Api, account: SimulatedAccount, simulator: RunningSimulator, repair: str
) -> None:
    token = BusinessAccount.objects.get().access_token
    simulator.control("PATCH", "tokens", {"access_token": token, "invalidated": True})
    assert api.get(path(account, "business-profile")).status_code == 401
    attempt = partial(api.post, path(account, "subscribe"))
    if repair == "refresh":
        attempt = partial(api.get, f"/v1/numbers/{account.phone_number_id}?refresh=true")
    assert attempt().status_code == 401
    assert state(api, account) == ("disconnected", "token_invalid"), "it does not work yet"
    simulator.control("PATCH", "tokens", {"access_token": token, "invalidated": False})
    repaired = attempt()
    assert (repaired.status_code, repaired.json()["connection_state"]) == (200, "connected")
    assert state(api, account) == ("connected", None)


@pytest.mark.parametrize("operation", ["register", "deregister", "subscribe"])
def test_after_a_silent_upstream_the_account_is_read_again(
    api: Api,
    account: SimulatedAccount,
    simulator: RunningSimulator,
    settings: Any,
    django_capture_on_commit_callbacks: Any,
    operation: str,
) -> None:
    """Meta may have done what it did not answer."""
    BusinessAccount.objects.update(sync_lease_until=None)
    settings.UPSTREAM_TIMEOUT_MS = 200
    edge = "subscribed_apps" if operation == "subscribe" else operation
    simulator.faults({"action": "hang", "ms": 1000, "match": {"path": f"/{edge}"}})
    with django_capture_on_commit_callbacks(execute=True):
        error = assert_error(api.post(path(account, operation)), 502, "meta_unreachable")
    assert error["details"]["timeout_ms"] == 200
    assert state(api, account) == ("connected", None)
    assert BusinessAccount.objects.get().sync_lease_until is not None


def test_a_bad_body_names_its_field(api: Api, account: SimulatedAccount) -> None:
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("register", {"pin": "12"}, "pin"),
        ("two-step", {}, "pin"),
        ("two-step", {"pin": "1234567"}, "pin"),
        ("request-code", {"code_method": "FAX", "language": "en"}, "code_method"),
        ("request-code", {"code_method": "SMS"}, "language"),
        ("verify-code", {}, "code"),
    ]
    for operation, body, field in wrong:
        error = assert_error(api.post(path(account, operation), body), 400, "invalid_request")
        assert list(error["details"]["fields"]) == [field], (operation, body)


def test_a_list_costs_the_same_for_one_number_and_for_many(api: Api, simulator: RunningSimulator) -> None:
    counts = []
    for size in (1, 5):
        account = simulator.account(size)
        api.post("/v1/numbers/connect", {"waba_id": account.waba_id, "code": account.code})
        api.get("/v1/numbers")  # the key is in the cache
        with CaptureQueriesContext(database) as queries:
            api.get("/v1/numbers")
        counts.append(len(queries))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("released", [PhoneNumber, BusinessAccount])
def test_what_is_released_during_the_call_is_404(
    api: Api, account: SimulatedAccount, monkeypatch: pytest.MonkeyPatch, released: Any
) -> None:
    def accepted_too_late(account: BusinessAccount, answer: Any) -> Any:
        PhoneNumber.objects.all().delete()
        released.objects.all().delete()
        return tokens.accepted_for(account, answer)

    monkeypatch.setattr(onboarding, "accepted_for", accepted_too_late)
    assert_error(api.post(path(account, "subscribe")), 404, "not_found")
