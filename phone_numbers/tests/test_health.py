"""`GET /v1/numbers/{id}/health`: the upstream's `health_status`, converted to the service's form."""

from itertools import product
from typing import Any

import pytest

from gateway.clock import isoformat, now
from phone_numbers.models import BusinessAccount, PhoneNumber
from phone_numbers.tests.test_connection import make_account, make_number
from tenants.models import Tenant
from tests.fixtures import Api
from tests.scripted_graph import ScriptedGraph
from tests.simulated import RunningSimulator

pytestmark = pytest.mark.django_db

NOTHING = {"code": None, "description": None, "what_to_do": None}


def test_a_healthy_number_says_so_for_each_entity(api: Api, simulator: RunningSimulator) -> None:
    account = simulator.account()
    api.post("/v1/numbers/connect", {"waba_id": account.waba_id, "access_token": account.access_token})
    body = api.get(f"/v1/numbers/{account.phone_number_id}/health").json()
    assert (body["can_send_message"], body["connection_detail"]) == ("AVAILABLE", "no_verified_endpoint")
    assert [entity["entity_type"] for entity in body["entities"]] == [
        "PHONE_NUMBER",
        "WABA",
        "BUSINESS",
        "APP",
    ]
    assert all(entity["reasons"] == [] for entity in body["entities"])


def test_the_entity_that_stops_a_message_says_why(api: Api, simulator: RunningSimulator) -> None:
    account = simulator.account()
    api.post("/v1/numbers/connect", {"waba_id": account.waba_id, "access_token": account.access_token})
    for entity, state in product(("PHONE_NUMBER", "WABA", "BUSINESS", "APP"), ("LIMITED", "BLOCKED")):
        simulator.change_account(account.waba_id, health={entity: state})
        body = api.get(f"/v1/numbers/{account.phone_number_id}/health").json()
        reasons = {each["entity_type"]: each["reasons"] for each in body["entities"]}
        assert body["can_send_message"] == state, entity
        assert [name for name, found in reasons.items() if found] == [entity]
        assert len(reasons) == 4
        first = reasons[entity][0]
        assert first["description"]
        assert bool(first["code"] and first["what_to_do"]) is (state == "BLOCKED"), entity


@pytest.mark.parametrize(("entity", "code"), [("PHONE_NUMBER", 133010), ("WABA", 131031)])
def test_what_stops_sends_is_in_the_health(
    api: Api, simulator: RunningSimulator, entity: str, code: int
) -> None:
    account = simulator.account()
    api.post("/v1/numbers/connect", {"waba_id": account.waba_id, "access_token": account.access_token})
    if entity == "WABA":
        simulator.change_account(account.waba_id, locked=True)
    else:
        simulator.change_number(account.phone_number_id, status="DISCONNECTED")
    body = api.get(f"/v1/numbers/{account.phone_number_id}/health").json()
    codes = {each["entity_type"]: [reason["code"] for reason in each["reasons"]] for each in body["entities"]}
    assert (body["can_send_message"], codes[entity]) == ("BLOCKED", [code])


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (
            {
                "can_send_message": "BLOCKED",
                "entities": [
                    {
                        "entity_type": "WABA",
                        "id": "200",
                        "can_send_message": "BLOCKED",
                        "errors": [
                            {
                                "error_code": 141006,
                                "error_description": "No payment method.",
                                "possible_solution": "Add one.",
                            }
                        ],
                    },
                    {
                        "entity_type": "BUSINESS",
                        "id": "300",
                        "can_send_message": "LIMITED",
                        "additional_info": ["Not verified."],
                    },
                ],
            },
            [
                [{"code": 141006, "description": "No payment method.", "what_to_do": "Add one."}],
                [{"code": None, "description": "Not verified.", "what_to_do": None}],
            ],
        ),
        (
            {"entities": [{"errors": [5, {"error_code": "x"}], "additional_info": 5}, 7]},
            [[NOTHING]],
        ),
        ("odd", []),
        (None, []),
    ],
)
def test_reasons_and_remedies_are_the_upstreams(
    api: Api, tenant: Tenant, graph: ScriptedGraph, status: Any, expected: list[Any]
) -> None:
    account = BusinessAccount.objects.create(
        tenant=tenant, environment="live", waba_id="200", access_token="EAAx"
    )
    PhoneNumber.objects.create(tenant=tenant, account=account, environment="live", phone_number_id="100")
    graph.answers("GET", "/100", {"id": "100", "health_status": status})
    body = api.get("/v1/numbers/100/health").json()
    assert [entity["reasons"] for entity in body["entities"]] == expected


def test_a_health_is_given_in_all_its_parts(api: Api, tenant: Tenant, graph: ScriptedGraph) -> None:
    number = make_number(make_account(tenant))
    PhoneNumber.objects.update(connection_state="disconnected", connection_detail="deregistered")
    known = {"entity_type": "WABA", "id": "200", "can_send_message": "LIMITED"}
    odd = {"entity_type": 5, "id": 200, "can_send_message": None}
    status = {"can_send_message": "LIMITED", "entities": [known, odd]}
    graph.answers("GET", f"/{number.phone_number_id}", {"health_status": status})
    before = now()
    body = api.get(f"/v1/numbers/{number.phone_number_id}/health").json()
    assert isoformat(before) <= body.pop("checked_at") <= isoformat(now())
    assert body == {
        "phone_number_id": number.phone_number_id,
        "connection_state": "disconnected",
        "connection_detail": "deregistered",
        "can_send_message": "LIMITED",
        "entities": [{**known, "reasons": []}, {**dict.fromkeys(known), "reasons": []}],
    }
