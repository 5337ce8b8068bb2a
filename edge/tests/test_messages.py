"""`POST /v1/messages` by both doors: the same checks, answers and events, and one idempotency for both."""

import contextlib
import http.client
import json
import threading
from typing import Any

import orjson
import pytest
from django.db import connection

from edge import messages
from edge.tests.doors import Answer, DjangoDoor, Door, EdgeDoor
from gateway.api.limits.in_flight import Bulkhead
from gateway.database.statements import run
from messaging.models import IdempotencyRecord
from messaging.sending import flow, journal
from messaging.tests.conftest import account, connected_number
from messaging.tests.sending.test_send import answering, sent_bodies, text
from phone_numbers.lookup import SenderQuery, finding_senders, sender
from phone_numbers.models import PhoneNumber
from tenants.credentials import api_keys
from tenants.models import Tenant
from tests.fixtures import assert_error, assert_service_headers
from tests.simulated import RunningSimulator, SimulatedAccount, _simulator_process, simulator
from webhooks.models import Event

__all__ = ["_simulator_process", "account", "simulator"]

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=["django", "edge"])
def door(request: pytest.FixtureRequest) -> Door:
    return DjangoDoor() if request.param == "django" else EdgeDoor(request.getfixturevalue("edge_address"))


@pytest.fixture
def number(tenant: Tenant, simulator: RunningSimulator) -> PhoneNumber:
    return connected_number(tenant, simulator.account())


def send(door: Door, key: api_keys.NewKey, body: Any, **headers: str) -> Any:
    raw = body if isinstance(body, bytes) else orjson.dumps(body)
    return door.ask("POST", "/v1/messages", raw, **{"Authorization": f"Bearer {key.key}", **headers})


def test_a_message_is_sent_and_is_an_event(
    door: Door, key: api_keys.NewKey, tenant: Tenant, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    for _ in range(2):
        answer = send(door, key, text(number))
        assert answer.status_code == 200, answer.content
        assert_service_headers(answer)
    assert "RateLimit-Limit" in {name.title().replace("Ratelimit", "RateLimit") for name in answer.headers}
    assert float(answer["Server-Timing"].rpartition("=")[2]) > 0, "the upstream's part is told"
    assert len(sent_bodies(simulator, number)) == 2
    assert Event.objects.filter(type="message.outbound", environment="live").count() == 2
    assert json.loads(answer.content)["messages"][0]["id"] in Event.objects.values_list("wamid", flat=True)
    tenant.refresh_from_db()
    assert tenant.test_message_sent


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (b"", {}, 400, "invalid_request"),
        (b"[]", {}, 400, "invalid_request"),
        (b"{", {}, 400, "invalid_request"),
        (b'{"from":"000","to":"1","type":"text"}', {}, 400, "invalid_request"),
        (b'{"from":"x\\u0000","to":"1","type":"text"}', {}, 400, "invalid_request"),
        (b'{"to":"1","type":"text"}', {"Idempotency_Key": "a b"}, 400, "invalid_request"),
        (b'{"to":"1","type":"text"}', {"Idempotency_Key": "k"}, 400, "invalid_request"),
        (b'{"to":"1","deep":' + b"[" * 300 + b"]" * 300 + b"}", {}, 400, "invalid_request"),
        (b"{}", {"Authorization": "Bearer wb_live_unknown"}, 401, "unauthorized"),
        (b"{" + b" " * 1024 * 1024 + b"}", {}, 413, "payload_too_large"),
    ],
)
def test_what_is_refused(
    door: Door,
    key: api_keys.NewKey,
    number: PhoneNumber,
    body: bytes,
    headers: dict[str, str],
    status: int,
    code: str,
) -> None:
    assert_error(send(door, key, body, **headers), status, code)
    assert not IdempotencyRecord.objects.exists()


