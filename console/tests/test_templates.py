"""The console's template pages: preview and submission of a new template, its page, changes and deletion."""

import html
import re
import shlex
import time
from typing import Any

import orjson
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from console.error_codes import refusal_text
from gateway.clock import now
from gateway.upstream.calls import GraphAnswer, Verdict
from messaging.message_templates import mirror
from messaging.models import MessageTemplate
from messaging.tests.conftest import connected_number
from messaging.tests.message_templates.bodies import PNG
from phone_numbers.models import BusinessAccount, PhoneNumber
from phone_numbers.tokens import Refused
from tests.browsers import text
from tests.fixtures import Api
from tests.simulated import RunningSimulator

pytestmark = pytest.mark.django_db


def form(number: PhoneNumber, **more: Any) -> dict[str, Any]:
    """A filled-in form: a header, two variables and a link."""
    return {
        "do": "submit",
        "account": number.account.waba_id,
        "name": "order_update",
        "language": "en_US",
        "category": "UTILITY",
        "header_format": "TEXT",
        "header_text": "Order {{1}}",
        "header_example": "A-17",
        "body": "Hi {{1}}, your order {{2}} is on its way.",
        "body_examples": "Asha\nA-17",
        "footer": "Asha Traders",
        "button-TOTAL_FORMS": "4",
        "button-INITIAL_FORMS": "0",
        "button-0-kind": "URL",
        "button-0-text": "Track",
        "button-0-value": "https://shop.example/{{1}}",
        "button-0-example": "https://shop.example/A-17",
        "button-1-kind": "QUICK_REPLY",
        "button-1-text": "Stop",
        **more,
    }


def submitted(simulator: RunningSimulator, number: PhoneNumber) -> list[dict[str, Any]]:
    return list(simulator.control("GET", f"accounts/{number.account.waba_id}")["templates"])


