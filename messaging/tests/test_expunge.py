"""Expunging at a tenant's request: bodies are deleted, and the remaining columns identify no customer."""

from datetime import timedelta
from io import StringIO
from typing import Any

import orjson
import pytest
from django.core.management import CommandError, call_command

from gateway.clock import now
from messaging.batches import runner
from messaging.models import BatchItem
from messaging.tests.conftest import connected_number
from phone_numbers.models import PhoneNumber
from tenants.models import AuditEntry, Tenant
from tests.fixtures import Api
from tests.simulated import RunningSimulator
from webhooks.models import Delivery, Event, EventPayload
from webhooks.tests.publishing import endpoint_of, make, readable

DAY = timedelta(days=1)


def expunge(tenant: Tenant, *arguments: str) -> str:
    """Run the operator's command and return its output."""
    out = StringIO()
    call_command("expunge", "--tenant", str(tenant.id), *arguments, stdout=out)
    return out.getvalue()


@pytest.mark.django_db
class TestEvents:
    def test_one_customer(self, tenant: Tenant, other_tenant: Tenant, api: Api) -> None:
        endpoint = endpoint_of(tenant)
        (gone,) = make(tenant, wa_id="91", user_id="IN.1", wamid="wamid.1")
        (stays,) = make(tenant, wa_id="92", wamid="wamid.2")
        (theirs,) = make(other_tenant, wa_id="91")
        answer = {"body": "Thanks, 91"}
        Delivery.objects.update(attempt_log=[{"at": "2026-11-01T00:00:00.000Z"}], answers={"0": answer})
        assert expunge(tenant, "--wa-id", "91") == "Expunged 1 events.\n"
        assert readable(gone, stays, theirs) == [False, True, True]
        shown = api.get(f"/v1/events/{gone.public_id}").json()
        assert shown["event"] is None
        assert [each["endpoint_id"] for each in shown["deliveries"]] == [str(endpoint.id)]
        row = Event.objects.filter(pk=gone.pk).values().get()
        assert (row["wa_id"], row["user_id"], row["wamid"], row["type"]) == (None, None, None, gone.type)
        assert row["dedupe_key"] == f"expunged:{gone.id}"
        deliveries = {row.event_id: row for row in Delivery.objects.all()}
        assert (deliveries[gone.id].attempt_log, deliveries[gone.id].answers) == ([], None)
        assert (deliveries[stays.id].attempt_log, deliveries[stays.id].answers) != ([], None)
        assert not EventPayload.objects.filter(id__in=[gone.id, gone.raw_id]).exists()

    def test_before_a_moment_and_all(self, tenant: Tenant) -> None:
        old, new = make(tenant, age=2 * DAY) + make(tenant)
        moment = (now() - DAY).isoformat()
        assert expunge(tenant, "--before", moment) == "Expunged 1 events.\n"
        assert readable(old, new) == [False, True]
        assert expunge(tenant, "--all") == "Expunged 1 events.\n"
        assert readable(old, new) == [False, False]
        assert expunge(tenant, "--all") == "Expunged 0 events.\n"
        assert [entry.details for entry in AuditEntry.objects.order_by("id")] == [
            {"events": 1, "by": ["before"]},
            {"events": 1, "by": ["all"]},
            {"events": 0, "by": ["all"]},
        ]

    def test_of_one_customer_before_a_moment_that_is_utc_without_an_offset(self, tenant: Tenant) -> None:
        moment = (now() - DAY).replace(tzinfo=None)
        rows = [
            make(tenant, wa_id=wa_id, user_id=user_id, age=age)[0]
            for wa_id, user_id in (("91", "IN.1"), ("91", "IN.2"), ("92", "IN.1"))
            for age in (DAY + timedelta(hours=1), DAY - timedelta(hours=1))
        ]
        chosen = ("--wa-id", "91", "--user-id", "IN.1", "--before", moment.isoformat())
        assert expunge(tenant, *chosen) == "Expunged 1 events.\n"
        assert readable(*rows) == [False, True, True, True, True, True]

    def test_a_repeat_of_the_upstream_brings_nothing_back(self, tenant: Tenant) -> None:
        make(tenant, wa_id="91", dedupe_key="msg:wamid.1")
        expunge(tenant, "--wa-id", "91")
        assert make(tenant, wa_id="91", dedupe_key="msg:wamid.1") == []

    @pytest.mark.parametrize(
        "arguments", [[], ["--all", "--wa-id", "91"], ["--before", "yesterday"], ["--before", "2026-13-01"]]
    )
    def test_what_is_unclear_expunges_nothing(self, tenant: Tenant, arguments: list[str]) -> None:
        (event,) = make(tenant, wa_id="91")
        with pytest.raises(CommandError):
            expunge(tenant, *arguments)
        assert readable(event) == [True]

    def test_an_unknown_tenant(self, db: None) -> None:
        with pytest.raises(CommandError, match="no such tenant"):
            call_command("expunge", "--tenant", "01000000-0000-7000-8000-000000000000", "--all")


