"""The test phone of the console: a customer writes, taps, reacts and edits. It gives no access to another tenant's
sandbox.
"""

import html
import json
import re
from typing import Any

import pytest
import requests
from django.test import Client
from pytest_django import Settings

from console import sandbox_phone
from phone_numbers.sandbox import bubbles, control
from tenants.models import Tenant, User
from tests.browsers import text
from tests.simulated import RunningSimulator

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("simulator")]

CUSTOMER = "919812345678"
PAGE = f"/console/phone?customer={CUSTOMER}"


def person_of(tenant: Tenant, role: str) -> Client:
    person = User.objects.create_user(f"{role}@{tenant.id}.example", "pw", tenant=tenant, role=role)
    client = Client()
    client.force_login(person)
    return client


def write(client: Client, **values: str) -> Any:
    answer = client.post(
        "/console/phone/write", {"customer": CUSTOMER, "do": "write", "kind": "text", **values}
    )
    assert answer.status_code == 302, answer.content
    return answer


def said(tenant: Tenant) -> list[dict[str, Any]]:
    return control.messages(tenant.id, phone_number_id=None, customer=CUSTOMER, limit=50)


def sent_by_the_business(tenant: Tenant, simulator: RunningSimulator, body: dict[str, Any]) -> str:
    """Send a message of the business to the simulator. Returns its wamid."""
    number = control.ensure(tenant.id)[0]
    answer = requests.post(
        f"{simulator.url}/v25.0/{number.phone_number_id}/messages",
        json={"messaging_product": "whatsapp", "to": f"+{CUSTOMER}", **body},
        headers={"Authorization": f"Bearer {number.account.access_token}"},
        timeout=10,
    )
    assert answer.ok, answer.text
    return str(answer.json()["messages"][0]["id"])


def test_a_business_that_waits_for_approval_plays_its_customer(tenant: Tenant, browser: Client) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(status=Tenant.Status.PENDING_APPROVAL)
    browser.post("/console/preferences", {"environment": "live"})
    assert "Nobody has written yet" in text(browser, "/console/phone")
    assert 'action="/console/phone/begin"' in text(browser, "/console/phone"), "the phone is in the sandbox"
    begun = browser.post(
        "/console/phone/begin", {"customer": "+91 98123 45678", "name": "Asha <b>", "identity": "both"}
    )
    assert f"customer={CUSTOMER}" in begun["Location"]
    write(browser, text="Where is my order?")
    page = browser.get(PAGE).content.decode()
    assert "Where is my order?" in page
    assert "Asha &lt;b&gt;" in page
    assert [message["body"]["text"]["body"] for message in said(tenant)] == ["Where is my order?", "Hello"]


def test_buttons_and_lists_are_answered(tenant: Tenant, browser: Client, simulator: RunningSimulator) -> None:
    replies = [{"type": "reply", "reply": {"id": f"b{n}", "title": f"Choice {n}"}} for n in (1, 2)]
    buttons = {"type": "button", "body": {"text": "Which?"}, "action": {"buttons": replies}}
    asked = sent_by_the_business(tenant, simulator, {"type": "interactive", "interactive": buttons})
    assert "Choice 2" in text(browser, PAGE)
    write(browser, do="choose 1", message=asked)
    answer = said(tenant)[0]["body"]
    assert answer["interactive"] == {"type": "button_reply", "button_reply": replies[1]["reply"]}
    assert answer["context"]["id"] == asked
    for message, place in ((asked, "2"), (asked, "x"), (asked, "²"), ("wamid.none", "0")):
        body = {"customer": CUSTOMER, "do": f"choose {place}", "message": message}
        assert browser.post("/console/phone/write", body).status_code == 404


def test_a_customer_reacts_corrects_and_deletes(
    tenant: Tenant, browser: Client, simulator: RunningSimulator
) -> None:
    asked = sent_by_the_business(tenant, simulator, {"type": "text", "text": {"body": "Your order came"}})
    write(browser, do="react 👍", message=asked)
    assert "👍</span>" in text(browser, PAGE)
    write(browser, text="Helo")
    mine = said(tenant)[0]["id"]
    write(browser, do="edit", message=mine, text="Hello")
    assert "edited" in text(browser, PAGE)
    write(browser, do="delete", message=mine)
    assert "This message was deleted." in text(browser, PAGE)
    assert "may not" not in text(browser, PAGE)
    write(browser, do="delete", message=asked)
    assert "names no message of this customer" in text(browser, PAGE)


