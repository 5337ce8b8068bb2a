"""`message_ref`: only one of a tenant's messages with the same reference is sent within 30 days."""

import json
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.core.management import call_command

from gateway.clock import now
from messaging.batches import references
from messaging.models import Batch, BatchItem, MessageReference
from messaging.tests.conftest import connected_number
from phone_numbers.models import PhoneNumber
from tenants.credentials import api_keys
from tenants.models import Tenant
from tests.fixtures import Api, assert_error, in_threads
from tests.simulated import SimulatedAccount

pytestmark = pytest.mark.django_db

PATH = "/v1/messages/batch"


@pytest.fixture(autouse=True)
def _no_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("messaging.batches.lifecycle.wake", lambda: None)


def message(reference: str | None, to: str = "+919812345678") -> dict[str, Any]:
    named = {} if reference is None else {"message_ref": reference}
    return {"to": to, **named, "type": "text", "text": {"body": "Hello"}}


def store(api: Api, number: PhoneNumber, *given: str | None) -> str:
    """Store a batch of messages with the references `given`. Returns the batch's id."""
    answer = api.post(PATH, {"from": number.phone_number_id, "messages": [message(ref) for ref in given]})
    assert answer.status_code == 202, answer.json()
    return str(answer.json()["id"])


def items(api: Api, batch_id: str) -> list[tuple[str, str | None, Any]]:
    found = api.get(f"{PATH}/{batch_id}/items").json()["data"]
    return [(item["status"], item["message_ref"], item["duplicate_of"]) for item in found]


def test_a_second_message_with_a_reference_is_skipped_and_names_the_first(
    api: Api, number: PhoneNumber
) -> None:
    first = store(api, number, "visit-1", "visit-2", None, "visit-1")
    second = store(api, number, "visit-3", "visit-2", None)
    assert items(api, first) == [
        ("pending", "visit-1", None),
        ("pending", "visit-2", None),
        ("pending", None, None),
        ("skipped", "visit-1", {"batch_id": first, "idx": 0}),
    ]
    assert items(api, second) == [
        ("pending", "visit-3", None),
        ("skipped", "visit-2", {"batch_id": first, "idx": 1}),
        ("pending", None, None),
    ]
    skipped = BatchItem.objects.filter(status="skipped")
    assert {bytes(item.body) for item in skipped} == {b""}


@pytest.mark.parametrize(
    "written",
    [
        '{"message_ref":"REF","to":"1","type":"text","text":{"body":"x"}}',
        '{"to":"1","type":"text","text":{"body":"x"}, "message_ref" : "REF" }',
        '{"to":"1","message_ref":null,"message_ref":"REF","type":"text","text":{"body":"x"}}',
        '{"to":"1","message_\\u0072ef":"REF","type":"text","text":{"body":"x"}}',
        '{"to":"1","type":"text","message_ref":"REF","text":{"body":"x"},"from":"NUMBER"}',
    ],
)
def test_the_upstream_never_gets_it(api: Api, number: PhoneNumber, written: str) -> None:
    for reference in ("visit-1", "\\u0905\\u0938 \\u00221", "मुलाक़ात"):
        item = written.replace("REF", reference).replace("NUMBER", number.phone_number_id)
        raw = f'{{"from":"{number.phone_number_id}","messages":[{item}]}}'
        assert api.post(PATH, raw.encode()).status_code == 202
        stored = BatchItem.objects.latest("batch_id")
        assert stored.message_ref == json.loads(f'"{reference}"')
        assert json.loads(bytes(stored.body)) == {
            "messaging_product": "whatsapp",
            "to": "1",
            "type": "text",
            "text": {"body": "x"},
        }


def test_what_is_no_reference_is_refused(api: Api, number: PhoneNumber) -> None:
    wrong: list[Any] = ["", 5, "x" * 256, "a\0b", ["a"], {}, True]
    for reference in wrong:
        body = {"from": number.phone_number_id, "messages": [message("a"), message(reference)]}
        error = assert_error(api.post(PATH, body), 400, "invalid_request")
        assert list(error["details"]["fields"]) == ["messages[1].message_ref"], reference
    assert not MessageReference.objects.exists()


