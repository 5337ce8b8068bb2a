"""A number's Flow endpoint: its keys, WhatsApp's encrypted data requests, and the tenant's server behind it."""

import asyncio
import itertools
import threading
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import urlencode

import orjson
import pytest
import requests
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.conf import settings as django_settings
from django.db import connection
from pytest_django import Settings
from standardwebhooks import Webhook

from messaging.flows import endpoints, exchange
from messaging.models import FlowEndpoint
from messaging.tests.conftest import connected_number
from messaging.tests.incoming import signature_of
from phone_numbers import leaving
from phone_numbers.models import PhoneNumber
from tenants.audit import Actor
from tenants.credentials import api_keys
from tenants.models import AuditEntry, Tenant
from tests.fixtures import Api, assert_error
from tests.front import running
from tests.receiver import Received, Receiver
from tests.simulated import RunningSimulator, SimulatedAccount
from web.tests.client import Answer, FrontClient
from web.tests.conftest import front, front_address

__all__ = ["front", "front_address"]

pytestmark = pytest.mark.django_db(transaction=True)

NEXT = {"screen": "SLOT", "data": {"slots": [{"id": "10", "title": "10:00"}]}}
ASKED = {
    "version": "3.0",
    "action": "data_exchange",
    "screen": "CITY",
    "data": {"city": "Pune"},
    "flow_token": "t",
}


def path_of(number: PhoneNumber) -> str:
    return f"/v1/numbers/{number.phone_number_id}/flow-endpoint"


@dataclass
class Hosted:
    """A number whose Flow calls the gateway."""

    number: PhoneNumber
    secret: str
    endpoint_uri: str
    flow_id: str
    simulator: RunningSimulator

    def ask(self, request: Any) -> Any:
        """Send a data request in WhatsApp's form. Returns the status and the decrypted response."""
        body = {"phone_number_id": self.number.phone_number_id, "request": request}
        return self.simulator.control("POST", f"flows/{self.flow_id}/data", body)


@cache
def shared_keys() -> Iterator[str]:
    new = endpoints._new_private_key
    return itertools.cycle([new() for _ in range(4)])


