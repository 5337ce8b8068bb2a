"""Erasure of a customer's data, and data exports: deleted data, remaining data, and permissions."""

import itertools
import logging
import re
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import orjson
import pytest
from django.core.management import CommandError, call_command
from django.db import DataError, connection
from pytest_django import Settings

from console import exports
from gateway import ids
from gateway.clock import now
from gateway.upstream.notifications.change import MessageFacts
from messaging import csv_batches, data_export, erasure, retention
from messaging.batches import scheduled_messages
from messaging.conversations import read_marks
from messaging.models import (
    Batch,
    BatchFile,
    BatchItem,
    Erasure,
    IdempotencyRecord,
    KnownMedia,
    MessageTemplate,
    OptOut,
    ReadMark,
    ScheduledMessage,
)
from messaging.tests.conftest import connected_number
from messaging.tests.incoming import notification, number_of, post, text_change
from phone_numbers.models import PhoneNumber
from tenants.audit import Actor
from tenants.credentials import api_keys
from tenants.models import AuditEntry, Export, ExportPart, Tenant
from tests.browsers import browser_of, text
from tests.fixtures import Api, assert_error, in_threads
from tests.simulated import RunningSimulator
from webhooks.models import Delivery, Event, Message
from webhooks.tests.publishing import endpoint_of, make, readable

pytestmark = pytest.mark.django_db(transaction=True)

WA_ID, USER_ID, OTHER = "919812345678", "IN.77889900112233445566", "919800000002"


@pytest.fixture(autouse=True)
def _no_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is enqueued. Tests run the tasks themselves."""
    monkeypatch.setattr("messaging.erasure.enqueue", lambda *_, **__: True)
    monkeypatch.setattr("messaging.data_export.enqueue", lambda *_, **__: True)


def erase(api: Api, customer_id: str = WA_ID) -> dict[str, Any]:
    """Erase a customer's data. Returns the completed receipt."""
    asked = api.delete(f"/v1/customers/{customer_id}/data")
    assert asked.status_code == 202, asked.content
    erasure.run_open()
    receipt: dict[str, Any] = api.get(f"/v1/erasures/{asked.json()['id']}").json()
    assert receipt["status"] == "completed"
    return receipt


def scheduled(tenant: Tenant, to: dict[str, Any], environment: str = "live") -> ScheduledMessage:
    return ScheduledMessage.objects.create(
        tenant_id=tenant.id,
        environment=environment,
        phone_number_id="1",
        send_at=now() + timedelta(days=1),
        body=orjson.dumps({**to, "type": "text", "text": {"body": "Hi"}}),
    )


def opted_out(
    tenant: Tenant, *, wa_id: str | None = WA_ID, user_id: str | None = None, environment: str = "live"
) -> None:
    for customer in filter(None, (wa_id, user_id)):
        OptOut.objects.create(
            tenant_id=tenant.id,
            environment=environment,
            phone_number_id="1",
            customer=customer,
            id=ids.uuid7(),
            wa_id=wa_id,
            user_id=user_id,
            wrote_stop=True,
            wrote_at=now(),
        )


def answered(tenant: Tenant, key: str, wa_id: str) -> None:
    body = orjson.dumps({"contacts": [{"input": wa_id, "wa_id": wa_id}], "messages": [{"id": "wamid.1"}]})
    IdempotencyRecord.objects.create(
        tenant_id=tenant.id,
        environment="live",
        key=key,
        path="/v1/messages",
        body_hash=b"x" * 32,
        status=200,
        headers={"Content-Type": "application/json"},
        body=body,
    )


BY_AD = MessageFacts(
    "inbound", "received", is_message=True, referral_source_id="ad-1", referral_ctwa_clid="click"
)
IMAGE = orjson.dumps({"message": {"type": "image", "image": {"id": "5100", "mime_type": "image/jpeg"}}})


WITH_CUSTOMERS = {
    *data_export.KINDS,
    *(name for name, kind in exports.KINDS.items() if "customer" in kind.columns),
}
"""The kinds of export files that name customers."""