def test_references_are_of_one_tenant_and_environment(
    api: Api, other_api: Api, tenant: Tenant, other_tenant: Tenant, number: PhoneNumber, simulator: Any
) -> None:
    store(api, number, "visit-1")
    of_test = connected_number(tenant, simulator.account(), environment="test")
    of_other = connected_number(other_tenant, simulator.account())
    test_api = Api(api_keys.create(name="t", environment="test", tenant=tenant).key)
    for caller, own in ((test_api, of_test), (other_api, of_other)):
        assert items(caller, store(caller, own, "visit-1")) == [("pending", "visit-1", None)]


def test_a_cancelled_batch_frees_what_it_did_not_send(api: Api, number: PhoneNumber) -> None:
    cancelled = store(api, number, "sent", "unsent", "unsent")
    BatchItem.objects.filter(idx=0).update(status="accepted")
    assert api.post(f"{PATH}/{cancelled}/cancel").status_code == 200
    again = store(api, number, "sent", "unsent")
    assert [status for status, *_ in items(api, again)] == ["skipped", "pending"]


def test_after_a_restore_a_message_that_may_have_been_sent_keeps_its_reference(
    api: Api, number: PhoneNumber
) -> None:
    restored = store(api, number, "visit-1")
    call_command("cancel_open_batches")
    assert items(api, restored) == [("skipped", "visit-1", None)]
    again = items(api, store(api, number, "visit-1"))
    assert again == [("skipped", "visit-1", {"batch_id": restored, "idx": 0})]


def test_a_cancelled_batch_frees_no_reference_that_another_one_has_by_now(
    api: Api, number: PhoneNumber
) -> None:
    waits_for_long = store(api, number, "visit-1")
    MessageReference.objects.update(created_at=now() - references.REMEMBERED - timedelta(minutes=1))
    owner = store(api, number, "visit-1")
    assert api.post(f"{PATH}/{waits_for_long}/cancel").status_code == 200
    third = store(api, number, "visit-1")
    assert items(api, third) == [("skipped", "visit-1", {"batch_id": owner, "idx": 0})]


def test_a_refused_batch_holds_no_references(api: Api, number: PhoneNumber) -> None:
    bad = {**message("visit-2"), "text": {"deep": json.loads("[" * 250 + "]" * 250)}}
    body = {"from": number.phone_number_id, "messages": [message("visit-1"), bad]}
    assert_error(api.post(PATH, body), 400, "invalid_request")
    assert [status for status, *_ in items(api, store(api, number, "visit-1"))] == ["pending"]


def test_a_reference_is_remembered_for_thirty_days(api: Api, number: PhoneNumber) -> None:
    store(api, number, "old", "young")
    for idx, age in enumerate((timedelta(days=30, minutes=1), timedelta(days=29, hours=23))):
        MessageReference.objects.filter(idx=idx).update(created_at=now() - age)
    # An expired reference is free even before it is pruned.
    again = store(api, number, "old", "young")
    assert [status for status, *_ in items(api, again)] == ["pending", "skipped"]
    third = store(api, number, "old")
    assert items(api, third) == [("skipped", "old", {"batch_id": again, "idx": 0})]
    MessageReference.objects.update(created_at=now() - timedelta(days=29))
    assert references.prune_references() == 0
    MessageReference.objects.update(created_at=now() - timedelta(days=31))
    assert references.prune_references() == 2


@pytest.mark.parametrize("kind", ["sent later", "moved", "in the customers' hours"])
def test_the_thirty_days_of_a_batch_that_is_sent_later_begin_when_it_is_sent(
    api: Api, number: PhoneNumber, kind: str
) -> None:
    send_at, days = now() + timedelta(days=60), timedelta(days=1)
    body: dict[str, Any] = {"from": number.phone_number_id, "messages": [message("visit-1"), message(None)]}
    if kind == "in the customers' hours":
        send_at = send_at.replace(hour=0, minute=0)
        body["customer_hours"] = {"from": 9, "to": 20}
    at_first = now() + days if kind == "moved" else send_at
    first = api.post(PATH, {**body, "send_at": at_first.isoformat()}).json()["id"]
    if kind == "moved":
        assert api.patch(f"{PATH}/{first}", {"send_at": send_at.isoformat()}).status_code == 200
    begins = Batch.objects.get().send_at
    assert begins is not None
    assert (begins > send_at) is (kind == "in the customers' hours")
    assert MessageReference.objects.get().created_at == begins
    for days_ago, is_known in ((29, True), (31, False)):
        MessageReference.objects.update(created_at=now() - days_ago * days)
        assert references.prune_references() == (not is_known)
        again = items(api, store(api, number, "visit-1"))
        assert again == [
            ("skipped", "visit-1", {"batch_id": first, "idx": 0})
            if is_known
            else ("pending", "visit-1", None)
        ]


