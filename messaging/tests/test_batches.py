"""`/v1/messages/batch*` without a runner: batches are stored, rejected, listed and cancelled."""

import json
import tracemalloc
from collections.abc import Callable
from datetime import timedelta
from itertools import count, product
from typing import Any

import orjson
import pytest
from django.core.management import call_command

from gateway import ids
from gateway.api import limits
from gateway.api.json import MOST_NESTED, values_in
from gateway.api.limits import API_BODY_BYTES, Bulkhead, LargeBodyMemory
from gateway.clock import isoformat, now
from messaging import admin, csv_batches
from messaging.batches import views
from messaging.batches.outcomes import outcomes_of
from messaging.models import Batch, BatchFile, BatchItem
from messaging.tests.conftest import connected_number
from phone_numbers.models import PhoneNumber
from tenants.credentials import api_keys
from tenants.models import Tenant
from tests.fixtures import Api, assert_error, assert_service_headers, in_threads
from tests.simulated import SimulatedAccount
from webhooks.models import PRECEDENCE, Event, EventPayload, Message

pytestmark = pytest.mark.django_db

PATH = "/v1/messages/batch"


@pytest.fixture(autouse=True)
def _no_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("messaging.batches.lifecycle.wake", lambda: None)


def messages(count: int) -> list[dict[str, Any]]:
    return [
        {"to": f"+91980000{place:04d}", "type": "text", "text": {"body": f"Hello {place}"}}
        for place in range(count)
    ]


def test_a_batch_is_queued_with_the_numbers_pace(api: Api, number: PhoneNumber) -> None:
    answer = api.post(PATH, {"from": number.phone_number_id, "client_ref": "may", "messages": messages(3)})
    assert answer.status_code == 202
    assert_service_headers(answer)
    body = answer.json()
    assert ids.decode(ids.BATCH, body.pop("id"))
    assert body.pop("created_at")
    assert body == {
        "status": "queued",
        "total": 3,
        "accepted": 0,
        "failed": 0,
        "rate_per_sec": 80,
        "client_ref": "may",
        "waiting_for": None,
        "send_at": None,
        "customer_hours": None,
        "skip_opted_out": False,
        "started_at": None,
        "completed_at": None,
        "warnings": [],
    }


def test_the_rate_follows_the_throughput_level(api: Api, number: PhoneNumber) -> None:
    rates = (("STANDARD", False, 80), ("HIGH", False, 1000), (None, False, 80), ("NOT_APPLICABLE", False, 80))
    for level, coexistence, rate in (*rates, ("STANDARD", True, 20)):
        PhoneNumber.objects.update(throughput_level=level, coexistence=coexistence)
        answer = api.post(PATH, {"from": number.phone_number_id, "messages": messages(1)})
        assert answer.json()["rate_per_sec"] == rate, level


def test_ten_thousand_items_are_taken_at_once(api: Api, number: PhoneNumber) -> None:
    body = orjson.dumps({"from": number.phone_number_id, "messages": messages(10_000)})
    answer = api.post(PATH, body)
    assert (answer.status_code, answer.json()["total"]) == (202, 10_000)
    assert BatchItem.objects.count() == 10_000


def test_what_is_wrong_is_named(api: Api, number: PhoneNumber) -> None:
    wrong: dict[str, list[Any]] = {
        "from": [None, "123"],
        "messages": [None, [], {}, "x"],
        "client_ref": [5, "", "x" * 256, "a\0b"],
    }
    for field, values in wrong.items():
        for value in values:
            body = {"from": number.phone_number_id, "messages": messages(1), field: value}
            error = assert_error(api.post(PATH, body), 400, "invalid_request")
            assert list(error["details"]["fields"]) == [field], value
    assert not Batch.objects.exists()


def test_more_than_ten_thousand_are_refused(api: Api, number: PhoneNumber) -> None:
    body = {"from": number.phone_number_id, "messages": messages(1) * 10_001}
    assert_error(api.post(PATH, body), 400, "invalid_request")


