"""Races of sends and batches. Each environment has its own keys. A runner that lost its lease releases nothing."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import OperationalError, connection, transaction

from gateway.api.errors import Reply
from gateway.clock import now
from gateway.database import statements
from messaging import idempotency
from messaging.batches import held_batch
from messaging.models import Batch, BatchItem, IdempotencyRecord
from messaging.sending import flow, journal, journal_replay
from messaging.sending.flow import SendRuntime
from messaging.tests.conftest import connected_number
from phone_numbers.models import PhoneNumber
from tenants.credentials import api_keys
from tenants.models import Tenant
from tests.fixtures import Api, assert_error, wait_until
from tests.simulated import RunningSimulator
from webhooks.models import Event

pytestmark = pytest.mark.django_db(transaction=True)


def body_of(number: PhoneNumber) -> dict[str, object]:
    return {
        "from": number.phone_number_id,
        "to": "+919812345678",
        "type": "text",
        "text": {"body": "Hello"},
    }


def test_a_live_send_is_not_answered_with_a_test_send_of_the_same_key(
    api: Api, tenant: Tenant, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    test_number = connected_number(tenant, simulator.account(), environment="test")
    test_api = Api(api_keys.create(name="t", environment="test", tenant=tenant).key)
    first = test_api.post("/v1/messages", body_of(test_number), Idempotency_Key="order-1")
    second = api.post("/v1/messages", body_of(number), Idempotency_Key="order-1")
    assert [first.status_code, second.status_code] == [200, 200]
    assert "Idempotent-Replayed" not in second
    for caller, own, answer in ((test_api, test_number, first), (api, number, second)):
        again = caller.post("/v1/messages", body_of(own), Idempotency_Key="order-1")
        assert again.content == answer.content
        assert again["Idempotent-Replayed"] == "true"


def use_of(tenant: Tenant) -> idempotency.KeyUse:
    """A use of a key on /v1/messages, with an empty body."""
    use = idempotency.key_use(
        "order-1", tenant_id=tenant.id, environment="live", path="/v1/messages", raw=b"{}"
    )
    assert use is not None
    return use


def test_a_key_that_was_used_on_one_path_is_refused_on_another(tenant: Tenant) -> None:
    """A send and a marketing send with the same body are two messages, so neither gets the other's stored answer."""
    use = use_of(tenant)
    assert statements.run(idempotency.beginning(use)) is None
    statements.run(idempotency.completing(use, Reply(200, {}, b"{}")))
    assert isinstance(statements.run(idempotency.earlier(use)), Reply)
    refused = statements.run(idempotency.earlier(replace(use, path="/marketing_messages")))
    assert isinstance(refused, idempotency.DifferentBody)
    assert refused.details is not None
    assert refused.details["first_request_at_path"] == "/v1/messages"
    assert " was used on /v1/messages at " in str(refused)


def test_a_key_that_was_released_during_the_claim_sends_nothing(tenant: Tenant) -> None:
    use = use_of(tenant)
    statements.run(idempotency.beginning(use))
    claim = idempotency.beginning(use)
    next(claim)  # the statement that finds the key claimed
    look_up = claim.send([])
    statements.run(idempotency.releasing(use))
    assert statements.run(idempotency.earlier(use)) is None
    with connection.cursor() as cursor:
        cursor.execute(*look_up)
        found = cursor.fetchall()
    with pytest.raises(StopIteration) as ended:
        claim.send(found)
    assert isinstance(ended.value.value, idempotency.InProgress)


@pytest.mark.parametrize("is_away", [False, True], ids=["one answer is lost", "the database stays away"])
def test_a_claim_whose_answer_was_lost_is_released(
    api: Api,
    number: PhoneNumber,
    simulator: RunningSimulator,
    settings: Any,
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
    is_away: bool,
) -> None:
    """The database commits the claim and fails before it answers. The caller may repeat, as the error says."""
    settings.DATA_DIR = tmp_path
    monkeypatch.setattr(journal, "_slots", journal._Slots())
    monkeypatch.setattr(flow, "RECORD_PATIENCE_SECONDS", 0.3)
    beginning = idempotency.beginning
    lost: list[idempotency.KeyUse] = []

    def committed_and_lost(use: idempotency.KeyUse) -> Any:
        answer = yield from beginning(use)
        if not lost:
            lost.append(use)
            raise OperationalError("server closed the connection unexpectedly")
        return answer

    async def away(*_: Any) -> None:
        raise OperationalError("away")

    def claimed() -> bool:
        return IdempotencyRecord.objects.exists()

    with monkeypatch.context() as outage:
        outage.setattr(idempotency, "beginning", committed_and_lost)
        if is_away:
            outage.setattr(SendRuntime, "write", away)
        refused = api.post("/v1/messages", body_of(number), Idempotency_Key="order-1")
        assert_error(refused, 503, "service_unavailable")
        if is_away:
            wait_until(lambda: journal_replay.replay() and not claimed(), "The replay does not release it.")
    wait_until(lambda: not claimed(), "Nothing releases it.")
    sent = api.post("/v1/messages", body_of(number), Idempotency_Key="order-1")
    assert (sent.status_code, "Idempotent-Replayed" in sent) == (200, False)
    rows = simulator.control("GET", f"requests?node={number.phone_number_id}&limit=100")["data"]
    assert len([row for row in rows if row["path"].endswith("/messages")]) == 1
    assert Event.objects.filter(type="message.outbound").count() == 1