def test_a_retry_after_the_thirty_days_sends_no_message_that_another_batch_has(
    api: Api, number: PhoneNumber
) -> None:
    first = store(api, number, "visit-1", "visit-2", "visit-3", None)
    BatchItem.objects.filter(idx__lt=3).update(status="failed")
    Batch.objects.update(status="completed", completed_at=now(), failed=3, accepted=1)
    for idx in (0, 1):
        MessageReference.objects.filter(idx=idx).update(created_at=now() - timedelta(days=31))
    other = store(api, number, "visit-1")

    answer = api.post(f"{PATH}/{first}/retry")
    assert answer.status_code == 202, answer.content
    body = answer.json()
    assert (body["status"], body["accepted"], body["failed"]) == ("queued", 1, 0)
    assert items(api, first) == [
        ("skipped", "visit-1", {"batch_id": other, "idx": 0}),
        ("pending", "visit-2", None),
        ("pending", "visit-3", None),
        ("pending", None, None),
    ]
    assert bytes(BatchItem.objects.get(idx=0, message_ref="visit-1", status="skipped").body) == b""
    assert Batch.objects.earliest("id").skipped == 1, "it does not count as waiting"
    # The 30 days of the message that is sent again begin anew.
    third = store(api, number, "visit-2")
    assert items(api, third) == [("skipped", "visit-2", {"batch_id": first, "idx": 1})]


def test_a_retry_of_messages_that_another_batch_has_changes_nothing(api: Api, number: PhoneNumber) -> None:
    first = store(api, number, "visit-1")
    BatchItem.objects.update(status="failed")
    Batch.objects.update(status="completed", completed_at=now(), failed=1)
    MessageReference.objects.update(created_at=now() - timedelta(days=31))
    store(api, number, "visit-1")
    assert_error(api.post(f"{PATH}/{first}/retry"), 409, "conflict")
    assert items(api, first) == [("failed", "visit-1", None)]
    assert api.get(f"{PATH}/{first}").json()["failed"] == 1


@pytest.mark.django_db(transaction=True)
def test_of_batches_at_once_one_sends_each_reference(
    tenant: Tenant, key: api_keys.NewKey, account: SimulatedAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = connected_number(tenant, account)
    # Without the lock of the tenant's row, only the constraint orders the batches.
    monkeypatch.setattr("messaging.batches.lifecycle._require_room", lambda *_: None)
    names = [f"visit-{place}" for place in range(200)]

    def create(order: int) -> int:
        turned = names[order * 50 :] + names[: order * 50]
        body = {"from": number.phone_number_id, "messages": [message(name) for name in turned]}
        return int(Api(key.key).post(PATH, body).status_code)

    assert in_threads(*(partial(create, order) for order in range(4))) == [202] * 4
    pending = [str(item.message_ref) for item in BatchItem.objects.filter(status="pending")]
    assert sorted(pending) == sorted(names)
    assert Batch.objects.count() == 4


@pytest.mark.django_db(transaction=True)
def test_a_cancel_and_a_new_batch_at_once_wait_for_each_other(
    tenant: Tenant, key: api_keys.NewKey, account: SimulatedAccount
) -> None:
    number = connected_number(tenant, account)
    api = Api(key.key)
    names = [f"visit-{place}" for place in range(300)]
    first = store(api, number, *names)
    body = {"from": number.phone_number_id, "messages": [message(name) for name in reversed(names)]}
    answers = in_threads(
        lambda: Api(key.key).post(f"{PATH}/{first}/cancel"), lambda: Api(key.key).post(PATH, body)
    )
    assert [answer.status_code for answer in answers] == [200, 202]
    # Either call may be first. The second batch is stored whole or not at all. Every reference belongs to an item of
    # that batch or is free.
    pending = BatchItem.objects.filter(status="pending").count()
    assert pending == MessageReference.objects.count()
    assert pending in {0, 300}