@pytest.fixture(autouse=True)
def _few_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use each of four keys again and again. Generating a key takes more CPU than a test."""
    keys = shared_keys()
    monkeypatch.setattr(endpoints, "_new_private_key", lambda: next(keys))


@pytest.fixture(autouse=True)
def _reachable(settings: Settings, front_address: tuple[str, int]) -> None:
    settings.BASE_URL = f"http://{front_address[0]}:{front_address[1]}"
    # The simulator signs with the app secret of the sandbox.
    settings.META_APP_SECRET = settings.SANDBOX_APP_SECRET
    settings.WEBHOOK_ALLOW_PRIVATE_NETWORKS = settings.WEBHOOK_ALLOW_HTTP = True


@pytest.fixture
def hosted(
    api: Api, number: PhoneNumber, account: SimulatedAccount, simulator: RunningSimulator, receiver: Receiver
) -> Hosted:
    receiver.answer = lambda request: web.json_response(NEXT)
    made = api.put(path_of(number), {"url": receiver.url})
    assert made.status_code == 200, made.content
    flow = requests.post(
        f"{simulator.url}/v25.0/{account.waba_id}/flows",
        json={"name": "Visit", "categories": ["OTHER"], "endpoint_uri": made.json()["endpoint_uri"]},
        headers={"Authorization": f"Bearer {account.access_token}"},
        timeout=10,
    ).json()
    return Hosted(number, made.json()["secret"], made.json()["endpoint_uri"], flow["id"], simulator)


def test_a_data_request_reaches_the_tenants_server_as_signed_json_and_its_answer_comes_back(
    api: Api, hosted: Hosted, receiver: Receiver
) -> None:
    assert hosted.ask(ASKED) == {"status": 200, "answer": NEXT}
    (got,) = receiver.wait_for(1)
    assert got.json == ASKED
    Webhook(hosted.secret).verify(got.body, got.headers)
    assert got.headers["X-Service-Event-Type"] == "flow.data_exchange"
    assert got.headers["X-Service-Phone-Number-Id"] == hosted.number.phone_number_id
    shown = api.get(path_of(hosted.number)).json()
    assert shown["last_request_at"] is not None
    assert (shown["last_error"], "secret" in shown) == (None, False)


def test_pings_are_answered_by_the_gateway_alone(hosted: Hosted, receiver: Receiver) -> None:
    pong = hosted.ask({"version": "3.0", "action": "ping"})
    assert pong == {"status": 200, "answer": {"data": {"status": "active"}}}
    assert receiver.received == []


@pytest.mark.parametrize(
    ("status", "said", "error"),
    [
        (500, {}, "http_5xx"),
        (200, {"screen": "DATES", "data": {}}, None),
        (200, [], "no_json_object"),
        (427, {"error_msg": "Over."}, None),
    ],
)
def test_an_error_notification_is_forwarded_and_acknowledged_whatever_the_server_says(
    api: Api, hosted: Hosted, receiver: Receiver, status: int, said: Any, error: str | None
) -> None:
    receiver.answer = lambda request: web.json_response(said, status=status)
    notice = {**ASKED, "data": {"error": "invalid-screen-transition", "error_message": "No such screen."}}
    assert hosted.ask(notice) == {"status": 200, "answer": {"data": {"acknowledged": True}}}
    assert receiver.wait_for(1)[0].json == notice
    assert api.get(path_of(hosted.number)).json()["last_error"] == error


def test_an_error_notification_has_both_members_and_its_failure_is_shown(
    api: Api, hosted: Hosted, receiver: Receiver
) -> None:
    receiver.answer = lambda request: web.Response(status=500)
    whole = {"error": "invalid-screen-transition", "error_message": "No such screen."}
    for data, status in ((whole, 200), ({"error": "one"}, 502), ({"error_message": "other"}, 502), ([], 502)):
        assert hosted.ask({**ASKED, "data": data})["status"] == status, data
        assert api.get(path_of(hosted.number)).json()["last_error"] == "http_5xx"


def test_what_the_server_may_answer(api: Api, hosted: Hosted, receiver: Receiver) -> None:
    cases: list[tuple[Any, int, str | None]] = [
        (lambda _: web.json_response({"error_msg": "Over."}, status=427), 427, None),
        (lambda _: web.Response(text="Over.", status=427), 427, None),
        (lambda _: web.json_response({}, status=500), 502, "http_5xx"),
        (lambda _: web.Response(status=302, headers={"Location": "/elsewhere"}), 502, "http_3xx"),
        (lambda _: web.Response(text="Hello"), 502, "no_json_object"),
        (lambda _: web.json_response(["a", "list"]), 502, "no_json_object"),
        (
            lambda _: web.Response(body=b'{"a":"' + b"x" * exchange.MAX_BODY_BYTES + b'"}'),
            502,
            "no_json_object",
        ),
    ]
    shown = []
    for answered, status, word in cases:
        receiver.answer = answered
        answer = hosted.ask(ASKED)
        assert answer["status"] == status, word
        if status == 427:
            shown.append(orjson.loads(answer["answer"]))
        assert api.get(path_of(hosted.number)).json()["last_error"] == word
    assert shown == [{"error_msg": "Over."}, {}], "only an object is shown to the customer"


def test_a_slow_server_is_given_up_in_time_and_holds_no_connection_meanwhile(
    api: Api, hosted: Hosted, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "FORWARD_SECONDS", 0.5)
    asked, going_on = threading.Event(), threading.Event()

    async def hang(request: Received) -> web.StreamResponse:
        asked.set()
        while not going_on.is_set():
            await asyncio.sleep(0.05)
        return web.Response(text="late")

    receiver.answer = hang
    with ThreadPoolExecutor(1) as beside:
        waiting = beside.submit(hosted.ask, ASKED)
        assert asked.wait(10)
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND state LIKE 'idle in transaction%' AND query LIKE '%%messaging_flowendpoint%%'"
            )
            assert cursor.fetchone() == (0,)
        assert waiting.result(30)["status"] == 504
    going_on.set()
    assert api.get(path_of(hosted.number)).json()["last_error"] == "timeout"


def test_data_requests_of_a_number_whose_places_are_taken_are_refused(
    hosted: Hosted, front: FrontClient, receiver: Receiver
) -> None:
    number = hosted.number
    with ExitStack() as taken:
        for _ in range(100):
            taken.enter_context(exchange.exchanges.held(number.tenant_id, number.phone_number_id))
        assert send(hosted, front, ASKED).status_code == 429
        assert receiver.received == []
    assert send(hosted, front, ASKED).status_code == 200


def test_addresses_that_are_not_public_are_not_called(
    hosted: Hosted, receiver: Receiver, settings: Settings, api: Api
) -> None:
    running.close()
    settings.WEBHOOK_ALLOW_PRIVATE_NETWORKS = False
    host, port = running.start()
    answer = send(hosted, FrontClient((host, port)), ASKED)
    assert answer.status_code == 502
    assert receiver.received == []
    assert api.get(path_of(hosted.number)).json()["last_error"] == "blocked_address"
    running.close()


def send(
    hosted: Hosted, front: FrontClient, request: Any, *, secret: str | None = None, key: str | None = None
) -> Answer:
    """Encrypt a request in the test itself and send it. `request` may be bytes."""
    stored = FlowEndpoint.objects.get(number=hosted.number)
    content = request if isinstance(request, bytes) else orjson.dumps(request)
    pem = key or endpoints.public_key_of(stored.private_key)
    public: Any = serialization.load_pem_public_key(pem.encode())
    parts = {
        "encrypted_flow_data": AESGCM(b"k" * 16).encrypt(b"v" * 16, content, None),
        "encrypted_aes_key": public.encrypt(b"k" * 16, exchange._OAEP),
        "initial_vector": b"v" * 16,
    }
    body = orjson.dumps({name: b64encode(part).decode() for name, part in parts.items()})
    return post(front, body, secret=secret)


def post(front: FrontClient, body: bytes, *, secret: str | None = None) -> Answer:
    """Post a body to the endpoint, signed."""
    path = f"/upstream/flows/{FlowEndpoint.objects.get().id.hex}"
    return front.ask(
        "POST", path, body, X_Hub_Signature_256=signature_of(body, secret or django_settings.META_APP_SECRET)
    )


def test_a_key_that_is_not_the_numbers_is_421_and_a_wrong_signature_432(
    hosted: Hosted, front: FrontClient, receiver: Receiver
) -> None:
    other = endpoints.public_key_of(endpoints._new_private_key())
    assert send(hosted, front, ASKED, key=other).status_code == 421
    assert send(hosted, front, b"no JSON").status_code == 421
    no_base64 = dict.fromkeys(("encrypted_flow_data", "encrypted_aes_key", "initial_vector"), "?")
    for body in (b"no JSON", b"[]", b"{}", orjson.dumps(no_base64)):
        assert post(front, body).status_code == 421, body
    assert send(hosted, front, ASKED, secret="nobody").status_code == 432
    assert receiver.received == []


def test_only_the_app_of_its_environment_reaches_an_endpoint(
    hosted: Hosted, front: FrontClient, settings: Settings
) -> None:
    settings.META_APP_SECRET = "of-the-live-app"
    assert send(hosted, front, {"version": "3.0", "action": "ping"}).status_code == 200
    refused = send(hosted, front, {"version": "3.0", "action": "ping"}, secret=settings.SANDBOX_APP_SECRET)
    assert refused.status_code == 404


def test_a_business_that_is_not_served_gets_no_requests(
    hosted: Hosted, tenant: Tenant, front: FrontClient
) -> None:
    for environment, served in (("live", {"active"}), ("test", {"active", "pending_approval"})):
        PhoneNumber.objects.update(environment=environment)
        for status in Tenant.Status.values:
            Tenant.objects.filter(pk=tenant.pk).update(status=status)
            answer = send(hosted, front, {"version": "3.0", "action": "ping"})
            assert answer.status_code == (200 if status in served else 404), (environment, status)


def test_a_rotated_key_opens_what_comes_and_a_former_one_no_more(
    api: Api, hosted: Hosted, front: FrontClient
) -> None:
    former = endpoints.public_key_of(FlowEndpoint.objects.get().private_key)
    assert api.post(f"{path_of(hosted.number)}/rotate-key").status_code == 200
    assert hosted.ask(ASKED) == {"status": 200, "answer": NEXT}
    assert send(hosted, front, ASKED, key=former).status_code == 421


def test_an_upload_whose_answer_is_lost_leaves_requests_that_the_gateway_opens(
    api: Api, hosted: Hosted, simulator: RunningSimulator
) -> None:
    simulator.faults({"match": {"path": "whatsapp_business_encryption"}, "action": "reset", "when": "after"})
    assert api.post(f"{path_of(hosted.number)}/rotate-key").status_code == 502
    simulator.faults()
    assert hosted.ask(ASKED) == {"status": 200, "answer": NEXT}
    waiting = FlowEndpoint.objects.get().next_private_key
    assert api.post(f"{path_of(hosted.number)}/rotate-key").status_code == 200
    assert FlowEndpoint.objects.get().private_key == waiting


def test_rotations_at_once_end_with_the_key_that_was_uploaded(hosted: Hosted, number: PhoneNumber) -> None:
    with ThreadPoolExecutor(3) as at_once:
        list(at_once.map(_rotate, [number.pk] * 3))
    assert hosted.ask(ASKED) == {"status": 200, "answer": NEXT}
    assert FlowEndpoint.objects.get().next_private_key is None


def _rotate(number_id: Any) -> None:
    try:
        number = PhoneNumber.objects.select_related("account").get(pk=number_id)
        endpoints.upload_new_key(number, actor=Actor())
    finally:
        connection.close()


def test_the_secret_before_signs_too_after_a_rotation(api: Api, hosted: Hosted, receiver: Receiver) -> None:
    rotated = api.post(f"{path_of(hosted.number)}/rotate-secret").json()
    assert rotated["previous_secret_expires_at"] is not None
    assert rotated["secret"].startswith(rotated["secret_prefix"])
    hosted.ask(ASKED)
    (got,) = receiver.wait_for(1)
    for secret in (hosted.secret, rotated["secret"]):
        Webhook(secret).verify(got.body, got.headers)


def test_a_key_that_meta_refuses_makes_no_endpoint(
    api: Api, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    simulator.faults({"match": {"path": "whatsapp_business_encryption"}, "action": "error", "code": 100})
    answer = api.put(path_of(number), {"url": "https://example.com/flows"})
    assert (answer.status_code, answer["X-Service-Error-Source"]) == (400, "meta")
    assert_error(api.get(path_of(number)), 404, "not_found")
    simulator.faults()
    assert "secret" in api.put(path_of(number), {"url": "https://example.com/flows"}).json()
    assert "secret" not in api.put(path_of(number), {"url": "https://example.com/other"}).json()
    assert api.get(path_of(number)).json()["url"] == "https://example.com/other"


def test_a_key_whose_upload_got_no_answer_is_uploaded_with_the_next_url(
    api: Api, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    simulator.faults({"match": {"path": "whatsapp_business_encryption"}, "action": "reset"})
    assert_error(api.put(path_of(number), {"url": "https://example.com/flows"}), 502, "meta_unreachable")
    assert FlowEndpoint.objects.get().key_uploaded_at is None
    simulator.faults()
    answers = [api.put(path_of(number), {"url": "https://example.com/flows"}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    endpoint = FlowEndpoint.objects.get()
    assert endpoint.key_uploaded_at is not None
    shown = [answer.json().get("secret") for answer in answers]
    assert shown == [endpoint.secret, None], (
        "the first answer that the customer got shows it, and no later one"
    )


def test_a_url_that_nothing_can_be_posted_to_is_400(api: Api, number: PhoneNumber) -> None:
    for url in ("ftp://example.com", "https://user@example.com/", "", None):
        assert_error(api.put(path_of(number), {"url": url}), 400, "invalid_request")


def test_it_ends_with_its_number_and_says_so_in_the_audit_log(
    api: Api, hosted: Hosted, number: PhoneNumber, tenant: Tenant, simulator: RunningSimulator
) -> None:
    assert api.delete(path_of(number)).json() == {"phone_number_id": number.phone_number_id, "deleted": True}
    assert hosted.ask(ASKED)["status"] == 404
    for url in ("https://example.com/flows", "https://example.com:8443/flows?token=s3cret"):
        api.put(path_of(number), {"url": url})
    other = connected_number(tenant, simulator.account())
    leaving.release_number(number, actor=Actor())
    assert not FlowEndpoint.objects.exists()
    assert_error(api.get(path_of(other)), 404, "not_found")
    actions = list(
        AuditEntry.objects.filter(action__startswith="flow_endpoint").values_list("action", flat=True)
    )
    assert {"flow_endpoint.set", "flow_endpoint.rotate_key", "flow_endpoint.delete"} <= set(actions)
    set_ = AuditEntry.objects.filter(action="flow_endpoint.set").latest("id").details
    assert (set_["before"], set_["after"]) == (
        {"url": "https://example.com"},
        {"url": "https://example.com:8443"},
    )


def test_nothing_of_a_private_key_is_stored_in_the_clear(hosted: Hosted) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT messaging_flowendpoint::text FROM messaging_flowendpoint")
        (row,) = cursor.fetchone()
    assert "PRIVATE KEY" not in row
    assert hosted.secret not in row


SCREENS = {
    "version": "7.2",
    "data_api_version": "3.0",
    "screens": [
        {
            "id": "CITY",
            "title": "Where?",
            "data": {"cities": {"type": "array"}},
            "layout": {
                "type": "SingleColumnLayout",
                "children": [
                    {"type": "TextHeading", "text": "Hello ${data.name}"},
                    {
                        "type": "Form",
                        "name": "form",
                        "children": [
                            {
                                "type": "Dropdown",
                                "name": "city",
                                "label": "City",
                                "data-source": "${data.cities}",
                            },
                            {
                                "type": "Footer",
                                "label": "Next",
                                "on-click-action": {
                                    "name": "data_exchange",
                                    "payload": {"city": "${form.city}"},
                                },
                            },
                        ],
                    },
                ],
            },
        }
    ],
}


def test_the_sandbox_opens_a_flow_and_its_end_is_an_inbound_message_with_the_answer(
    hosted: Hosted, account: SimulatedAccount, receiver: Receiver, simulator: RunningSimulator
) -> None:
    def answer(request: Received) -> web.StreamResponse:
        if request.json["action"] == "INIT":
            cities = [{"id": "pune", "title": "Pune"}]
            return web.json_response({"screen": "CITY", "data": {"name": "Asha", "cities": cities}})
        params = {"flow_token": request.json["flow_token"], "city": request.json["data"]["city"]}
        done = {"extension_message_response": {"params": params}}
        return web.json_response({"screen": "SUCCESS", "data": done})

    receiver.answer = answer
    token = {"Authorization": f"Bearer {account.access_token}"}
    graph = f"{simulator.url}/v25.0"
    flow = {"name": "Where", "categories": '["OTHER"]', "endpoint_uri": hosted.endpoint_uri}
    flow["flow_json"] = orjson.dumps(SCREENS).decode()
    flow_id = requests.post(f"{graph}/{account.waba_id}/flows", json=flow, headers=token, timeout=10).json()[
        "id"
    ]
    parameters = {"flow_message_version": "3", "flow_id": flow_id, "flow_cta": "Go", "flow_token": "visit-1"}
    message = {
        "messaging_product": "whatsapp",
        "to": "+919812345678",
        "type": "interactive",
        "interactive": {
            "type": "flow",
            "body": {"text": "Book"},
            "action": {"name": "flow", "parameters": {**parameters, "flow_action": "data_exchange"}},
        },
    }
    number = hosted.number.phone_number_id
    sent = requests.post(f"{graph}/{number}/messages", json=message, headers=token, timeout=10).json()
    step = f"messages/{sent['messages'][0]['id']}/flow"
    opened = simulator.control("POST", step, {})
    assert [part.get("text") or part["options"] for part in opened["parts"]] == [
        "Hello Asha",
        [{"id": "pune", "title": "Pune"}],
    ]
    pressed = {"screen": "CITY", "data": opened["data"], "values": {"city": "pune"}}
    assert simulator.control("POST", step, pressed) == {"closed": True}
    (said,) = simulator.control("GET", f"messages?phone_number_id={number}&direction=inbound")["data"]
    response = orjson.loads(said["body"]["interactive"]["nfm_reply"]["response_json"])
    assert response == {"flow_token": "visit-1", "city": "pune"}
    receiver.answer = lambda request: web.json_response({"screen": "NOWHERE", "data": {}})
    assert "named no screen" in simulator.control("POST", step, pressed)["failed"]
    assert receiver.received[-1].json["data"]["error"] == "invalid-screen-transition"


@pytest.mark.parametrize(
    "foreign",
    [
        "http://169.254.169.254/latest/meta-data",
        "http://postgres:5432/",
        "{base}/v1/messages",
        "{base}/upstream/flows/../../v1/messages",
        "{base}/upstream/flows/" + "a" * 32 + "/../" + "b" * 32,
        "{base}.stranger.example/upstream/flows/" + "a" * 32,
        ["http://postgres:5432/"],
    ],
)
def test_a_flow_of_the_sandbox_calls_nothing_but_the_gateway(
    tenant: Tenant, account: SimulatedAccount, receiver: Receiver, settings: Settings, foreign: Any
) -> None:
    """The simulator is in our own network, and would call any address there."""
    number = connected_number(tenant, account, environment="test")
    api = Api(api_keys.create(name="t", environment="test", tenant=tenant).key)
    own = api.put(path_of(number), {"url": receiver.url}).json()["endpoint_uri"]
    uri = foreign.format(base=settings.BASE_URL) if isinstance(foreign, str) else foreign
    flow = {"name": "Visit", "categories": ["OTHER"]}
    made = api.post(f"/v25.0/{account.waba_id}/flows", {**flow, "endpoint_uri": own})
    assert made.status_code == 200, made.content
    for path, body in ((f"{account.waba_id}/flows", flow), (made.json()["id"], {})):
        for form in ("application/json", "application/x-www-form-urlencoded"):
            given = {**body, "endpoint_uri": uri}
            sent = given if form.endswith("json") else urlencode(given).encode()
            answer = api.request("POST", f"/v25.0/{path}", sent, content_type=form)
            assert answer.status_code == 400, answer.content
            assert "flow-endpoint" in answer.json()["error"]["error_data"]["details"]
    assert api.post(f"/v25.0/{made.json()['id']}", {"endpoint_uri": own}).status_code == 200


def test_the_sandbox_reads_no_endless_answer_of_a_flow(
    hosted: Hosted, account: SimulatedAccount, receiver: Receiver
) -> None:
    receiver.answer = lambda request: web.Response(body=b"x" * (2 << 20))
    changed = requests.post(
        f"{hosted.simulator.url}/v25.0/{hosted.flow_id}",
        json={"endpoint_uri": receiver.url},
        headers={"Authorization": f"Bearer {account.access_token}"},
        timeout=10,
    )
    assert changed.json() == {"success": True}
    assert hosted.ask(ASKED) == {"status": 0, "answer": ""}