def test_a_release_waits_for_a_claim_that_is_being_committed(tenant: Tenant) -> None:
    """A commit goes on while the disk stands still, also after its caller has given up."""
    use, is_open, ends = use_of(tenant), threading.Event(), threading.Event()

    def claim() -> None:
        try:
            with transaction.atomic():
                statements.run(idempotency.beginning(use))
                is_open.set()
                ends.wait(10)
        finally:
            connection.close()

    def release() -> None:
        try:
            with transaction.atomic():
                statements.run(idempotency.releasing(use))
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        claiming = pool.submit(claim)
        assert is_open.wait(10)
        releasing = pool.submit(release)
        with pytest.raises(TimeoutError):
            releasing.result(0.5)
        ends.set()
        claiming.result(10)
        releasing.result(10)
    assert statements.run(idempotency.earlier(use)) is None


def test_a_late_release_keeps_the_outcome_that_is_stored(tenant: Tenant) -> None:
    use = use_of(tenant)
    statements.run(idempotency.beginning(use))
    statements.run(idempotency.completing(use, Reply(200, {}, b"{}")))
    statements.run(idempotency.releasing(use))
    assert isinstance(statements.run(idempotency.earlier(use)), Reply)


def test_a_lease_is_prolonged_by_its_renewal_and_by_nobody_else(
    api: Api, number: PhoneNumber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("messaging.batches.lifecycle.wake", lambda: None)
    item = {"to": "+919812345678", "type": "text", "text": {"body": "Hello"}}
    assert (
        api.post("/v1/messages/batch", {"from": number.phone_number_id, "messages": [item]}).status_code
        == 202
    )
    (held,) = held_batch.claim_batches(10)
    soon = now() + timedelta(seconds=1)
    Batch.objects.update(lease_until=soon)
    with pytest.raises(held_batch.BatchLeaseLost):
        held_batch.renew(replace(held, lease=uuid4()))
    assert Batch.objects.get().lease_until == soon
    held_batch.renew(held)
    prolonged = Batch.objects.get().lease_until
    assert prolonged is not None
    assert prolonged > soon


def test_a_runner_that_was_overtaken_neither_claims_nor_frees_nor_ends_the_batch(
    api: Api, number: PhoneNumber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("messaging.batches.lifecycle.wake", lambda: None)
    item = {"to": "+919812345678", "type": "text", "text": {"body": "Hello"}}
    created = api.post("/v1/messages/batch", {"from": number.phone_number_id, "messages": [item, item]})
    assert created.status_code == 202
    (late,) = held_batch.claim_batches(10)
    taken = held_batch.take(late, first=0, count=1, country_code="91")
    Batch.objects.update(lease_until=now() - timedelta(seconds=1))
    (newer,) = held_batch.claim_batches(10)
    assert [each.idx for each in held_batch.take_over(newer)] == [0]
    with pytest.raises(held_batch.BatchLeaseLost):
        held_batch.take(late, first=1, count=1, country_code="91")
    held_batch.release(late, taken.items)
    held_batch.finish(late)
    batch = Batch.objects.get()
    assert (batch.lease_token, batch.lease_until is not None, batch.completed_at) == (newer.lease, True, None)
    assert BatchItem.objects.get(idx=0).claimed_by == newer.lease
    fresh = held_batch.take(newer, first=0, count=2, country_code="91").items
    assert [each.idx for each in fresh] == [1], "what the first one may have sent is not taken as unsent"


@pytest.mark.parametrize("own_key", [None, "order-1"])
def test_a_number_that_is_released_under_a_send_keeps_the_event_and_takes_no_more(
    api: Api,
    tenant: Tenant,
    number: PhoneNumber,
    simulator: RunningSimulator,
    monkeypatch: pytest.MonkeyPatch,
    own_key: str | None,
) -> None:
    """The number is released after Meta got the message and before the service has Meta's answer."""
    call = SendRuntime.call

    def release() -> None:
        key = api_keys.create(name="r", environment="live", tenant=tenant).key
        assert Api(key).delete(f"/v1/numbers/{number.phone_number_id}").status_code == 200
        connection.close()

    async def release_first(self: SendRuntime, graph_call: Any) -> Any:
        answer = await call(self, graph_call)
        await asyncio.to_thread(release)
        return answer

    headers = {"Idempotency_Key": own_key} if own_key else {}
    with monkeypatch.context() as under_way:
        under_way.setattr(SendRuntime, "call", release_first)
        sent = api.post("/v1/messages", body_of(number), **headers)
    assert sent.status_code == 200
    event = Event.objects.get(type="message.outbound")
    assert (event.tenant_id, event.wamid) == (tenant.id, sent.json()["messages"][0]["id"])
    assert not PhoneNumber.objects.exists()
    again = api.post("/v1/messages", body_of(number), **headers)
    assert again.status_code == (200 if own_key else 400)
    assert Event.objects.filter(type="message.outbound").count() == 1