def test_files_are_shown_and_others_are_downloads(tenant: Tenant, browser: Client) -> None:
    for kind in ("image", "document"):
        write(browser, kind=kind, text="Look")
    image, document = (message["body"] for message in reversed(said(tenant)))
    assert image["image"]["caption"] == "Look"
    shown = browser.get(f"/console/phone/file?id={image['image']['id']}")
    assert shown["Content-Type"] == "image/png"
    assert shown.content.startswith(b"\x89PNG")
    assert (shown["Content-Security-Policy"], shown["X-Content-Type-Options"]) == ("sandbox", "nosniff")
    loaded = browser.get(f"/console/phone/file?id={document['document']['id']}")
    assert (loaded["Content-Type"], loaded["Content-Disposition"]) == (
        "application/octet-stream",
        "attachment",
    )
    assert loaded["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("text", "Hello", {"type": "text", "text": "Hello"}),
        ("text", "", None),
        ("unknown", "Hello", None),
        *(
            (kind, "Look", {"type": kind, kind: {"caption": "Look"}})
            for kind in ("image", "video", "document")
        ),
        *((kind, "Look", {"type": kind}) for kind in ("audio", "sticker", "location", "contacts", "order")),
        ("image", "", {"type": "image"}),
    ],
)
def test_a_text_goes_as_message_or_as_caption(kind: str, text: str, message: dict[str, Any] | None) -> None:
    form = sandbox_phone.WriteForm({"kind": kind, "text": text})
    assert (form.message() if form.is_valid() else None) == message


@pytest.mark.parametrize(
    ("typed", "digits"),
    [
        ("+91 (98123) 456-78", "919812345678"),
        ("1234567", "1234567"),
        ("123456789012345", "123456789012345"),
        ("123456", None),
        ("1234567890123456", None),
        ("0919812345678", None),
        ("91981234567x", None),
    ],
)
def test_a_customer_of_the_sandbox_has_a_number_with_its_country_code(typed: str, digits: str | None) -> None:
    form = sandbox_phone.CustomerForm({"customer": typed, "identity": "both"})
    assert (form.cleaned_data["customer"] if form.is_valid() else None) == digits


def test_nobody_plays_in_another_world(tenant: Tenant, browser: Client, stranger: Client) -> None:
    write(browser, kind="image")
    number = control.ensure(tenant.id)[0].phone_number_id
    media_id = said(tenant)[0]["body"]["image"]["id"]
    assert stranger.get(f"/console/phone?number={number}").status_code == 404
    assert stranger.get(f"/console/phone/thread?number={number}&customer={CUSTOMER}").status_code == 404
    assert stranger.get(f"/console/phone/file?id={media_id}").status_code == 404
    body = {"customer": CUSTOMER, "kind": "text", "text": "x", "number": number}
    assert stranger.post("/console/phone/write", body).status_code == 404
    assert len(said(tenant)) == 1


def test_the_conversation_is_sent_again_only_when_it_changed(
    tenant: Tenant, browser: Client, simulator: RunningSimulator
) -> None:
    def seen() -> str:
        """The path at which an open page asks for changes of what it shows."""
        found = re.search(r'hx-get="([^"]+/thread[^"]+)"', browser.get(PAGE).content.decode())
        assert found
        path = html.unescape(found[1])
        assert browser.get(path).status_code == 204
        return path

    simulator.control("PUT", "settings", {"statuses": {"enabled": False}})
    write(browser, text="Hello")
    message = said(tenant)[0]["id"]
    path = seen()
    answer = sent_by_the_business(tenant, simulator, {"type": "text", "text": {"body": "Your order came"}})
    assert "Your order came" in text(browser, path)
    for done, shown in (
        ({"text": "Anybody?"}, "Anybody?"),
        ({"do": "react 👍", "message": answer}, "👍</span>"),
        ({"do": "edit", "message": message, "text": "Hello?"}, "edited"),
        ({"do": "edit", "message": message, "text": "Good morning"}, "Good morning"),
        ({"do": "delete", "message": message}, "This message was deleted."),
        ({"do": "call"}, "it rings"),
    ):
        path = seen()
        write(browser, **done)
        assert shown in text(browser, path), done
    path = seen()
    control.set_status(tenant.id, message_id=answer, status="failed", code=131047)
    assert "failed" in text(browser, path)
    path = seen()
    (call,) = control.calls(tenant.id, phone_number_id=control.ensure(tenant.id)[0].phone_number_id)
    write(browser, do=f"call hang_up {call['id']}")
    assert "it rings" not in text(browser, path)


def test_a_simulator_that_is_away_is_said(tenant: Tenant, browser: Client, settings: Settings) -> None:
    for url in ("http://127.0.0.1:9", ""):
        settings.SANDBOX_GRAPH_URL = url
        answer = browser.get("/console/phone")
        assert b"does not answer just now" in answer.content
        for act in ("write", "choose 0"):
            write(browser, do=act, text="Hello", message="wamid.none")
            assert "The sandbox did not answer. Try again in a minute." in text(browser, "/console/numbers")
        assert browser.get(f"{PAGE}&seen=x".replace("/phone?", "/phone/thread?")).status_code == 204
        assert browser.get("/console/phone/file?id=1").status_code == 404


