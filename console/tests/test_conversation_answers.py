"""Replies to customers from the console: text, quote, file, template, the 24-hour window, customers' files, agents."""

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import orjson
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from playwright.sync_api import Browser, expect

from console.tests import conversing
from console.tests.conversing import WA_ID, inbound, outbound, status
from gateway.api import limits
from gateway.clock import now
from messaging.media import uploads
from messaging.message_templates import template_management
from messaging.models import KnownMedia, MessageTemplate
from messaging.tests.message_templates.bodies import order_update
from messaging.tests.sending import test_send
from phone_numbers.models import PhoneNumber
from tenants.audit import GATEWAY
from tenants.models import Tenant, User
from tests.accessibility import Chromium, complaints, session_of, window
from tests.browsers import browser_of, text
from tests.fixtures import wait_until
from tests.simulated import RunningSimulator
from webhooks.endpoints import lifecycle

pytestmark = pytest.mark.django_db(transaction=True)

REFRESHES = """(isHidden) => {
    let sent = 0;
    const count = () => { sent += 1; };
    document.addEventListener("htmx:beforeSend", count);
    Object.defineProperty(document, "hidden", { value: isHidden, configurable: true });
    htmx.trigger("#thread", "live");
    document.removeEventListener("htmx:beforeSend", count);
    return sent;
}"""
"""How many requests a refresh of the messages sends."""


@pytest.fixture
def path(tenant: Tenant, number: PhoneNumber, monkeypatch: pytest.MonkeyPatch) -> str:
    """The path of a conversation between a customer and a number that can send."""
    lifecycle.create(tenant_id=tenant.id, environment="live", actor=GATEWAY, kind="inbox")
    monkeypatch.setattr(conversing, "PNID", number.phone_number_id)
    return f"/console/conversations/{number.phone_number_id}/{WA_ID}"


@pytest.fixture
def template(tenant: Tenant, number: PhoneNumber) -> MessageTemplate:
    document = {
        "name": "order_update",
        "language": "en",
        "components": [{"type": "BODY", "text": "Your order {{1}} is on its way."}],
    }
    return MessageTemplate.objects.create(
        tenant=tenant,
        account=number.account,
        environment="live",
        template_id="1234",
        name="order_update",
        language="en",
        status="APPROVED",
        category="UTILITY",
        document=orjson.dumps(document).decode(),
        changed_at=now(),
    )


def sent_bodies(simulator: RunningSimulator, number: PhoneNumber) -> list[Any]:
    """The bodies that WhatsApp received."""
    return [orjson.loads(body) for body in test_send.sent_bodies(simulator, number)]


def form(**more: Any) -> dict[str, Any]:
    return {"do": "reply", "form_id": "a1", "text": "On its way.", **more}


def test_an_agent_answers_and_sees_nothing_else(
    tenant: Tenant, number: PhoneNumber, path: str, simulator: RunningSimulator
) -> None:
    agent = browser_of(tenant, "agent")
    wamid = inbound(tenant)
    assert agent.get("/console")["Location"] == "/console/conversations"
    page = agent.get(path).content.decode()
    navigation = re.findall(
        r'<a href="(/[^"]+)"', page.partition('aria-label="Console"')[2].partition("</nav>")[0]
    )
    assert navigation == ["/console", "/console/conversations"]
    assert agent.post(path, form(quote=wamid)).status_code == 302
    [sent] = sent_bodies(simulator, number)
    assert sent["text"] == {"body": "On its way."}
    assert sent["context"] == {"message_id": wamid}
    assert sent["to"] == f"+{WA_ID}"
    assert "On its way." in text(agent, path)
    assert agent.post("/console/conversations/on").status_code == 403
    assert agent.post("/console/conversations/off").status_code == 403


def test_an_answer_is_sent_once_however_often_its_form_is_sent(
    tenant: Tenant, number: PhoneNumber, path: str, browser: Client, simulator: RunningSimulator
) -> None:
    inbound(tenant)
    for _ in range(2):
        assert browser.post(path, form()).status_code == 302
    assert len(sent_bodies(simulator, number)) == 1


def test_an_answer_with_a_file_is_sent_once_however_often_its_form_is_sent(
    tenant: Tenant, number: PhoneNumber, path: str, browser: Client, simulator: RunningSimulator
) -> None:
    inbound(tenant)
    for _ in range(2):
        file = SimpleUploadedFile("kite.jpg", b"\xff\xd8\xff content", content_type="image/jpeg")
        assert browser.post(path, form(file=file)).status_code == 302
    assert len(sent_bodies(simulator, number)) == 1
    other = SimpleUploadedFile("kite.jpg", b"\xff\xd8\xff another", content_type="image/jpeg")
    for changed in (form(file=other), form(text="Tomorrow.")):
        page = browser.post(path, changed).content.decode()
        assert "This form was already sent, with other contents." in page
        assert "It was not sent" not in page
    assert len(sent_bodies(simulator, number)) == 1


