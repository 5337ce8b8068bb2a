"""`POST /v1/numbers/connect`: connect an account with all its numbers, with a token or with a code."""

from typing import Any

import pytest

from gateway.upstream import blocking_client
from phone_numbers.models import BusinessAccount, PhoneNumber
from tenants.credentials import api_keys
from tenants.models import Tenant
from tests.fixtures import Api, assert_error
from tests.scripted_graph import ScriptedGraph
from tests.simulated import RunningSimulator
from webhooks.models import Endpoint

pytestmark = pytest.mark.django_db

PATH = "/v1/numbers/connect"


def test_all_numbers_of_the_account_are_imported(
    api: Api, tenant: Tenant, endpoint: Endpoint, simulator: RunningSimulator
) -> None:
    account = simulator.account([{}, {"registered": False}, {"coexistence": True}])
    answer = api.post(PATH, {"waba_id": account.waba_id, "access_token": account.access_token})
    assert answer.status_code == 200, answer.content
    states = [("connected", None), ("pending", "not_registered"), ("connected", None)]
    assert answer.json() == {
        "waba_id": account.waba_id,
        "numbers": [
            {
                "phone_number_id": phone_number_id,
                "display_phone_number": display,
                "connection_state": state,
                "connection_detail": detail,
            }
            for phone_number_id, display, (state, detail) in zip(
                account.phone_number_ids, account.display_phone_numbers, states, strict=True
            )
        ],
        "held_elsewhere": [],
    }
    assert not any("register" in call for call in simulator.calls(account.phone_number_id))


def test_many_numbers_come_page_by_page(
    api: Api, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocking_client, "PAGE_SIZE", 2)
    account = simulator.account(5)
    answer = api.post(PATH, {"waba_id": account.waba_id, "code": account.code})
    assert [row["phone_number_id"] for row in answer.json()["numbers"]] == account.phone_number_ids
    assert simulator.calls(account.waba_id).count("GET phone_numbers") == 3


def test_a_second_call_takes_the_new_token_and_the_new_numbers(api: Api, simulator: RunningSimulator) -> None:
    account = simulator.account()
    api.post(PATH, {"waba_id": account.waba_id, "access_token": account.access_token})
    simulator.control("POST", f"accounts/{account.waba_id}/phone_numbers", {})
    fresh = simulator.control("POST", "tokens", {"waba_id": account.waba_id})["access_token"]
    answer = api.post(PATH, {"waba_id": account.waba_id, "access_token": fresh})
    assert len(answer.json()["numbers"]) == 2
    assert BusinessAccount.objects.get().access_token == fresh


@pytest.mark.parametrize(
    ("of_account", "of_number", "detail"),
    [
        ("account_removed", None, None),
        (None, "account_removed", None),
        (None, "account_restricted", None),
        ("account_restricted", None, "account_restricted"),
    ],
)
def test_connecting_again_brings_back_what_was_removed_and_lifts_no_ban_of_the_account(
    api: Api, endpoint: Endpoint, simulator: RunningSimulator, of_account: str, of_number: str, detail: str
) -> None:
    account = simulator.account()
    body = {"waba_id": account.waba_id, "access_token": account.access_token}
    api.post(PATH, body)
    BusinessAccount.objects.update(taken_away=of_account)
    PhoneNumber.objects.update(taken_away=of_number)
    (number,) = api.post(PATH, body).json()["numbers"]
    assert number["connection_detail"] == detail


@pytest.mark.parametrize("credentials", [{}, {"code": "c", "access_token": "t"}])
def test_either_a_token_or_a_code(api: Api, credentials: dict[str, str]) -> None:
    error = assert_error(api.post(PATH, {"waba_id": "1", **credentials}), 400, "invalid_request")
    assert set(error["details"]["fields"]) == {"access_token", "code"}


def test_a_token_for_another_account_is_refused_with_its_scopes(
    api: Api, simulator: RunningSimulator
) -> None:
    account, other = simulator.account(), simulator.account()
    answer = api.post(PATH, {"waba_id": account.waba_id, "access_token": other.access_token})
    error = assert_error(answer, 400, "invalid_request")
    assert error["details"]["granular_scopes"][0]["target_ids"] == [other.waba_id]