def test_the_first_twenty_bad_items_are_named_and_nothing_is_queued(api: Api, number: PhoneNumber) -> None:
    bad = [*messages(2), {}, {"to": 5}, {"to": "1"}, *[{"type": "text"}] * 30]
    error = assert_error(
        api.post(PATH, {"from": number.phone_number_id, "messages": bad}), 400, "invalid_request"
    )
    assert error["details"]["indexes"] == list(range(2, 22))
    assert {"messages[2].to", "messages[4].type", "messages[21].to"} <= set(error["details"]["fields"])
    assert not Batch.objects.exists()


def test_items_that_are_no_objects_are_named_like_any_bad_item(api: Api, number: PhoneNumber) -> None:
    items: list[Any] = [5, None, "text", [], [{}], True]
    for item in items:
        bad = [*messages(1), {"to": "1"}, item, *messages(1), {}, *[item] * 30]
        answer = api.post(PATH, {"from": number.phone_number_id, "messages": bad})
        details = assert_error(answer, 400, "invalid_request")["details"]
        assert details["indexes"] == [1, 2, *range(4, 22)], item
        assert details["fields"]["messages[2]"] == details["fields"]["messages[21]"] == ["Must be an object."]
    assert not Batch.objects.exists()


def test_a_body_that_is_no_object_is_400(api: Api, number: PhoneNumber) -> None:
    for raw in (b"{", b'{"messages":[{]}', b"\xff", b'{"messages":[5,{]}', b'{"messages":[5'):
        assert "not valid JSON" in assert_error(api.post(PATH, raw), 400, "invalid_request")["message"], raw
    for raw in (b"", b"[]", b"5", b'"text"', b"null"):
        assert_error(api.post(PATH, raw), 400, "invalid_request")


MILLION = 1_000_000
MANY: dict[str, Callable[[], bytes]] = {
    "items": lambda: b"%b,%b" % (b"{}", b",".join([b"{}"] * MILLION)),
    "items that are no objects": lambda: b",".join([b"0"] * MILLION),
    "items of arrays": lambda: b",".join([b"[]"] * MILLION),
    "objects in an item": lambda: b'{"to":"1","type":"t","x":[%b]}' % b",".join([b"{}"] * MILLION),
    "objects in many items": lambda: b",".join(
        [b'{"to":"1","type":"t","x":[%b]}' % b",".join([b"{}"] * 110)] * 9_500
    ),
    "members of an item with a from": lambda: (
        b'{"to":"1","type":"t","from":"NUMBER",%b}' % b",".join(b'"%x":1' % place for place in range(MILLION))
    ),
    "members of many items whose from cannot be cut out": lambda: b",".join(
        [
            b'{"to":"1","type":"t","fr\\u006fm":"NUMBER",%b}'
            % b",".join(b'"%x":1' % place for place in range(100))
        ]
        * 9_500
    ),
}


@pytest.mark.parametrize("many", MANY)
def test_a_body_of_a_million_values_is_refused_before_they_are_built(
    api: Api, number: PhoneNumber, many: str
) -> None:
    raw = b'{"from":"NUMBER","messages":[%b]}' % MANY[many]()
    raw = raw.replace(b"NUMBER", number.phone_number_id.encode())
    api.post(PATH, b"{}")
    tracemalloc.start()
    try:
        answer = api.post(PATH, raw)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert_error(answer, 400, "invalid_request")
    # The client and the server each have a copy of the body, and the server also has a copy of the item. A million
    # objects take 64 MB.
    assert peak < 4 * len(raw) + 4_000_000, f"{peak:,} bytes for a body of {len(raw):,}"
    assert not BatchItem.objects.exists()


