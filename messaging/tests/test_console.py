"""The console's messaging pages: a test message is sent once, batches, templates; and who does not see them."""

import html
import time

import orjson
import pytest
from django.test import Client

from messaging.batches import lifecycle
from messaging.message_templates import operations
from messaging.models import Batch, BatchItem
from messaging.tests.incoming import notification, post
from messaging.tests.sending.test_send import sent_bodies
from phone_numbers.models import PhoneNumber
from phone_numbers.sandbox import world
from tenants.models import Tenant
from tests.browsers import text
from tests.simulated import RunningSimulator
from webhooks.models import Event

pytestmark = pytest.mark.django_db


def form(number: PhoneNumber, **more: str) -> dict[str, str]:
    return {
        "from_": number.phone_number_id,
        "to": "+91 98123-45678",
        "text": "Hello",
        "form_id": "a1",
        **more,
    }


def test_a_business_that_waits_for_approval_sends_in_its_test_world_alone(
    tenant: Tenant, browser: Client, simulator: RunningSimulator
) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(status=Tenant.Status.PENDING_APPROVAL)
    (number,) = world.ensure(tenant.id)
    assert browser.post("/console/send", form(number)).status_code == 403
    browser.post("/console/preferences", {"environment": "test"})
    page = html.unescape(browser.post("/console/send", form(number)).content.decode())
    assert "the platform accepted it" in page
    assert Event.objects.filter(type="message.outbound").count() == 1


def test_a_message_is_sent_once_however_often_the_page_is_reloaded(
    browser: Client, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    page = html.unescape(browser.post("/console/send", form(number)).content.decode())
    assert "the platform accepted it" in page
    wamid = Event.objects.get(type="message.outbound").wamid
    assert wamid is not None
    for words in (wamid, "Accepted by the platform", "curl ", '"to": "919812345678"'):
        assert words in page
    assert wamid in html.unescape(browser.post("/console/send", form(number)).content.decode())
    assert len(sent_bodies(simulator, number)) == 1
    assert "Accepted by the platform" in text(browser, f"/console/send/events?wamid={wamid}")


def test_a_template_is_synced_listed_and_sent(
    browser: Client, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    made = operations.create(
        number.account,
        body=b'{"name":"order","language":"en_US","category":"UTILITY",'
        b'"components":[{"type":"BODY","text":"Your order is ready."}]}',
        members={"name": "order", "language": "en_US", "category": "UTILITY"},
    )
    assert made.status == 200
    deadline = time.monotonic() + 10
    page = ""
    while 'ok">Approved' not in page and time.monotonic() < deadline:
        page = html.unescape(browser.post("/console/templates/sync", follow=True).content.decode())
    assert "Your order is ready." in page
    assert 'ok">Approved' in page
    answer = browser.post("/console/send", form(number, text="", template="order|en_US"))
    assert answer.status_code == 200
    [sent] = [orjson.loads(body) for body in sent_bodies(simulator, number)]
    assert sent["template"] == {"name": "order", "language": {"code": "en_US"}}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [({"to": "98123"}, "country code"), ({"text": ""}, "Type a text"), ({"from_": "1"}, "valid")],
)
def test_a_wrong_form_is_explained_and_nothing_is_sent(
    browser: Client, number: PhoneNumber, simulator: RunningSimulator, wrong: dict[str, str], words: str
) -> None:
    answer = browser.post("/console/send", form(number, **wrong))
    assert answer.status_code == 400
    assert words in answer.content.decode()
    assert sent_bodies(simulator, number) == []


def test_a_refusal_is_shown_in_words(browser: Client, number: PhoneNumber) -> None:
    page = browser.post("/console/send", form(number, to="+919812340030")).content.decode()
    assert "HTTP 400: it was not sent." in page
    assert "not in allowed list" in page


def test_nobody_sends_from_another_tenants_number(
    number: PhoneNumber, stranger: Client, simulator: RunningSimulator
) -> None:
    assert stranger.post("/console/send", form(number)).status_code == 400
    assert sent_bodies(simulator, number) == []


@pytest.fixture
def batch(tenant: Tenant, number: PhoneNumber) -> Batch:
    body = {
        "from": number.phone_number_id,
        "client_ref": "november",
        "messages": [{"to": "+919812345678", "type": "text", "text": {"body": "Hi"}}],
    }
    made, _ = lifecycle.create(tenant_id=tenant.id, environment="live", raw=orjson.dumps(body))
    return made


def test_a_batch_is_listed_shown_and_cancelled(browser: Client, batch: Batch) -> None:
    assert "november" in text(browser, "/console/batches")
    assert "0 of 1 done" in text(browser, f"/console/batches/{batch.public_id}")
    browser.post(f"/console/batches/{batch.public_id}/cancel")
    batch.refresh_from_db()
    assert batch.status == "cancelled"


def test_failed_items_say_why(browser: Client, batch: Batch) -> None:
    BatchItem.objects.filter(batch=batch).update(
        status="failed",
        http_status=400,
        response=orjson.dumps({"error": {"code": 131030, "message": "Not <allowed>"}}),
    )
    Batch.objects.filter(pk=batch.pk).update(status="completed", failed=1)
    page = text(browser, f"/console/batches/{batch.public_id}")
    assert "131030" in page
    assert "Not <allowed>" in page


def test_another_tenant_and_the_other_environment_see_no_batch(
    browser: Client, batch: Batch, stranger: Client
) -> None:
    browser.post("/console/preferences", {"environment": "test"})
    for client in (stranger, browser):
        assert "november" not in text(client, "/console/batches")
        assert client.get(f"/console/batches/{batch.public_id}").status_code == 404
        for action in ("cancel", "retry"):
            assert client.post(f"/console/batches/{batch.public_id}/{action}").status_code == 404
    batch.refresh_from_db()
    assert batch.status == "queued"


def test_a_message_shows_why_it_failed_and_everything_that_happened(
    browser: Client, number: PhoneNumber, tenant: Tenant
) -> None:
    browser.post("/console/send", form(number))
    wamid = Event.objects.get(type="message.outbound").wamid
    assert wamid is not None
    assert "The platform accepted it." in text(browser, f"/console/messages/{wamid}")
    change = {
        "field": "messages",
        "value": {
            "messaging_product": "whatsapp",
            "metadata": {"display_phone_number": "919800000001", "phone_number_id": number.phone_number_id},
            "statuses": [
                {
                    "id": wamid,
                    "status": "failed",
                    "timestamp": "1795322873",
                    "recipient_id": "919812345678",
                    "errors": [{"code": 131047, "title": "Re-engagement <message>"}],
                }
            ],
        },
    }
    assert post(notification((number.account.waba_id, [change]))).status_code == 200
    page = text(browser, f"/console/messages/{wamid}")
    for words in (
        "only a template can be sent",
        "Send a template",
        "Re-engagement <message>",
        "ms at the platform",
    ):
        assert words in page
    for query in ("", "?status=failed", "?wa_id=%2B91 98123 45678", "?direction=outbound"):
        assert wamid in text(browser, f"/console/messages{query}")
    assert wamid not in text(browser, "/console/messages?direction=inbound")


def test_another_tenant_and_the_other_environment_see_no_message(
    browser: Client, number: PhoneNumber, stranger: Client
) -> None:
    browser.post("/console/send", form(number))
    wamid = Event.objects.get(type="message.outbound").wamid
    assert wamid is not None
    browser.post("/console/preferences", {"environment": "test"})
    for client in (stranger, browser):
        assert wamid not in text(client, "/console/messages")
        assert client.get(f"/console/messages/{wamid}").status_code == 404
