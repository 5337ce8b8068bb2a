"""`POST /v1/messages`: send rules 1 to 7. Meta gets the caller's bytes, and the caller gets Meta's bytes."""

import asyncio
import contextlib
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import orjson
import pytest
import redis

from gateway.api.errors import InvalidRequest
from gateway.clock import isoformat, now
from gateway.database.statements import run
from gateway.valkey import write_behind
from messaging import idempotency
from messaging.batches import body as batch_body
from messaging.models import IdempotencyRecord
from messaging.sending import outbound
from messaging.tests.conftest import connected_number
from phone_numbers.models import PhoneNumber
from phone_numbers.senders_and_owners import sender as find_sender
from phone_numbers.tests.conftest import verified_endpoint
from tenants.credentials import api_keys
from tenants.models import Tenant
from tests.fixtures import Api, assert_error, assert_service_headers, in_threads
from tests.raw_server import raw_server
from tests.simulated import RunningSimulator, SimulatedAccount
from webhooks.events.publish import Publication, publishing
from webhooks.models import Event, EventPayload

pytestmark = pytest.mark.django_db(transaction=True)

CUSTOMER = "+919812345678"


def text(number: PhoneNumber, **more: Any) -> dict[str, Any]:
    return {
        "from": number.phone_number_id,
        "to": CUSTOMER,
        "type": "text",
        "text": {"body": "Hello"},
        **more,
    }


def sent_bodies(simulator: RunningSimulator, number: PhoneNumber) -> list[str]:
    """The messages that Meta received from the number, oldest first."""
    rows = simulator.control("GET", f"requests?node={number.phone_number_id}&limit=1000")["data"]
    return [row["body"] for row in reversed(rows) if row["path"].endswith("/messages")]