@pytest.mark.parametrize(
    "extra",
    [
        b'"x":[%b]' % b",".join([b"0"] * 500_000),
        b'"x":{%b}' % b",".join(b'"%x":1' % place for place in range(100_000)),
    ],
)
def test_what_is_left_to_meta_is_stored_as_it_was_written(
    api: Api, number: PhoneNumber, extra: bytes
) -> None:
    item = b'{"to":"1","type":"text","text":{},%b}' % extra
    raw = b'{"from":"%b","messages":[%b]}' % (number.phone_number_id.encode(), item)
    assert api.post(PATH, raw).status_code == 202
    assert bytes(BatchItem.objects.get().body) == b'{"messaging_product":"whatsapp",' + item[1:]


def test_an_item_is_json_and_not_nested_too_deep(api: Api, number: PhoneNumber) -> None:
    def status(extra: bytes) -> int:
        item = b'{"to":"1","type":"text","text":{},%b}' % extra
        raw = b'{"from":"%b","messages":[%b]}' % (number.phone_number_id.encode(), item)
        return int(api.post(PATH, raw).status_code)

    deep = [b'"x":%b' % (b"[" * depth + b"]" * depth) for depth in (200, 5000)]
    long = b'"x":"%b"' % (b"x" * API_BODY_BYTES)
    for extra in (*deep, long, b'"x":"\xff"', b'"\xff":1', b'"x":"\\q"', b'"x":01'):
        assert status(extra) == 400, extra[:20]
    odd = b'{"from":"1","client_ref":"\xff","messages":[{"to":"1","type":"text","text":{}}]}'
    endless = b'{"from":"1","messages":[{"to":%b,"type":"text","text":{}}]}' % (b"1" * 2_000)
    own = number.phone_number_id.encode()
    too_long = b'{"from":"%b","messages":[{"to":"1","type":"text","text":{},%b}]}' % (own, long)
    for raw, field in ((odd, "client_ref"), (endless, "messages[0].to"), (too_long, "messages[0]")):
        assert field in assert_error(api.post(PATH, raw), 400, "invalid_request")["details"]["fields"]
    assert not BatchItem.objects.exists()
    assert status(b'"x":%b' % (b"[" * 199 + b"]" * 199)) == 202


@pytest.mark.parametrize(
    ("limit", "more", "field"),
    [
        ("MOST_BUILT", {}, "messages[1]"),
        ("MOST_TAKEN_APART", {"to": "IN.77889900112233445566"}, "messages[1].to"),
        # Without parsing it, nobody knows which of the two is a member of the message.
        ("MOST_TAKEN_APART", {"message_ref": "a", "x": {"message_ref": "a"}}, "messages[1]"),
    ],
)
def test_messages_that_would_take_too_long_to_parse_are_refused(
    api: Api,
    number: PhoneNumber,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    more: dict[str, Any],
    field: str,
) -> None:
    item = {**messages(1)[0], "wide": [[]] * MOST_NESTED, **more}
    monkeypatch.setattr(f"messaging.batches.body.{limit}", values_in(orjson.dumps(item)) + 1)
    assert api.post(PATH, {"from": number.phone_number_id, "messages": [item]}).status_code == 202
    refused = api.post(PATH, {"from": number.phone_number_id, "messages": [item] * 2})
    fields = assert_error(refused, 400, "invalid_request")["details"]["fields"]
    assert "split the batch" in fields[field][0]
    assert Batch.objects.count() == 1