def test_everything_of_a_customer_goes_and_nothing_of_another(
    tenant: Tenant, other_tenant: Tenant, number: PhoneNumber, api: Api
) -> None:
    endpoint_of(tenant)
    (gone,) = make(tenant, wa_id=WA_ID, user_id=USER_ID, wamid="wamid.1", data=IMAGE, message=BY_AD)
    (by_user,) = make(tenant, user_id=USER_ID, wamid="wamid.2")
    (in_sandbox,) = make(tenant, wa_id=WA_ID, environment="test")
    (stays,) = make(tenant, wa_id=OTHER, wamid="wamid.3", message=BY_AD)
    (theirs,) = make(other_tenant, wa_id=WA_ID, data=IMAGE)
    Delivery.objects.update(answers={"0": {"at": "x", "headers": {}, "body": f"Thanks, {WA_ID}"}})
    for owner in (tenant, other_tenant):
        KnownMedia.objects.create(
            tenant_id=owner.id, environment="live", media_id="5100", phone_number_id="1"
        )
        answered(owner, "of the customer", WA_ID)
        for kind in {*exports.KINDS, *data_export.KINDS}:
            Export.objects.create(tenant=owner, environment="live", kind=kind, query="", rows=1)
        opted_out(owner, user_id=USER_ID)
        csv_batches.store_file(
            tenant_id=owner.id, environment="live", name="x.csv", content=f"phone\n+{WA_ID}\n".encode()
        )
    opted_out(tenant, wa_id=OTHER)
    answered(tenant, "of another", OTHER)
    waiting = scheduled(tenant, {"to": f"+{WA_ID}"}), scheduled(tenant, {"recipient": USER_ID})
    to_another = scheduled(tenant, {"to": OTHER})
    batch = Batch.objects.create(
        tenant=tenant, environment="live", phone_number_id="1", total=1, rate_per_sec=80
    )
    BatchItem.objects.create(
        batch=batch, idx=0, status="failed", body=b'{"to":"919812345678"}', response=b"{}", event_id=gone.id
    )
    for customer in (WA_ID, USER_ID, OTHER):
        read_marks.mark(
            tenant_id=tenant.id,
            environment="live",
            conversations=[read_marks.key_of(number.phone_number_id, customer)],
            through=ids.uuid7(),
        )

    receipt = erase(api, f"+{WA_ID}")
    assert receipt["erased"] == {
        "scheduled_messages": 2,
        "opt_outs": 2,
        "events": 3,
        "media": 1,
        "idempotency_answers": 1,
        "read_marks": 2,
        "export_files": len(WITH_CUSTOMERS),
        "uploaded_files": 1,
    }
    assert WA_ID not in str(receipt)
    assert readable(gone, by_user, in_sandbox, stays, theirs) == [False, False, False, True, True]
    named = set(Event.objects.for_tenant(tenant.id).values_list("wa_id", "user_id", "wamid"))
    assert named == {(None, None, None), (OTHER, None, "wamid.3")}
    assert not Message.objects.filter(tenant_id=tenant.id, wa_id=WA_ID).exists()
    clicks = Message.objects.filter(tenant_id=tenant.id, referral_ctwa_clid__isnull=False)
    assert [message.key for message in clicks] == ["wamid.3"]
    left = OptOut.objects.values_list("tenant_id", "customer")
    assert set(left) == {(tenant.id, OTHER), (other_tenant.id, WA_ID), (other_tenant.id, USER_ID)}
    quoted = Delivery.objects.filter(answers__isnull=False).values_list("event_id", flat=True)
    assert list(quoted) == [stays.id]
    assert KnownMedia.objects.get().tenant_id == other_tenant.id
    kept = {(row.tenant_id, row.key): bytes(row.body or b"") for row in IdempotencyRecord.objects.all()}
    assert kept[tenant.id, "of the customer"] == b'{"erased":true}'
    assert WA_ID.encode() in kept[other_tenant.id, "of the customer"]
    assert OTHER.encode() in kept[tenant.id, "of another"]
    for message in waiting:
        message.refresh_from_db()
        assert (message.status, bytes(message.body)) == ("cancelled", b"")
    to_another.refresh_from_db()
    assert to_another.status == "scheduled"
    assert [file.tenant_id for file in BatchFile.objects.all()] == [other_tenant.id]
    item = BatchItem.objects.get()
    assert (bytes(item.body), item.response) == (b"", None)
    assert ReadMark.objects.count() == 1
    files = Export.objects.filter(tenant=tenant).values_list("kind", flat=True)
    assert set(files) == exports.KINDS.keys() - WITH_CUSTOMERS
    assert Export.objects.filter(tenant=other_tenant).count() == len({*exports.KINDS, *data_export.KINDS})
    row = Erasure.objects.get()
    assert (row.customer_id, WA_ID in str(AuditEntry.objects.values())) == (None, False)
    assert AuditEntry.objects.get(action="customer.erase").target_id == str(row.pk)
    nothing = erase(api)["erased"]
    assert set(nothing.values()) == {0}
    # A receipt of before uploaded files were erased.
    Erasure.objects.update(erased={name: 0 for name in nothing if name != "uploaded_files"})
    assert [receipt["erased"] for receipt in api.get("/v1/erasures").json()["data"]] == [nothing] * 2


def test_a_scheduled_message_to_a_number_that_whatsapp_knows_without_its_9_is_cancelled(
    tenant: Tenant, api: Api
) -> None:
    (scheduled_to, another) = (
        scheduled(tenant, {"to": to}) for to in ("+55 31 98765-4321", "+55 31 98765-4322")
    )
    assert erase(api, "553187654321")["erased"]["scheduled_messages"] == 1
    for message in (scheduled_to, another):
        message.refresh_from_db()
    assert (scheduled_to.status, another.status) == ("cancelled", "scheduled")


