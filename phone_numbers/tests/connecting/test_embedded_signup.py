"""`POST /v1/numbers/embedded-signup`: it has five steps, and a repeated call continues where the last one stopped."""

import hashlib
import threading
from typing import Any

import pytest

from gateway.upstream import oauth
from phone_numbers import onboarding
from phone_numbers.models import BusinessAccount, PhoneNumber, RedeemedCode
from phone_numbers.tests.reading import moves, published
from tenants.models import Tenant
from tests.fixtures import Api, assert_error, assert_service_headers
from tests.scripted_graph import ScriptedGraph
from tests.simulated import RunningSimulator, SimulatedAccount
from tests.threads import outcomes
from webhooks.models import Endpoint

pytestmark = pytest.mark.django_db

PATH = "/v1/numbers/embedded-signup"


def signup(api: Api, account: SimulatedAccount, **more: Any) -> Any:
    return api.post(
        PATH,
        {
            "code": account.code,
            "waba_id": account.waba_id,
            "phone_number_id": account.phone_number_id,
            **more,
        },
    )


def unregistered(simulator: RunningSimulator) -> SimulatedAccount:
    """An account whose number is new, so the sign-up has to register it."""
    return simulator.account([{"registered": False}])


def test_the_five_steps_bring_a_connected_number(
    api: Api, tenant: Tenant, endpoint: Endpoint, simulator: RunningSimulator
) -> None:
    account = unregistered(simulator)
    answer = signup(api, account, pin="271828")
    assert answer.status_code == 200
    body = answer.json()
    assert list(body) == [
        "phone_number_id",
        "display_phone_number",
        "verified_name",
        "waba_id",
        "connection_state",
        "connection_detail",
        "quality_rating",
        "messaging_limit_tier",
        "throughput_level",
        "name_status",
        "registered_at",
        "last_event_at",
    ]
    assert body["phone_number_id"] == account.phone_number_id
    assert body["waba_id"] == account.waba_id
    assert body["display_phone_number"] == account.display_phone_numbers[0]
    assert (body["connection_state"], body["connection_detail"]) == ("connected", None)
    assert body["quality_rating"] == "GREEN"
    assert body["messaging_limit_tier"] == "TIER_2K"
    assert body["throughput_level"] == "STANDARD"
    assert body["name_status"] == "APPROVED"
    assert body["registered_at"].endswith("Z")
    assert_service_headers(answer)
    assert simulator.calls(account.waba_id) == ["POST subscribed_apps"]
    assert simulator.calls(account.phone_number_id) == ["GET node", "POST register", "GET node"]
    assert simulator.number(account.waba_id, account.phone_number_id)["pin"] == "271828"
    changes = [("pending", "pending", "not_registered"), ("pending", "connected", None)]
    assert published(tenant, "number.connection") == [
        {"phone_number_id": account.phone_number_id, "from": before, "to": after, "detail": detail}
        for before, after, detail in changes
    ]
    tenant.refresh_from_db()
    assert tenant.number_connected


def test_without_a_verified_endpoint_the_number_is_pending(
    api: Api, tenant: Tenant, simulator: RunningSimulator
) -> None:
    body = signup(api, unregistered(simulator)).json()
    assert (body["connection_state"], body["connection_detail"]) == ("pending", "no_verified_endpoint")
    details = [change["detail"] for change in published(tenant, "number.connection")]
    assert details == ["not_registered", "no_verified_endpoint"]
    tenant.refresh_from_db()
    assert not tenant.number_connected


def test_an_omitted_pin_is_generated_and_kept(api: Api, simulator: RunningSimulator) -> None:
    account = unregistered(simulator)
    answer = signup(api, account)
    pin = PhoneNumber.objects.get(phone_number_id=account.phone_number_id).pin
    assert pin is not None
    assert len(pin) == 6
    assert pin.isdigit()
    assert simulator.number(account.waba_id, account.phone_number_id)["pin"] == pin
    assert answer.json()["pin"] == pin
    again = signup(api, account)
    assert again.status_code == 200
    assert pin not in again.content.decode(), "it is shown once"
    assert pin not in api.get(f"/v1/numbers/{account.phone_number_id}").content.decode()