def test_one_business_may_store_a_few_large_batches_at_once(
    api: Api, number: PhoneNumber, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = Bulkhead(per_number=1, per_tenant=0, crowded=1, in_all=1)
    monkeypatch.setattr(limits, "large_batches", full)
    assert_error(api.post(PATH, b" " * (API_BODY_BYTES + 1)), 429, "too_many_in_flight")
    assert_error(api.post(PATH, b" " * API_BODY_BYTES), 400, "invalid_request")
    monkeypatch.undo()
    monkeypatch.setattr(views, "large_bodies", LargeBodyMemory(0))
    assert_error(api.post(PATH, b" " * 70_000), 503, "service_unavailable")


def test_an_item_with_another_from_is_400(api: Api, number: PhoneNumber) -> None:
    for sender in ("+919999999999", "", 5, None, ["x"]):
        items = [*messages(2), messages(1)[0] | {"from": sender}]
        body = {"from": number.phone_number_id, "messages": items}
        details = assert_error(api.post(PATH, body), 400, "invalid_request")["details"]
        assert (details["indexes"], list(details["fields"])) == ([2], ["messages[2].from"]), sender
    assert not Batch.objects.exists()
    spellings = (number.phone_number_id, number.digits, f"+{number.digits}")
    for sender, own in product(spellings, spellings):
        body = {"from": sender, "messages": [messages(1)[0] | {"from": own}]}
        assert api.post(PATH, body).status_code == 202, (sender, own)


def test_a_number_that_is_not_connected_is_409(api: Api, number: PhoneNumber) -> None:
    PhoneNumber.objects.update(connection_state="pending", connection_detail="not_registered")
    body = {"from": number.phone_number_id, "messages": messages(1)}
    assert_error(api.post(PATH, body), 409, "number_not_connected")


def test_a_client_ref_seen_before_gives_its_batch(
    api: Api, other_api: Api, other_tenant: Tenant, number: PhoneNumber
) -> None:
    body = {"from": number.phone_number_id, "client_ref": "may", "messages": messages(2)}
    first = api.post(PATH, body)
    again = api.post(PATH, {**body, "messages": messages(5)})
    assert (first.status_code, again.status_code) == (202, 200)
    batch = {name: value for name, value in first.json().items() if name != "warnings"}
    assert again.json() == {**batch, "same_messages": False}
    PhoneNumber.objects.update(connection_state="disconnected", connection_detail="account_removed")
    assert api.post(PATH, body).json() == {**batch, "same_messages": True}
    assert "Idempotent-Replayed" not in first
    assert again["Idempotent-Replayed"] == "true"
    # White space between values does not make messages different.
    assert api.post(PATH, json.dumps(body, indent=3).encode()).json()["same_messages"] is True
    assert Batch.objects.count() == 1
    # A client_ref is unique in the tenant. A key of the other environment neither sees the batch nor creates a second
    # batch.
    test_api = Api(api_keys.create(name="t", environment="test", tenant=number.tenant).key)
    assert_error(test_api.post(PATH, body), 409, "conflict")
    # Another tenant can use the same client_ref.
    assert_error(other_api.post(PATH, body), 400, "invalid_request")


@pytest.mark.django_db(transaction=True)
def test_of_two_creations_with_one_client_ref_at_once_one_wins(
    tenant: Tenant, key: api_keys.NewKey, account: SimulatedAccount
) -> None:
    number = connected_number(tenant, account)
    body = {"from": number.phone_number_id, "client_ref": "may", "messages": messages(500)}
    answers = in_threads(*[lambda: Api(key.key).post(PATH, body)] * 4)
    assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 202]
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert BatchItem.objects.count() == 500


def made(api: Api, number: PhoneNumber, count: int = 5) -> str:
    return str(api.post(PATH, {"from": number.phone_number_id, "messages": messages(count)}).json()["id"])


def test_an_item_has_its_answer_and_a_cursor_is_of_its_batch(api: Api, number: PhoneNumber) -> None:
    batch_id = made(api, number)
    BatchItem.objects.filter(idx=1).update(
        status="accepted",
        http_status=200,
        wamid="wamid.x",
        response=b'{"messages": [{"id":"wamid.x"}], "n": 1.0}',
    )
    first = api.get(f"{PATH}/{batch_id}/items?limit=2").json()
    other = f"{PATH}/{made(api, number)}/items"
    assert_error(api.get(f"{other}?cursor={first['next_cursor']}"), 400, "invalid_request")
    accepted = api.get(f"{PATH}/{batch_id}/items?status=accepted")
    assert b'"response":{"messages": [{"id":"wamid.x"}], "n": 1.0}' in accepted.content
    assert accepted.json()["data"] == [
        {
            "idx": 1,
            "status": "accepted",
            "message_ref": None,
            "http_status": 200,
            "wamid": "wamid.x",
            "response": {"messages": [{"id": "wamid.x"}], "n": 1.0},
            "event_id": None,
            "sent_at": None,
            "duplicate_of": None,
            "skip_reason": None,
        }
    ]


