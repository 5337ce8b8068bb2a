"""`POST /v1/messages` over HTTP: its checks, responses, events and idempotency, and many simultaneous calls."""

import contextlib
import http.client
import json
import threading
from typing import Any

import orjson
import pytest
from django.db import connection
from pytest_django import Settings

from gateway.api import limits
from gateway.api.limits import Bulkhead
from gateway.database.statements import run
from messaging.models import IdempotencyRecord
from messaging.sending import flow, journal
from messaging.tests.conftest import account, connected_number
from messaging.tests.sending.test_send import answering, sent_bodies, text
from phone_numbers.models import PhoneNumber
from phone_numbers.senders_and_owners import SenderQuery, finding_senders, sender
from tenants.credentials import api_keys
from tenants.models import Tenant
from tests.fixtures import assert_error, assert_service_headers
from tests.simulated import RunningSimulator, SimulatedAccount
from web.tests.client import Answer, FrontClient
from webhooks.models import Event

__all__ = ["account"]

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def number(tenant: Tenant, simulator: RunningSimulator) -> PhoneNumber:
    return connected_number(tenant, simulator.account())


def send(front: FrontClient, key: api_keys.NewKey, body: Any, **headers: str) -> Any:
    raw = body if isinstance(body, bytes) else orjson.dumps(body)
    return front.ask("POST", "/v1/messages", raw, **{"Authorization": f"Bearer {key.key}", **headers})