def test_the_answer_is_the_upstreams_and_the_event_holds_both(
    api: Api, tenant: Tenant, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    answer = api.post("/v1/messages", text(number))
    assert answer.status_code == 200
    body = answer.json()
    assert list(body) == ["messaging_product", "contacts", "messages"]
    assert body["contacts"][0] == {"input": CUSTOMER, "wa_id": CUSTOMER[1:]}
    assert_service_headers(answer)
    assert "X-Service-Error-Source" not in answer

    event = Event.objects.get(type="message.outbound")
    assert event.wamid == body["messages"][0]["id"]
    assert (event.tenant_id, event.wa_id, event.raw_id) == (tenant.id, CUSTOMER[1:], None)
    assert event.dedupe_key == f"out:{event.wamid}"
    data = orjson.loads(bytes(EventPayload.objects.get(id=event.id).body))
    assert list(data) == ["request", "response", "http_status", "batch_id", "idx"]
    assert data["response"] == body
    assert data["http_status"] == 200
    tenant.refresh_from_db()
    assert tenant.test_message_sent


def test_the_upstream_receives_the_callers_bytes_less_from(
    api: Api, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    raw = (
        '{ "type":"location", "from" : "PNID","to":"919812345678",'
        '"location":{"latitude":28.610,"longitude":7.72e1,"name":"caf\\u00e9 ☕"},'
        '"biz_opaque_callback_data":"12345678901234567890123"}'
    ).replace("PNID", number.phone_number_id)
    assert api.post("/v1/messages", raw.encode()).status_code == 200
    assert sent_bodies(simulator, number) == [
        '{"messaging_product":"whatsapp","type":"location", "to":"919812345678",'
        '"location":{"latitude":28.610,"longitude":7.72e1,"name":"caf\\u00e9 ☕"},'
        '"biz_opaque_callback_data":"12345678901234567890123"}'
    ]


def test_a_send_counts_against_the_pace_that_the_numbers_batches_share(
    api: Api, number: PhoneNumber, empty_valkey: redis.Redis
) -> None:
    assert api.post("/v1/messages", text(number)).status_code == 200
    write_behind.flush()
    assert empty_valkey.exists(f"pace:{number.phone_number_id}")


def test_from_is_an_id_or_a_number_with_or_without_plus(api: Api, number: PhoneNumber) -> None:
    for from_ in (number.phone_number_id, number.digits, f"+{number.digits}"):
        assert api.post("/v1/messages", text(number, **{"from": from_})).status_code == 200, from_


def test_what_the_gateway_needs_is_named(api: Api, number: PhoneNumber, simulator: RunningSimulator) -> None:
    def fields(path: str, body: Any) -> dict[str, list[str]]:
        named: dict[str, list[str]] = assert_error(api.post(path, body), 400, "invalid_request")["details"][
            "fields"
        ]
        return named

    assert list(fields("/v1/messages", {})) == ["from", "to", "type"]
    assert list(fields("/v1/messages/read", {})) == ["from", "message_id"]
    wrong: dict[str, list[Any]] = {
        "from": [None, "", 5, "000"],
        "to": [0, -1, True, 1.5, [], {}, ""],
        "type": [""],
    }
    for field, values in wrong.items():
        for value in values:
            assert list(fields("/v1/messages", text(number, **{field: value}))) == [field], value
    for to in wrong["to"]:
        item = text(number, to=to)
        assert list(fields("/v1/messages/batch", {"from": item.pop("from"), "messages": [item]})) == [
            "messages[0].to"
        ], to
    assert "in quotes" in fields("/v1/messages", text(number, **{"from": 919812345678}))["from"][0]
    assert sent_bodies(simulator, number) == []


@pytest.mark.parametrize("user_id", ["IN.77889900112233445566", "IN.ENT.99887766554433221100"])
def test_a_business_scoped_user_id_in_to_goes_up_as_recipient(
    api: Api, number: PhoneNumber, simulator: RunningSimulator, user_id: str
) -> None:
    """Meta answers a user id in `to` with 200, but drops the message silently."""
    answer = api.post("/v1/messages", text(number, to=user_id))
    assert answer.status_code == 200, answer.content
    [sent] = [orjson.loads(body) for body in sent_bodies(simulator, number)]
    assert (sent["recipient"], "to" in sent) == (user_id, False)
    assert Event.objects.get().user_id == user_id
    both = api.post("/v1/messages", text(number, to=user_id, recipient=user_id))
    assert "as `recipient`" in assert_error(both, 400, "invalid_request")["message"]


def test_a_batch_moves_user_ids_and_takes_numbers(number: PhoneNumber) -> None:
    items = [
        b'{"to": "IN.1", "type":"text","text":{},"n":1.50}',
        b'{"to":919812345678,"type":"text","text":{}}',
    ]
    raw = b'{"messages":[%b]}' % b",".join(items)
    assert list(batch_body.outgoing(raw, batch_body.read(raw))) == [
        b'{"messaging_product":"whatsapp","recipient":"IN.1","type":"text","text":{},"n":1.50}',
        b'{"messaging_product":"whatsapp","to":919812345678,"type":"text","text":{}}',
    ]
    with pytest.raises(InvalidRequest):
        batch_body.read(b'{"messages":[{"to":"IN.1","recipient":"IN.1","type":"text"}]}')


def test_a_customer_known_only_by_user_id_is_addressed_by_recipient(api: Api, number: PhoneNumber) -> None:
    body = text(number, recipient="IN.77889900112233445566")
    del body["to"]
    answer = api.post("/v1/messages", body)
    assert answer.status_code == 200
    assert Event.objects.get().user_id == "IN.77889900112233445566"


def test_a_number_that_is_not_connected_is_409_with_its_detail(api: Api, number: PhoneNumber) -> None:
    PhoneNumber.objects.update(connection_state="pending", connection_detail="no_verified_endpoint")
    error = assert_error(api.post("/v1/messages", text(number)), 409, "number_not_connected")
    assert error["details"]["connection_detail"] == "no_verified_endpoint"


def test_a_number_whose_token_failed_sends_no_more(
    api: Api, number: PhoneNumber, account: SimulatedAccount, simulator: RunningSimulator
) -> None:
    assert api.post("/v1/messages", text(number)).status_code == 200
    simulator.control("PATCH", "tokens", {"access_token": account.access_token, "invalidated": True})
    assert api.post("/v1/messages", text(number)).status_code == 401
    assert_error(api.post("/v1/messages", text(number)), 409, "number_not_connected")


@pytest.mark.parametrize("code", [0, 190])
def test_one_odd_refusal_of_a_working_token_does_not_take_the_number_away(
    api: Api, tenant: Tenant, number: PhoneNumber, simulator: RunningSimulator, code: int
) -> None:
    verified_endpoint(tenant)
    simulator.faults({"action": "error", "code": code, "times": 1, "match": {"path": "/messages$"}})
    assert api.post("/v1/messages", text(number)).status_code == 401
    assert api.post("/v1/messages", text(number)).status_code == 200


@pytest.mark.parametrize("code", [[190], False])
def test_a_refusal_whose_code_is_no_number_is_passed_on_and_kept_under_its_key(
    api: Api, number: PhoneNumber, settings: Any, code: Any
) -> None:
    refusal = orjson.dumps({"error": {"message": "odd", "code": code}})
    head = b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with answering(head % len(refusal) + refusal) as settings.META_GRAPH_URL:
        for replayed in (None, "true"):
            # Does not check the contract, because this server's answer does not follow it.
            sent = api.client.post(
                "/v1/messages",
                text(number),
                content_type="application/json",
                headers=api.headers | {"Idempotency-Key": "k"},
            )
            assert (sent.status_code, sent.get("Idempotent-Replayed")) == (400, replayed)
            assert sent.json()["error"] == {"message": "odd", "code": code}
    number.account.refresh_from_db()
    assert number.account.token_questioned_at is None


def test_another_tenants_number_and_another_environments_are_unusable(
    api: Api, other_api: Api, tenant: Tenant, number: PhoneNumber
) -> None:
    assert_error(other_api.post("/v1/messages", text(number)), 400, "invalid_request")
    test_key = api_keys.create(name="t", environment="test", tenant=tenant).key
    assert_error(Api(test_key).post("/v1/messages", text(number)), 400, "invalid_request")


def test_the_event_of_a_send_belongs_to_the_numbers_environment(
    tenant: Tenant, account: SimulatedAccount
) -> None:
    number = connected_number(tenant, account, environment="test")
    test_key = api_keys.create(name="t", environment="test", tenant=tenant).key
    assert Api(test_key).post("/v1/messages", text(number)).status_code == 200
    assert Event.objects.get(type="message.outbound").environment == "test"


def test_an_upstream_error_keeps_its_bytes_and_status_and_makes_no_event(
    api: Api, number: PhoneNumber
) -> None:
    answer = api.post("/v1/messages", text(number, to="+919812340030"))
    assert answer.status_code == 400
    assert answer["X-Service-Error-Source"] == "meta"
    assert answer.content.startswith(b'{"source":"meta",')
    body = answer.json()
    assert list(body) == ["source", "hint", "doc_url", "request_id", "error"]
    assert body["error"]["code"] == 131030
    assert "allowed list" in body["error"]["message"]
    assert body["doc_url"].endswith("/errors/131030")
    assert body["request_id"] == answer["X-Service-Request-Id"]
    assert Event.objects.count() == 0


def test_a_stored_refusal_keeps_its_words_and_has_none_on_the_cloud_apis_path(
    api: Api, number: PhoneNumber
) -> None:
    refused = text(number, to="+919812340030")
    first, again = (api.post("/v1/messages", refused, Idempotency_Key="k") for _ in range(2))
    assert again["Idempotent-Replayed"] == "true"
    assert again.content == first.content
    graph = api.post(f"/v25.0/{number.phone_number_id}/messages", refused, Idempotency_Key="k")
    assert "Idempotent-Replayed" in graph
    assert graph.json() == {"error": first.json()["error"]}


def test_throttling_is_429_whatever_status_it_came_with(api: Api, number: PhoneNumber) -> None:
    answer = api.post("/v1/messages", text(number, to="+919812340429"))
    assert answer.status_code == 429
    assert answer.json()["source"] == "meta"
    assert int(answer["Retry-After"]) >= 1


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"action": "html", "status": 502}, None),
        ({"action": "reset"}, "connection_error"),
        ({"action": "hang"}, "timeout"),
    ],
)
def test_no_usable_answer_is_502_with_the_timeout(
    api: Api,
    number: PhoneNumber,
    simulator: RunningSimulator,
    settings: Any,
    fault: dict[str, Any],
    reason: str | None,
) -> None:
    settings.UPSTREAM_TIMEOUT_MS = 300
    simulator.faults({"match": {"phone_number_id": number.phone_number_id}, **fault})
    error = assert_error(api.post("/v1/messages", text(number)), 502, "meta_unreachable")
    assert error["details"]["timeout_ms"] == 300
    assert error["details"].get("reason") == reason
    assert Event.objects.count() == 0