def test_a_file_whose_form_is_sent_twice_at_once_is_sent_once(
    tenant: Tenant,
    number: PhoneNumber,
    path: str,
    browser: Client,
    simulator: RunningSimulator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second submission ends while the first is uploading."""
    inbound(tenant)
    file = SimpleUploadedFile("kite.jpg", b"\xff\xd8\xff content", content_type="image/jpeg")
    upload, answers = uploads.upload, []

    def slow_upload(*given: Any) -> Any:
        monkeypatch.setattr(uploads, "upload", upload)
        again = SimpleUploadedFile("kite.jpg", b"\xff\xd8\xff content", content_type="image/jpeg")
        answers.append(browser.post(path, form(file=again)).status_code)
        return upload(*given)

    monkeypatch.setattr(uploads, "upload", slow_upload)
    answers.append(browser.post(path, form(file=file)).status_code)
    assert answers == [302, 302]
    assert len(sent_bodies(simulator, number)) == 1


@pytest.mark.parametrize(
    ("content_type", "name", "kind", "content"),
    [
        ("image/jpeg", "kite.jpg", "image", {"caption": "On its way."}),
        ("image/webp", "kite.webp", "document", {"caption": "On its way.", "filename": "kite.webp"}),
        ("application/pdf", "bill.pdf", "document", {"caption": "On its way.", "filename": "bill.pdf"}),
        ("video/mp4", "kite.mp4", "video", {"caption": "On its way."}),
        ("application/octet-stream", "KITE.3GP", "video", {"caption": "On its way."}),
        ("", "bill.docx", "document", {"caption": "On its way.", "filename": "bill.docx"}),
    ],
)
def test_a_file_goes_as_its_kind_with_the_text_beside_it(
    tenant: Tenant,
    number: PhoneNumber,
    path: str,
    browser: Client,
    simulator: RunningSimulator,
    content_type: str,
    name: str,
    kind: str,
    content: dict[str, str],
) -> None:
    inbound(tenant)
    file = SimpleUploadedFile(name, b"\xff\xd8\xff content", content_type=content_type)
    answer = browser.post(path, form(file=file))
    assert answer.status_code == 302, text(browser, path)
    [sent] = sent_bodies(simulator, number)
    assert sent["type"] == kind
    assert sent[kind].pop("id").isdecimal()
    assert sent[kind] == content


def test_what_cannot_be_sent_says_why_and_keeps_the_text(
    tenant: Tenant, number: PhoneNumber, path: str, browser: Client, simulator: RunningSimulator
) -> None:
    inbound(tenant)
    assert "Type a message, or choose a file." in browser.post(path, form(text="")).content.decode()
    sound = SimpleUploadedFile("a.ogg", b"OggS", content_type="audio/ogg")
    assert "A recording cannot have a text" in browser.post(path, form(file=sound)).content.decode()
    unanswered = "Meta did not answer. Try again in a minute."
    for place, (action, code, at, words) in enumerate(
        (
            ("error", 131026, "/messages$", "(code 131026)"),
            ("error", 131053, "/media$", "(code 131053)"),
            ("reset", None, "/media$", unanswered),
            ("reset", None, "/messages$", ">WhatsApp gave no usable answer: the message may have been sent."),
        )
    ):
        fault = {"action": action, "match": {"path": at}}
        simulator.faults(fault if code is None else {**fault, "code": code})
        file = SimpleUploadedFile("kite.jpg", b"\xff\xd8\xff", content_type="image/jpeg")
        refused = browser.post(path, form(form_id=f"b{place}", file=file))
        assert refused.status_code == 400
        page = refused.content.decode()
        assert words in page, page.partition("<main")[2]
        assert "On its way.</textarea>" in page
    PhoneNumber.objects.update(connection_state="disconnected", connection_detail="token_invalid")
    file.seek(0)
    refused = browser.post(path, form(form_id="c", file=file))
    assert (refused.status_code, "This number cannot send now." in refused.content.decode()) == (400, True)
    assert "On its way.</textarea>" in refused.content.decode()


def test_a_text_is_kept_when_the_window_ends_while_it_is_sent(
    tenant: Tenant, path: str, browser: Client, simulator: RunningSimulator
) -> None:
    inbound(tenant, at=now() - timedelta(hours=24, minutes=1))
    assert "<textarea" not in browser.get(path).content.decode()
    simulator.faults({"action": "reset", "match": {"path": "/messages$"}})
    refused = browser.post(path, form())
    page = refused.content.decode()
    assert refused.status_code == 400
    assert "the message may have been sent." in page
    assert "On its way.</textarea>" in page
    assert "Until they write, WhatsApp accepts only templates from you." in page


def test_a_template_is_kept_when_the_number_can_send_no_more(
    tenant: Tenant, number: PhoneNumber, path: str, browser: Client, template: MessageTemplate
) -> None:
    inbound(tenant)
    PhoneNumber.objects.update(connection_state="disconnected", connection_detail="token_invalid")
    filled = {"do": "template", "form_id": "a1t", "template": str(template.pk), "body_1": "A-17"}
    page = browser.post(path, filled).content.decode()
    assert "It was not sent" in page
    assert 'value="A-17"' in page
    assert "This number cannot send now." in page


def test_a_closed_window_takes_a_template_with_its_variables(
    tenant: Tenant, number: PhoneNumber, path: str, browser: Client, simulator: RunningSimulator
) -> None:
    document = order_update()
    template_management.create(number.account, body=orjson.dumps(document), members=document)
    MessageTemplate.objects.update(status="APPROVED", document=orjson.dumps(document).decode())
    row = MessageTemplate.objects.get()
    wait_until(
        lambda: (
            simulator.control("GET", f"accounts/{number.account.waba_id}")["templates"][0]["status"]
            == "APPROVED"
        ),
        "the simulator approves its templates",
    )
    inbound(tenant, at=now() - timedelta(hours=25))
    page = browser.get(path).content.decode()
    assert "Window closed" in page
    assert "<textarea" not in page
    fields = browser.get(f"{path}/variables?template={row.pk}").content.decode()
    assert 'name="body_1"' in fields
    assert "Hi {{1}}, your order {{2}} is on its way." in fields
    filled = {"do": "template", "form_id": "a1t", "template": str(row.pk)}
    missing = browser.post(path, filled)
    assert missing.status_code == 400
    assert 'name="body_1"' in missing.content.decode()
    values = {"body_1": "Asha", "body_2": "A-17", "button_0": "A-17"}
    assert browser.post(path, {**filled, **values}).status_code == 302
    [sent] = sent_bodies(simulator, number)
    given = [[each["text"] for each in part["parameters"]] for part in sent["template"]["components"]]
    assert given == [["Asha", "A-17"], ["A-17"]]
    assert "Hi Asha, your order A-17 is on its way." in text(browser, path)


def test_a_template_of_another_account_is_not_offered(
    tenant: Tenant,
    other_tenant: Tenant,
    number: PhoneNumber,
    path: str,
    browser: Client,
    template: MessageTemplate,
) -> None:
    inbound(tenant)
    other = number.account.__class__.objects.create(waba_id="99", tenant=tenant, access_token="x")
    own = {name: getattr(template, name) for name in ("environment", "account", "tenant")}
    foreign = {"environment": "test", "account": other, "tenant": other_tenant}
    for changed in ({}, *({name: value} for name, value in foreign.items())):
        MessageTemplate.objects.update(**{**own, **changed})
        is_offered = not changed
        assert ("order_update" in browser.get(path).content.decode()) is is_offered, changed
        fields = browser.get(f"{path}/variables?template={template.pk}").content.decode()
        assert ("body_1" in fields) is is_offered, changed


def test_a_customer_known_by_user_id_alone_is_answered_by_it(
    tenant: Tenant, number: PhoneNumber, path: str, browser: Client, simulator: RunningSimulator
) -> None:
    inbound(tenant, wa_id=None, user_id="IN.77889900112233445566")
    assert browser.post(path.replace(WA_ID, "IN.77889900112233445566"), form()).status_code == 302
    [sent] = sent_bodies(simulator, number)
    assert sent["recipient"] == "IN.77889900112233445566"
    assert "to" not in sent


def test_a_file_of_a_customer_is_shown_to_its_business_alone(
    tenant: Tenant,
    other_tenant: Tenant,
    number: PhoneNumber,
    path: str,
    browser: Client,
    simulator: RunningSimulator,
) -> None:
    inbound(tenant)
    file = SimpleUploadedFile("kite.jpg", b"\xff\xd8\xff content", content_type="image/jpeg")
    browser.post(path, form(file=file))
    [sent] = sent_bodies(simulator, number)
    media_id = sent["image"]["id"]
    wamid = inbound(tenant, body={"type": "image", "image": {"id": media_id}})
    hidden = inbound(tenant, body={"type": "image", "image": {"id": media_id}}, environment="test")
    url = "/console/conversations/file?id="
    shown = browser.get(url + wamid)
    assert b"".join(shown.streaming_content) == b"\xff\xd8\xff content"  # type: ignore[attr-defined]
    assert shown["Content-Disposition"] == "inline"
    assert shown["Content-Security-Policy"] == "sandbox"
    assert shown["X-Content-Type-Options"] == "nosniff"
    assert browser.get(url + hidden).status_code == 404
    assert browser_of(other_tenant).get(url + wamid).status_code == 404
    assert browser.get(url + inbound(tenant)).status_code == 404
    assert browser.get(url).status_code == 400
    gone = inbound(tenant, body={"type": "image", "image": {"id": "987654321"}})
    assert browser.get(url + gone).status_code == 404
    for action in ("error", "reset"):
        simulator.faults({"action": action, "match": {"path": media_id}})
        assert browser.get(url + wamid).status_code == 404, action


def test_a_file_takes_its_place_until_it_has_been_sent(
    tenant: Tenant, path: str, browser: Client, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread waits for WhatsApp as long as the bytes come, so the files of one business could occupy all threads."""
    inbound(tenant)
    browser.post(path, form(file=SimpleUploadedFile("kite.jpg", b"\xff\xd8\xff", content_type="image/jpeg")))
    media_id = KnownMedia.objects.get().media_id
    url = (
        f"/console/conversations/file?id={inbound(tenant, body={'type': 'image', 'image': {'id': media_id}})}"
    )
    only = limits.Bulkhead(per_number=1, per_tenant=1, crowded=1, in_all=1)
    monkeypatch.setattr(limits, "upstream", only)
    simulator.faults({"action": "error", "match": {"path": media_id}, "times": 1})
    assert browser.get(url).status_code == 404
    slow = browser.get(url)
    assert (slow.status_code, browser.get(url).status_code) == (200, 404)
    slow.close()
    again = browser.get(url)
    assert again.status_code == 200
    again.close()


def test_a_number_that_cannot_send_offers_no_form(
    tenant: Tenant, number: PhoneNumber, path: str, browser: Client
) -> None:
    inbound(tenant)
    PhoneNumber.objects.update(connection_state="disconnected", connection_detail="token_invalid")
    page = browser.get(path).content.decode()
    assert "This number cannot send now." in page
    assert "<textarea" not in page


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("suspended", "Your account is suspended: nothing is sent."),
        ("rejected", "Your account is not active."),
    ],
)
def test_an_account_that_is_not_active_offers_no_form_and_says_why(
    tenant: Tenant, path: str, template: MessageTemplate, state: str, words: str
) -> None:
    inbound(tenant)
    agent = browser_of(tenant, "agent")
    assert "<textarea" in text(agent, path)
    Tenant.objects.filter(pk=tenant.pk).update(status=state)
    page = text(agent, path)
    assert words in page
    assert 'method="post"' not in page.partition("<main")[2]
    assert "Quote" not in page


