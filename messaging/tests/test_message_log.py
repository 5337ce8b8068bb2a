"""`GET /v1/messages*`: a tenant sees each message that it sent or received, and no message of another tenant."""

from typing import Any
from urllib.parse import quote

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from gateway import ids
from gateway.meta_errors import error_code
from gateway.upstream.notifications.change import MessageFacts
from messaging.batches import runner
from messaging.message_log import message_search
from messaging.tests.incoming import notification, number_of, post, text_change
from phone_numbers.models import PhoneNumber
from tenants.models import Tenant
from tests.fixtures import Api, assert_error
from tests.simulated import RunningSimulator
from webhooks.models import Event, EventPayload, Message
from webhooks.tests.publishing import endpoint_of, make

pytestmark = pytest.mark.django_db(transaction=True)

WABA, PNID = "100200300400500", "200300400500600"
CUSTOMER = "919812345678"
SECOND = 1_793_500_000


@pytest.fixture
def here(tenant: Tenant) -> PhoneNumber:
    return number_of(tenant, waba_id=WABA, phone_number_id=PNID)


def status_change(wamid: str, word: str, *, at: int = SECOND, **more: Any) -> dict[str, Any]:
    return {
        "field": "messages",
        "value": {
            "messaging_product": "whatsapp",
            "metadata": {"display_phone_number": "919800000001", "phone_number_id": PNID},
            "statuses": [
                {"id": wamid, "status": word, "timestamp": str(at), "recipient_id": CUSTOMER, **more}
            ],
        },
    }


def take_in(*changes: dict[str, Any], waba_id: str = WABA) -> None:
    assert post(notification((waba_id, list(changes)))).status_code == 200


def one(api: Api, wamid: str) -> dict[str, Any]:
    answer = api.get(f"/v1/messages/{quote(wamid, safe='')}")
    assert answer.status_code == 200, answer.content
    body: dict[str, Any] = answer.json()
    return body


def listed(api: Api, query: str = "") -> list[str]:
    answer = api.get(f"/v1/messages?{query}")
    assert answer.status_code == 200, answer.content
    return [each["id"] for each in answer.json()["data"]]