def test_links_lead_to_the_web_alone() -> None:
    for url, kept in (("https://e.x", True), ("javascript:alert(1)", False)):
        buttons = [{"type": "URL", "text": "Open", "url": url}]
        message = {
            "id": "a",
            "direction": "outbound",
            "timestamp": 1.0,
            "status": "sent",
            "body": {"type": "template", "template": {}},
            "rendered": {"body": "Hello", "buttons": buttons},
        }
        (bubble,) = bubbles.bubbles_of([message])
        assert bool(bubble.links) is kept
        linked = {"type": "image", "image": {"link": url}}
        (bubble,) = bubbles.bubbles_of([{**message, "body": linked}])
        assert bubble.file
        assert bool(bubble.file.link) is kept


def test_what_the_page_shows_is_bounded(
    tenant: Tenant, browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox_phone, "MOST_MESSAGES", 2)
    monkeypatch.setattr(sandbox_phone, "MOST_CUSTOMERS", 1)
    for place in range(3):
        write(browser, text=f"Message {place}")
    write(browser, customer="919812345679", text="Hello")
    page = text(browser, PAGE)
    assert "Message 0" not in page
    assert "Message 2" in page
    listed = re.findall(
        r"customer=(\d+)\"", page.partition('aria-label="Customers"')[2].partition("</section>")[0]
    )
    assert listed == ["919812345679"]


def test_a_flow_is_opened_and_filled_in(tenant: Tenant, browser: Client, simulator: RunningSimulator) -> None:
    account = control.ensure(tenant.id)[0].account
    children = [
        {"type": "TextBody", "text": "How was it?"},
        {"type": "TextInput", "name": "words", "label": "In your words", "required": True},
        {
            "type": "CheckboxGroup",
            "name": "liked",
            "label": "Liked",
            "data-source": [{"id": "a", "title": "Food"}],
        },
        {"type": "OptIn", "name": "more", "label": "Tell me more"},
        {
            "type": "Footer",
            "label": "Send it",
            "on-click-action": {
                "name": "complete",
                "payload": {name: f"${{form.{name}}}" for name in ("words", "liked", "more")},
            },
        },
    ]
    screens = [{"id": "ASK", "title": "Your visit", "layout": {"children": children}}]
    flow = {"name": "Visit", "flow_json": json.dumps({"version": "7.2", "screens": screens})}
    made = requests.post(
        f"{simulator.url}/v25.0/{account.waba_id}/flows",
        json=flow,
        headers={"Authorization": f"Bearer {account.access_token}"},
        timeout=10,
    ).json()
    action = {
        "name": "flow",
        "parameters": {"flow_id": made["id"], "flow_cta": "Tell us", "flow_token": "t-1"},
    }
    asked = sent_by_the_business(
        tenant,
        simulator,
        {
            "type": "interactive",
            "interactive": {"type": "flow", "body": {"text": "Your visit"}, "action": action},
        },
    )
    opened = write(browser, do="choose 0", message=asked)["Location"]
    assert "Send it" in text(browser, opened)
    filled = {
        "customer": CUSTOMER,
        "message": asked,
        "screen": "ASK",
        "data": "{}",
        "field:words": "Good <b>",
        "choices:liked": ["", "a"],
        "flag:more": ["", "on"],
    }
    assert "console/phone?" in browser.post("/console/phone/flow", filled)["Location"]
    reply = said(tenant)[0]["body"]["interactive"]["nfm_reply"]
    assert json.loads(reply["response_json"]) == {
        "words": "Good <b>",
        "liked": ["a"],
        "more": True,
        "flow_token": "t-1",
    }
    assert (
        browser.get("/console/phone/flow", {"customer": CUSTOMER, "message": "wamid.none"}).status_code == 404
    )


def test_a_number_of_the_whatsapp_business_app_cannot_be_called_here(tenant: Tenant, browser: Client) -> None:
    number = control.add_number(tenant.id, coexistence=True).phone_number_id
    assert 'value="call"' in text(browser, PAGE)
    assert 'value="call"' not in text(browser, f"{PAGE}&number={number}")
    write(browser, do="call", number=number)
    assert control.calls(tenant.id, phone_number_id=number) == []


@pytest.mark.parametrize(("value", "wish"), [("stop", "no marketing"), ("resume", "marketing again")])
def test_a_customer_stops_and_resumes_marketing(browser: Client, value: str, wish: str) -> None:
    write(browser, do=f"prefer {value}")
    assert f"notified that you want {wish}." in text(browser, PAGE)


def test_a_customer_calls_and_is_called(tenant: Tenant, browser: Client, simulator: RunningSimulator) -> None:
    write(browser, do="call")
    number = control.ensure(tenant.id)[0].phone_number_id
    (ringing,) = control.calls(tenant.id, phone_number_id=number)
    assert "it rings" in text(browser, PAGE)
    write(browser, customer="919812345679")
    assert "it rings" not in text(browser, "/console/phone?customer=919812345679"), "it is of one customer"
    write(browser, do=f"call hang_up {ringing['id']}")
    assert control.calls(tenant.id, phone_number_id=number) == []
    assert (
        browser.post(
            "/console/phone/write", {"customer": CUSTOMER, "do": "call hang_up wacid.none"}
        ).status_code
        == 404
    )
