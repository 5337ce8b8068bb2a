"""`GET /v1/numbers/{id}/customers/{id}`: last messages, service window, opt-out and ids of a customer."""

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from gateway.clock import now
from messaging.sending.outbound import outbound_event
from messaging.tests.incoming import notification, number_of, post
from phone_numbers.models import PhoneNumber
from phone_numbers.senders_and_owners import Sender
from tenants.models import Tenant
from tests.fixtures import Api, assert_error
from webhooks.models import EventPayload
from webhooks.tests.messages import outbound, status, write

pytestmark = pytest.mark.django_db(transaction=True)

WABA, PNID = "100200300400500", "200300400500600"
WA_ID, USER_ID = "919812345678", "IN.77889900112233445566"


@pytest.fixture(autouse=True)
def here(tenant: Tenant) -> PhoneNumber:
    return number_of(tenant, waba_id=WABA, phone_number_id=PNID)


def take_in(field: str = "messages", **members: Any) -> None:
    value = {
        "messaging_product": "whatsapp",
        "metadata": {"display_phone_number": "919800000001", "phone_number_id": PNID},
        **members,
    }
    assert post(notification((WABA, [{"field": field, "value": value}]))).status_code == 200


def inbound(wamid: str, *, at: datetime, kind: str = "text", **more: Any) -> None:
    contact = {"profile": {"name": "Asha R", "username": "@asha.r"}, "wa_id": WA_ID, "user_id": USER_ID}
    message = {"id": wamid, "timestamp": str(int(at.timestamp())), "type": kind, **more}
    take_in(contacts=[contact], messages=[message])


def preference(value: str, *, at: int, category: str = "marketing_messages", **who: str) -> None:
    take_in(
        "user_preferences", user_preferences=[{**who, "category": category, "value": value, "timestamp": at}]
    )


def customer(api: Api, customer_id: str = WA_ID) -> dict[str, Any]:
    answer = api.get(f"/v1/numbers/{PNID}/customers/{customer_id}")
    assert answer.status_code == 200, answer.content
    body: dict[str, Any] = answer.json()
    return body


def test_nothing_is_known_of_a_stranger(api: Api) -> None:
    nothing = dict.fromkeys(
        (
            "user_id",
            "username",
            "last_inbound_at",
            "last_inbound_id",
            "window_open_until",
            "last_outbound_at",
            "last_template",
            "last_referral",
            "opted_out_at",
            "opted_out_source",
        )
    )
    known = {"phone_number_id": PNID, "wa_id": WA_ID}
    assert customer(api) == {**known, **nothing, "window_open": False, "opted_out": False}


@pytest.mark.parametrize("customer_id", [WA_ID, f"+{WA_ID}", USER_ID])
def test_each_id_leads_to_the_other(api: Api, customer_id: str) -> None:
    moment = now().replace(microsecond=0)
    inbound("wamid.1", at=moment, from_user_id=USER_ID, **{"from": WA_ID})
    shown = customer(api, customer_id)
    assert (shown["wa_id"], shown["user_id"], shown["username"]) == (WA_ID, USER_ID, "@asha.r")
    assert shown["last_inbound_id"] == "wamid.1"
    assert shown["last_inbound_at"] == moment.strftime("%Y-%m-%dT%H:%M:%S.000Z")
    assert shown["window_open"]


def test_messages_under_either_id_count(api: Api) -> None:
    moment = now()
    second, third = (str(int(moment.timestamp()) + later) for later in (1, 2))
    inbound("wamid.both", at=moment, from_user_id=USER_ID, **{"from": WA_ID})
    take_in(messages=[{"id": "wamid.u", "timestamp": second, "type": "text", "from_user_id": USER_ID}])
    assert customer(api, WA_ID)["last_inbound_id"] == "wamid.u"
    take_in(messages=[{"id": "wamid.w", "timestamp": third, "type": "text", "from": WA_ID}])
    for wamid, who in (("wamid.late", {"from": WA_ID}), ("wamid.later", {"from_user_id": USER_ID})):
        # The upstream repeats a notification for days, so an older message can arrive after the last one.
        inbound(wamid, at=moment - timedelta(days=2), **who)
    for either in (WA_ID, USER_ID):
        assert customer(api, either)["last_inbound_id"] == "wamid.w", "the newest counts, under whichever id"


def test_the_window_ends_a_day_after_the_customers_message(api: Api) -> None:
    inbound("wamid.1", at=datetime(2026, 1, 1, 8, 0, tzinfo=UTC), **{"from": WA_ID})
    shown = customer(api)
    assert (shown["window_open"], shown["window_open_until"]) == (False, "2026-01-02T08:00:00.000Z")


def test_a_notice_of_the_system_opens_no_window(api: Api) -> None:
    inbound("wamid.1", at=now(), kind="system", **{"from": WA_ID})
    assert not customer(api)["window_open"]


@pytest.mark.parametrize("kind", ["edit", "revoke"])
def test_a_change_of_an_old_message_opens_no_window(api: Api, kind: str) -> None:
    inbound("wamid.1", at=now() - timedelta(hours=30), **{"from": WA_ID})
    inbound("wamid.2", at=now(), kind=kind, **{"from": WA_ID, kind: {"original_message_id": "wamid.1"}})
    shown = customer(api)
    assert (shown["window_open"], shown["last_inbound_id"]) == (False, "wamid.1")