def test_another_tenants_number_is_no_number(
    door: Door, other_tenant: Tenant, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    other = api_keys.create(name="server", environment="live", tenant=other_tenant)
    for from_ in (number.phone_number_id, number.digits, f"+{number.digits}"):
        assert_error(send(door, other, text(number, **{"from": from_})), 400, "invalid_request")
    assert sent_bodies(simulator, number) == []


def test_a_test_key_sends_from_no_live_number(door: Door, tenant: Tenant, number: PhoneNumber) -> None:
    test_key = api_keys.create(name="t", environment="test", tenant=tenant)
    assert_error(send(door, test_key, text(number)), 400, "invalid_request")


def test_a_key_used_at_one_door_holds_at_the_other(
    key: api_keys.NewKey, number: PhoneNumber, simulator: RunningSimulator, edge_address: tuple[str, int]
) -> None:
    doors: list[Door] = [EdgeDoor(edge_address), DjangoDoor()]
    for first, second in (doors, reversed(doors)):
        own_key = type(first).__name__
        answers = [send(each, key, text(number), Idempotency_Key=own_key) for each in (first, second)]
        assert answers[0].content == answers[1].content
        assert answers[1]["Idempotent-Replayed"] == "true"
        different = text(number, text={"body": "Other"})
        assert_error(send(second, key, different, Idempotency_Key=own_key), 422, "idempotency_conflict")
    assert len(sent_bodies(simulator, number)) == 2


def test_a_repeated_header_has_the_same_value_at_both_doors(
    key: api_keys.NewKey, number: PhoneNumber, simulator: RunningSimulator, edge_address: tuple[str, int]
) -> None:
    """WSGI joins the lines. A door that took one of them would send a message again that the other has sent."""
    with contextlib.closing(http.client.HTTPConnection(*edge_address, timeout=30)) as connection:
        connection.putrequest("POST", "/v1/messages")
        body = orjson.dumps(text(number))
        lines = [("Idempotency-Key", "one"), ("Idempotency-Key", "two"), ("Content-Length", str(len(body)))]
        for name, value in [
            *lines,
            ("Authorization", f"Bearer {key.key}"),
            ("Content-Type", "application/json"),
        ]:
            connection.putheader(name, value)
        connection.endheaders(body)
        assert connection.getresponse().status == 200
    again = send(DjangoDoor(), key, body, Idempotency_Key="one,two")
    assert again["Idempotent-Replayed"] == "true"
    assert len(sent_bodies(simulator, number)) == 1


def test_of_many_at_once_with_one_key_one_sends(
    key: api_keys.NewKey, number: PhoneNumber, simulator: RunningSimulator, edge_address: tuple[str, int]
) -> None:
    simulator.faults({"match": {"phone_number_id": number.phone_number_id}, "action": "slow", "ms": 3000})
    together = threading.Barrier(6)
    statuses: list[int] = []

    def one(door: Door) -> None:
        together.wait(10)
        statuses.append(send(door, key, text(number), Idempotency_Key="race").status_code)
        connection.close()

    doors: list[Door] = [EdgeDoor(edge_address)] * 4 + [DjangoDoor()] * 2
    threads = [threading.Thread(target=one, args=(each,)) for each in doors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(statuses) == [200, 409, 409, 409, 409, 409]
    assert len(sent_bodies(simulator, number)) == 1


def test_many_at_once_are_each_sent_once_and_each_an_event(
    key: api_keys.NewKey, number: PhoneNumber, simulator: RunningSimulator, edge_address: tuple[str, int]
) -> None:
    answers: list[Answer] = []
    threads = [
        threading.Thread(target=lambda: answers.append(send(EdgeDoor(edge_address), key, text(number))))
        for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert [answer.status_code for answer in answers] == [200] * 20
    wamids = {json.loads(answer.content)["messages"][0]["id"] for answer in answers}
    assert set(Event.objects.values_list("wamid", flat=True)) == wamids
    assert len(wamids) == len(sent_bodies(simulator, number)) == 20


def test_a_hanging_number_is_bounded_and_holds_up_no_other(
    key: api_keys.NewKey,
    tenant: Tenant,
    number: PhoneNumber,
    simulator: RunningSimulator,
    edge_address: tuple[str, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(messages, "_bulkhead", Bulkhead(per_number=2, per_tenant=10, crowded=30, in_all=30))
    well = connected_number(tenant, simulator.account())
    simulator.faults({"match": {"phone_number_id": number.phone_number_id}, "action": "slow", "ms": 4000})
    door = EdgeDoor(edge_address)
    hanging = [threading.Thread(target=send, args=(door, key, text(number))) for _ in range(2)]
    for thread in hanging:
        thread.start()
    deadline = threading.Event()
    for _ in range(100):
        answer = send(door, key, text(number)) if len(sent_bodies(simulator, number)) >= 2 else None
        if answer is not None:
            break
        deadline.wait(0.01)
    assert answer is not None
    assert_error(answer, 429, "too_many_in_flight")
    assert send(door, key, text(well)).status_code == 200
    assert all(thread.is_alive() for thread in hanging), "they are still waiting"
    for thread in hanging:
        thread.join(20)
    assert send(door, key, text(well)).status_code == 200


def test_an_upstream_that_goes_away_is_502(
    door: Door, key: api_keys.NewKey, number: PhoneNumber, settings: Any
) -> None:
    settings.META_GRAPH_URL = "http://127.0.0.1:9"
    error = assert_error(send(door, key, text(number), Idempotency_Key="k"), 502, "meta_unreachable")
    assert "Nothing was sent" in error["message"]
    assert not IdempotencyRecord.objects.exists()
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nno!") as settings.META_GRAPH_URL:
        error = assert_error(send(door, key, text(number), Idempotency_Key="k"), 502, "meta_unreachable")
    assert "may have been sent" in error["message"]
    assert IdempotencyRecord.objects.get().status == 502


def test_what_the_database_cannot_find_is_not_sent(
    door: Door,
    key: api_keys.NewKey,
    number: PhoneNumber,
    simulator: RunningSimulator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert send(door, key, text(number)).status_code == 200
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE numbers_phonenumber RENAME TO away")
    try:
        assert send(door, key, text(number)).status_code in {500, 503}
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE away RENAME TO numbers_phonenumber")
    assert len(sent_bodies(simulator, number)) == 1
    assert send(door, key, text(number)).status_code == 200


def test_a_send_that_crashes_after_the_call_is_left_to_the_journal(
    key: api_keys.NewKey,
    number: PhoneNumber,
    edge_address: tuple[str, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left: list[Any] = []
    monkeypatch.setattr(flow, "outbound_event", lambda **_: 1 / 0)
    monkeypatch.setattr(journal, "leave", left.append)
    assert send(EdgeDoor(edge_address), key, text(number)).status_code == 500
    (slot,) = left
    assert slot.entry() is not None
    slot.close(remove=True)


def test_senders_are_found_together_as_they_are_alone(
    tenant: Tenant, other_tenant: Tenant, account: SimulatedAccount, simulator: RunningSimulator
) -> None:
    first = connected_number(tenant, account)
    second = connected_number(other_tenant, simulator.account(), environment="test")
    old = connected_number(tenant, simulator.account(), digits=first.digits, connection_state="disconnected")
    queries = [
        SenderQuery(owner.id, environment, from_)
        for owner in (tenant, other_tenant)
        for environment in ("live", "test")
        for each in (first, second, old)
        for from_ in (each.phone_number_id, each.digits, f"+{each.digits}", "0", "x", "")
    ]
    alone = [
        sender(tenant_id=each.tenant_id, environment=each.environment, from_=each.from_) for each in queries
    ]
    assert run(finding_senders(queries)) == alone
    assert [run(finding_senders([each]))[0] for each in queries] == alone
    assert {each.phone_number_id for each in alone if each} == {
        first.phone_number_id,
        second.phone_number_id,
        old.phone_number_id,
    }