@pytest.mark.e2e
def test_conversations_are_accessible_fit_a_phone_and_show_what_comes_by_itself(
    tenant: Tenant, path: str, template: MessageTemplate, live_server: Any, in_chromium: Chromium
) -> None:
    wamid = inbound(tenant, "Do you have kites?")
    inbound(tenant, body={"type": "image", "image": {"id": "11", "caption": "Like this one"}})
    failed = outbound(tenant, "Which one?")
    status(tenant, failed, "failed", error_code=131026)
    inbound(tenant, name="Meera", wa_id="919800000002", at=now() - timedelta(hours=30))
    closed = path.replace(WA_ID, "919800000002")
    session = session_of(User.objects.create_user("agent@traders.example", tenant=tenant, role="agent"))
    pages = ["/console/conversations", "/console/conversations?q=kite", path, f"{path}?quote={wamid}", closed]

    def arrives(said: str, **given: Any) -> None:
        inbound(tenant, said, **given)
        connection.close()

    def journey(browser: Browser) -> list[str]:
        with window(browser, live_server.url, session) as page, ThreadPoolExecutor(1) as database:
            found = [problem for each in pages for problem in complaints(page, each)]
            page.goto(path)
            database.submit(arrives, "The red one").result()
            expect(page.locator("#thread")).to_contain_text("The red one")
            assert page.evaluate(REFRESHES, True) == 0, "nobody reads a hidden page"
            assert page.evaluate(REFRESHES, False) == 1
            page.goto("/console/conversations")
            database.submit(arrives, "And a blue one", name="Nikhil", wa_id="919800000003").result()
            expect(page.locator("#conversations li").first).to_contain_text("And a blue one")
        return found

    found = in_chromium(journey)
    assert not found, "\n".join(found)