def test_a_template_is_previewed_and_submitted(
    browser: Client, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    page = browser.post("/console/templates/new", form(number, do="preview")).content.decode()
    for words in ("Order A-17", "Hi Asha, your order A-17 is on its way.", "Asha Traders", "Track"):
        assert words in page
    assert submitted(simulator, number) == []
    answer = browser.post("/console/templates/new", form(number))
    [row] = MessageTemplate.objects.all()
    assert answer["Location"] == f"/console/templates/{row.template_id}"
    [made] = submitted(simulator, number)
    assert made["name"] == "order_update"
    assert [each["type"] for each in made["components"]] == ["HEADER", "BODY", "FOOTER", "BUTTONS"]
    assert [each["type"] for each in made["components"][3]["buttons"]] == ["URL", "QUICK_REPLY"]
    page = text(browser, f"/console/templates/{row.template_id}")
    for words in ("your order {{2}} is on its way", "Body {{1}}", "Button 1: end of the link"):
        assert words in page


def test_the_preview_alone_says_what_the_form_says(browser: Client, number: PhoneNumber) -> None:
    page = browser.post("/console/templates/new/preview", form(number)).content.decode()
    assert "Hi Asha, your order A-17 is on its way." in page
    assert "<html" not in page
    # The preview of an incomplete template shows the entered parts, and no body for the API.
    page = browser.post(
        "/console/templates/new/preview", form(number, name="", language="", body_examples="Asha")
    ).content.decode()
    assert "Hi Asha, your order {{2}} is on its way." in page
    assert "curl" not in page
    quoted = form(number, body="It's {{1}}, and your order {{2}} isn't late.")
    page = html.unescape(browser.post("/console/templates/new/preview", quoted).content.decode())
    command = shlex.split(page.partition("<code>")[2].partition("</code>")[0])
    sent = orjson.loads(command[command.index("-d") + 1])
    assert sent["components"][1]["text"] == quoted["body"]
    empty = form(number, body="", header_format="", footer="", **{"button-0-kind": "", "button-1-kind": ""})
    page = browser.post("/console/templates/new/preview", empty).content.decode()
    assert "What you type is shown here" in page


WRONG: list[tuple[dict[str, str], str]] = [
    ({"name": "Order Update"}, "Use only lowercase letters"),
    ({"language": "English"}, "Select a valid choice"),
    ({"body": ""}, "Type the text"),
    ({"body": "Hi {{1}}"}, "cannot be at the beginning or at the end"),
    ({"body": "Hi {{1}} and {{3}}."}, "without a gap"),
    ({"body_examples": "Asha"}, "Give 2 examples"),
    ({"header_text": "{{1}} {{2}}"}, "at most one variable"),
    ({"header_example": ""}, "Give an example for the variable"),
    ({"button-0-value": "http://shop.example"}, "must begin with https://"),
    ({"button-0-example": ""}, "example of the whole link"),
    ({"button-1-text": ""}, "Type the button's text"),
    ({"account": "1"}, "Select a valid choice"),
    ({"name": "a" * 513}, "Use only lowercase letters"),
    ({"body": "{{1}}, your order {{2}} is on its way."}, "cannot be at the beginning or at the end"),
    ({"body": "Hi {{1}}, your order {{name}} is on its way."}, "or name all of them"),
    ({"body": "x" * 1025, "body_examples": ""}, "at most 1024 characters"),
    ({"body_examples": "Asha\n\nA-17\nB"}, "Give 2 examples"),
    ({"body": "Hello.", "body_examples": "Asha"}, "Give 0 examples"),
    ({"footer": "x" * 61}, "at most 60 characters"),
    ({"header_text": ""}, "Type the header, or choose none."),
    ({"header_text": "x" * 61}, "at most 60 characters"),
    ({"code_minutes": "0"}, "greater than or equal to 1"),
    ({"code_minutes": "91"}, "less than or equal to 90"),
    ({"button-0-text": "x" * 26}, "at most 25 characters"),
    ({"button-0-value": "https://shop.example/{{1}}/x"}, "may have {{1}} only at its end"),
    ({"button-0-value": "https://shop"}, "must begin with https://"),
    ({"button-0-kind": "PHONE_NUMBER", "button-0-value": "Pune 98"}, "Give the number with its country code"),
    ({"button-0-kind": "COPY_CODE", "button-0-value": ""}, "A code has 1 to 15 characters"),
    ({"button-0-kind": "COPY_CODE", "button-0-value": "x" * 16}, "A code has 1 to 15 characters"),
    ({"button-TOTAL_FORMS": "11"}, "at most 10 forms"),
]
TEN_BUTTONS = {"button-TOTAL_FORMS": "10"} | {
    f"button-{place}-{name}": text
    for place in range(2, 10)
    for name, text in (("kind", "QUICK_REPLY"), ("text", f"Answer {place}"))
}


def test_a_wrong_form_is_explained_and_nothing_is_submitted(
    browser: Client, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    for wrong, words in WRONG:
        answer = browser.post("/console/templates/new", form(number, **wrong))
        assert answer.status_code == 400, wrong
        assert words in html.unescape(answer.content.decode()), wrong
    assert submitted(simulator, number) == []


def test_a_refusal_of_the_platform_is_shown_in_its_words(browser: Client, number: PhoneNumber) -> None:
    assert browser.post("/console/templates/new", form(number)).status_code == 302
    answer = browser.post("/console/templates/new", form(number))
    assert answer.status_code == 400
    assert "already" in html.unescape(answer.content.decode())
    assert MessageTemplate.objects.count() == 1


def test_a_refusal_is_shown_in_the_text_for_people() -> None:
    error = {"message": "(#100) Invalid parameter", "error_user_msg": "This name is taken.", "code": 100}
    answer = GraphAnswer(400, orjson.dumps({"error": error}), {}, 1.0)
    assert refusal_text(Refused(answer, Verdict(400, 100))) == "This name is taken."


def test_another_language_begins_with_the_same_name(browser: Client, number: PhoneNumber) -> None:
    browser.post("/console/templates/new", form(number))
    template_id = MessageTemplate.objects.get().template_id
    assert 'value="order_update"' in text(browser, f"/console/templates/new?like={template_id}")


def filled_in(client: Client, path: str) -> dict[str, Any]:
    """The fields of the page's form, as a browser would send them."""
    page = client.get(path)
    assert page.status_code == 200, page.headers
    form, buttons = page.context["form"], page.context["buttons"]
    fields = {field.html_name: field.value() for field in form}
    fields |= {field.html_name: field.value() for each in buttons for field in each}
    fields |= {field.html_name: field.value() for field in buttons.management_form}
    return {name: value for name, value in fields.items() if value is not None}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (
            {"body": "Hi {{name}}, hello.", "body_examples": "Asha", "header_format": ""},
            {"parameter_format": "NAMED"},
        ),
        (
            {"header_text": "Order {{order}}", "body": "It is on its way.", "body_examples": ""},
            {"parameter_format": "NAMED"},
        ),
        ({"category": "AUTHENTICATION", "code_minutes": "10"}, {"category": "AUTHENTICATION"}),
        (TEN_BUTTONS, {}),
        ({"category": "MARKETING", "button-0-kind": "COPY_CODE", "button-0-value": "SAVE1234567890X"}, {}),
        (
            {
                "button-0-kind": "PHONE_NUMBER",
                "button-0-value": "+91 98000 00001",
                "body_examples": "Asha\n \nA-17",
            },
            {},
        ),
    ],
)
def test_each_kind_of_template_is_taken_and_stays_as_it_is_when_it_is_edited_unchanged(
    browser: Client,
    number: PhoneNumber,
    simulator: RunningSimulator,
    more: dict[str, str],
    expected: dict[str, str],
) -> None:
    answer = browser.post("/console/templates/new", form(number, **more))
    assert answer.status_code == 302, html.unescape(answer.content.decode())
    template_id = approved(browser, number, simulator)
    [before] = submitted(simulator, number)
    assert {name: before[name] for name in expected} == expected
    path = f"/console/templates/{template_id}/edit"
    answer = browser.post(path, {**filled_in(browser, path), "do": "submit"})
    assert answer.status_code == 302, html.unescape(answer.content.decode())
    [after] = submitted(simulator, number)
    for member in ("name", "language", "category", "components", "parameter_format"):
        assert after[member] == before[member]


