"""The referral of a message from an ad: in lists, look-up, customer and figures, even after the content is deleted."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from gateway.clock import now
from messaging.tests.incoming import notification, number_of, post
from phone_numbers.models import PhoneNumber
from tenants.models import Tenant
from tests.browsers import text
from tests.fixtures import Api
from webhooks.models import EventPayload, Message
from webhooks.tests.test_analytics import around, count_all, figures

pytestmark = pytest.mark.django_db(transaction=True)

WABA, PNID, WA_ID = "100200300400500", "200300400500600", "919812345678"
AD = "120200300400500600"
REFERRAL = {
    "source_url": "https://fb.me/1a2b3c",
    "source_id": AD,
    "source_type": "ad",
    "body": "Fresh coffee",
    "headline": "Chat with us",
    "media_type": "image",
    "image_url": "https://scontent.example/a.jpg",
    "ctwa_clid": "ARAkLkA8rmlFeiCktEJQ",
    "welcome_message": {"text": "Hello"},
}
SHORT = {"source_type": "ad", "source_id": AD, "ctwa_clid": "ARAkLkA8rmlFeiCktEJQ"}


@pytest.fixture(autouse=True)
def here(tenant: Tenant) -> PhoneNumber:
    return number_of(tenant, waba_id=WABA, phone_number_id=PNID)


def write(wamid: str, *, sender: str = WA_ID, **more: Any) -> None:
    message = {
        "from": sender,
        "id": wamid,
        "timestamp": str(int(now().timestamp())),
        "type": "text",
        "text": {"body": "Is it fresh?"},
        **more,
    }
    value = {
        "messaging_product": "whatsapp",
        "metadata": {"display_phone_number": "919800000001", "phone_number_id": PNID},
        "messages": [message],
    }
    assert post(notification((WABA, [{"field": "messages", "value": value}]))).status_code == 200


def listed(api: Api, query: str = "") -> list[tuple[str, Any]]:
    return [(row["id"], row["referral"]) for row in api.get(f"/v1/messages?{query}").json()["data"]]


def test_lists_look_up_and_customer_know_the_ad(api: Api, tenant: Tenant) -> None:
    write("wamid.1", referral=REFERRAL)
    write("wamid.2")
    write("wamid.3", referral={"source_id": "77", "source_type": "post"}, sender="919812345679")
    post_of = {"source_type": "post", "source_id": "77", "ctwa_clid": None}
    assert listed(api) == [("wamid.3", post_of), ("wamid.2", None), ("wamid.1", SHORT)]
    assert listed(api, f"referral_source_id={AD}") == [("wamid.1", SHORT)]
    assert listed(api, f"referral_source_id={AD}&wa_id=919812345679") == []
    found = api.get("/v1/messages/wamid.1").json()
    assert (found["referral"], found["message"]["referral"]) == (SHORT, REFERRAL)
    path = f"/v1/numbers/{PNID}/customers/"
    last = api.get(f"{path}{WA_ID}").json()["last_referral"]
    assert {name: last[name] for name in (*SHORT, "message_id")} == {**SHORT, "message_id": "wamid.1"}
    assert last["at"] is not None
    assert api.get(f"{path}919812345670").json()["last_referral"] is None
    EventPayload.objects.all().delete()
    found = api.get("/v1/messages/wamid.1").json()
    assert (found["referral"], found["message"]) == (SHORT, None)
    call_command("expunge", "--tenant", str(tenant.id), "--wa-id", WA_ID)
    assert not Message.objects.filter(referral_ctwa_clid__isnull=False).exists()


@pytest.mark.parametrize("named", [("source_id",), ("ctwa_clid",), ("source_id", "ctwa_clid")])
def test_every_message_with_a_referral_counts_as_the_customers_ad(
    api: Api, browser: Client, named: tuple[str, ...]
) -> None:
    """Either id may be missing."""
    write("wamid.1", referral=REFERRAL)
    write("wamid.2", referral={"source_type": "ad"} | dict.fromkeys(named, "77"))
    shown = api.get("/v1/messages/wamid.2").json()["referral"]
    assert [name for name in shown if shown[name] == "77"] == [*named]
    last = api.get(f"/v1/numbers/{PNID}/customers/{WA_ID}").json()["last_referral"]
    assert (last["message_id"], {name: last[name] for name in shown}) == ("wamid.2", shown)
    page = text(browser, "/console/messages/wamid.2")
    assert "Came from" in page
    assert ("?referral=" in page) is ("source_id" in named)


@pytest.mark.parametrize(
    "referral",
    ["x", [], {}, {"source_id": 5, "source_type": {}}, {"source_id": "1" * 300, "ctwa_clid": "c" * 600}],
)
def test_a_referral_of_another_form_loses_no_message(api: Api, referral: Any) -> None:
    write("wamid.1", referral=referral)
    assert len(listed(api)) == 1
    assert api.get("/v1/messages/wamid.1").json()["message"]["referral"] == referral


@pytest.mark.usefixtures("within_half_an_hour")
def test_analytics_and_the_console_count_messages_by_ad(api: Api, browser: Client) -> None:
    for number in range(3):
        write(f"wamid.{number}", referral=REFERRAL)
    write("wamid.p", referral={"source_id": "77", "source_type": "post"})
    write("wamid.x")
    count_all()
    (day,) = figures(api, around(now() + timedelta()))["messages"]
    assert (day["received"], day["referrals"]) == (5, {AD: 3, "77": 1})
    figures_page = text(browser, "/console/figures")
    assert re.findall(
        r'\?referral=(\d+)"><code>\d+</code></a></td><td class="amount">(\d+)', figures_page
    ) == [
        (AD, "3"),
        ("77", "1"),
    ]
    messages = text(browser, f"/console/messages?referral={AD}")
    assert [f"wamid.{number}" in messages for number in (0, 1, 2, "p", "x")] == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert "Came from" in text(browser, "/console/messages/wamid.p")
    assert "Came from" not in text(browser, "/console/messages/wamid.x")