def test_an_invented_pin_is_returned_by_the_registration_that_succeeded(
    api: Api, simulator: RunningSimulator
) -> None:
    account = unregistered(simulator)
    simulator.faults({"action": "error", "code": 131000, "match": {"path": "/register$"}, "times": 1})
    refused = signup(api, account)
    assert (refused.status_code, "pin" in refused.json()) == (500, False)
    pin = PhoneNumber.objects.get(phone_number_id=account.phone_number_id).pin
    assert api.post(f"/v1/numbers/{account.phone_number_id}/register").json() == {"success": True, "pin": pin}


def test_a_number_that_is_registered_already_is_not_registered_again(
    api: Api, endpoint: Endpoint, simulator: RunningSimulator
) -> None:
    account = simulator.account()
    simulator.change_number(account.phone_number_id, pin="111111")
    assert signup(api, account).json()["connection_state"] == "connected"
    assert "POST register" not in simulator.calls(account.phone_number_id)
    assert PhoneNumber.objects.get().pin is None


def test_a_number_that_lost_its_registration_elsewhere_is_registered_again(
    api: Api, tenant: Tenant, endpoint: Endpoint, simulator: RunningSimulator
) -> None:
    account = unregistered(simulator)
    assert signup(api, account).json()["connection_state"] == "connected"
    simulator.change_number(account.phone_number_id, platform_type="NOT_APPLICABLE")
    code = simulator.code(account.waba_id)
    assert signup(api, account, code=code).json()["connection_state"] == "connected"
    assert simulator.calls(account.phone_number_id).count("POST register") == 2


def test_a_number_that_was_registered_elsewhere_is_not_registered_again(
    api: Api, tenant: Tenant, endpoint: Endpoint, simulator: RunningSimulator
) -> None:
    """The service's row is older than the registration, which has a PIN that the service does not know."""
    account = unregistered(simulator)
    assert signup(api, account).status_code == 200
    deregister = api.post(f"/v1/numbers/{account.phone_number_id}/deregister")
    assert deregister.json() == {"success": True}
    registrations = simulator.calls(account.phone_number_id).count("POST register")
    elsewhere = {"platform_type": "CLOUD_API", "status": "CONNECTED", "pin": "111111"}
    simulator.change_number(account.phone_number_id, **elsewhere)
    code = simulator.code(account.waba_id)
    assert signup(api, account, code=code).json()["connection_state"] == "connected"
    assert simulator.calls(account.phone_number_id).count("POST register") == registrations


def test_a_registration_after_the_numbers_view_was_read_is_not_repeated(
    api: Api, endpoint: Endpoint, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    account, prove = unregistered(simulator), onboarding.prove_number
    assert signup(api, account).status_code == 200
    simulator.change_number(account.phone_number_id, platform_type="NOT_APPLICABLE")

    def registered_meanwhile(*values: Any) -> Any:
        view = prove(*values)
        assert api.post(f"/v1/numbers/{account.phone_number_id}/register").json() == {"success": True}
        return view

    monkeypatch.setattr(onboarding, "prove_number", registered_meanwhile)
    code = simulator.code(account.waba_id)
    assert signup(api, account, code=code).json()["connection_state"] == "connected"
    assert simulator.calls(account.phone_number_id).count("POST register") == 2


def test_an_invented_pin_that_the_upstream_refuses_is_not_kept(api: Api, simulator: RunningSimulator) -> None:
    account = unregistered(simulator)
    simulator.change_number(account.phone_number_id, pin="111111")
    path = f"/v1/numbers/{account.phone_number_id}/register"
    for refused in (signup(api, account), api.post(path)):
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, 133005)
        assert PhoneNumber.objects.get().pin is None
    assert signup(api, account, pin="111111").status_code == 200