def test_the_same_key_and_body_is_one_send(
    api: Api, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    first = api.post("/v1/messages", text(number), Idempotency_Key="order-17")
    reordered = dict(reversed(text(number).items()))
    second = api.post("/v1/messages", reordered, Idempotency_Key="order-17")
    assert (first.status_code, first.content) == (second.status_code, second.content)
    assert "Idempotent-Replayed" not in first
    assert second["Idempotent-Replayed"] == "true"
    assert len(sent_bodies(simulator, number)) == 1


def test_the_same_key_with_a_different_body_is_422(api: Api, number: PhoneNumber) -> None:
    api.post("/v1/messages", text(number), Idempotency_Key="order-17")
    other = text(number, text={"body": "Other"})
    refused = api.post("/v1/messages", other, Idempotency_Key="order-17")
    error = assert_error(refused, 422, "idempotency_conflict")
    first_used_at = isoformat(IdempotencyRecord.objects.get().started_at)
    assert error["details"] == {"first_used_at": first_used_at}
    assert first_used_at in error["message"]
    assert "new key" in error["hint"]


@pytest.mark.parametrize("change", ["paused", "refused", "suspended key facts"])
def test_a_repeated_key_returns_its_answer_whatever_became_of_the_number(
    api: Api, number: PhoneNumber, simulator: RunningSimulator, change: str
) -> None:
    """Send rule 1: the record of the key is looked up before any other check."""
    if change == "refused":
        simulator.faults({"action": "error", "code": 131030, "match": {"path": "/messages$"}})
    first = api.post("/v1/messages", text(number), Idempotency_Key="k")
    assert first.status_code == (400 if change == "refused" else 200)
    PhoneNumber.objects.update(connection_state="disconnected", connection_detail="no_verified_endpoint")
    if change == "suspended key facts":
        PhoneNumber.objects.all().delete()
    again = api.post("/v1/messages", text(number), Idempotency_Key="k")
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert again["Idempotent-Replayed"] == "true"
    other = api.post("/v1/messages", text(number, text={"body": "Other"}), Idempotency_Key="k")
    assert_error(other, 422, "idempotency_conflict")
    invalid = api.post("/v1/messages", {"from": number.phone_number_id}, Idempotency_Key="k")
    assert_error(invalid, 422, "idempotency_conflict")
    assert len(sent_bodies(simulator, number)) == 1


@pytest.mark.parametrize(("code", "status"), [(130429, 429), (190, 401), (131057, 500)])
def test_what_certainly_was_not_sent_may_be_repeated_with_its_key(
    api: Api, number: PhoneNumber, simulator: RunningSimulator, code: int, status: int
) -> None:
    """The cases are: throttled, an invalid token, a number under maintenance."""
    simulator.faults({"action": "error", "code": code, "match": {"path": "/messages$"}, "times": 1})
    assert api.post("/v1/messages", text(number), Idempotency_Key="k").status_code == status
    simulator.faults()
    # The rejected token disconnected the number, so connect it again.
    PhoneNumber.objects.update(connection_state="connected", connection_detail=None)
    again = api.post("/v1/messages", text(number), Idempotency_Key="k")
    assert again.status_code == 200
    assert "Idempotent-Replayed" not in again


def test_what_found_no_upstream_to_send_it_to_may_be_repeated_with_its_key(
    api: Api, number: PhoneNumber, settings: Any
) -> None:
    there, settings.META_GRAPH_URL = settings.META_GRAPH_URL, "http://127.0.0.1:9"
    refused = api.post("/v1/messages", text(number), Idempotency_Key="k")
    assert "Nothing was sent" in assert_error(refused, 502, "meta_unreachable")["message"]
    settings.META_GRAPH_URL = there
    assert api.post("/v1/messages", text(number), Idempotency_Key="k").status_code == 200


def test_an_app_secret_that_the_upstream_refuses_is_no_callers_error(
    api: Api, number: PhoneNumber, simulator: RunningSimulator, settings: Any
) -> None:
    known, settings.META_APP_SECRET = settings.META_APP_SECRET, "changed there, not here"
    refused = api.post("/v1/messages", text(number), Idempotency_Key="k")
    error = assert_error(refused, 502, "meta_unreachable")
    assert "Nothing was sent" in error["message"]
    assert error["details"]["reason"] == "app_secret_refused"
    settings.META_APP_SECRET = known
    assert api.post("/v1/messages", text(number), Idempotency_Key="k").status_code == 200


def test_bodies_that_differ_in_any_value_are_different() -> None:
    for first, second in (
        (b"123456789012345678901234567890", b"123456789012345678901234567891"),
        (b"0.1", b"0.10000000000000000001"),
        (b'{"a":1,"a":2}', b'{"a":2}'),
        (b'{"a":1,"a":2}', b'{"a":2,"a":1}'),
        (b'[["a",1]]', b'{"a":1}'),
    ):
        bodies = [b'{"to":"1","type":"text","biz":%b}' % each for each in (first, second)]
        assert idempotency.body_hash(bodies[0]) != idempotency.body_hash(bodies[1]), first


def test_values_reach_the_upstream_as_they_were_written() -> None:
    for body, sent in (
        (b'{"from":"1"}', b'{"messaging_product":"whatsapp"}'),
        (
            b'{"from":"1","n":123456789012345678901234567890,"e":1E400,"d":{"a":1,"a":2},"s":"\\u00e9\\ud83d\\ude00"}',
            b'{"messaging_product":"whatsapp","n":123456789012345678901234567890,"e":1E400,'
            b'"d":{"a":1,"a":2},"s":"\\u00e9\\ud83d\\ude00"}',
        ),
        (b'{"a" : [ 1 , 2 ] ,\n"from" : "1"}', b'{"messaging_product":"whatsapp","a" : [ 1 , 2 ] }'),
        (b' {\t"from":"1" , "a":[ 1 , 2 ]}', b'{"messaging_product":"whatsapp","a":[ 1 , 2 ]}'),
        (b'{"messaging_product":"x","from":"1","to":"1"}', b'{"messaging_product":"x","to":"1"}'),
        (b'{"a":"from","from":"1"}', b'{"messaging_product":"whatsapp","a":"from"}'),
        (b'{"a":{"from":"2"},"from":"1"}', b'{"messaging_product":"whatsapp","a":{"from":"2"}}'),
        (b'{"a":{"from":"2"},"fr\\u006Fm":"1"}', b'{"messaging_product":"whatsapp","a":{"from":"2"}}'),
        (b'{"from":"2","b":1,"from":"1"}', b'{"messaging_product":"whatsapp","b":1}'),
        (b'{"from":"\\u0031","b":"\\"from\\""}', b'{"messaging_product":"whatsapp","b":"\\"from\\""}'),
        (b'{"k\\"\xc3\xa9":1,"":2}', b'{"messaging_product":"whatsapp","k\\"\xc3\xa9":1,"":2}'),
    ):
        own = {"messaging_product": "x"} if b"_product" in body else {}
        assert outbound.outgoing(body, own) == sent
        item = body.rstrip()[:-1] + b',"to":"1","type":"text","text":{}}'
        raw = b'{"messages":[%b,%b]}' % (item, item)
        (first, second) = batch_body.outgoing(raw, batch_body.read(raw))
        assert first == second == outbound.outgoing(item, own)


def test_the_order_of_members_and_blanks_do_not_count() -> None:
    assert idempotency.body_hash(b'{"a":{"x":1,"y":[2]},"b":"c"}') == idempotency.body_hash(
        b'{ "b" : "c", "a":{"y":[ 2 ],"x":1}}'
    )


def test_what_is_nested_too_deep_or_has_too_many_values_is_refused_before_anything_is_sent(
    api: Api, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    body = orjson.dumps(text(number, message_id="wamid.1", name="n", language="en"))[:-1]
    keys: tuple[dict[str, str], ...] = ({}, {"Idempotency_Key": "k"})
    for headers in keys:
        for depth in (200, 100_000):
            raw = body + b',"deep":' + b"[" * depth + b"]" * depth + b"}"
            for path in ("/v1/messages", "/v1/messages/read", "/v1/templates"):
                assert_error(api.post(path, raw, **headers), 400, "invalid_request")
        for value in (b"{}", b"0", b'""'):
            raw = body + b',"x":[%b]}' % b",".join([value] * 20_000)
            error = assert_error(api.post("/v1/messages", raw, **headers), 400, "invalid_request")
            assert "20,000 values" in error["message"]
    for node in (number.phone_number_id, number.account.waba_id):
        assert simulator.control("GET", f"requests?node={node}")["data"] == []


def test_the_deepest_body_that_is_taken_goes_all_the_way(
    api: Api, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    body = orjson.dumps(text(number))
    raw = body[:-1] + b',"deep":' + b"[" * 199 + b"]" * 199 + b"}"
    assert api.post("/v1/messages", raw, Idempotency_Key="k").status_code == 200
    event_id = Event.objects.get().public_id
    assert api.get(f"/v1/events/{event_id}").status_code == 200


@pytest.mark.parametrize(
    ("contact", "message", "stored"),
    [
        ({"wa_id": "1", "user_id": "u" * 300}, {"id": "wamid.1"}, ("1", None, "wamid.1")),
        ({"wa_id": "1\u0000", "user_id": "u\u0000"}, {"id": "w\u0000"}, ("1\ufffd", "u\ufffd", "w\ufffd")),
        ({"wa_id": 5, "user_id": ["x"]}, {"id": {"y": 1}}, ("5", None, None)),
        ({}, {}, (None, None, None)),
        ("no object", None, (None, None, None)),
    ],
)
def test_an_odd_answer_still_makes_an_event(
    api: Api,
    number: PhoneNumber,
    settings: Any,
    contact: Any,
    message: Any,
    stored: tuple[str | None, ...],
) -> None:
    """The message was sent, so it has an event, whatever the answer contains. Equal message ids mean one event."""
    answer = orjson.dumps({"contacts": [contact], "messages": [message]})
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(answer)
    with answering(head + answer) as settings.META_GRAPH_URL:
        for _ in range(2):
            # Does not check the contract, because this server's answer does not follow it.
            sent = api.client.post(
                "/v1/messages", text(number), content_type="application/json", headers=api.headers
            )
            assert (sent.status_code, sent.content) == (200, answer)
    events = list(Event.objects.filter(type="message.outbound"))
    assert len(events) == (1 if message == {"id": "wamid.1"} or stored[2] else 2)
    assert (events[0].wa_id, events[0].user_id, events[0].wamid) == stored


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b'{"messages":[{"id":"wamid.1"}]}', "accepted"),
        (b'{"messages":[{"id":"wamid.1"}],"error":{"code":1}}', "accepted"),
        (b'{"error":{"code":131026}}', "failed"),
        (outbound.not_sent({"reason": "connection_error"}), "failed"),
        (outbound.outcome_unknown({"reason": "interrupted"}), "unknown"),
        (b'{"error":"no object"}', "unknown"),
        (b'{"messages":[]}', "unknown"),
        (b"[]", "unknown"),
    ],
)
def test_the_status_of_a_message_is_that_of_its_answer(
    api: Api, tenant: Tenant, number: PhoneNumber, answer: bytes, status: str
) -> None:
    sender = find_sender(tenant_id=tenant.id, environment="live", from_=number.phone_number_id)
    assert sender is not None
    event = outbound.outbound_event(number=sender, sent=b'{"to":"1"}', response=answer, http_status=None)
    run(publishing([Publication(tenant.id, [event])]))
    assert [row["status"] for row in api.get("/v1/messages").json()["data"]] == [status]