def test_a_message_is_sent_and_is_an_event(
    front: FrontClient, key: api_keys.NewKey, tenant: Tenant, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    for _ in range(2):
        answer = send(front, key, text(number))
        assert answer.status_code == 200, answer.content
        assert_service_headers(answer)
    assert "RateLimit-Limit" in {name.title().replace("Ratelimit", "RateLimit") for name in answer.headers}
    assert float(answer["Server-Timing"].rpartition("=")[2]) > 0, "Meta's part is shown"
    assert len(sent_bodies(simulator, number)) == 2
    assert Event.objects.filter(type="message.outbound", environment="live").count() == 2
    assert json.loads(answer.content)["messages"][0]["id"] in Event.objects.values_list("wamid", flat=True)
    tenant.refresh_from_db()
    assert tenant.test_message_sent


def test_the_429_of_a_rate_has_its_headers_as_every_answer(
    front: FrontClient, key: api_keys.NewKey, settings: Settings
) -> None:
    settings.API_RATE_PER_SECOND, settings.API_RATE_BURST = 0.4, 3
    refused = [send(front, key, b"{}") for _ in range(4)]
    assert [answer.status_code for answer in refused] == [400] * 3 + [429]
    assert [answer["RateLimit-Remaining"] for answer in refused] == ["2", "1", "0", "0"]
    refused.append(front.ask("GET", "/v1/tenant", Authorization=f"Bearer {key.key}"))
    for answer in refused[3:]:
        assert_error(answer, 429, "rate_limited")
        assert (answer["RateLimit-Limit"], answer["RateLimit-Remaining"]) == ("3", "0")
        assert 1 <= int(answer["RateLimit-Reset"]) <= 8
        assert 1 <= int(answer["Retry-After"]) <= 3


@pytest.mark.parametrize("framing", ["a length", "a length with a blank", "chunks"])
def test_too_many_bytes_are_429(
    front: FrontClient,
    key: api_keys.NewKey,
    number: PhoneNumber,
    monkeypatch: pytest.MonkeyPatch,
    framing: str,
) -> None:
    monkeypatch.setattr(limits, "BYTES_PER_SECOND", 1024)
    monkeypatch.setattr(limits, "BYTES_AT_ONCE", 64 * 1024)
    large = b'{"to":"1","type":"text","text":{"body":"' + b"x" * 100_000 + b'"}}'
    headers = {"Authorization": f"Bearer {key.key}"}
    of_large = {"Content_Length": f"{len(large)} "} if framing == "a length with a blank" else {}

    def send_large() -> Any:
        return front.ask(
            "POST", "/v1/messages", [large] if framing == "chunks" else large, **headers, **of_large
        )

    too_large: Any = front.ask("POST", "/v1/messages", b"", Content_Length="10000000", **headers)
    assert_error(too_large, 413, "payload_too_large")
    assert send_large().status_code == 400
    assert_error(send_large(), 429, "rate_limited")
    assert send(front, key, b"{}").status_code == 400


def test_a_key_sends_with_the_scope_and_from_its_numbers(
    front: FrontClient, tenant: Tenant, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    def answer_to(**chosen: Any) -> Any:
        return send(
            front, api_keys.create(name="k", environment="live", tenant=tenant, **chosen), text(number)
        )

    details = assert_error(answer_to(scopes=["events"]), 403, "forbidden")["details"]
    assert details == {"scope": "messages", "scopes": ["events"]}
    refused = assert_error(answer_to(phone_number_ids=["100"]), 400, "invalid_request")
    assert list(refused["details"]["fields"]) == ["from"]
    assert sent_bodies(simulator, number) == []
    assert answer_to(scopes=["messages"], phone_number_ids=[number.phone_number_id]).status_code == 200


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (b"", {}, 400, "invalid_request"),
        (b"[]", {}, 400, "invalid_request"),
        (b"{", {}, 400, "invalid_request"),
        (b'{"from":"000","to":"1","type":"text"}', {}, 400, "invalid_request"),
        (b'{"from":"x\\u0000","to":"1","type":"text"}', {}, 400, "invalid_request"),
        (b'{"to":"1","type":"text"}', {"Idempotency_Key": "k"}, 400, "invalid_request"),
        (b"{}", {"Authorization": "Bearer wb_live_unknown"}, 401, "unauthorized"),
        (b"{" + b" " * 1024 * 1024 + b"}", {}, 413, "payload_too_large"),
    ],
)
def test_what_is_refused(
    front: FrontClient,
    key: api_keys.NewKey,
    number: PhoneNumber,
    body: bytes,
    headers: dict[str, str],
    status: int,
    code: str,
) -> None:
    assert_error(send(front, key, body, **headers), status, code)
    assert not IdempotencyRecord.objects.exists()


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/read"])
def test_a_body_is_json_and_says_so(front: FrontClient, key: api_keys.NewKey, path: str) -> None:
    """An empty body needs no type. What is read as JSON lacks its members here."""
    for content_type, body, status in (
        ("application/json", b"{}", 400),
        ("Application/JSON ; charset=utf-8", b"{}", 400),
        ("", b"", 400),
        ("", b"{}", 415),
        ("text/plain", b"", 415),
        ("application/json-patch+json", b"{}", 415),
        ("application/x-www-form-urlencoded", b"a=1", 415),
    ):
        headers = {"Authorization": f"Bearer {key.key}", "Content_Type": content_type}
        answer = front.ask("POST", path, body, **headers)
        code = {400: "invalid_request", 415: "unsupported_media_type"}[status]
        assert_error(answer, status, code)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/read"])
def test_query_parameters_are_refused_by_their_names(
    front: FrontClient, key: api_keys.NewKey, path: str
) -> None:
    answer = front.ask("POST", f"{path}?to=1&preview=2", b"{}", Authorization=f"Bearer {key.key}")
    error = assert_error(answer, 400, "invalid_request")  # type: ignore[arg-type]
    assert set(error["details"]["fields"]) == {"to", "preview"}