def test_a_message_in_a_group_is_not_of_the_private_chat(api: Api) -> None:
    inbound("wamid.1", at=now(), group_id="120363000000000001", from_user_id=USER_ID, **{"from": WA_ID})
    shown = customer(api)
    assert not shown["window_open"]
    assert (shown["user_id"], shown["username"], shown["last_inbound_at"]) == (None, None, None)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_message_to_a_group_says_nothing_of_its_participants(
    api: Api, tenant: Tenant, here: PhoneNumber, is_first: bool
) -> None:
    sent = orjson.dumps({"recipient_type": "group", "to": "120363000000000001", "type": "text"})
    answer = b'{"contacts":[{"wa_id":"120363000000000001"}],"messages":[{"id":"wamid.G"}]}'
    sender = Sender(PNID, WABA, "token", "live", "connected", None, here.digits, None, False)
    report = {
        "id": "wamid.G",
        "status": "delivered",
        "timestamp": "1793500000",
        "recipient_type": "group",
        "recipient_id": "120363000000000001",
        "recipient_participant_user_id": USER_ID,
    }
    for is_report in (is_first, not is_first):
        if is_report:
            take_in(statuses=[report])
        else:
            write(tenant, [outbound_event(number=sender, sent=sent, response=answer, http_status=200)])
    assert (customer(api, USER_ID)["wa_id"], customer(api, USER_ID)["last_outbound_at"]) == (None, None)
    (row,) = api.get("/v1/messages").json()["data"]
    assert (row["status"], row["wa_id"], row["user_id"]) == ("delivered", None, None)


def test_the_username_leaves_with_the_body(api: Api) -> None:
    inbound("wamid.1", at=now(), **{"from": WA_ID})
    EventPayload.objects.all().delete()
    shown = customer(api)
    assert (shown["username"], shown["window_open"]) == (None, True)


def test_the_last_word_on_marketing_counts_whatever_came_first(api: Api) -> None:
    preference("stop", at=1_793_500_000, wa_id=WA_ID)
    shown = customer(api)
    assert (shown["opted_out"], shown["opted_out_at"]) == (True, "2026-11-01T02:26:40.000Z")
    preference("resume", at=1_793_400_000, wa_id=WA_ID)
    assert customer(api)["opted_out"]
    preference("resume", at=1_793_600_000, wa_id=WA_ID)
    assert not customer(api)["opted_out"]
    preference("stop", at=1_793_700_000, category="another", wa_id=WA_ID)
    assert not customer(api)["opted_out"]
    EventPayload.objects.all().delete()
    preference("stop", at=1_793_700_000, user_id=USER_ID)
    inbound("wamid.1", at=now(), from_user_id=USER_ID, **{"from": WA_ID})
    assert customer(api)["opted_out"]


def test_the_last_template(api: Api, tenant: Tenant) -> None:
    write(tenant, [outbound("wamid.T", template_language="en_US")], [status("read", "wamid.T")])
    write(tenant, [outbound("wamid.X", template=None, type="text")])
    shown = customer(api)
    assert shown["last_template"] is not None
    expected = {"id": "wamid.T", "name": "order_update", "language": "en_US", "status": "read"}
    assert {name: shown["last_template"][name] for name in expected} == expected
    assert shown["last_outbound_at"] is not None


def test_another_number_knows_nothing(api: Api, tenant: Tenant) -> None:
    inbound("wamid.1", at=now(), from_user_id=USER_ID, **{"from": WA_ID})
    second = number_of(tenant, waba_id=WABA, phone_number_id="200300400500601", digits="919800000002")
    shown = api.get(f"/v1/numbers/{second.phone_number_id}/customers/{WA_ID}").json()
    assert (shown["last_inbound_at"], shown["user_id"]) == (None, None)


def test_a_former_owner_of_the_number_sees_its_own_messages_alone(
    api: Api, tenant: Tenant, other_tenant: Tenant, other_api: Api
) -> None:
    inbound("wamid.1", at=now(), **{"from": WA_ID})
    PhoneNumber.objects.update(tenant=other_tenant)
    shown = other_api.get(f"/v1/numbers/{PNID}/customers/{WA_ID}").json()
    assert shown["last_inbound_at"] is None


def test_what_is_no_customer_is_404(api: Api) -> None:
    for customer_id in ("asha", "12", "IN.", "91x", "9" * 30):
        assert_error(api.get(f"/v1/numbers/{PNID}/customers/{customer_id}"), 404, "not_found")


def test_a_chatty_customer_costs_one_bounded_walk(api: Api) -> None:
    for number in range(5):
        inbound(f"wamid.{number}", at=now(), **{"from": WA_ID})
    with CaptureQueriesContext(connection) as queries:
        customer(api)
    walks = [each["sql"] for each in queries if "FROM messages" in (each["sql"] or "")]
    assert len(walks) in (1, 2), queries.captured_queries
    assert all("LIMIT 10000" in walk for walk in walks)