def test_a_callers_own_pin_is_not_returned(api: Api, simulator: RunningSimulator) -> None:
    account = simulator.account()
    assert "pin" not in signup(api, account, pin="424242").json()
    path = f"/v1/numbers/{account.phone_number_id}"
    assert api.post(f"{path}/two-step", {"pin": "515151"}).json() == {"success": True}
    assert api.post(f"{path}/register").json() == {"success": True}


@pytest.mark.parametrize(
    ("fault", "stopped_at"),
    [
        ({"path": "debug_token"}, None),
        ({"path": "subscribed_apps"}, "not_subscribed"),
        ({"path": "/register"}, "not_registered"),
    ],
)
def test_a_second_call_goes_on_from_the_step_that_failed(
    api: Api,
    endpoint: Endpoint,
    simulator: RunningSimulator,
    fault: dict[str, str],
    stopped_at: str | None,
) -> None:
    account = unregistered(simulator)
    simulator.faults({"action": "error", "code": 2, "match": fault, "times": 1})
    failed = signup(api, account)
    assert failed.status_code == 503
    assert failed["X-Service-Error-Source"] == "meta"
    assert failed.json()["source"] == "meta"
    if stopped_at:
        number = api.get(f"/v1/numbers/{account.phone_number_id}").json()
        assert (number["connection_state"], number["connection_detail"]) == ("pending", stopped_at)
    again = signup(api, account)
    assert again.status_code == 200, again.content
    assert again.json()["connection_state"] == "connected"


def test_a_lost_answer_of_the_registration_is_repaired_by_the_same_call(
    api: Api, endpoint: Endpoint, simulator: RunningSimulator
) -> None:
    account = unregistered(simulator)
    rule = {"action": "reset", "when": "after", "match": {"path": "/register"}, "times": 1}
    simulator.faults(rule)
    assert_error(signup(api, account), 502, "meta_unreachable")
    again = signup(api, account)
    assert again.json()["connection_state"] == "connected"


def test_the_same_call_twice_changes_nothing(
    api: Api, tenant: Tenant, endpoint: Endpoint, simulator: RunningSimulator
) -> None:
    account = unregistered(simulator)
    first, second = signup(api, account), signup(api, account)
    assert first.json() == {**second.json(), "pin": PhoneNumber.objects.get().pin}
    assert simulator.calls(account.phone_number_id).count("POST register") == 1
    assert len(moves(tenant)) == 1


def test_a_coexistence_number_is_never_registered(
    api: Api, endpoint: Endpoint, simulator: RunningSimulator
) -> None:
    account = simulator.account([{"coexistence": True}])
    assert signup(api, account).json()["connection_state"] == "connected"
    assert "POST register" not in simulator.calls(account.phone_number_id)


def test_a_bad_code_gives_the_upstreams_error(api: Api, simulator: RunningSimulator) -> None:
    account = simulator.account()
    answer = api.post(
        PATH,
        {"code": "nonsense", "waba_id": account.waba_id, "phone_number_id": account.phone_number_id},
    )
    assert answer.status_code == 400
    assert answer["X-Service-Error-Source"] == "meta"
    assert answer.json()["source"] == "meta"
    assert answer.json()["error"]["code"] == 100
    assert not BusinessAccount.objects.exists()