@pytest.mark.django_db(transaction=True)
class TestBatches:
    """Expunging messages of a batch, which were sent to the simulator."""

    PATH = "/v1/messages/batch"
    REFUSED = "919812340030"
    """A number for which the simulator rejects messages."""

    @pytest.fixture(autouse=True)
    def _no_worker(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("messaging.batches.lifecycle.wake", lambda: None)

    @pytest.fixture
    def number(self, tenant: Tenant, simulator: RunningSimulator) -> PhoneNumber:
        account = simulator.account([{"throughput": "HIGH"}])
        return connected_number(tenant, account, throughput_level="HIGH")

    def create(self, api: Api, number: PhoneNumber, *customers: str) -> str:
        messages = [
            {"to": f"+{to}", "message_ref": to, "type": "text", "text": {"body": "Hi"}} for to in customers
        ]
        answer = api.post(self.PATH, {"from": number.phone_number_id, "messages": messages})
        assert answer.status_code == 202, answer.content
        return str(answer.json()["id"])

    def items(self, api: Api, batch_id: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = api.get(f"{self.PATH}/{batch_id}/items").json()["data"]
        return items

    def test_what_stays_of_an_item_names_nobody(self, tenant: Tenant, api: Api, number: PhoneNumber) -> None:
        batch_id = self.create(api, number, "919811100001", self.REFUSED, "919811100003")
        runner.run()
        before = self.items(api, batch_id)
        assert [item["status"] for item in before] == ["accepted", "failed", "accepted"]

        assert expunge(tenant, "--wa-id", self.REFUSED) == "Expunged 1 events.\n", "its body alone names it"
        assert expunge(tenant, "--wa-id", "919811100001") == "Expunged 1 events.\n"
        assert expunge(tenant, "--wa-id", "919811100001") == "Expunged 0 events.\n"

        gone = {"wamid": None, "response": None, "message_ref": None}
        assert self.items(api, batch_id) == [before[0] | gone, before[1] | gone, before[2]]
        bodies = [api.get(f"/v1/events/{item['event_id']}").json()["event"] for item in before]
        assert [body is None for body in bodies] == [True, True, False]

    def test_all(
        self,
        tenant: Tenant,
        other_tenant: Tenant,
        api: Api,
        other_api: Api,
        number: PhoneNumber,
        simulator: RunningSimulator,
    ) -> None:
        theirs = connected_number(other_tenant, simulator.account())
        batches = self.create(api, number, "919811100001"), self.create(other_api, theirs, "919811100001")
        runner.run()
        before = self.items(other_api, batches[1])
        assert before[0]["wamid"]
        assert expunge(tenant, "--all") == "Expunged 2 events.\n", "the message, and the end of its batch"
        assert [item["response"] for item in self.items(api, batches[0])] == [None]
        assert self.items(other_api, batches[1]) == before

    def test_the_reference_of_a_skipped_item_names_nobody(
        self, tenant: Tenant, api: Api, number: PhoneNumber
    ) -> None:
        batch_id = self.create(api, number, "919811100001", "919811100002", "919811100003")
        BatchItem.objects.update(status="skipped", body=b"")
        for idx, reference in enumerate(("visit-+91 98111-00001", "IN.1:visit")):
            BatchItem.objects.filter(idx=idx).update(message_ref=reference)
        assert expunge(tenant, "--wa-id", "919811100001") == "Expunged 0 events.\n"
        assert expunge(tenant, "--user-id", "IN.1") == "Expunged 0 events.\n"
        kept = [item["message_ref"] for item in self.items(api, batch_id)]
        assert kept == [None, None, "919811100003"]
        expunge(tenant, "--all")
        assert [item["message_ref"] for item in self.items(api, batch_id)] == [None] * 3

    def test_what_is_still_to_be_sent_is_sent(
        self, tenant: Tenant, api: Api, number: PhoneNumber, simulator: RunningSimulator
    ) -> None:
        batch_id = self.create(api, number, "919811100001")
        assert expunge(tenant, "--wa-id", "919811100001") == "Expunged 0 events.\n"
        runner.run()
        assert [item["status"] for item in self.items(api, batch_id)] == ["accepted"]


@pytest.mark.django_db
def test_a_customer_is_found_by_the_user_id_that_a_refused_message_names(
    tenant: Tenant, number: PhoneNumber
) -> None:
    refused = [
        make(
            tenant,
            "message.outbound",
            raw=None,
            data=orjson.dumps({"request": request, "response": {"error": {}}, "http_status": 400}),
        )[0]
        for request in (
            {"recipient": "IN.1"},
            {"recipient": "IN.2"},
            {"to": "+91 98111 00001"},
            {"to": 919811100001},
        )
    ]
    a_day_ago = (now() - DAY).isoformat()
    assert expunge(tenant, "--user-id", "IN.1", "--before", a_day_ago) == "Expunged 0 events.\n"
    assert expunge(tenant, "--user-id", "IN.1") == "Expunged 1 events.\n"
    assert readable(*refused) == [False, True, True, True]
    assert expunge(tenant, "--wa-id", "919811100001") == "Expunged 2 events.\n"
    assert readable(*refused) == [False, True, False, False]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("sender", "to", "wa_id"),
    [
        ("5511900000001", "+55 11 98765-4321", "551187654321"),
        ("5215512345678", "+52 1 55 1234 5678", "525512345678"),
        ("919800000001", "98123 45678", "919812345678"),
    ],
)
def test_a_refused_message_is_the_customers_in_every_form_of_the_number(
    tenant: Tenant, sender: str, to: str, wa_id: str
) -> None:
    refused, other = (
        make(
            tenant,
            "message.outbound",
            raw=None,
            display_phone_number=sender,
            data=orjson.dumps({"request": {"to": each}, "response": {"error": {}}, "http_status": 400}),
        )[0]
        for each in (to, "+4915112345678")
    )
    assert expunge(tenant, "--wa-id", wa_id) == "Expunged 1 events.\n"
    assert readable(refused, other) == [False, True]