@pytest.mark.parametrize("given", [WA_ID, USER_ID])
def test_a_customer_whose_ids_an_opt_out_alone_links_is_erased_under_both(
    tenant: Tenant, other_tenant: Tenant, api: Api, given: str
) -> None:
    opted_out(tenant, user_id=USER_ID)
    opted_out(other_tenant, wa_id=OTHER, user_id=USER_ID)
    named: list[dict[str, Any]] = [{"wa_id": WA_ID}, {"user_id": USER_ID}, {"wa_id": OTHER}]
    rows = [make(tenant, **who)[0] for who in named]
    assert erase(api, given)["erased"]["events"] == 2
    assert readable(*rows) == [False, False, True]


def test_files_of_every_kind_anywhere_in_a_message_are_erased(tenant: Tenant, api: Api) -> None:
    contents: list[dict[str, Any]] = [
        {kind: {"id": kind}} for kind in ("audio", "document", "image", "sticker", "video")
    ]
    contents += [{"parts": [{"header": {"image": {"id": "nested"}}}]}, {"location": {"id": "no file"}}]
    for content in contents:
        make(tenant, wa_id=WA_ID, data=orjson.dumps({"message": content}))
    make(tenant, wa_id=OTHER, data=orjson.dumps({"message": {"image": {"id": "of another"}}}))
    files = ("audio", "document", "image", "sticker", "video", "nested", "no file", "of another")
    for media_id in files:
        KnownMedia.objects.create(
            tenant_id=tenant.id, environment="live", media_id=media_id, phone_number_id="1"
        )
    assert erase(api)["erased"]["media"] == 6
    assert set(KnownMedia.objects.values_list("media_id", flat=True)) == {"no file", "of another"}


def test_the_console_erases_only_after_a_confirmation(tenant: Tenant) -> None:
    make(tenant, wa_id=WA_ID)
    browser = browser_of(tenant)
    asked = browser.post("/console/settings/data", {"customer": WA_ID})
    assert f'name="confirmed" value="{WA_ID}"' in asked.content.decode()
    assert not Erasure.objects.exists()
    other = browser.post("/console/settings/data", {"customer": "919800000002", "confirmed": WA_ID})
    assert "All data of <strong>919800000002</strong> will be erased" in other.content.decode()
    assert not Erasure.objects.exists()
    browser.post("/console/settings/data", {"customer": WA_ID, "confirmed": WA_ID})
    assert Erasure.objects.get().tenant_id == tenant.id


@pytest.mark.django_db
def test_the_console_exports_the_data_of_a_customer_or_of_the_account(tenant: Tenant) -> None:
    browser = browser_of(tenant)
    for of, kind, query in (("", "account", ""), (f"+{WA_ID}", "customer", WA_ID)):
        answer = browser.post("/console/settings/data", {"export": "", "of": of}, follow=True)
        assert "send a link to" in answer.content.decode()
        export = Export.objects.get()
        assert (export.kind, export.query, export.environment) == (kind, query, "live")
        again = browser.post("/console/settings/data", {"export": "", "of": of}, follow=True)
        assert "Another file is still being written" in again.content.decode()
        export.delete()
    assert browser.post("/console/settings/data", {"export": "", "of": "98-1x"}).status_code == 400
    assert not Export.objects.exists()