def test_an_item_says_why_it_was_skipped(api: Api, number: PhoneNumber) -> None:
    batch_id = made(api, number, 5)
    first_batch_id = ids.uuid7()
    columns: list[dict[str, Any]] = [
        {"status": "skipped", "skip_reason": "opted_out"},
        {"status": "skipped", "first_batch_id": first_batch_id, "first_idx": 7},
        {"status": "skipped"},
        {"status": "failed"},
        {"status": "pending"},
    ]
    for idx, values in enumerate(columns):
        BatchItem.objects.filter(idx=idx).update(**values)
    items = api.get(f"{PATH}/{batch_id}/items").json()["data"]
    assert [item["skip_reason"] for item in items] == ["opted_out", "message_ref", "batch_ended", None, None]
    place = {"batch_id": ids.encode(ids.BATCH, first_batch_id), "idx": 7}
    assert [item["duplicate_of"] for item in items] == [None, place, None, None, None]


def test_outcomes_count_the_causes_and_may_change_until_a_message_arrives(
    api: Api, number: PhoneNumber
) -> None:
    made(api, number, 1)
    batch = Batch.objects.get()
    row: dict[str, Any] = {"tenant_id": batch.tenant_id, "environment": "live", "batch_id": batch.id}
    row |= {"direction": "outbound", "accepted_at": now()}

    places = count()

    def add(**columns: Any) -> None:
        key = ids.uuid7()
        own = {"idx": next(places), **row, **columns}
        Message.objects.create(id=key, key=key.hex, month=ids.month_of(key), **own)

    for code in (131026, 131047, None, 131047):
        add(failed_at=now(), error_code=code)
    found = outcomes_of(batch)
    assert (found.causes[0], sorted(found.causes, key=str)) == (
        (131047, 2), [(131026, 1), (131047, 2), (None, 1)],
    )  # fmt: skip
    for status, column in PRECEDENCE.items():
        Message.objects.all().delete()
        add(**{column: now()})
        found = outcomes_of(batch)
        assert (found.statuses[status], found.may_change) == (1, status in {"accepted", "sent"})


def test_a_bad_query_is_400(api: Api, number: PhoneNumber) -> None:
    batch_id = made(api, number)
    for query in ("status=sent", "limit=0", "limit=201", "cursor=!", "cursor=YQ"):
        error = assert_error(api.get(f"{PATH}/{batch_id}/items?{query}"), 400, "invalid_request")
        assert list(error["details"]["fields"]) == [query.partition("=")[0]], query
    assert_error(api.get(f"{PATH}?status=sent"), 400, "invalid_request")


def test_a_batch_is_retried_only_with_unsent_failures_and_not_cancelled_once_completed(
    api: Api, number: PhoneNumber
) -> None:
    batch_id = made(api, number, 2)
    assert_error(api.post(f"{PATH}/{batch_id}/retry"), 409, "conflict")
    BatchItem.objects.update(status="failed", body=b"")
    Batch.objects.update(status="completed", failed=2)
    assert_error(api.post(f"{PATH}/{batch_id}/cancel"), 409, "conflict")
    assert_error(api.post(f"{PATH}/{batch_id}/retry"), 409, "conflict")
    Batch.objects.update(status="cancelled")
    BatchItem.objects.update(body=b"{}")
    assert_error(api.post(f"{PATH}/{batch_id}/retry"), 409, "conflict")