@contextlib.contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """A server that answers every request with these bytes and closes the connection."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
        writer.write(answer)
        await writer.drain()
        writer.close()

    with raw_server(handle) as url:
        yield url


def lasting_headers(answer: Any) -> set[tuple[str, str]]:
    """The headers of an answer, without those that differ for each call."""
    own = ("x-service-request-id", "x-service-processing-ms", "server-timing", "ratelimit-")
    return {header for header in answer.items() if not header[0].lower().startswith(own)}


def test_an_upstream_refusal_and_an_unknown_outcome_are_stored_too(
    api: Api, number: PhoneNumber, simulator: RunningSimulator, settings: Any
) -> None:
    settings.UPSTREAM_TIMEOUT_MS = 300
    refused = text(number, to="+919812340030")
    for key, body in (("refused", refused), ("hanging", text(number))):
        if key == "hanging":
            simulator.faults({"match": {"phone_number_id": number.phone_number_id}, "action": "hang"})
        first = api.post("/v1/messages", body, Idempotency_Key=key)
        simulator.faults()
        second = api.post("/v1/messages", body, Idempotency_Key=key)
        assert second["Idempotent-Replayed"] == "true"
        assert (first.status_code, first.content) == (second.status_code, second.content)
        assert lasting_headers(second) - lasting_headers(first) == {("Idempotent-Replayed", "true")}
        assert lasting_headers(first) - lasting_headers(second) == set()
    assert len(sent_bodies(simulator, number)) == 2


def test_what_was_refused_before_the_upstream_call_is_not_stored(api: Api, number: PhoneNumber) -> None:
    PhoneNumber.objects.update(connection_state="pending", connection_detail="not_registered")
    assert_error(api.post("/v1/messages", text(number), Idempotency_Key="k"), 409, "number_not_connected")
    PhoneNumber.objects.update(connection_state="connected", connection_detail=None)
    assert api.post("/v1/messages", text(number), Idempotency_Key="k").status_code == 200


def test_a_key_is_visible_ascii_of_bounded_length(api: Api, number: PhoneNumber) -> None:
    for header in ("", " ", "a b", "é", "x" * 256):
        assert_error(api.post("/v1/messages", text(number), Idempotency_Key=header), 400, "invalid_request")


def test_an_interrupted_send_is_answered_as_unknown_and_never_repeated(
    api: Api, tenant: Tenant, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    api.post("/v1/messages", text(number), Idempotency_Key="k")
    IdempotencyRecord.objects.update(status=None, body=None, headers={})
    running = api.post("/v1/messages", text(number), Idempotency_Key="k")
    assert_error(running, 409, "idempotency_conflict")
    assert running["Retry-After"] == "1"
    IdempotencyRecord.objects.update(started_at=now() - timedelta(seconds=31))
    error = assert_error(api.post("/v1/messages", text(number), Idempotency_Key="k"), 502, "meta_unreachable")
    assert error["details"]["reason"] == "interrupted"
    assert len(sent_bodies(simulator, number)) == 1


def test_a_first_send_that_may_still_run_is_waited_for_twice_the_upstreams_time(
    api: Api, number: PhoneNumber, simulator: RunningSimulator, settings: Any
) -> None:
    """If the caller got "interrupted" too early, it would send the message again with a new key."""
    settings.UPSTREAM_TIMEOUT_MS = 15_000
    api.post("/v1/messages", text(number), Idempotency_Key="k")
    for seconds, refusal in ((0, 409), (15, 409), (29, 409), (31, 502)):
        began = now() - timedelta(seconds=seconds)
        IdempotencyRecord.objects.update(status=None, body=None, headers={}, started_at=began)
        repeated = api.post("/v1/messages", text(number), Idempotency_Key="k")
        assert_error(repeated, refusal, "idempotency_conflict" if refusal == 409 else "meta_unreachable")
    assert len(sent_bodies(simulator, number)) == 1


def test_after_24_hours_a_key_is_new(api: Api, number: PhoneNumber, simulator: RunningSimulator) -> None:
    api.post("/v1/messages", text(number), Idempotency_Key="k")
    IdempotencyRecord.objects.update(started_at=now() - timedelta(hours=23, minutes=59))
    assert api.post("/v1/messages", text(number), Idempotency_Key="k")["Idempotent-Replayed"] == "true"
    assert len(sent_bodies(simulator, number)) == 1
    IdempotencyRecord.objects.update(started_at=now() - timedelta(hours=24, minutes=1))
    assert (
        api.post("/v1/messages", text(number, text={"body": "New"}), Idempotency_Key="k").status_code == 200
    )
    assert len(sent_bodies(simulator, number)) == 2


def test_of_two_at_once_one_sends_and_the_other_gets_409(
    tenant: Tenant, key: api_keys.NewKey, account: SimulatedAccount, simulator: RunningSimulator
) -> None:
    number = connected_number(tenant, account)
    simulator.faults({"match": {"phone_number_id": number.phone_number_id}, "action": "slow", "ms": 700})

    def send() -> int:
        return int(Api(key.key).post("/v1/messages", text(number), Idempotency_Key="race").status_code)

    assert sorted(in_threads(*[send] * 4)) == [200, 409, 409, 409]
    assert len(sent_bodies(simulator, number)) == 1


def test_read_marks_and_typing_pass_verbatim(
    api: Api, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    inbound = simulator.control(
        "POST",
        "inbound",
        {
            "phone_number_id": number.phone_number_id,
            "from": CUSTOMER[1:],
            "type": "text",
            "text": {"body": "Hi"},
        },
    )
    wamid = inbound.get("id") or inbound["message"]["id"]
    answer = api.post(
        "/v1/messages/read",
        {"from": number.phone_number_id, "message_id": wamid, "typing_indicator": {"type": "text"}},
    )
    assert answer.status_code == 200, answer.content
    assert answer.json() == {"success": True}
    (body,) = sent_bodies(simulator, number)
    assert orjson.loads(body) == {
        "messaging_product": "whatsapp",
        "status": "read",
        "message_id": wamid,
        "typing_indicator": {"type": "text"},
    }
    assert_error(api.post("/v1/messages/read", {"from": number.phone_number_id}), 400, "invalid_request")


def test_a_read_mark_is_one_whatever_status_it_names_and_its_refused_token_is_asked_about(
    api: Api, number: PhoneNumber, account: SimulatedAccount, simulator: RunningSimulator
) -> None:
    mark = {"from": number.phone_number_id, "message_id": "wamid.1"}
    api.post("/v1/messages/read", {**mark, "messaging_product": "sms", "status": "delivered"})
    (body,) = sent_bodies(simulator, number)
    expected = {"messaging_product": "whatsapp", "status": "read", "message_id": "wamid.1"}
    assert orjson.loads(body) == expected
    simulator.faults({"action": "error", "code": 131009, "match": {"path": "/messages$"}})
    refused = api.post("/v1/messages/read", mark).json()
    assert (refused["source"], refused["error"]["code"]) == ("meta", 131009)
    assert refused["doc_url"].endswith("131009")
    assert refused["hint"]
    assert refused["request_id"].startswith("req_")
    simulator.faults({"action": "reset", "when": "before", "match": {"path": "/messages$"}})
    assert_error(api.post("/v1/messages/read", mark), 502, "meta_unreachable")
    simulator.faults()
    simulator.control("PATCH", "tokens", {"access_token": account.access_token, "invalidated": True})
    assert api.post("/v1/messages/read", mark).status_code == 401
    assert_error(api.post("/v1/messages/read", mark), 409, "number_not_connected")