def test_manage_events_counts_only_when_the_numbers_can_be_read(
    api: Api, simulator: RunningSimulator
) -> None:
    account = simulator.account(variant="manage_events")
    simulator.faults({"action": "error", "code": 10, "match": {"path": f"{account.waba_id}/phone_numbers"}})
    body = {"waba_id": account.waba_id, "access_token": account.access_token}
    error = assert_error(api.post(PATH, body), 400, "invalid_request")
    assert error["details"]["granular_scopes"][0]["scope"] == "whatsapp_business_manage_events"
    simulator.faults({"action": "error", "code": 4, "match": {"path": f"{account.waba_id}/phone_numbers"}})
    answer = api.post(PATH, body)
    assert (answer.status_code, answer.json()["source"]) == (429, "meta"), "a throttled call proves nothing"
    simulator.faults()
    assert api.post(PATH, body).status_code == 200


def test_scopes_without_granular_scopes_are_not_enough(api: Api, graph: ScriptedGraph) -> None:
    data = {
        "app_id": "900100200300400",
        "is_valid": True,
        "scopes": ["whatsapp_business_management", "whatsapp_business_messaging"],
    }
    graph.answers("GET", "/debug_token", {"data": data})
    error = assert_error(api.post(PATH, {"waba_id": "1", "access_token": "EAAx"}), 400, "invalid_request")
    assert error["details"] == {"granular_scopes": []}


def test_a_field_that_the_upstream_retired_is_left_out(api: Api, graph: ScriptedGraph) -> None:
    scopes = [{"scope": f"whatsapp_business_{name}"} for name in ("management", "messaging")]
    data = {"app_id": "900100200300400", "is_valid": True, "granular_scopes": scopes}
    graph.answers("GET", "/debug_token", {"data": data})
    gone = {
        "error": {"message": "(#100) Tried accessing nonexisting field (messaging_limit_tier)", "code": 100}
    }
    graph.answers("GET", "/1/phone_numbers", gone, status=400)
    view = {
        "id": "2",
        "whatsapp_business_manager_messaging_limit": "TIER_10K",
        "display_phone_number": "+91 1",
    }
    graph.answers("GET", "/1/phone_numbers", {"data": [view]})
    graph.answers("POST", "/1/subscribed_apps", {"success": True})
    assert api.post(PATH, {"waba_id": "1", "access_token": "EAAx"}).status_code == 200
    assert PhoneNumber.objects.get().messaging_limit_tier == "TIER_10K"
    asked = [request.query for request in graph.received if request.path == "/1/phone_numbers"]
    assert ["messaging_limit_tier" in query for query in asked] == [True, False]


def test_another_tenants_account_is_a_conflict(api: Api, other_api: Api, simulator: RunningSimulator) -> None:
    account = simulator.account()
    body = {"waba_id": account.waba_id, "access_token": account.access_token}
    assert api.post(PATH, body).status_code == 200
    assert_error(other_api.post(PATH, body), 409, "conflict")
    assert PhoneNumber.objects.get().tenant.name == "Asha Traders"


def test_an_account_lives_in_one_environment(api: Api, tenant: Tenant, simulator: RunningSimulator) -> None:
    account = simulator.account()
    body = {"waba_id": account.waba_id, "access_token": account.access_token}
    test_api = Api(api_keys.create(name="test", environment="test", tenant=tenant).key)
    assert test_api.post(PATH, body).status_code == 200
    assert_error(api.post(PATH, body), 409, "conflict")
    assert_error(api.get(f"/v1/numbers/{account.phone_number_id}"), 404, "not_found")
    assert api.get("/v1/numbers").json() == {"data": [], "next_cursor": None}
    assert len(test_api.get("/v1/numbers").json()["data"]) == 1


def test_a_sandbox_tenant_is_on_the_simulator_whatever_its_key(
    simulator: RunningSimulator, settings: Any, db: None
) -> None:
    settings.META_GRAPH_URL = "http://127.0.0.1:9"
    sandbox = Tenant.objects.create(name="Sandbox", status=Tenant.Status.ACTIVE, sandbox=True)
    account = simulator.account()
    api = Api(api_keys.create(name="live", environment="live", tenant=sandbox).key)
    answer = api.post(
        "/v1/numbers/embedded-signup",
        {
            "code": account.code,
            "waba_id": account.waba_id,
            "phone_number_id": account.phone_number_id,
        },
    )
    assert answer.status_code == 200, answer.content
    assert PhoneNumber.objects.get().environment == "test"