@pytest.mark.parametrize(
    ("status", "begun", "refusal"),
    [
        ("queued", False, None),
        ("queued", True, "being sent"),
        ("cancelled", False, "cancelled"),
        ("completed", False, "completed"),
        ("completed", True, "completed"),
    ],
)
def test_only_a_batch_that_waits_for_its_beginning_gets_another_time(
    api: Api, number: PhoneNumber, status: str, begun: bool, refusal: str | None
) -> None:
    batch_id = made(api, number, 1)
    Batch.objects.update(status=status, started_at=now() if begun else None)
    answer = api.patch(f"{PATH}/{batch_id}", {"send_at": isoformat(now() + timedelta(hours=1))})
    if refusal is None:
        assert (answer.status_code, answer.json()["waiting_for"]) == (200, "scheduled")
    else:
        error = assert_error(answer, 409, "conflict")
        assert (error["message"], error["details"]) == (f"This batch is {refusal}.", {"status": status})


def test_cancel_skips_what_was_not_sent_and_ends_with_the_event(api: Api, number: PhoneNumber) -> None:
    batch_id = made(api, number)
    answer = api.post(f"{PATH}/{batch_id}/cancel")
    assert answer.status_code == 200
    body = answer.json()
    assert (body["status"], body["total"], body["accepted"], body["failed"]) == ("cancelled", 5, 0, 0)
    assert {item["status"] for item in api.get(f"{PATH}/{batch_id}/items").json()["data"]} == {"skipped"}
    event = Event.objects.get(type="batch.completed")
    data = orjson.loads(bytes(EventPayload.objects.get(id=event.id).body))
    assert (data["id"], data["status"], data["skipped"]) == (batch_id, "cancelled", 5)
    assert_error(api.post(f"{PATH}/{batch_id}/cancel"), 409, "conflict")


def test_the_event_of_a_batchs_end_belongs_to_the_batchs_environment(
    tenant: Tenant, account: SimulatedAccount
) -> None:
    number = connected_number(tenant, account, environment="test")
    test_api = Api(api_keys.create(name="t", environment="test", tenant=tenant).key)
    assert test_api.post(f"{PATH}/{made(test_api, number)}/cancel").status_code == 200
    assert Event.objects.get(type="batch.completed").environment == "test"


def test_after_a_restore_the_open_batches_of_all_are_cancelled(
    api: Api, number: PhoneNumber, capsys: pytest.CaptureFixture[str]
) -> None:
    ended, of_test, of_live = (made(api, number) for _ in range(3))
    for batch in Batch.objects.all():
        batch.status = "completed" if batch.public_id == ended else "queued"
        batch.environment = "test" if batch.public_id == of_test else "live"
        batch.save()
    # The gap may have repeated the failed items of this batch, and started this file.
    Batch.objects.filter(status="completed").update(failed=5)
    BatchItem.objects.filter(batch__status="completed").update(status="failed")
    csv_batches.store_file(tenant_id=number.tenant_id, environment="live", name="a.csv", content=b"to\n1\n")
    call_command("cancel_open_batches")
    assert capsys.readouterr().out == "2 batches and 0 scheduled messages cancelled.\n"
    found = {batch.public_id: batch.status for batch in Batch.objects.all()}
    assert found == {ended: "completed", of_test: "cancelled", of_live: "cancelled"}
    assert not BatchItem.objects.filter(batch__status="cancelled", status="pending").exists()
    assert_error(api.post(f"{PATH}/{ended}/retry"), 409, "conflict")
    assert not BatchFile.objects.exists()


@pytest.mark.django_db
def test_a_tenants_staff_page_has_the_newest_batch(tenant: Tenant) -> None:
    for status, total in (("cancelled", 5), ("completed", 7)):
        Batch.objects.create(
            tenant=tenant,
            environment="live",
            phone_number_id="1",
            rate_per_sec=80,
            total=total,
            status=status,
        )
    (line,) = admin._lines(tenant)
    assert line.text == "the newest completed: 0 of 7 accepted, 0 failed"