class TestOne:
    @pytest.mark.parametrize(
        "priced",
        [
            {"category": "utility", "type": "regular", "billable": True},
            {"category": "service", "type": "free_customer_service", "billable": False},
        ],
    )
    def test_a_sent_message_with_its_statuses(
        self,
        api: Api,
        tenant: Tenant,
        number: PhoneNumber,
        simulator: RunningSimulator,
        priced: dict[str, Any],
    ) -> None:
        endpoint = endpoint_of(tenant)
        sent = {"from": number.phone_number_id, "to": f"+{CUSTOMER}", "type": "text", "text": {"body": "Hi"}}
        wamid = api.post("/v1/messages", sent).json()["messages"][0]["id"]
        pricing = {"pricing_model": "PMP", **priced}
        values = {"metadata": {"phone_number_id": number.phone_number_id}}
        for word, at in (("read", SECOND + 60), ("sent", SECOND + 1), ("delivered", SECOND + 4)):
            change = status_change(wamid, word, at=at, **({"pricing": pricing} if word == "sent" else {}))
            change["value"] |= values
            take_in(change, waba_id=number.account.waba_id)
        shown = one(api, wamid)
        assert (shown["id"], shown["wamid"], shown["direction"], shown["status"]) == (
            wamid,
            wamid,
            "outbound",
            "read",
        )
        assert shown["request"] == {
            "messaging_product": "whatsapp",
            "to": f"+{CUSTOMER}",
            "type": "text",
            "text": {"body": "Hi"},
        }
        assert shown["response"]["messages"][0]["id"] == wamid
        assert (shown["message"], shown["payload_available"], shown["error"]) == (None, True, None)
        assert (shown["from"], shown["to"], shown["wa_id"]) == (number.digits, CUSTOMER, CUSTOMER)
        assert shown["pricing"] == priced
        assert shown["type"] == "text"
        assert shown["service_ms"] >= 0
        assert shown["upstream_ms"] >= 0
        assert shown["read_at"] == "2026-11-01T02:27:40.000Z"
        assert [(each["status"], each["at"][17:19]) for each in shown["statuses"]] == [
            ("read", "40"),
            ("sent", "41"),
            ("delivered", "44"),
        ]
        assert [each["type"] for each in shown["events"]] == ["message.outbound", *["message.status"] * 3]
        for event in shown["events"]:
            assert [each["endpoint_id"] for each in event["deliveries"]] == [str(endpoint.id)]
        assert shown["event_id"] == shown["events"][0]["id"]

    def test_an_inbound_message(self, api: Api, here: PhoneNumber) -> None:
        take_in(text_change(PNID, "wamid.IN=="))
        shown = one(api, "wamid.IN==")
        assert (shown["direction"], shown["status"], shown["type"]) == ("inbound", "received", "text")
        assert (shown["from"], shown["to"]) == (CUSTOMER, "919800000001")
        assert shown["message"]["text"] == {"body": "Hello"}
        assert (shown["request"], shown["response"], shown["statuses"]) == (None, None, [])

    def test_a_failure_in_the_upstreams_words(self, api: Api, here: PhoneNumber) -> None:
        error = {
            "code": 131047,
            "title": "Re-engagement message",
            "message": "Re-engagement message",
            "error_data": {"details": "More than 24 hours have passed."},
        }
        take_in(status_change("wamid.F", "failed", errors=[error]), status_change("wamid.F", "sent"))
        shown = one(api, "wamid.F")
        known = error_code(131047)
        assert known is not None
        expected = {
            "hint": known.hint,
            "doc_url": known.doc_url,
            "code": 131047,
            "title": "Re-engagement message",
            "message": "Re-engagement message",
            "details": "More than 24 hours have passed.",
        }
        assert (shown["status"], shown["error_code"], shown["error"]) == ("failed", 131047, expected)
        assert shown["statuses"][0]["error"] == expected

    @pytest.mark.parametrize("is_dropped", [True, False], ids=["dropped", "still stored"])
    def test_past_retention_the_code_stays(self, api: Api, here: PhoneNumber, is_dropped: bool) -> None:
        take_in(status_change("wamid.F", "failed", errors=[{"code": 131047, "title": "t"}]))
        if is_dropped:
            EventPayload.objects.all().delete()
        else:
            Tenant.objects.update(retention_days=0)
        shown = one(api, "wamid.F")
        known = error_code(131047)
        assert known is not None
        nothing = {
            "title": None,
            "message": None,
            "details": None,
            "hint": known.hint,
            "doc_url": known.doc_url,
        }
        assert shown["error"] == {"code": 131047, **nothing}
        assert shown["statuses"][0]["error"] == {"code": 131047, **nothing}
        assert (shown["statuses"][0]["status"], shown["payload_available"]) == ("failed", False)

    @pytest.mark.parametrize("wamid", ["wamid.a/b+c==", "wamid.?x=1", "wamid.%2F", "batch/x/y", "wamid.a b"])
    def test_any_wamid_can_be_named(self, api: Api, here: PhoneNumber, wamid: str) -> None:
        take_in(text_change(PNID, wamid))
        assert one(api, wamid)["wamid"] == wamid

    def test_a_refused_item_of_a_batch(
        self, api: Api, number: PhoneNumber, simulator: RunningSimulator
    ) -> None:
        refused = "+919812340000"
        simulator.control("PUT", "faults", [{"match": {"to": refused}, "action": "error", "code": 131030}])
        items = [{"to": refused, "type": "template", "template": {"name": "o", "language": {"code": "en"}}}]
        batch = api.post("/v1/messages/batch", {"from": number.phone_number_id, "messages": items}).json()
        runner.run()
        (item,) = api.get(f"/v1/messages?batch_id={batch['id']}").json()["data"]
        assert item["batch_id"] == batch["id"]
        assert (item["idx"], item["type"], item["wamid"]) == (0, "template", None)
        assert (item["status"], item["error_code"]) == ("failed", 131030)
        assert item["template"] == {"name": "o", "language": "en"}
        shown = one(api, item["id"])
        assert shown["request"]["template"]["name"] == "o"
        assert (shown["to"], shown["wa_id"]) == (refused, None), "the upstream named no customer"
        assert shown["error"]["code"] == 131030
        assert "131030" in shown["error"]["message"]
        assert [each["id"] for each in shown["events"]] == [item["id"]]

    def test_a_refused_message_to_a_user_id_shows_it_as_its_recipient(self, api: Api, tenant: Tenant) -> None:
        facts = MessageFacts("outbound", "failed", is_message=True)
        body = b'{"request":{"recipient":"IN.1"},"response":{"error":{}},"http_status":400}'
        make(tenant, "message.outbound", wamid=None, raw=None, raw_path=None, data=body, message=facts)
        (row,) = api.get("/v1/messages").json()["data"]
        assert (one(api, row["id"])["to"], row["user_id"]) == ("IN.1", None)

    def test_what_is_unknown_or_expunged_is_404(self, api: Api, tenant: Tenant, here: PhoneNumber) -> None:
        take_in(text_change(PNID, "wamid.A"))
        Message.objects.update(key=f"expunged:{ids.uuid7()}")
        for name in ("wamid.A", "wamid.B", Message.objects.get().key, Event.objects.get().public_id):
            assert_error(api.get(f"/v1/messages/{quote(name, safe='')}"), 404, "not_found")

    def test_a_message_of_a_large_group_is_bounded(
        self, api: Api, here: PhoneNumber, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(message_search, "MOST_EVENTS", 3)
        for person in range(6):
            take_in(
                status_change(
                    "wamid.G",
                    "delivered",
                    recipient_type="group",
                    recipient_participant_id=f"9198{person}",
                )
            )
        assert len(one(api, "wamid.G")["events"]) == 3
        assert Message.objects.count() == 1

    @pytest.mark.parametrize(
        ("whose", "shown"),
        [({"recipient_participant_id": "919800000002"}, ("delivered", None)), ({}, ("failed", 131026))],
        ids=["of a participant", "of the message"],
    )
    @pytest.mark.parametrize("at_once", [True, False])
    def test_a_participants_failure_is_not_that_of_the_message_to_the_group(
        self,
        api: Api,
        here: PhoneNumber,
        whose: dict[str, Any],
        shown: tuple[str, int | None],
        at_once: bool,
    ) -> None:
        group: dict[str, Any] = {"recipient_type": "group", "recipient_id": "120363000000000001"}
        failed = status_change("wamid.G", "failed", **group, **whose, errors=[{"code": 131026}])
        delivered = status_change("wamid.G", "delivered", **group, recipient_participant_id=CUSTOMER)
        if at_once:
            take_in(failed, delivered)
        else:
            take_in(failed)
            take_in(delivered)
        found = one(api, "wamid.G")
        assert (found["status"], found["error_code"]) == shown
        assert {(each["status"], each["wa_id"]) for each in found["statuses"]} == {
            ("failed", whose.get("recipient_participant_id")),
            ("delivered", CUSTOMER),
        }
        assert sorted(each["error"]["code"] for each in found["statuses"] if each["error"]) == [131026]

    def test_the_writer_of_a_message_in_a_group_is_shown_as_its_sender(
        self, api: Api, here: PhoneNumber
    ) -> None:
        change = text_change(PNID, "wamid.G")
        change["value"]["messages"][0]["group_id"] = "120363000000000001"
        take_in(change)
        shown = one(api, "wamid.G")
        assert (shown["from"], shown["to"], shown["wa_id"]) == (CUSTOMER, "919800000001", None)

    def test_the_event_with_the_message_is_shown_whatever_came_later(
        self, api: Api, tenant: Tenant, here: PhoneNumber, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(message_search, "MOST_EVENTS", 3)
        take_in(text_change(PNID, "wamid.A"))
        Event.objects.update(wamid="wamid.A")
        for word in ("sent", "delivered", "read", "failed"):
            make(
                tenant, "message.status", wamid="wamid.A", data=f'{{"status":{{"status":"{word}"}}}}'.encode()
            )
        events = [event["type"] for event in one(api, "wamid.A")["events"]]
        assert events == ["message.inbound", *["message.status"] * 3]


class TestList:
    @pytest.fixture(autouse=True)
    def _messages(self, here: PhoneNumber) -> None:
        take_in(text_change(PNID, "wamid.1"))
        for number, words in enumerate(
            (["sent"], ["sent", "delivered"], ["read"], ["sent", "failed"]), start=2
        ):
            take_in(*(status_change(f"wamid.{number}", word) for word in words))

    def test_filters(self, api: Api) -> None:
        for query, found in (
            ("", "54321"),
            ("status=received", "1"),
            ("status=sent", "2"),
            ("status=delivered", "3"),
            ("status=read", "4"),
            ("status=failed", "5"),
            ("status=accepted", ""),
            ("status=unknown", ""),
            ("wa_id=91", ""),
            ("from=2020-01-01T00:00:00Z&to=2100-01-01T00:00:00Z", "54321"),
            ("to=2020-01-01T00:00:00Z", ""),
            ("from=2100-01-01T00:00:00Z", ""),
        ):
            assert listed(api, query) == [f"wamid.{digit}" for digit in found], query

    def test_pages_go_on_within_a_range_of_time(self, api: Api) -> None:
        query = "from=2020-01-01T00:00:00Z&to=2100-01-01T00:00:00Z&limit=2"
        found: list[str] = []
        cursor: str | None = ""
        while cursor is not None and len(found) < 10:
            page = api.get(f"/v1/messages?{query}" + (f"&cursor={cursor}" if cursor else "")).json()
            found += [row["id"] for row in page["data"]]
            cursor = page["next_cursor"]
        assert found == [f"wamid.{digit}" for digit in "54321"]

    def test_what_cannot_be_a_filter_is_400(self, api: Api) -> None:
        for query in [
            "status=gone",
            "direction=up",
            "batch_id=1",
            "from=x",
            "limit=0",
            "cursor=%%%",
            "wamid=1",
        ]:
            error = assert_error(api.get(f"/v1/messages?{query}"), 400, "invalid_request")
            assert list(error["details"]["fields"]) == [query.partition("=")[0]], query

    def test_the_work_does_not_grow_with_the_page(self, api: Api) -> None:
        listed(api)
        counts = []
        for limit in (1, 5):
            with CaptureQueriesContext(
                connection,
            ) as queries:
                listed(api, f"limit={limit}")
            counts.append(len([each for each in queries if "messages" in (each["sql"] or "")]))
        assert max(counts) <= 2