def test_the_longest_code_reaches_the_upstream(api: Api, simulator: RunningSimulator) -> None:
    answer = api.post(PATH, {"code": "*" * 2048, "waba_id": "1", "phone_number_id": "2"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, 100), "the upstream's own refusal"


@pytest.mark.django_db(transaction=True)
def test_of_the_same_calls_at_once_one_connects_and_the_others_report_it(
    api: Api, tenant: Tenant, endpoint: Endpoint, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meta answers all calls before any of them continues. It returns a token for only one of them."""
    account, asked, all_answered = unregistered(simulator), oauth.exchange_code, threading.Barrier(4)

    def exchange_code(**values: Any) -> Any:
        answer = asked(**values)
        all_answered.wait(20)
        return answer

    monkeypatch.setattr(oauth, "exchange_code", exchange_code)
    answers = outcomes(*[lambda: signup(api, account)] * 4)
    answers.sort(key=lambda answer: int(answer.status_code))
    assert answers[0].json()["connection_state"] == "connected"
    for answer in answers[1:]:
        assert "being finished already" in assert_error(answer, 409, "conflict")["message"]
    again = signup(api, account)
    assert {**again.json(), "pin": PhoneNumber.objects.get().pin} == answers[0].json()
    assert simulator.calls(account.phone_number_id).count("POST register") == 1


@pytest.mark.parametrize(("spent", "subcode"), [("used", 36009), ("late", 36007)])
def test_a_spent_code_is_the_upstreams_error(
    api: Api,
    other_api: Api,
    simulator: RunningSimulator,
    monkeypatch: pytest.MonkeyPatch,
    spent: str,
    subcode: int,
) -> None:
    monkeypatch.setattr(onboarding, "SAME_CALL_SECONDS", 0.1)
    account = simulator.account()
    code = account.code if spent == "used" else simulator.code(account.waba_id, seconds=-1)
    body = {"code": code, "waba_id": account.waba_id, "phone_number_id": account.phone_number_id}
    if spent == "used":
        assert other_api.post(PATH, body).status_code == 200
    answer = api.post(PATH, body)
    assert (answer.status_code, answer.json()["source"]) == (400, "meta")
    assert (answer.json()["error"]["code"], answer.json()["error"]["error_subcode"]) == (100, subcode)


@pytest.mark.parametrize("variant", ["other_app", "no_messaging", "invalid", "expired"])
def test_a_token_against_the_connect_rule_is_refused_with_its_scopes(
    api: Api, simulator: RunningSimulator, variant: str
) -> None:
    account = simulator.account(variant=variant)
    error = assert_error(signup(api, account), 400, "invalid_request")
    assert isinstance(error["details"]["granular_scopes"], list)
    assert not BusinessAccount.objects.exists()


@pytest.mark.parametrize("variant", ["no_target_ids", "manage_events", "60_days"])
def test_the_newer_forms_of_tokens_pass(api: Api, simulator: RunningSimulator, variant: str) -> None:
    account = simulator.account(variant=variant)
    answer = signup(api, account)
    assert answer.status_code == 200, answer.content
    stored = BusinessAccount.objects.get(waba_id=account.waba_id)
    assert (stored.token_expires_at is not None) == (variant == "60_days")


def test_a_number_of_another_account_is_refused(api: Api, simulator: RunningSimulator) -> None:
    account, other = simulator.account(variant="no_target_ids"), simulator.account()
    answer = api.post(
        PATH,
        {"code": account.code, "waba_id": account.waba_id, "phone_number_id": other.phone_number_id},
    )
    error = assert_error(answer, 400, "invalid_request")
    assert "phone_number_id" in error["details"]["fields"]
    assert not PhoneNumber.objects.exists()


def test_an_id_that_is_not_a_numbers_is_refused(api: Api, simulator: RunningSimulator) -> None:
    account = simulator.account()
    body = {"code": account.code, "waba_id": account.waba_id, "phone_number_id": account.waba_id}
    error = assert_error(api.post(PATH, body), 400, "invalid_request")
    assert list(error["details"]["fields"]) == ["phone_number_id"]
    assert not PhoneNumber.objects.exists()


def test_another_tenants_account_is_a_conflict(api: Api, other_api: Api, simulator: RunningSimulator) -> None:
    account = simulator.account()
    assert signup(api, account).status_code == 200
    code = simulator.code(account.waba_id)
    answer = other_api.post(
        PATH, {"code": code, "waba_id": account.waba_id, "phone_number_id": account.phone_number_id}
    )
    assert_error(answer, 409, "conflict")
    assert_error(other_api.get(f"/v1/numbers/{account.phone_number_id}"), 404, "not_found")


def test_the_token_of_a_code_is_kept_for_its_tenant_and_environment(
    tenant: Tenant, other_tenant: Tenant, graph: ScriptedGraph
) -> None:
    code_hash = hashlib.sha256(b"a code").hexdigest()
    for owner, environment in ((other_tenant, "live"), (tenant, "test")):
        RedeemedCode.objects.create(
            tenant=owner, environment=environment, code_hash=code_hash, access_token="EAAof-another"
        )
    graph.answers("GET", "/oauth/access_token", {"access_token": "EAAown"})
    for _ in range(2):
        token = onboarding.exchange(tenant_id=tenant.id, environment="live", code="a code")
        assert (token, len(graph.received)) == ("EAAown", 1)


@pytest.mark.parametrize("answer", [{}, {"access_token": ""}, {"access_token": 7}])
def test_a_code_without_a_token_is_refused(api: Api, graph: ScriptedGraph, answer: dict[str, Any]) -> None:
    graph.answers("GET", "/oauth/access_token", answer)
    body = {"code": "c", "waba_id": "1", "phone_number_id": "2"}
    error = assert_error(api.post(PATH, body), 400, "invalid_request")
    assert list(error["details"]["fields"]) == ["code"]
    assert not RedeemedCode.objects.exists()


def test_only_another_pin_registers_a_number_again(api: Api, simulator: RunningSimulator) -> None:
    account = simulator.account()
    counts = []
    for pin in ({"pin": "271828"}, {"pin": "271828"}, {}, {"pin": "314159"}):
        simulator.change_number(account.phone_number_id, **pin)
        assert signup(api, account, **pin).status_code == 200
        counts.append(simulator.calls(account.phone_number_id).count("POST register"))
    assert counts == [1, 1, 1, 2]
    assert PhoneNumber.objects.get().pin == "314159"


@pytest.mark.parametrize("scope", ["messaging", "management"])
def test_a_token_that_opens_other_accounts_too_proves_no_number_of_theirs(
    api: Api, graph: ScriptedGraph, settings: Any, scope: str
) -> None:
    """The token opens accounts 1 and 9. The number 7 belongs to account 9."""
    scopes = [
        {"scope": f"whatsapp_business_{name}", "target_ids": ["1", "9"] if name == scope else ["1"]}
        for name in ("messaging", "management")
    ]
    facts = {"app_id": settings.META_APP_ID, "is_valid": True, "granular_scopes": scopes}
    graph.answers("GET", "/oauth/access_token", {"access_token": "EAAx"})
    graph.answers("GET", "/debug_token", {"data": facts})
    graph.answers("GET", "/1/phone_numbers", {"data": [{"id": "2"}]})
    graph.always_answers({"id": "7"})
    error = assert_error(
        api.post(PATH, {"code": "c", "waba_id": "1", "phone_number_id": "7"}), 400, "invalid_request"
    )
    assert list(error["details"]["fields"]) == ["phone_number_id"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"code": None}, "code"),
        ({"code": "a" * 2049}, "code"),
        ({"code": "a b"}, "code"),
        ({"code": "ä"}, "code"),
        ({"waba_id": ""}, "waba_id"),
        ({"waba_id": "../me"}, "waba_id"),
        ({"phone_number_id": 12.5}, "phone_number_id"),
        ({"pin": "12345"}, "pin"),
        ({"pin": "123456\n"}, "pin"),
    ],
)
def test_a_bad_body_names_its_field(api: Api, change: dict[str, Any], field: str) -> None:
    body = {"code": "c", "waba_id": "1", "phone_number_id": "2", **change}
    error = assert_error(api.post(PATH, body), 400, "invalid_request")
    assert list(error["details"]["fields"]) == [field]
