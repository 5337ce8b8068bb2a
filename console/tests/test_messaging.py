"""The console's messaging pages: a test message is sent once, batches, templates, and access by role and tenant."""

import html
import re
import shlex
import time
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import orjson
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from billing.admin.money_acts import ReasonForm
from billing.admin.profiles_and_prices import EvidenceForm, TermsForm
from console.conversation_forms import ReplyForm
from console.number_forms import ProfileForm
from console.send import SendForm, refusal_of
from console.template_forms import DraftForm
from console.tests.conversing import WA_ID, inbound, outbound
from console.tests.test_account import logged_call
from gateway import ids
from gateway.clock import isoformat, now
from messaging.batches import lifecycle
from messaging.idempotency import InProgress
from messaging.message_templates import template_management
from messaging.models import Batch, BatchFile, BatchItem, MessageTemplate, ScheduledMessage
from messaging.tests.incoming import notification, number_of, post
from messaging.tests.message_templates.bodies import order_update
from messaging.tests.sending.test_send import sent_bodies
from messaging.tests.test_message_log import status_change
from phone_numbers.models import BusinessAccount, PhoneNumber
from phone_numbers.sandbox import control
from phone_numbers.tests.conftest import verified_endpoint
from tenants.models import Tenant
from tenants.staff.approval_admin import NoteForm, RejectForm, SuspendForm
from tests.browsers import text
from tests.fixtures import Api
from tests.simulated import RunningSimulator
from webhooks.models import Delivery, Endpoint, Event, Message

pytestmark = pytest.mark.django_db(transaction=True)


def form(number: PhoneNumber, **more: str) -> dict[str, str]:
    return {
        "from_": number.phone_number_id,
        "to": "+91 98123-45678",
        "text": "Hello",
        "form_id": "a1",
        **more,
    }


def test_a_business_that_waits_for_approval_sends_only_in_its_sandbox(
    tenant: Tenant, browser: Client, simulator: RunningSimulator
) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(status=Tenant.Status.PENDING_APPROVAL)
    (number,) = control.ensure(tenant.id)
    home = text(browser, "/console")
    assert "Add an endpoint" in home, "the test world is open at once"
    assert "Create a key" not in home
    assert "It comes with the approval" in home
    page = html.unescape(browser.post("/console/send", form(number)).content.decode())
    assert "Meta accepted it" in page
    assert browser.get("/console/send").context["form"]["to"].value() == "+91 98123 45678"
    browser.post("/console/preferences", {"environment": "live"})
    assert "98123" not in text(browser, "/console/send")
    assert browser.post("/console/send", form(number)).status_code == 403
    assert "choose “Test” at the top" in browser.get("/console/send").content.decode()
    for path, button in (("/console/templates", "New template"), ("/console/batches/file", "Upload")):
        assert f">{button}</" not in text(browser, path)
    assert browser.post("/console/templates/sync").status_code == 403
    browser.post("/console/preferences", {"environment": "test"})
    for path, button in (("/console/templates", "New template"), ("/console/batches/file", "Upload")):
        assert f">{button}</" in text(browser, path)
    assert "templates refreshed" in html.unescape(
        browser.post("/console/templates/sync", follow=True).content.decode()
    )
    assert Event.objects.filter(type="message.outbound").count() == 1


def test_the_first_steps_distinguish_the_sandbox_from_live(
    tenant: Tenant, browser: Client, simulator: RunningSimulator
) -> None:
    def step(title: str) -> str:
        (found,) = re.findall(
            rf"<li(?:(?!<li).)*?<strong>{title}</strong>.*?</li>", text(browser, "/console"), re.DOTALL
        )
        return str(found)

    assert "Done" not in step("Connect a number")
    control.ensure(tenant.id)
    assert "Done in test" in step("Connect a number")
    assert 'class="done"' not in step("Connect a number"), "live is still to do"
    browser.post("/console/preferences", {"environment": "test"})
    assert 'class="done"' in step("Connect a number")
    assert "still to do for live" in step("Connect a number")
    assert "Done" not in step("Add a webhook endpoint")
    endpoint = verified_endpoint(tenant)
    assert "Done" not in step("Add a webhook endpoint"), "a live endpoint is marked by its flow"
    Endpoint.objects.filter(pk=endpoint.pk).update(environment="test")
    assert "Done in test" in step("Add a webhook endpoint")