def test_an_edit_keeps_the_places_of_buttons_and_the_examples_of_names(
    api: Api, browser: Client, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    given = [{"param_name": "order", "example": "A-17"}, {"param_name": "name", "example": "Asha"}]
    text = "Hi {{name}}, your order {{order}} is on its way."
    body = {"type": "BODY", "text": text, "example": {"body_text_named_params": given}}
    url = {
        "type": "URL",
        "text": "Track",
        "url": "https://shop.example/{{1}}",
        "example": ["https://shop.example/A"],
    }
    replies = [{"type": "QUICK_REPLY", "text": word} for word in ("Stop", "Help")]
    template = {
        "name": "order_update",
        "language": "en_US",
        "category": "UTILITY",
        "parameter_format": "NAMED",
    }
    components = [body, {"type": "BUTTONS", "buttons": [url, *replies]}]
    assert api.post("/v1/templates", {**template, "components": components}).status_code == 200
    path = f"/console/templates/{approved(browser, number, simulator)}/edit"
    answer = browser.post(path, {**filled_in(browser, path), "do": "submit"})
    assert answer.status_code == 302, html.unescape(answer.content.decode())
    [after] = submitted(simulator, number)
    kept = {each["type"]: each for each in after["components"]}
    assert kept["BUTTONS"]["buttons"] == [url, *replies]
    assert kept["BODY"]["example"]["body_text_named_params"] == given[::-1], "in the order of the text"


def test_quick_replies_that_are_apart_come_first(
    browser: Client, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    apart = {"button-0-kind": "QUICK_REPLY", "button-2-kind": "QUICK_REPLY", "button-2-text": "Help"}
    link = {"button-1-kind": "URL", "button-1-value": "https://shop.example/", "button-1-text": "Open"}
    browser.post("/console/templates/new", form(number, **apart, **link))
    [made] = submitted(simulator, number)
    [buttons] = [each["buttons"] for each in made["components"] if each["type"] == "BUTTONS"]
    assert [each["text"] for each in buttons] == ["Track", "Help", "Open"]


def approved(client: Client, number: PhoneNumber, simulator: RunningSimulator) -> str:
    """Wait until the simulator has approved the template, and sync it. Returns its id."""
    deadline = time.monotonic() + 10
    while submitted(simulator, number)[0]["status"] != "APPROVED" and time.monotonic() < deadline:
        time.sleep(0.02)
    client.post("/console/templates/sync")
    row = MessageTemplate.objects.get()
    assert row.status == "APPROVED"
    return row.template_id


def test_a_template_is_edited_with_its_preview_and_reviewed_again(
    browser: Client, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    browser.post("/console/templates/new", form(number))
    template_id = approved(browser, number, simulator)
    path = f"/console/templates/{template_id}/edit"
    assert path in text(browser, f"/console/templates/{template_id}")
    assert "Hi Asha, your order A-17 is on its way." in text(browser, path)
    changed = {**filled_in(browser, path), "body": "Dear {{1}}, order {{2}} is on its way.", "do": "submit"}
    page = browser.post(f"{path}/preview", changed).content.decode()
    assert "Dear Asha, order A-17 is on its way." in page
    assert f"/v1/templates/{template_id}" in page
    assert "UTILITY" not in page, "an approved template keeps its category"
    answer = browser.post(path, {**changed, "category": "MARKETING", "name": "another"}, follow=True)
    assert "In review" in answer.content.decode()
    assert "Dear {{1}}" in answer.content.decode()
    [made] = submitted(simulator, number)
    assert (made["name"], made["category"]) == ("order_update", "UTILITY")
    assert made["components"][1]["text"].startswith("Dear {{1}}")
    asked = simulator.control("GET", f"requests?node={template_id}&limit=10")["data"]
    [edit] = [orjson.loads(each["body"]) for each in asked if each["method"] == "POST"]
    assert "category" not in edit, "Meta lets nobody change it"


def test_a_second_edit_within_a_day_is_refused_in_the_platforms_words(
    browser: Client, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    browser.post("/console/templates/new", form(number))
    path = f"/console/templates/{approved(browser, number, simulator)}/edit"
    changed = {**filled_in(browser, path), "do": "submit"}
    browser.post(path, changed)
    approved(browser, number, simulator)
    answer = browser.post(path, changed)
    assert answer.status_code == 400
    assert "once in 24 hours" in html.unescape(answer.content.decode())


CODE_BODY = {"type": "BODY", "text": "*{{1}}* is your code.", "add_security_recommendation": True}


def button_of_code(kind: str) -> dict[str, Any]:
    """The button of an authentication template, as Meta returns it."""
    url = f"https://www.whatsapp.com/otp/code/?otp_type={kind}&code_expiration_minutes=5&code=otp{{{{1}}}}"
    return {"type": "BUTTONS", "buttons": [{"type": "URL", "text": "Copy code", "url": url}]}


UNEDITABLE: list[tuple[str, dict[str, Any], str]] = [
    ("PENDING", {"type": "BODY", "text": "Hi"}, "Only approved, rejected and paused"),
    ("DISABLED", {"type": "BODY", "text": "Hi"}, "Only approved, rejected and paused"),
    ("APPROVED", {"type": "CAROUSEL", "cards": []}, "Edit it with the API"),
    ("APPROVED", {"type": "BUTTONS", "buttons": [{"type": "FLOW", "text": "Go"}]}, "Edit it with the API"),
    ("APPROVED", {"type": "BODY", "text": "Hi", "new_member": 1}, "Edit it with the API"),
    ("APPROVED", {"type": "HEADER", "format": "LOCATION"}, "Edit it with the API"),
    *(
        ("APPROVED", {"type": "BUTTONS", "buttons": [{**button, "new_member": 1}]}, "Edit it with the API")
        for button in (
            {"type": "QUICK_REPLY", "text": "Stop"},
            {"type": "URL", "text": "Track", "url": "https://shop.example/"},
            {"type": "PHONE_NUMBER", "text": "Call", "phone_number": "+919800000001"},
            {"type": "COPY_CODE", "example": "SAVE10"},
        )
    ),
]


def test_what_the_form_cannot_edit_is_left_alone_and_says_so(browser: Client, number: PhoneNumber) -> None:
    for place, (status, component, words) in enumerate(UNEDITABLE):
        kept = {"name": f"t{place}", "language": "en", "status": status, "components": [component]}
        mirror.store_one(number.account, {"id": f"4{place}", **kept}, since=now())
        path = f"/console/templates/4{place}/edit"
        for answer in (browser.get(path, follow=True), browser.post(path, {"do": "submit"}, follow=True)):
            assert words in html.unescape(answer.content.decode()), component
        assert browser.post(f"{path}/preview", form(number)).status_code == (204 if "API" in words else 200)


@pytest.mark.parametrize(
    "other",
    [
        [CODE_BODY, button_of_code("ONE_TAP")],
        [CODE_BODY, button_of_code("ZERO_TAP")],
        [CODE_BODY, {"type": "BUTTONS", "buttons": [{"type": "OTP", "otp_type": "ONE_TAP"}]}],
        [{**CODE_BODY, "add_security_recommendation": False}, button_of_code("COPY_CODE")],
        [CODE_BODY],
        [CODE_BODY, {"type": "FOOTER", "text": "Soon over"}, button_of_code("COPY_CODE")],
        [{**CODE_BODY, "new_member": 1}, button_of_code("COPY_CODE")],
    ],
)
def test_a_code_template_of_another_kind_is_not_turned_into_one_that_copies_the_code(
    browser: Client, number: PhoneNumber, other: list[dict[str, Any]]
) -> None:
    head = {"id": "41", "name": "code", "language": "en", "status": "APPROVED", "category": "AUTHENTICATION"}
    for components, answer in (
        ([CODE_BODY, button_of_code("COPY_CODE")], (200, False)),
        (other, (302, True)),
    ):
        mirror.store_one(number.account, {**head, "components": components}, since=now())
        path = "/console/templates/41/edit"
        page = html.unescape(browser.get(path, follow=True).content.decode())
        assert (browser.get(path).status_code, "Edit it with the API" in page) == answer, components


def test_a_media_header_needs_its_sample_and_needs_it_again(
    browser: Client, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    new, filled = "/console/templates/new", form(number, header_format="IMAGE")
    refused = browser.post(new, filled)
    assert refused.status_code == 400
    assert "Choose a file" in refused.content.decode()
    sample = SimpleUploadedFile("a.png", PNG, "image/png")
    assert browser.post(new, {**filled, "header_sample": sample}).status_code == 302
    [made] = submitted(simulator, number)
    assert made["components"][0]["format"] == "IMAGE"
    path = f"/console/templates/{approved(browser, number, simulator)}/edit"
    changed = {**filled_in(browser, path), "do": "submit"}
    assert "Choose a file" in browser.post(path, changed).content.decode()
    again = SimpleUploadedFile("b.png", PNG, "image/png")
    assert browser.post(path, {**changed, "header_sample": again}).status_code == 302


@pytest.mark.parametrize(
    ("fault", "words"),
    [({"action": "reset"}, "Meta did not"), ({"action": "error", "code": 131031}, "Business Account locked")],
)
def test_what_meta_does_not_do_is_explained_on_each_page(
    browser: Client, number: PhoneNumber, simulator: RunningSimulator, fault: dict[str, Any], words: str
) -> None:
    browser.post("/console/templates/new", form(number))
    template = f"/console/templates/{MessageTemplate.objects.get().template_id}"
    simulator.faults({**fault, "match": {"path": "message_templates"}})
    for path, filled in (
        ("/console/templates/new", form(number, name="another")),
        ("/console/templates/sync", {}),
        (f"{template}/delete", {}),
        (f"{template}/delete", {"all": "yes"}),
    ):
        page = html.unescape(browser.post(path, filled, follow=True).content.decode())
        said = "Meta did not return" if path.endswith("sync") else words
        assert said in page, (path, page.partition("<main")[2])
    assert MessageTemplate.objects.get().deleted_at is None


def test_a_refresh_names_the_accounts_that_could_not_be_read(
    browser: Client, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    other = connected_number(number.tenant, simulator.account())
    BusinessAccount.objects.filter(pk=other.account_id).update(name="Kites & Threads")
    browser.post("/console/templates/new", form(number))
    waba_id = other.account.waba_id
    fault = {"action": "error", "code": 2, "times": 1}
    simulator.faults({**fault, "match": {"path": f"{waba_id}/message_templates"}})
    page = html.unescape(browser.post("/console/templates/sync", follow=True).content.decode())
    assert "1 template refreshed." in page
    assert f"did not return the templates of Kites & Threads ({waba_id})" in page
    page = html.unescape(browser.post("/console/templates/sync", follow=True).content.decode())
    assert "1 template refreshed." in page
    assert "did not return" not in page


def test_a_refresh_without_an_account_says_that_there_is_none(browser: Client) -> None:
    page = browser.post("/console/templates/sync", follow=True).content.decode()
    assert "There is no business account yet" in page
    assert "templates refreshed" not in page


def test_a_template_is_deleted(browser: Client, number: PhoneNumber, simulator: RunningSimulator) -> None:
    browser.post("/console/templates/new", form(number))
    template_id = MessageTemplate.objects.get().template_id
    answer = browser.post(f"/console/templates/{template_id}/delete", follow=True)
    assert "No templates yet" in answer.content.decode()
    assert submitted(simulator, number) == []


@pytest.mark.parametrize(
    ("status", "of_another_language", "chosen", "is_said", "is_reserved"),
    [
        ("APPROVED", "REJECTED", {}, True, True),
        ("REJECTED", "REJECTED", {"all": "yes"}, False, False),
        ("REJECTED", "APPROVED", {}, True, False),
        ("REJECTED", "APPROVED", {"all": "yes"}, True, True),
    ],
)
def test_only_the_deletion_of_an_approved_language_reserves_the_name(
    browser: Client,
    number: PhoneNumber,
    status: str,
    of_another_language: str,
    chosen: dict[str, str],
    is_said: bool,
    is_reserved: bool,
) -> None:
    browser.post("/console/templates/new", form(number))
    MessageTemplate.objects.update(status=status)
    template_id = MessageTemplate.objects.get().template_id
    template_of(number, "1", "order_update", language="hi", status=of_another_language)
    path = f"/console/templates/{template_id}/delete"
    assert ("reserved for 30 days" in text(browser, path)) is is_said
    page = browser.post(path, chosen, follow=True).content.decode()
    assert ("Deleted." in page, "reserved for 30 days" in page) == (True, is_reserved)


def test_another_tenant_and_the_other_environment_see_no_template(
    browser: Client, stranger: Client, number: PhoneNumber
) -> None:
    browser.post("/console/templates/new", form(number))
    template_id = MessageTemplate.objects.get().template_id
    browser.post("/console/preferences", {"environment": "test"})
    for client in (stranger, browser):
        assert "order_update" not in text(client, "/console/templates")
        for path in (f"/console/templates/{template_id}", f"/console/templates/new?like={template_id}"):
            assert client.get(path).status_code == 404
        assert client.post(f"/console/templates/{template_id}/delete").status_code == 404
        assert client.post("/console/templates/new", form(number)).status_code == 400
    assert MessageTemplate.objects.get().deleted_at is None


def template_of(number: PhoneNumber, template_id: str, name: str, **fields: Any) -> MessageTemplate:
    """Create a template as a sync would store it."""
    made = {"tenant": number.tenant, "account": number.account, "environment": number.environment, **fields}
    made = {"language": "en", "status": "APPROVED", "category": "UTILITY", "document": "{}", **made}
    return MessageTemplate.objects.create(template_id=template_id, name=name, changed_at=now(), **made)


def test_the_list_is_in_the_order_of_names_and_a_page_has_the_languages_of_its_name(
    browser: Client, number: PhoneNumber
) -> None:
    other = BusinessAccount.objects.create(
        tenant=number.tenant, environment="live", waba_id="777", name="Two"
    )
    template_of(number, "1", "welcome")
    template_of(number, "2", "order", language="hi")
    template_of(number, "3", "order", language="en", status="REJECTED")
    template_of(number, "4", "order", language="ta", deleted_at=now())
    template_of(number, "5", "order_2", language="bn")
    template_of(number, "6", "order", language="ur", account=other)
    listed = re.findall(r'<td><a href="/console/templates/(\d)">', text(browser, "/console/templates"))
    assert listed == ["3", "2", "6", "5", "1"]
    for query, found in (
        ("name=ORDER_", ["5"]),
        ("name=el", ["1"]),
        ("status=REJECTED", ["3"]),
        ("status=x", listed),
    ):
        page = text(browser, f"/console/templates?{query}")
        assert re.findall(r'<td><a href="/console/templates/(\d)">', page) == found, query
    languages = text(browser, "/console/templates/2").partition("<h2>Languages</h2>")[2].partition("</ul>")[0]
    shown = " ".join(re.sub(r"<[^>]+>", " ", languages).split())
    assert shown == "en Rejected hi Approved"
    assert re.findall(r'href="([^"]+)"', languages) == ["/console/templates/3"]


@pytest.mark.parametrize(
    ("status", "reason", "words", "buttons"),
    [
        ("APPROVED", "NONE", None, ["Send it to many", "Send a test", "Edit"]),
        ("PENDING", None, "Meta reviews it", []),
        ("IN_APPEAL", None, None, []),
        (
            "REJECTED",
            "TAG_CONTENT_MISMATCH",
            "Meta rejected it: Tag content mismatch. Correct it",
            ["Correct it"],
        ),
        ("REJECTED", "NONE", "Meta rejected it. Correct it", ["Correct it"]),
        ("PAUSED", None, "It is paused", ["Edit"]),
        ("DISABLED", None, "It was disabled permanently", []),
    ],
)
def test_a_template_says_what_its_status_means_and_what_can_be_done(
    browser: Client,
    number: PhoneNumber,
    status: str,
    reason: str | None,
    words: str | None,
    buttons: list[str],
) -> None:
    document = orjson.dumps({"rejected_reason": reason} if reason else {}).decode()
    template_of(number, "1", "order", status=status, document=document)
    page = text(browser, "/console/templates/1")
    notes = re.findall(r'<div class="note[^"]*"><p>(.*?)</p>', page)
    assert len(notes) == (words is not None)
    assert words is None or notes[0].startswith(words)
    actions = page.partition('<div class="actions">')[2].partition("</div>")[0]
    assert re.findall(r"<a[^>]*>([^<]+)</a>", actions) == [*buttons, "Another language", "Delete"]


def test_the_list_is_filtered(browser: Client, number: PhoneNumber) -> None:
    browser.post("/console/templates/new", form(number))
    MessageTemplate.objects.update(status="REJECTED", document=orjson.dumps({"components": None}).decode())
    assert "order_update" in text(browser, "/console/templates?status=REJECTED&name=order")
    for query in ("status=APPROVED", "name=welcome"):
        assert "No template matches" in text(browser, f"/console/templates?{query}")