def test_another_tenants_number_is_no_number(
    front: FrontClient, other_tenant: Tenant, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    other = api_keys.create(name="server", environment="live", tenant=other_tenant)
    for from_ in (number.phone_number_id, number.digits, f"+{number.digits}"):
        assert_error(send(front, other, text(number, **{"from": from_})), 400, "invalid_request")
    assert sent_bodies(simulator, number) == []


def test_two_different_idempotency_keys_are_refused_and_a_repeated_one_is_one(
    front: FrontClient, key: api_keys.NewKey, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    def answer(*keys: str) -> tuple[int, Any]:
        body = orjson.dumps(text(number))
        with contextlib.closing(http.client.HTTPConnection(*front.address, timeout=30)) as connection:
            connection.putrequest("POST", "/v1/messages")
            for name, value in [
                *(("Idempotency-Key", each) for each in keys),
                ("Content-Length", str(len(body))),
                ("Authorization", f"Bearer {key.key}"),
                ("Content-Type", "application/json"),
            ]:
                connection.putheader(name, value)
            connection.endheaders(body)
            got = connection.getresponse()
            return got.status, json.loads(got.read())

    status, refused = answer("one", "two")
    assert (status, refused["error"]["code"]) == (400, "invalid_request")
    assert list(refused["error"]["details"]["fields"]) == ["Idempotency-Key"]
    assert sent_bodies(simulator, number) == []
    assert answer("one", "one")[0] == 200
    again = send(front, key, text(number), Idempotency_Key="one")
    assert again["Idempotent-Replayed"] == "true"
    assert len(sent_bodies(simulator, number)) == 1


def test_many_at_once_are_each_sent_once_and_each_an_event(
    key: api_keys.NewKey, number: PhoneNumber, simulator: RunningSimulator, front: FrontClient
) -> None:
    answers: list[Answer] = []
    threads = [
        threading.Thread(target=lambda: answers.append(send(front, key, text(number)))) for _ in range(20)
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
    front: FrontClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "sends", Bulkhead(per_number=2, per_tenant=10, crowded=30, in_all=30))
    well = connected_number(tenant, simulator.account())
    simulator.faults({"match": {"phone_number_id": number.phone_number_id}, "action": "slow", "ms": 4000})
    hanging = [threading.Thread(target=send, args=(front, key, text(number))) for _ in range(2)]
    for thread in hanging:
        thread.start()
    deadline = threading.Event()
    for _ in range(100):
        answer = send(front, key, text(number)) if len(sent_bodies(simulator, number)) >= 2 else None
        if answer is not None:
            break
        deadline.wait(0.01)
    assert answer is not None
    assert_error(answer, 429, "too_many_in_flight")
    assert send(front, key, text(well)).status_code == 200
    assert all(thread.is_alive() for thread in hanging), "they are still waiting"
    for thread in hanging:
        thread.join(20)
    assert send(front, key, text(well)).status_code == 200


def test_an_upstream_that_goes_away_is_502(
    front: FrontClient, key: api_keys.NewKey, number: PhoneNumber, settings: Any
) -> None:
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nno!") as settings.META_GRAPH_URL:
        error = assert_error(send(front, key, text(number), Idempotency_Key="k"), 502, "meta_unreachable")
    assert "may have been sent" in error["message"]
    assert IdempotencyRecord.objects.get().status == 502


def test_what_the_database_cannot_find_is_not_sent(
    front: FrontClient,
    key: api_keys.NewKey,
    number: PhoneNumber,
    simulator: RunningSimulator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert send(front, key, text(number)).status_code == 200
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE numbers_phonenumber RENAME TO away")
    try:
        assert send(front, key, text(number)).status_code in {500, 503}
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE away RENAME TO numbers_phonenumber")
    assert len(sent_bodies(simulator, number)) == 1
    assert send(front, key, text(number)).status_code == 200


def test_a_send_that_crashes_after_the_call_is_left_to_the_journal(
    key: api_keys.NewKey,
    number: PhoneNumber,
    front: FrontClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left: list[Any] = []
    monkeypatch.setattr(flow, "outbound_event", lambda **_: 1 / 0)
    monkeypatch.setattr(journal, "leave", left.append)
    assert send(front, key, text(number)).status_code == 500
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