def test_a_message_is_sent_once_however_often_the_page_is_reloaded(
    browser: Client, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    page = html.unescape(browser.post("/console/send", form(number)).content.decode())
    assert "Meta accepted it" in page
    wamid = Event.objects.get(type="message.outbound").wamid
    assert wamid is not None
    for words in (wamid, "Accepted by Meta", "curl ", '"to": "+919812345678"'):
        assert words in page
    assert wamid in html.unescape(browser.post("/console/send", form(number)).content.decode())
    other = html.unescape(browser.post("/console/send", form(number, text="Another")).content.decode())
    assert "It was not sent.</strong> This Idempotency-Key was used with a different body" in other
    assert len(sent_bodies(simulator, number)) == 1
    assert "Accepted by Meta" in text(browser, f"/console/send/events?wamid={wamid}")


def test_the_command_for_the_same_message_is_valid_with_an_apostrophe(
    browser: Client, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    page = html.unescape(browser.post("/console/send", form(number, text="It's here")).content.decode())
    command = shlex.split(page[page.index("<code>curl ") :].removeprefix("<code>").partition("</code>")[0])
    [sent] = sent_bodies(simulator, number)
    assert orjson.loads(command[command.index("-d") + 1])["text"] == orjson.loads(sent)["text"]
    assert orjson.loads(sent)["text"]["body"] == "It's here"


@pytest.mark.parametrize(
    ("form", "name"),
    [
        (SendForm, "text"),
        (ReplyForm, "text"),
        (DraftForm, "body"),
        (ProfileForm, "description"),
        (NoteForm, "text"),
        (RejectForm, "reason"),
        (SuspendForm, "note"),
        (ReasonForm, "reason"),
        (EvidenceForm, "evidence"),
        (TermsForm, "reason"),
    ],
)
def test_a_line_end_counts_as_one_character(form: Any, name: str) -> None:
    field = form.base_fields[name]
    longest = "\n" * (field.max_length - 2)
    assert field.clean(f"a{longest}z".replace("\n", "\r\n")) == f"a{longest}z"


def test_a_template_is_synced_listed_and_sent(
    browser: Client, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    made = template_management.create(
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
    answer = browser.post(
        "/console/send", form(number, text="", template=str(MessageTemplate.objects.get().pk))
    )
    assert answer.status_code == 200
    [sent] = [orjson.loads(body) for body in sent_bodies(simulator, number)]
    assert sent["template"] == {"name": "order", "language": {"code": "en_US"}}


def template_of(number: PhoneNumber, document: dict[str, Any], **fields: Any) -> MessageTemplate:
    return MessageTemplate.objects.create(
        **{
            "tenant": number.tenant,
            "account": number.account,
            "environment": number.environment,
            "template_id": f"41{MessageTemplate.objects.count()}",
            "name": document["name"],
            "language": document["language"],
            "status": "APPROVED",
            "category": "UTILITY",
            "document": orjson.dumps(document).decode(),
            "changed_at": now(),
            **fields,
        }
    )


def test_a_template_is_sent_with_its_variables(
    browser: Client, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    document = order_update()
    made = template_management.create(number.account, body=orjson.dumps(document), members=document)
    MessageTemplate.objects.update(status="APPROVED", document=orjson.dumps(document).decode())
    row = MessageTemplate.objects.get()
    deadline = time.monotonic() + 10
    template = f"accounts/{number.account.waba_id}"
    while simulator.control("GET", template)["templates"][0]["status"] != "APPROVED":
        assert time.monotonic() < deadline, made.body
    page = text(browser, f"/console/send?template={row.pk}")
    for words in ("Hi {{1}}, your order {{2}} is on its way.", "Body {{1}}", "Button 1: end of the link"):
        assert words in page
        assert words in text(browser, f"/console/send/variables?template={row.pk}")
    chosen = form(number, text="", template=str(row.pk))
    answer = browser.post("/console/send", chosen)
    assert answer.status_code == 400, "without a script the first answer shows the fields"
    assert "Body {{1}}" in html.unescape(answer.content.decode())
    assert sent_bodies(simulator, number) == []
    answer = browser.post("/console/send", {**chosen, "body_1": "Asha"})
    assert "Hi Asha, your order {{2}} is on its way." in html.unescape(answer.content.decode())
    answer = browser.post("/console/send", {**chosen, "body_1": "Asha", "body_2": "A-17", "button_0": "A-17"})
    assert answer.status_code == 200
    assert "Hi Asha, your order A-17 is on its way." in text(browser, f"/console/templates/{row.template_id}")
    [sent] = [orjson.loads(body) for body in sent_bodies(simulator, number)]
    given = [[each["text"] for each in part["parameters"]] for part in sent["template"]["components"]]
    assert given == [["Asha", "A-17"], ["A-17"]]


def test_a_template_that_is_not_listed_is_sent_from_its_page(
    browser: Client, number: PhoneNumber, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.template_forms.MOST_TEMPLATES", 1)
    bodies = [order_update(name) for name in ("first", "second")]
    _, second = [template_of(number, body) for body in bodies]
    page = text(browser, f"/console/templates/{second.template_id}")
    test, many = (
        re.search(rf'href="({path}\?template={second.pk})"', page)
        for path in ("/console/send", "/console/batches/file")
    )
    assert test
    assert many
    listed = text(browser, "/console/send")
    assert f'value="{second.pk}"' not in listed
    assert "The first 1 by name are listed." in listed
    selected = f'<option value="{second.pk}" selected>second (en_US)</option>'
    assert selected in text(browser, test[1])
    browser.post(
        "/console/send",
        form(number, text="", template=str(second.pk), body_1="Asha", body_2="A", button_0="A"),
    )
    [sent] = [orjson.loads(body) for body in sent_bodies(simulator, number)]
    assert sent["template"]["name"] == "second"
    file = SimpleUploadedFile("a.csv", b"to,name\n+919812345678,Asha\n")
    columns = browser.post(many[1], {"file": file})["Location"]
    page = text(browser, columns)
    assert selected in page
    assert "This field is required" not in page
    query = {"template": str(second.pk), "from_": number.phone_number_id}
    assert "Choose a column" in browser.get(columns.partition("?")[0], query).content.decode()


def test_a_template_that_cannot_be_filled_in_says_so(
    browser: Client, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    carousel = {"name": "a", "language": "en", "components": [{"type": "CAROUSEL", "cards": []}]}
    row = template_of(number, carousel)
    assert "can only be sent with the API" in text(browser, f"/console/send/variables?template={row.pk}")
    answer = browser.post("/console/send", form(number, template=str(row.pk)))
    assert answer.status_code == 400
    assert "can only be sent with the API" in html.unescape(answer.content.decode())
    assert sent_bodies(simulator, number) == []


def test_a_template_of_another_account_tenant_or_environment_is_not_sent(
    browser: Client,
    stranger: Client,
    number: PhoneNumber,
    other_tenant: Tenant,
    simulator: RunningSimulator,
) -> None:
    document = {"name": "a", "language": "en", "components": [{"type": "BODY", "text": "Hello there."}]}
    own = template_of(number, document)
    other = BusinessAccount.objects.create(
        tenant=number.tenant, environment="live", waba_id="777", access_token="EAA"
    )
    wrong = {
        "belongs to another business account": template_of(number, document, account=other),
        "Select a valid choice": template_of(number, document, tenant=other_tenant),
        "is not one of the available": template_of(number, document, environment="test"),
    }
    for words, row in wrong.items():
        answer = browser.post("/console/send", form(number, template=str(row.pk)))
        assert answer.status_code == 400
        assert words in html.unescape(answer.content.decode())
    second = number_of(number.tenant, waba_id="777", phone_number_id="7771", digits="919800000077")
    answer = browser.post("/console/send", form(second, template=str(own.pk)))
    assert "belongs to another business account" in html.unescape(answer.content.decode())
    assert "Hello there." not in text(stranger, f"/console/send/variables?template={own.pk}")
    assert "Hello there." in text(browser, f"/console/send/variables?template={own.pk}")
    assert browser.get("/console/send/variables?template=nonsense").status_code == 200
    assert sent_bodies(simulator, number) == []


def test_a_wrong_form_is_explained_and_nothing_is_sent(
    browser: Client, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    for field, value, words in (
        ("to", "98123", "country code"),
        ("to", "98123 45678", "country code"),
        ("text", "", "Type a text"),
        ("from_", "1", "valid"),
    ):
        answer = browser.post("/console/send", form(number, **{field: value}))
        assert answer.status_code == 400, value
        assert words in answer.content.decode(), value
    assert sent_bodies(simulator, number) == []


def test_what_the_platform_refuses_at_once_says_what_repairs_it(browser: Client, number: PhoneNumber) -> None:
    answer = browser.post("/console/send", form(number, to="+91 98123 40030"))
    page = html.unescape(answer.content.decode())
    assert "It was not sent." in page
    assert "Add the recipient to the list" in page
    assert "(code 131030)" in page


def test_a_message_that_may_have_been_sent_is_not_called_unsent(
    browser: Client, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    for action in ("reset", "html"):
        simulator.faults({"action": action, "match": {"path": "/messages$"}})
        page = html.unescape(browser.post("/console/send", form(number, form_id=action)).content.decode())
        assert "WhatsApp gave no usable answer: the message may have been sent." in page
        assert "Wait for its message.status event before you send it again." in page
        assert "It was not sent" not in page


def test_a_form_whose_message_is_still_being_sent_keeps_its_id(
    browser: Client, number: PhoneNumber, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbound(number.tenant, phone_number_id=number.phone_number_id)
    monkeypatch.setattr("console.send.send_from_thread", Mock(side_effect=InProgress))
    conversation = f"/console/conversations/{number.phone_number_id}/{WA_ID}"
    for path, more in (("/console/send", {}), (conversation, {"do": "reply"})):
        page = html.unescape(browser.post(path, form(number, **more)).content.decode())
        assert 'name="form_id" value="a1"' in page
        assert "It is being sent. Look for its message before you send it again." in page
        assert "<p>A request with this Idempotency-Key" not in page


@pytest.mark.parametrize(
    ("answer", "begins"),
    [
        (b'{"error": {"code": 131047, "message": "x"}}', "It was not sent. "),
        (b'{"error": {"code": 9999999, "message": "Not now."}}', "It was not sent: Not now."),
        (b'{"error": {"code": 9999999}}', "It was not sent: WhatsApp gave no reason."),
        (b'{"error": {"code": "meta_unreachable", "message": "It may be."}}', "It may be."),
        (
            b'{"error": {"code": "idempotency_conflict", "message": "%b"}}' % InProgress.message.encode(),
            "It is being sent.",
        ),
        (
            b'{"error": {"code": "idempotency_conflict", "message": "Used with a different body."}}',
            "This form was already sent, with other contents.",
        ),
        (b"{}", "It was not sent: WhatsApp gave no reason."),
        (b"<html>", "Meta did not answer."),
        (b"[]", "Meta did not answer."),
    ],
)
def test_a_refusal_is_said_in_words(answer: bytes, begins: str) -> None:
    said = refusal_of(answer)
    assert said.startswith(begins)
    assert said.endswith("(code 131047)") is (b"131047" in answer)


def test_a_refused_call_of_the_log_says_what_repairs_it(browser: Client, tenant: Tenant) -> None:
    def page_of(code: str) -> str:
        call = logged_call(tenant, method="POST", route="/v1/messages", status=400, error_code=code)
        return text(browser, f"/console/requests/{call.public_id}")

    assert 'Connect the number again. <a href="/console/numbers">See the numbers</a>' in page_of("190")
    assert "numbers on its list" in page_of("131030")
    assert '<a href="/errors#rate_limited">' in page_of("rate_limited")
    forbidden = page_of("forbidden")
    assert "may not use this operation" in forbidden
    assert "Or: <strong>No further number can be connected until all overdue invoices are paid." in forbidden
    for code in ("99999999", "²", ""):
        assert "Repair" not in page_of(code)
    drawers = text(browser, "/console/requests")
    assert "until all overdue invoices are paid" in drawers
    for code in ("190", "131030", "rate_limited", "forbidden"):
        assert f'data-opens="#error-{code}"' in drawers
        assert f'<dialog class="drawer" id="error-{code}"' in drawers
    assert "error-99999999" not in drawers


@pytest.mark.django_db
def test_a_message_can_be_sent_from_the_newest_connected_number_first(
    browser: Client, tenant: Tenant, other_tenant: Tenant
) -> None:
    for serial, (owner, environment, state, name) in enumerate(
        (
            (tenant, "live", "connected", "Kites"),
            (tenant, "live", "pending", ""),
            (tenant, "live", "disconnected", ""),
            (tenant, "live", "connected", ""),
            (tenant, "test", "connected", ""),
            (other_tenant, "live", "connected", ""),
        )
    ):
        made = {"environment": environment, "waba_id": f"80{serial}", "phone_number_id": f"90{serial}"}
        row = number_of(owner, **made, digits=f"9198000000{serial}")
        PhoneNumber.objects.filter(pk=row.pk).update(connection_state=state, verified_name=name)
    page = text(browser, "/console/send")
    assert "write “Hello”" not in page, "only customers of the sandbox write here"
    page = page.partition('name="from_"')[2].partition("</select>")[0]
    found = re.findall(r'<option value="(\d+)"[^>]*>([^<]+)', page)
    assert found == [("903", "+91980000003"), ("900", "+91980000000 Kites")]


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
    return lifecycle.create(tenant_id=tenant.id, environment="live", raw=orjson.dumps(body)).batch


def test_a_batch_is_listed_shown_and_cancelled(browser: Client, batch: Batch) -> None:
    assert "november" in text(browser, "/console/batches")
    assert "0 of 1 done" in text(browser, f"/console/batches/{batch.public_id}")
    Batch.objects.update(total=10_000, rate_per_sec=1_000)
    assert "0 of 10,000 done" in text(browser, f"/console/batches/{batch.public_id}")
    assert "1,000 messages a second" in text(browser, f"/console/batches/{batch.public_id}")
    browser.post(f"/console/batches/{batch.public_id}/cancel")
    batch.refresh_from_db()
    assert batch.status == "cancelled"


@pytest.mark.django_db
def test_a_number_without_a_shown_form_is_named_by_its_id(
    browser: Client, batch: Batch, number: PhoneNumber
) -> None:
    PhoneNumber.objects.filter(pk=number.pk).update(display_phone_number="")
    for path in ("/console/batches", f"/console/batches/{batch.public_id}"):
        assert number.phone_number_id in text(browser, path).partition("<main")[2]


def test_what_was_certainly_not_sent_is_queued_again(browser: Client, batch: Batch) -> None:
    path = f"/console/batches/{batch.public_id}"
    BatchItem.objects.update(status="failed")
    Batch.objects.update(status="completed", failed=1, completed_at=now())
    assert f'action="{path}/retry"' in text(browser, path)
    page = browser.post(f"{path}/retry", follow=True).content.decode()
    assert "not sent are queued again" in page
    assert f'action="{path}/retry"' not in page
    assert BatchItem.objects.get().status == "pending"
    assert (
        "Only a completed batch can be retried" in browser.post(f"{path}/retry", follow=True).content.decode()
    )


def test_what_waits_for_its_time_is_listed_changed_and_cancelled(
    browser: Client, api: Api, number: PhoneNumber
) -> None:
    send_at = (now() + timedelta(hours=3)).isoformat()
    body = {"from": number.phone_number_id, "to": "+919812345678", "type": "text", "text": {"body": "Hi"}}
    hours = {"from": 0, "to": 24}
    scheduled_id = api.post(
        "/v1/messages/scheduled", {**body, "send_at": send_at, "customer_hours": hours}
    ).json()["id"]
    batch = {"from": body.pop("from"), "messages": [body], "send_at": send_at, "client_ref": "evening"}
    batch_id = api.post("/v1/messages/batch", batch).json()["id"]
    listed = text(browser, "/console/scheduled")
    assert scheduled_id in listed
    assert "evening" in listed
    page = f"/console/scheduled/{scheduled_id}"
    shown = text(browser, page)
    for words in ("to +919812345678", "in 3 hours", "From 0 to 24 o’clock", '"body": "Hi"'):
        assert words in html.unescape(shown), words
    # The time is entered in the member's time zone, India.
    day = (now() + timedelta(days=2)).date()
    for path in (page, f"/console/batches/{batch_id}/time"):
        assert browser.post(path, {"send_at": f"{day}T18:30"}).status_code == 302
        assert "In Asia/Kolkata, at most" in text(browser, path.removesuffix("/time"))
    assert api.get(f"/v1/messages/scheduled/{scheduled_id}").json()["send_at"] == f"{day}T13:00:00.000Z"
    assert api.get(f"/v1/messages/batch/{batch_id}").json()["send_at"] == f"{day}T13:00:00.000Z"
    for wrong in ("", "soon", f"{now().year - 1}-01-01T10:00"):
        answer = html.unescape(browser.post(page, {"send_at": wrong}, follow=True).content.decode())
        assert re.search("This field is required|Enter a valid|Must be in the future", answer)
    assert api.get(f"/v1/messages/scheduled/{scheduled_id}").json()["send_at"] == f"{day}T13:00:00.000Z"
    browser.post(f"/console/batches/{batch_id}/time", {"send_at": ""})
    assert api.get(f"/v1/messages/batch/{batch_id}").json()["waiting_for"] == "scheduled"
    closed = (now().hour + 2) % 24
    Batch.objects.update(customer_hours={"from": closed, "to": closed + 1, "zones": ["UTC"]})
    sent_now = browser.post(f"/console/batches/{batch_id}/time", {"now": ""}, follow=True)
    assert "begins when the hours of its customers do" in sent_now.content.decode()
    Batch.objects.update(customer_hours=None)
    browser.post(f"/console/batches/{batch_id}/time", {"now": ""})
    assert api.get(f"/v1/messages/batch/{batch_id}").json()["waiting_for"] is None
    browser.post(page, {"cancel": ""})
    assert api.get(f"/v1/messages/scheduled/{scheduled_id}").json()["status"] == "cancelled"
    assert scheduled_id not in text(browser, "/console/scheduled")
    assert scheduled_id in text(browser, "/console/scheduled?all=1")
    assert "Change the time" not in text(browser, page)


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


@pytest.mark.django_db
def test_the_page_of_a_batch_lists_its_first_failed_messages_in_order(
    browser: Client, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.batches.FAILED_SHOWN", 2)
    BatchItem.objects.filter(batch=batch).update(status="accepted", http_status=200)
    for idx, status in ((7, "failed"), (3, "failed"), (5, "skipped"), (4, "failed"), (6, "pending")):
        BatchItem.objects.create(batch=batch, idx=idx, status=status, body=b"", http_status=400 + idx)
    Batch.objects.update(accepted=1, failed=2, total=6)

    def listed() -> tuple[list[tuple[str, str]], bool]:
        page = text(browser, f"/console/batches/{batch.public_id}")
        assert f"{1 + Batch.objects.get().failed} of 6 done" in page
        return re.findall(r'<tr><td class="amount">(\d+)</td><td>(\d+)</td>', page), "The first 2 are" in page

    assert listed() == ([("4", "403"), ("5", "404")], False)
    Batch.objects.update(failed=3)
    assert listed() == ([("4", "403"), ("5", "404")], True)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("skips", "reasons", "status", "words"),
    [
        (False, ["opted_out"], "queued", None),
        (True, ["opted_out", "opted_out", None], "completed", "2 left out."),
        (True, [None], "completed", "Nobody left out."),
        (True, [], "queued", "Nobody left out so far."),
    ],
)
def test_a_batch_says_how_many_customers_were_left_out(
    browser: Client, batch: Batch, skips: bool, reasons: list[str | None], status: str, words: str | None
) -> None:
    for idx, reason in enumerate(reasons, 1):
        BatchItem.objects.create(batch=batch, idx=idx, status="skipped", body=b"", skip_reason=reason)
    ended = now() if status == "completed" else None
    Batch.objects.update(
        skip_opted_out=skips, status=status, total=5, accepted=3, failed=1, completed_at=ended
    )
    page = text(browser, f"/console/batches/{batch.public_id}")
    assert ("5 of 5 done: 3 accepted, 1 failed, 1 not sent" in page) is (ended is not None)
    assert ("4 of 5 done: 3 accepted, 1 failed <" in page) is (ended is None)
    found = re.findall(
        r"<dt>Opt-outs</dt><dd>([^<]+?) *<", text(browser, f"/console/batches/{batch.public_id}")
    )
    assert found == ([words] if words else [])


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("fields", "words", "buttons"),
    [
        ({}, None, ["Cancel what is not sent yet"]),
        (
            {"waiting_for": "scheduled", "send_at": now()},
            "It waits until <time",
            ["Change", "Send it", "Cancel"],
        ),
        ({"waiting_for": "scheduled", "send_at": now(), "started_at": now()}, "It waits until", ["Cancel"]),
        ({"waiting_for": "number_not_connected"}, "until its number can send again", ["Cancel"]),
        ({"waiting_for": "tenant_suspended"}, "until the suspension ends", ["Cancel"]),
        ({"status": "completed", "failed": 1, "completed_at": now()}, None, ["Send again"]),
        ({"status": "completed", "completed_at": now()}, None, []),
        ({"status": "cancelled", "failed": 1, "completed_at": now()}, None, []),
    ],
)
def test_a_batch_says_why_it_waits_and_has_the_buttons_of_its_status(
    browser: Client, batch: Batch, fields: dict[str, Any], words: str | None, buttons: list[str]
) -> None:
    Batch.objects.update(**fields)
    page = text(browser, f"/console/batches/{batch.public_id}").partition("<main")[2]
    assert re.findall("It waits until", page) == (["It waits until"] if words else [])
    assert words is None or words in page
    found = re.findall(r"<button[^>]*>([^<]+)", page)
    assert len(found) == len(buttons)
    for shown, begins in zip(found, buttons, strict=True):
        assert shown.startswith(begins)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("ended", "status", "polls"),
    [
        (None, "sent_at", "?open=1"),
        (timedelta(hours=23), "sent_at", ""),
        (timedelta(hours=23), "accepted_at", ""),
        (timedelta(hours=23), "delivered_at", None),
        (timedelta(hours=23), "failed_at", None),
        (timedelta(hours=25), "sent_at", None),
    ],
)
def test_an_open_page_follows_a_batch_until_a_day_after_its_end(
    browser: Client, batch: Batch, ended: timedelta | None, status: str, polls: str | None
) -> None:
    event_id = ids.uuid7()
    Message.objects.create(
        tenant_id=batch.tenant_id,
        environment="live",
        key="wamid.1",
        month=ids.month_of(event_id),
        id=event_id,
        direction="outbound",
        batch_id=batch.id,
        **{status: now()},
    )
    Batch.objects.update(completed_at=now() - ended if ended else None)
    path = f"/console/batches/{batch.public_id}"
    followed = re.findall(rf'hx-get="{path}/progress([^"]*)"', text(browser, path))
    assert followed == ([] if polls is None else [polls])


@pytest.mark.django_db
def test_a_batch_from_a_file_is_named_after_the_file(browser: Client, batch: Batch) -> None:
    Batch.objects.update(client_ref=f"november.csv ({batch.id})")
    for path in ("/console/batches", f"/console/batches/{batch.public_id}"):
        assert re.search(r"[> ]november\.csv</(td|h1)>", text(browser, path)), path
    Batch.objects.update(client_ref=None)
    assert f'<h1 class="long">Batch {batch.public_id}</h1>' in text(
        browser, f"/console/batches/{batch.public_id}"
    )


@pytest.mark.django_db
def test_the_next_scheduled_batch_is_first_and_messages_that_ended_are_hidden(
    browser: Client, tenant: Tenant, other_tenant: Tenant, number: PhoneNumber
) -> None:
    for owner, environment, waits, hours in (
        (tenant, "live", "scheduled", 2),
        (tenant, "live", "scheduled", 1),
        (tenant, "live", "scheduled", 3),
        (tenant, "live", None, 4),
        (tenant, "test", "scheduled", 5),
        (other_tenant, "live", "scheduled", 6),
    ):
        Batch.objects.create(
            tenant=owner,
            environment=environment,
            phone_number_id=number.phone_number_id,
            total=1,
            rate_per_sec=80,
            waiting_for=waits,
            send_at=now() + timedelta(hours=hours),
            client_ref=None if hours == 3 else f"batch {hours}",
        )
    for place, status in enumerate(ScheduledMessage.Status.values):
        for owner, environment in ((tenant, "live"), (tenant, "test"), (other_tenant, "live")):
            ScheduledMessage.objects.create(
                tenant_id=owner.id,
                environment=environment,
                phone_number_id=number.phone_number_id,
                status=status,
                send_at=now() + timedelta(hours=place),
                body=b"{}",
            )

    def shown(query: str) -> tuple[list[str], list[str]]:
        page = text(browser, f"/console/scheduled{query}")
        return (
            re.findall(r'<td class="long">([^<]+)</td>', page),
            re.findall(r'<span class="badge[^"]*">([^<]+)</span>\s*</td>', page),
        )

    unnamed = Batch.objects.get(client_ref=None).public_id
    waiting = ["batch 1", "batch 2", unnamed]
    assert shown("") == (waiting, ["Sending", "Waits"])
    assert shown("?all=1") == (waiting, ["Cancelled", "Failed", "Accepted by Meta", "Sending", "Waits"])


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("fields", "shown", "hidden"),
    [
        ({}, ["to IN.7788", "Waits", "Change the time", "Cancel it"], ["What happened to it"]),
        ({"status": "sending"}, ["Sending"], ["Change the time", "Cancel it"]),
        ({"status": "accepted", "wamid": "wamid.1"}, ["/console/messages/wamid.1"], ["Change the time"]),
        (
            {"status": "failed", "response": b'{"error":{"code":131026,"message":"Not <allowed>"}}'},
            ["Failed", "Not <allowed>"],
            ["Change the time", "What happened to it"],
        ),
        ({"status": "cancelled", "body": b""}, ["Cancelled"], ["Cancel it", "What WhatsApp will get"]),
    ],
)
def test_a_scheduled_message_shows_its_outcome_and_the_buttons_of_its_status(
    browser: Client, tenant: Tenant, fields: dict[str, Any], shown: list[str], hidden: list[str]
) -> None:
    made = {"status": "scheduled", "body": b'{"recipient":"IN.7788"}', "send_at": now(), **fields}
    row = ScheduledMessage.objects.create(
        tenant_id=tenant.id, environment="live", phone_number_id="77", **made
    )
    page = text(browser, f"/console/scheduled/{row.public_id}")
    assert [words for words in shown if words not in page] == []
    assert [words for words in hidden if words in page] == []


def test_a_batch_says_what_became_of_its_messages(
    browser: Client, batch: Batch, tenant: Tenant, other_tenant: Tenant
) -> None:
    path = f"/console/batches/{batch.public_id}"
    outcomes: dict[str, dict[str, Any]] = {
        "a": {"accepted_at": now()},
        "b": {"accepted_at": now(), "sent_at": now(), "delivered_at": now()},
        "c": {"delivered_at": now(), "read_at": now()},
        "d": {"sent_at": now(), "failed_at": now(), "error_code": 131026},
        "e": {"failed_at": now(), "error_code": 131026},
        "f": {"failed_at": now()},
    }
    shared = {"month": now().date().replace(day=1), "batch_id": batch.id}
    for idx, (key, times) in enumerate(outcomes.items()):
        Message.objects.create(
            **{**shared, "tenant_id": tenant.id, "environment": "live", "direction": "outbound"},
            **{"key": f"wamid.{key}", "id": ids.uuid7(), "idx": idx, **times},
        )
    for owner, environment in ((other_tenant, "live"), (tenant, "test")):
        Message.objects.create(
            **{**shared, "tenant_id": owner.id, "environment": environment, "direction": "outbound"},
            key="z",
            id=ids.uuid7(),
            read_at=now(),
        )
    Batch.objects.filter(pk=batch.pk).update(status="completed", accepted=6, total=6, completed_at=now())
    page = " ".join(re.sub("<[^>]+>", " ", text(browser, path)).split())
    for words in (
        "Accepted 1 ",
        "Sent 0 ",
        "Delivered 1 ",
        "Read 1 ",
        "Failed 3 ",
        "1 failed: no code was given",
    ):
        assert words in page
    assert "2 failed: " in page
    assert "131026" in page
    read = browser.get(f"/console/messages?batch={batch.public_id}&status=read").content.decode()
    assert "wamid.c" in read
    assert "wamid.b" not in read

    progress = f"{path}/progress"
    assert f'hx-get="{progress}"' in browser.get(path).content.decode(), "what is accepted may still be read"
    assert "HX-Refresh" not in browser.get(progress).headers
    assert browser.get(f"{progress}?open=1").headers["HX-Refresh"] == "true"
    Message.objects.filter(key="wamid.a").update(read_at=now())
    assert "hx-get" not in browser.get(progress).content.decode(), "nothing more can come"


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
    assert "Meta accepted it." in text(browser, f"/console/messages/{wamid}")
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
        "ms at Meta",
    ):
        assert words in page
    assert '<small class="lead">failed</small>' in text(browser, "/console/events")
    for query in (
        "",
        "?status=failed",
        "?wa_id=%2B91 98123 45678",
        "?wa_id=98123 45678",
        "?wa_id=9812345678&status=failed",
        "?direction=outbound",
    ):
        listed = text(browser, f"/console/messages{query}")
        assert wamid in listed
        assert '<td class="title">+919812345678</td>' in listed
    assert wamid not in text(browser, "/console/messages?direction=inbound")


def message_of(tenant: Tenant, **fields: Any) -> str:
    """Create a message without events. Returns the path of its page."""
    event_id = ids.uuid7()
    made = {"environment": "live", "direction": "outbound", "wa_id": "919812345678", **fields}
    row = Message.objects.create(
        tenant_id=tenant.id, key=f"wamid.{event_id.hex}", month=ids.month_of(event_id), id=event_id, **made
    )
    return f"/console/messages/{row.key}"


@pytest.mark.django_db
def test_each_status_of_a_message_is_explained(browser: Client, tenant: Tenant) -> None:
    for fields, badge, level, words in (
        ({"direction": "inbound"}, "Received", "ok", "A customer sent it."),
        ({"accepted_at": now()}, "Accepted", "warn", "Meta accepted it. No status has come yet."),
        (
            {"accepted_at": now(), "sent_at": now()},
            "Sent",
            "warn",
            "Meta sent it. The phone has not confirmed",
        ),
        ({"sent_at": now(), "delivered_at": now()}, "Delivered", "ok", "It was delivered."),
        ({"delivered_at": now(), "read_at": now()}, "Read", "ok", "It was read."),
        ({"failed_at": now()}, "Failed", "bad", "It was not delivered: Meta gave no reason (code None)"),
        (
            {"failed_at": now(), "error_code": 9},
            "Failed",
            "bad",
            "It was not delivered: Meta gave no reason (code 9)",
        ),
        ({"sent_at": now(), "failed_at": now(), "error_code": 131026}, "Failed", "bad", "(code 131026)"),
        ({"error_code": 131026}, "Unknown", "bad", "(code 131026)"),
        ({"failed_at": now(), "error_code": 130429}, "Failed", "bad", "(code 130429) <a"),
        ({}, "Unknown", "warn", "WhatsApp's answer was lost: the message may have been sent."),
    ):
        page = html.unescape(text(browser, message_of(tenant, **fields)))
        found = re.search(
            r'<p><span class="badge[^>]*>(\w+)</span>\s*</p>\s*<div class="note (\w+)"><p>(.*?)</p>', page
        )
        assert found is not None, fields
        assert (found[1], found[2]) == (badge, level), fields
        assert words in found[3], fields
        assert "Its batch" not in found[3], fields
        assert "only statuses have come so far" in page
        assert "past your retention" not in page


@pytest.mark.django_db
def test_the_timeline_calls_a_message_refused_only_if_meta_refused_it(
    browser: Client, tenant: Tenant
) -> None:
    for given, level, title in (
        ({}, "ok", "Accepted by Meta"),
        ({"status": "failed"}, "bad", "Refused by Meta"),
        ({"status": "unknown"}, "warn", "WhatsApp's answer was lost"),
        ({"status": "sent", "kind": "message.echo"}, "ok", "Written in the WhatsApp Business app"),
        ({"status": "read", "kind": "message.history"}, "ok", "Written in the WhatsApp Business app"),
    ):
        page = html.unescape(text(browser, f"/console/messages/{outbound(tenant, **given)}"))
        _, _, timeline = page.partition('<ol class="timeline">')
        assert re.findall(r'<li class="(\w+)"><p><a [^>]*><strong>([^<]+)', timeline) == [(level, title)]


@pytest.mark.django_db
def test_the_timeline_of_a_message_has_each_attempt_of_its_deliveries(
    browser: Client, tenant: Tenant
) -> None:
    endpoint = verified_endpoint(tenant)
    wamid = inbound(tenant)
    event = Event.objects.get(wamid=wamid)
    at = now() + timedelta(minutes=1)
    attempts = ((200, None), (299, None), (300, "http_3xx"), (500, "http_5xx"), (None, "timeout"))
    Delivery.objects.all().delete()
    for endpoint_id, log in ((endpoint.id, attempts), (ids.uuid7(), ((204, None),))):
        Delivery.objects.create(
            id=ids.uuid7(),
            tenant_id=tenant.id,
            endpoint_id=endpoint_id,
            event_id=event.id,
            event_type=event.type,
            attempt_log=[
                {
                    "at": isoformat(at + timedelta(seconds=place)),
                    "http_status": status,
                    "ms": 7,
                    "error": error,
                }
                for place, (status, error) in enumerate(log)
            ],
        )
        at += timedelta(minutes=1)
    page = text(browser, f"/console/messages/{wamid}").partition('<ol class="timeline">')[2]
    entry = (
        r'<li class="(\w+)"><p><a [^>]*><strong>([^<]+)</strong>(?:(?!</li>).)*?<p class="lead long">([^<]+)<'
    )
    found = re.findall(entry, page)
    said, own, gone = "message.inbound to your server", f"{endpoint.url}, 7 ms", "a deleted endpoint, 7 ms"
    assert found == [
        ("ok", f"{said}: HTTP 200", own),
        ("ok", f"{said}: HTTP 299", own),
        ("bad", f"{said}: HTTP 300", own),
        ("bad", f"{said}: HTTP 500", own),
        ("bad", f"{said}: timeout", own),
        ("ok", f"{said}: HTTP 204", gone),
    ]


def test_the_reason_of_a_failure_has_the_title_and_the_details_once(
    browser: Client, number: PhoneNumber
) -> None:
    for title, details, shown in (
        ("Undeliverable", "No account", "Undeliverable: No account"),
        ("Undeliverable", "undeliverable.", "undeliverable."),
        ("Undeliverable", None, "Undeliverable"),
        (None, "No account", "No account"),
    ):
        wamid = outbound(number.tenant)
        error = {"code": 131026, "title": title, "error_data": {"details": details} if details else None}
        change = status_change(wamid, "failed", at=int(now().timestamp()))
        change["value"]["metadata"]["phone_number_id"] = number.phone_number_id
        change["value"]["statuses"][0]["errors"] = [{name: value for name, value in error.items() if value}]
        assert post(notification((number.account.waba_id, [change]))).status_code == 200
        page = text(browser, f"/console/messages/{wamid}").partition('<ol class="timeline">')[2]
        found = re.findall(
            r'<li class="bad">.*?<strong>Failed</strong>.*?<p class="lead long">([^<]+)<', page
        )
        assert found == [shown], title
        page = text(browser, f"/console/send/events?wamid={wamid}")
        assert re.findall("<strong>([^<]+)", page) == ["Accepted by Meta", "Failed"]
        assert f"<p>{': '.join(filter(None, (title, details)))} (code 131026)</p>" in page


def test_the_messages_of_a_batch_are_listed_and_a_wrong_filter_is_named(
    browser: Client, number: PhoneNumber, batch: Batch
) -> None:
    browser.post("/console/send", form(number))
    browser.post("/console/send", form(number, form_id="a2"))
    first, second = Message.objects.order_by("id")
    Message.objects.filter(id=first.id).update(batch_id=batch.id)
    assert first.wamid is not None
    assert second.wamid is not None
    link = f"/console/messages?batch={batch.public_id}"
    assert link in text(browser, f"/console/batches/{batch.public_id}")
    listed = text(browser, link)
    assert first.wamid in listed
    assert second.wamid not in listed
    assert "begins with bat_" in text(browser, "/console/messages?batch=november")
    assert "with its country code" in text(browser, "/console/messages?wa_id=asha")


def test_a_message_names_its_place_in_the_batch_as_people_count_and_its_fee_in_words(
    browser: Client, number: PhoneNumber, batch: Batch
) -> None:
    browser.post("/console/send", form(number))
    Message.objects.update(
        batch_id=batch.id, idx=0, pricing_category="utility", pricing_type="regular", billable=True
    )
    path = f"/console/messages/{Message.objects.get().wamid}"
    page = text(browser, path)
    assert "</a>, message 1</dd>" in page
    assert "Charged by Meta: utility, regular" in page
    BatchFile.objects.create(
        tenant_id=batch.tenant_id, environment="live", name="a.csv", batch_id=batch.id, row_numbers=[4]
    )
    Message.objects.update(billable=False)
    page = text(browser, path)
    assert "</a>, row 4</dd>" in page
    assert "Free: utility, regular" in page


def test_a_throttled_message_of_a_batch_is_sent_again_by_its_batch(
    browser: Client, number: PhoneNumber, batch: Batch
) -> None:
    browser.post("/console/send", form(number))
    Message.objects.update(failed_at=now(), error_code=130429)
    path = f"/console/messages/{Message.objects.get().wamid}"
    assert "Make a batch" in text(browser, path)
    Message.objects.update(batch_id=batch.id)
    page = text(browser, path)
    assert "Its batch can send it again" in page
    assert "Make a batch" not in page


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


def test_a_status_comes_after_the_message_that_it_is_about(
    browser: Client, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    """Meta's times are whole seconds, so a status in the same second can seem older than the message."""
    browser.post("/console/send", form(number))
    own = Event.objects.get(type="message.outbound")
    change = status_change(own.wamid or "", "sent", at=int(own.created_at.timestamp()) - 1)
    change["value"]["metadata"]["phone_number_id"] = number.phone_number_id
    assert post(notification((number.account.waba_id, [change]))).status_code == 200
    page = text(browser, f"/console/messages/{own.wamid}")
    assert page.index("Accepted by Meta") < page.index("Sent to the phone")


def test_in_the_sandbox_the_customer_writes_before_a_text_is_sent(
    tenant: Tenant, browser: Client, simulator: RunningSimulator
) -> None:
    (number,) = control.ensure(tenant.id)
    browser.post("/console/preferences", {"environment": "test"})
    page = text(browser, "/console/send")
    assert "Let +91 98123 45678 write “Hello”" in page
    fields = dict(
        re.findall(r'type="hidden" name="(number|customer|identity|then_send)" value="([^"]+)"', page)
    )
    assert browser.post("/console/phone/begin", fields)["Location"] == "/console/send"
    inbound(tenant, environment="test")
    Message.objects.update(phone_number_id=number.phone_number_id)
    assert "write “Hello”" not in text(browser, "/console/send")
    # A day later the window has ended.
    Message.objects.update(sent_at=now() - timedelta(hours=25))
    assert "write “Hello”" in text(browser, "/console/send")
    browser.post("/console/preferences", {"environment": "live"})
    assert "write “Hello”" not in text(browser, "/console/send")