@pytest.mark.django_db
def test_the_page_has_the_newest_own_receipts_and_the_files_that_are_kept(
    tenant: Tenant, other_tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.customer_data.SHOWN", 2)
    browser = browser_of(tenant)
    assert "Nothing was erased yet." in text(browser, "/console/settings/data")
    receipts = []
    for serial, owner in enumerate((tenant, tenant, tenant, other_tenant)):
        erased = {"events": 1_200, "messages": 0, "delivery_attempts": 3} if serial == 1 else None
        row = Erasure.objects.create(tenant_id=owner.id, customer_hash=str(serial), erased=erased)
        receipts.append(str(row.pk))
    Erasure.objects.filter(erased__isnull=False).update(completed_at=now())
    for kind, owner, age, rows in (
        ("customer", tenant, timedelta(hours=1), 12),
        ("account", tenant, exports.KEPT - timedelta(minutes=1), None),
        ("account", tenant, exports.KEPT + timedelta(minutes=1), 77),
        ("messages", tenant, timedelta(), 88),
        ("customer", other_tenant, timedelta(), 99),
    ):
        made = {"tenant": owner, "environment": "live", "kind": kind, "query": "", "rows": rows}
        Export.objects.create(**made, created_at=now() - age)
    page = text(browser, "/console/settings/data")
    assert re.findall(r"<td>([^<]*)</td><td><code>([^<]+)", page) == [
        ("–", receipts[2]),
        ("events: 1,200, delivery attempts: 3", receipts[1]),
    ]
    files = re.findall(
        r'<td>(One customer|The account), live</td><td class="amount">(.+?)</td><td>(?:<a[^>]+>)?(\w+)', page
    )
    assert sorted(files) == [("One customer", "12", "Download"), ("The account", "–", "In")]


@pytest.mark.parametrize(
    ("typed", "customer"),
    [
        ("+91 98123-45678", "+919812345678"),
        (" 91 98123 45678 ", "919812345678"),
        ("IN.778 899", "IN.778899"),
        ("98-1x", None),
        ("IN.7788-99", None),
    ],
)
@pytest.mark.django_db
def test_a_customer_is_typed_as_people_write_numbers(
    tenant: Tenant, typed: str, customer: str | None
) -> None:
    answer = browser_of(tenant).post("/console/settings/data", {"customer": typed})
    assert answer.status_code == (200 if customer else 400)
    found = re.findall(r"All data of <strong>([^<]+)", answer.content.decode())
    assert found == ([customer] if customer else [])


def test_a_replay_of_what_was_erased_is_not_sent(tenant: Tenant, api: Api) -> None:
    endpoint = endpoint_of(tenant)
    make(tenant, wa_id=WA_ID)
    delivery = Delivery.objects.get()
    Delivery.objects.update(status="dead", next_attempt_at=None, leased_until=None)
    erase(api)
    answer = api.post(f"/v1/webhook-deliveries/{delivery.public_id}/replay")
    assert assert_error(answer, 404, "not_found")["details"] == {"reason": "payload_expired"}
    endpoint.delete()


def test_requests_at_once_are_one_erasure_and_workers_at_once_run_it_once(
    tenant: Tenant, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tenant, wa_id=WA_ID)
    in_threads(*[lambda: api.delete(f"/v1/customers/{WA_ID}/data")] * 4)
    assert Erasure.objects.count() == 1
    all_found_it = threading.Barrier(4)

    def run_open() -> int:
        waits = [all_found_it]

        def meet(execute: Callable[..., Any], statement: str, *rest: Any) -> Any:
            if waits and statement.startswith('UPDATE "messaging_erasure"'):
                waits.pop().wait(10)
            return execute(statement, *rest)

        with connection.execute_wrapper(meet):
            return erasure.run_open()

    erase_rows, begun = erasure._erase, []

    def counted(*of: Any) -> Any:
        begun.append(of)
        return erase_rows(*of)

    monkeypatch.setattr(erasure, "_erase", counted)
    assert sum(in_threads(*[run_open] * 4)) == len(begun) == 1
    assert AuditEntry.objects.filter(action="customer.erase").count() == 1


def test_a_worker_that_died_is_followed_by_another(tenant: Tenant, api: Api) -> None:
    (event,) = make(tenant, wa_id=WA_ID)
    api.delete(f"/v1/customers/{WA_ID}/data")
    Erasure.objects.update(leased_until=now() + erasure.LEASE)
    assert erasure.run_open() == 0
    Erasure.objects.update(leased_until=now() - timedelta(seconds=1))
    assert erasure.run_open() == 1
    assert readable(event) == [False]


def test_a_run_takes_the_businesses_in_turn(tenant: Tenant, other_tenant: Tenant) -> None:
    for owner, customers in ((tenant, (WA_ID, OTHER, USER_ID)), (other_tenant, (WA_ID,))):
        for customer in customers:
            erasure.request(tenant_id=owner.id, customer_id=customer, actor=Actor())
    assert erasure.run_open() == 4
    order = list(Erasure.objects.order_by("completed_at").values_list("tenant_id", flat=True))
    assert set(order[:2]) == {tenant.id, other_tenant.id}


def test_a_run_that_takes_long_leaves_the_rest_to_the_next(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued: list[str] = []
    for customer in (WA_ID, OTHER):
        erasure.request(tenant_id=tenant.id, customer_id=customer, actor=Actor())
    monkeypatch.setattr("messaging.erasure.enqueue", lambda name, **_: queued.append(name))
    assert erasure.run_open(seconds=0.0) == 1
    assert (Erasure.objects.filter(completed_at=None).count(), queued) == (1, [erasure.RUN])


def test_an_erasure_that_fails_stops_no_other_and_is_tried_again(
    tenant: Tenant, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [make(tenant, wa_id=wa_id)[0] for wa_id in (WA_ID, OTHER)]
    for wa_id in (WA_ID, OTHER):
        api.delete(f"/v1/customers/{wa_id}/data")
    with monkeypatch.context() as broken:

        def failing(*, wa_id: str, **scope: Any) -> Iterator[int]:
            if wa_id == WA_ID:
                raise ValueError
            return retention.expunge_in_steps(wa_id=wa_id, **scope)

        broken.setattr(erasure, "expunge_in_steps", failing)
        assert erasure.run_open() == 1
    assert [readable(event) for event in events] == [[True], [False]]
    assert Erasure.objects.get(completed_at=None).customer_id == WA_ID, "it is still to be done"
    Erasure.objects.filter(completed_at=None).update(leased_until=now() - timedelta(seconds=1))
    assert erasure.run_open() == 1
    assert readable(events[0]) == [False]


@pytest.mark.parametrize("given", [WA_ID, USER_ID])
def test_an_erasure_that_is_interrupted_after_each_step_erases_and_counts_everything(
    tenant: Tenant, api: Api, number: PhoneNumber, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first steps erase what links the ids of the customer, and the messages that name the files."""
    monkeypatch.setattr("webhooks.events.retention.BATCH_EVENTS", 1)
    named: list[dict[str, Any]] = [
        {"wa_id": WA_ID, "user_id": USER_ID},
        {"wa_id": WA_ID},
        {"user_id": USER_ID},
    ]
    rows = []
    for serial, who in enumerate(named):
        image = {"message": {"type": "image", "image": {"id": str(serial)}}}
        rows += make(tenant, **who, data=orjson.dumps(image))
        KnownMedia.objects.create(
            tenant_id=tenant.id, environment="live", media_id=str(serial), phone_number_id="1"
        )
    opted_out(tenant, user_id=USER_ID)
    for to in ({"to": f"+{WA_ID}"}, {"recipient": USER_ID}):
        scheduled(tenant, to)
    asked = api.delete(f"/v1/customers/{given}/data").json()
    erase_rows, steps = erasure._erase, itertools.count(1)

    def interrupted(*of: Any) -> Iterator[tuple[str, int]]:
        yield from itertools.islice(erase_rows(*of), next(steps))
        raise RuntimeError

    with monkeypatch.context() as broken:
        broken.setattr(erasure, "_erase", interrupted)
        for _ in range(10):
            assert erasure.run_open() == 0
            pending = api.get(f"/v1/erasures/{asked['id']}").json()
            assert (pending["status"], pending["erased"]) == ("pending", None)
            with pytest.raises(DataError):
                erasure.names_of(tenant.id, Erasure.objects.get().customer_id or "")
            Erasure.objects.update(leased_until=now() - timedelta(seconds=1))
    assert erasure.run_open() == 1
    erased = api.get(f"/v1/erasures/{asked['id']}").json()["erased"]
    assert readable(*rows) == [False] * 3
    assert (erased["scheduled_messages"], erased["opt_outs"], erased["events"], erased["media"]) == (
        2,
        2,
        3,
        3,
    )
    assert not KnownMedia.objects.exists()
    assert not OptOut.objects.exists()
    assert {each.status for each in ScheduledMessage.objects.all()} == {"cancelled"}
    assert Erasure.objects.get().customer_id is None


def test_a_worker_that_another_has_replaced_completes_no_erasure(
    tenant: Tenant, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receipt would be of the other worker's rows, and come before that worker has erased them."""
    make(tenant, wa_id=WA_ID)
    api.delete(f"/v1/customers/{WA_ID}/data")
    erase_rows, leases = erasure._erase, []

    def replaced(*of: Any) -> Iterator[tuple[str, int]]:
        for step in erase_rows(*of):
            leases.append(str(Erasure.objects.get().leased_until))
            yield step
            if step[0] == "events":
                Erasure.objects.update(leased_until=now())

    monkeypatch.setattr(erasure, "_erase", replaced)
    assert erasure.run_open() == 0
    assert Erasure.objects.get().status == "pending"
    before = leases[:-1]
    assert before == sorted(set(before)), "each step renews the lease"


def test_what_became_due_meanwhile_stops_no_erasure(
    tenant: Tenant, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    due, waiting = (scheduled(tenant, {"to": f"+{WA_ID}"}) for _ in range(2))
    cancel = scheduled_messages.cancel

    def claimed_first(message: ScheduledMessage) -> ScheduledMessage:
        ScheduledMessage.objects.filter(pk=due.pk).update(status="sending")
        return cancel(message)

    monkeypatch.setattr(scheduled_messages, "cancel", claimed_first)
    assert erase(api)["erased"]["scheduled_messages"] == 1
    waiting.refresh_from_db()
    assert waiting.status == "cancelled"


@pytest.mark.parametrize("customer_id", ["12", "nobody", "91981234567x", "IN."])
def test_what_is_no_customer_is_not_found(api: Api, customer_id: str) -> None:
    assert_error(api.delete(f"/v1/customers/{customer_id}/data"), 404, "not_found")
    assert not Erasure.objects.exists()


def lines(api: Api, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Request an export and return its lines."""
    asked = api.post("/v1/exports", body)
    assert asked.status_code == 202, asked.content
    path = f"/v1/exports/{asked.json()['id']}"
    assert asked.json()["status"] == "pending"
    assert_error(api.get(f"{path}/file"), 404, "not_found")
    assert_error(api.post("/v1/exports", body), 409, "conflict")
    exports.write_waiting()
    answer = api.get(f"{path}/file")
    assert answer["Content-Type"] == "application/x-ndjson"
    found = [orjson.loads(line) for line in b"".join(answer).splitlines()]
    assert api.get(path).json() | {"created_at": None} == asked.json() | {
        "created_at": None,
        "status": "completed",
        "lines": len(found),
    }
    return found


def test_a_customers_file_has_the_customers_events_as_delivered(
    tenant: Tenant, other_tenant: Tenant, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("messaging.data_export.PAGE", 2)
    events = make(tenant, wa_id=WA_ID, user_id=USER_ID, count=3) + make(tenant, user_id=USER_ID)
    make(tenant, wa_id=OTHER)
    make(tenant, wa_id=WA_ID, environment="test")
    make(other_tenant, wa_id=WA_ID)
    by_ad, *_ = make(tenant, wa_id=WA_ID, wamid="wamid.ad", message=BY_AD)
    make(tenant, wa_id=OTHER, wamid="wamid.other", message=BY_AD)
    for owner in (tenant, other_tenant):
        opted_out(owner, user_id=USER_ID)
        scheduled(owner, {"to": WA_ID})
    opted_out(tenant, wa_id=OTHER)
    waiting = scheduled(tenant, {"recipient": USER_ID})
    scheduled(tenant, {"to": OTHER})
    found = lines(api, {"customer_id": WA_ID})
    kinds = [line["kind"] for line in found]
    assert kinds == ["opt_out"] + ["scheduled_message"] * 2 + ["message"] + ["event"] * 5
    data = [line["data"] for line in found]
    newest_first = sorted((event.public_id for event in [*events, by_ad]), reverse=True)
    assert [row["id"] for row in data[4:9]] == newest_first
    assert data[5] == api.get(f"/v1/events/{newest_first[1]}").json()["event"]
    assert (data[0]["wa_id"], data[0]["opted_out_source"]) == (WA_ID, "stop_word")
    assert (data[2]["id"], data[2]["body"]["recipient"]) == (waiting.public_id, USER_ID)
    assert (data[3]["id"], data[3]["referral"]["source_id"]) == ("wamid.ad", "ad-1")
    (opt_out,) = (row for row in api.get("/v1/opt-outs").json()["data"] if row["wa_id"] != OTHER)
    assert data[0] == opt_out
    shown = api.get(f"/v1/messages/scheduled/{waiting.public_id}").json()
    assert {name: data[2][name] for name in shown} == shown
    (shown,) = (row for row in api.get("/v1/messages").json()["data"] if row["id"] == "wamid.ad")
    assert {name: data[3][name] for name in shown} == shown
    erase(api)
    assert not ExportPart.objects.exists()
    assert lines(api, {"customer_id": WA_ID}) == []


def test_what_a_customer_wrote_in_a_group_is_exported_and_erased(tenant: Tenant, api: Api) -> None:
    number_of(tenant, waba_id="100200300400500", phone_number_id="200300400500600")
    change = text_change("200300400500600", "wamid.1", body="Hello all")
    change["value"]["messages"][0]["group_id"] = "120363000000000001"
    assert post(notification(("100200300400500", [change]))).status_code == 200
    (line,) = lines(api, {"customer_id": WA_ID})
    assert line["data"]["data"]["message"]["text"]["body"] == "Hello all"
    assert erase(api)["erased"]["events"] == 1
    assert readable(*Event.objects.all()) == [False]
    assert Message.objects.get().key.startswith("expunged:")


def refused(tenant: Tenant, request: dict[str, Any], **values: Any) -> Event:
    """A message that Meta rejected. Only its body names the customer."""
    facts = MessageFacts("outbound", "failed", is_message=True, error_code=131030)
    data = orjson.dumps({"request": request, "response": {"error": {"code": 131030}}, "http_status": 400})
    values |= {"wamid": None, "display_phone_number": "919800000001", "message": facts, "data": data}
    return make(tenant, "message.outbound", raw=None, **values)[0]


def test_a_customer_among_very_many_rejected_messages_keeps_the_worker_of_the_file(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("messaging.data_export.PAGE", 2)
    for _ in range(8):
        refused(tenant, {"to": OTHER})
    export = Export.objects.create(tenant=tenant, environment="live", kind="customer", query=WA_ID)
    shown = list(data_export.lines(export))
    assert set(shown) == {b""}, "the customer has no line"
    assert len(shown) == 4, (
        "the log and the events have four pages each, of which two are a page of the merged rows"
    )


def test_files_of_a_business_do_not_fill_the_disk(
    tenant: Tenant, other_tenant: Tenant, api: Api, other_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_export, "MOST_KEPT_BYTES", 10)
    for environment, size, age in (("live", 6, timedelta(days=6)), ("test", 3, timedelta(days=2))):
        Export.objects.create(
            tenant=tenant, environment=environment, kind="messages", rows=1, created_at=now() - age
        ).parts.create(place=0, content=b"x" * size)
    first = lines(api, {})
    assert first, "nine bytes leave room, and the file is written as a whole"
    browser = browser_of(tenant)
    page = browser.post("/console/exports", {"kind": "messages", "query": ""}, follow=True).content.decode()
    assert "which is the maximum" in page
    answer = api.post("/v1/exports", {})
    assert assert_error(answer, 429, "rate_limited")["details"] == {"limit": 10}
    assert timedelta(days=1) - timedelta(seconds=int(answer["Retry-After"])) < timedelta(minutes=1)
    assert other_api.post("/v1/exports", {}).status_code == 202
    assert Export.objects.filter(tenant=tenant).count() == 3


def test_a_customers_file_has_the_messages_of_which_only_the_body_names_the_customer(
    tenant: Tenant, other_tenant: Tenant, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("messaging.data_export.PAGE", 2)
    (received,) = make(tenant, wa_id=WA_ID, message=BY_AD)
    own = [refused(tenant, {"to": to}) for to in (f"+{WA_ID}", "98123 45678", "+91 98123-45678")]
    own += [refused(tenant, {"recipient": USER_ID, **to}) for to in ({}, {"to": "+4915112345678"})]
    refused(tenant, {"to": OTHER})
    refused(tenant, {"to": WA_ID}, environment="test")
    refused(other_tenant, {"to": WA_ID})
    make(tenant, "message.echo", message=MessageFacts("outbound", "sent", is_message=True))
    opted_out(tenant, user_id=USER_ID)
    found = lines(api, {"customer_id": WA_ID})
    newest_first = [event.public_id for event in [*reversed(own), received]]
    for kind, member in (("event", "id"), ("message", "event_id")):
        assert [line["data"][member] for line in found if line["kind"] == kind] == newest_first
    assert erase(api)["erased"]["events"] == len(newest_first) + 1, "the export is of one environment"


def test_of_a_file_that_is_too_long_the_oldest_events_are_left_out(
    tenant: Tenant, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    _old, new = (make(tenant, wa_id=WA_ID, wamid=f"wamid.{n}", message=BY_AD)[0] for n in range(2))
    monkeypatch.setattr(exports, "MOST_ROWS", 3)
    found = lines(api, {"customer_id": WA_ID})
    assert [(line["kind"], line["data"]["id"]) for line in found] == [
        ("message", "wamid.1"),
        ("message", "wamid.0"),
        ("event", new.public_id),
    ]


def test_scheduled_messages_are_the_customers_in_every_form_of_the_number(
    tenant: Tenant, number: PhoneNumber, api: Api
) -> None:
    PhoneNumber.objects.update(digits="919800000001")
    own = scheduled(tenant, {"to": "98123 45678"})
    of_another = scheduled(tenant, {"to": "+98 1234 5678"})
    ScheduledMessage.objects.update(phone_number_id=number.phone_number_id)
    assert [line["data"]["id"] for line in lines(api, {"customer_id": WA_ID})] == [own.public_id]
    assert erase(api)["erased"]["scheduled_messages"] == 1
    status = dict(ScheduledMessage.objects.values_list("pk", "status"))
    assert status == {own.pk: "cancelled", of_another.pk: "scheduled"}


def test_the_accounts_file_has_everything_but_secrets(tenant: Tenant, number: PhoneNumber, api: Api) -> None:
    endpoint = endpoint_of(tenant, headers='{"Authorization": "Bearer hush"}')
    (event,) = make(tenant)
    erased, *_ = make(tenant, wa_id=WA_ID)
    erase(api)
    found = lines(api, {})
    assert [line["kind"] for line in found] == ["business", "number", "webhook", "event", "event"]
    business, phone, webhook, without_body, whole = (line["data"] for line in found)
    assert business["id"] == str(tenant.id)
    assert phone["phone_number_id"] == number.phone_number_id
    assert webhook["id"] == str(endpoint.id)
    assert (without_body["id"], without_body["payload_available"]) == (erased.public_id, False)
    assert whole["id"] == event.public_id
    text = str(found)
    assert "hush" not in text
    assert endpoint.secret not in text
    actions = AuditEntry.objects.filter(action="data.export").values_list("details__kind", flat=True)
    assert list(actions) == ["account"]


def test_files_of_the_consoles_lists_are_no_exports_of_data(tenant: Tenant, api: Api) -> None:
    for kind in exports.KINDS:
        row = Export.objects.create(tenant=tenant, environment="live", kind=kind, query="", rows=1)
        for path in ("", "/file"):
            assert_error(api.get(f"/v1/exports/{row.pk}{path}"), 404, "not_found")


def test_the_accounts_file_is_of_one_tenant_and_environment(
    tenant: Tenant, other_tenant: Tenant, api: Api, simulator: RunningSimulator
) -> None:
    owners = ((tenant, "live"), (tenant, "test"), (other_tenant, "live"))
    for place, (owner, environment) in enumerate(owners):
        row = connected_number(owner, simulator.account(), environment=environment)
        MessageTemplate.objects.create(
            tenant=owner,
            account=row.account,
            environment=environment,
            template_id=str(place),
            name=f"order_{place}",
            document=f'{{"id": "{place}"}}',
            changed_at=now(),
        )
        endpoint_of(owner, environment=environment)
        make(owner, environment=environment, wamid=f"wamid.{place}", message=BY_AD)
        opted_out(owner, environment=environment)
        scheduled(owner, {"to": WA_ID}, environment)
    kinds = ["business", "number", "webhook", "template", "opt_out", "scheduled_message", "message", "event"]
    caller = api_keys.create(name="t", environment="test", tenant=tenant).key
    for place, caller_of in ((0, api), (1, Api(caller))):
        found = lines(caller_of, {})
        assert [line["kind"] for line in found] == kinds
        assert found[3]["data"] == {"id": str(place)}
        assert [found[-1]["data"]["wamid"], found[-2]["data"]["id"]] == [f"wamid.{place}"] * 2


def test_no_log_level_suppresses_the_hash_of_an_erased_customer(
    tenant: Tenant, api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    make(tenant, wa_id=WA_ID)
    caplog.set_level(logging.ERROR)
    caplog.handler.setLevel(logging.INFO)
    erase(api)
    assert erasure.hash_of(tenant.id, WA_ID) in caplog.text


def test_after_a_restore_the_hashes_of_the_log_erase_again(tenant: Tenant, api: Api, tmp_path: Path) -> None:
    (event,) = make(tenant, wa_id=WA_ID)
    (by_user,) = make(tenant, user_id=USER_ID)
    (stays,) = make(tenant, wa_id=OTHER)
    written = tmp_path / "erased.txt"
    hashes = [erasure.hash_of(tenant.id, name) for name in (WA_ID, USER_ID)]
    written.write_text(f"{tenant.id} {hashes[0]}\n\n{tenant.id},{hashes[1]}\n{tenant.id},{'0' * 64}\n")
    out = StringIO()
    call_command("expunge", "--again", str(written), stdout=out)
    assert out.getvalue() == "Erased 2 customers again.\n"
    assert readable(event, by_user, stays) == [False, False, True]
    for content, error in (("nonsense\n", "nonsense"), (None, "No such file")):
        written.write_text(content) if content else written.unlink()
        with pytest.raises(CommandError, match=error):
            call_command("expunge", "--again", str(written))


@pytest.mark.parametrize("hindrance", ["an error", "another process"])
def test_after_a_restore_an_erasure_that_is_not_done_is_reported(
    tenant: Tenant, api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hindrance: str
) -> None:
    (event,) = make(tenant, wa_id=WA_ID)
    written = tmp_path / "erased.txt"
    written.write_text(f"{tenant.id} {erasure.hash_of(tenant.id, WA_ID)}\n")
    out = StringIO()
    with monkeypatch.context() as hindered:
        if hindrance == "an error":
            hindered.setattr(erasure, "_erase", lambda *_: 1 / 0)
        else:
            request = erasure.request(tenant_id=tenant.id, customer_id=WA_ID, actor=Actor())
            Erasure.objects.filter(pk=request.pk).update(leased_until=now() + timedelta(minutes=1))
        with pytest.raises(CommandError, match="1 of 1 erasures are not done"):
            call_command("expunge", "--again", str(written), stdout=out)
    assert (out.getvalue(), readable(event)) == ("", [True])
    Erasure.objects.update(leased_until=None)
    call_command("expunge", "--again", str(written), stdout=out)
    assert (out.getvalue(), readable(event)) == ("Erased 1 customers again.\n", [False])


def test_the_operators_command_erases_a_customer_like_the_tenant(
    tenant: Tenant, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (event,) = make(tenant, wa_id=WA_ID, user_id=USER_ID)
    (by_user,) = make(tenant, user_id=USER_ID)
    waiting = scheduled(tenant, {"to": f"+{WA_ID}"})
    opted_out(tenant, wa_id=None, user_id=USER_ID)
    out = StringIO()
    call_command("expunge", "--tenant", str(tenant.id), "--wa-id", WA_ID, stdout=out)
    assert out.getvalue() == "Expunged 2 events.\nDeleted 1 opt-outs.\n"
    assert readable(event, by_user) == [False, False]
    waiting.refresh_from_db()
    assert waiting.status == "cancelled"
    assert erasure.hash_of(tenant.id, WA_ID) in caplog.text, "it is erased again after a restore"


def test_after_a_restore_customers_without_events_and_hashes_of_earlier_secrets_are_found(
    tenant: Tenant, other_tenant: Tenant, number: PhoneNumber, tmp_path: Path, settings: Settings
) -> None:
    PhoneNumber.objects.update(digits="919800000001")
    waiting = scheduled(tenant, {"to": "98123 45678"})
    ScheduledMessage.objects.update(phone_number_id=number.phone_number_id)
    theirs = scheduled(other_tenant, {"to": WA_ID})
    opted_out(tenant, wa_id=None, user_id=USER_ID)
    of_refused = refused(tenant, {"to": f"+{OTHER}"})
    absent = "919800000099"
    names = (WA_ID, USER_ID, OTHER, absent)
    written = tmp_path / "erased.txt"
    written.write_text("".join(f"{tenant.id} {erasure.hash_of(tenant.id, name)}\n" for name in names))
    unknown = f"No data was found for {tenant.id} {erasure.hash_of(tenant.id, absent)}.\n"
    settings.SECRET_KEY_FALLBACKS = ["older", settings.SECRET_KEY]
    settings.SECRET_KEY = "newer"
    out, err = StringIO(), StringIO()
    call_command("expunge", "--again", str(written), stdout=out, stderr=err)
    assert (out.getvalue(), err.getvalue()) == ("Erased 3 customers again.\n", unknown)
    status = dict(ScheduledMessage.objects.values_list("pk", "status"))
    assert status == {waiting.pk: "cancelled", theirs.pk: "scheduled"}
    assert not OptOut.objects.exists()
    assert readable(of_refused) == [False]
