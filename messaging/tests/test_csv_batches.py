"""Batches from a CSV file: parsing, rows that cannot be sent, sending a file only once, and access to a file."""

import csv
import html
import io
import re
import tracemalloc
from datetime import timedelta
from typing import Any
from uuid import UUID

import orjson
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils.http import urlencode

from gateway.api.errors import NotFound
from gateway.clock import now
from gateway.ids import uuid7
from messaging import csv_batches, retention
from messaging.batches import lifecycle
from messaging.message_templates import parameters, template_management
from messaging.models import Batch, BatchFile, BatchItem, MessageTemplate, OptOut
from messaging.tests.message_templates.bodies import order_update
from messaging.tests.sending.test_send import sent_bodies
from phone_numbers.models import BusinessAccount, PhoneNumber
from tenants.models import Tenant
from tests.browsers import text
from tests.fixtures import in_threads, wait_until
from tests.simulated import RunningSimulator

pytestmark = pytest.mark.django_db

DOCUMENT = order_update(parameter_format="POSITIONAL", status="APPROVED")
WANTED = parameters.parameters_of(DOCUMENT)
MAPPED = {"to": 0, "body_1": 1, "body_2": 2, "button_0": 2}
FILE = b"phone,name,order\r\n+91 98123-45678,Asha,A-17\r\n919812345679,Bina,A-18\r\n"


# --- Files ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        "to,name\n91,Ä\n".encode(),
        "to;name\r\n91;Ä\r\n".encode("utf-8-sig"),
        "to\tname\n91\tÄ\n".encode("utf-16"),
        '\n"to","name"\n\n"91","Ä"\n ,\n'.encode(),
    ],
)
def test_the_forms_in_which_spreadsheets_write_a_file_are_read(content: bytes) -> None:
    table = csv_batches.read_table(content)
    assert list(table.columns) == ["to", "name"]
    assert [list(row.cells) for row in table.rows] == [["91", "Ä"]]


def test_a_row_has_the_number_that_the_spreadsheet_shows() -> None:
    assert [row.number for row in csv_batches.read_table(b"to\n1\n\n2\n").rows] == [2, 4]


def test_a_file_has_at_most_200_000_line_breaks() -> None:
    rows = b"to\n1\n"
    assert len(csv_batches.read_table(rows + b"\n" * 199_998).rows) == 1
    with pytest.raises(csv_batches.UnreadableFileError, match="lines"):
        csv_batches.read_table(rows + b"\n" * 199_999)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"to,name\n", "no rows below"),
        ("to\nÄ\n".encode("latin-1"), "UTF-8"),
        (b"PK\x03\x04\0\0", "not a CSV"),
        (b'to,name\n"91,x\n', "cannot be read"),
        (b",".join([b"a"] * 51) + b"\n1\n", "50 columns"),
        (b"to\n" + b"9" * 4097 + b"\n", "Row 2 is too long"),
        (b"to\n" + b"1\n" * 10_001, "10,000 rows"),
        (b"a" + b"," * 4_000_000, "cells"),
        (b"to\n" + b"\n" * 4_000_000, "lines"),
        (b"to\n" + b"\r" * 4_000_000, "lines"),
    ],
)
def test_a_file_of_which_no_batch_can_be_made_says_why(content: bytes, words: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(csv_batches.UnreadableFileError, match=words):
            csv_batches.read_table(content)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(content) + 4_000_000, "it is refused before its cells are made"


@pytest.mark.parametrize(
    "content",
    [
        b"to\n" + b"1\n" * 10_000,
        b"to\n" + b"9" * 4_096,
        b",".join([b"a"] * 50) + b"\n" + b",".join([b"1"] * 50),
    ],
    ids=["rows", "cell", "columns"],
)
def test_a_file_may_reach_each_limit(content: bytes) -> None:
    assert csv_batches.read_table(content).rows


@pytest.mark.parametrize(
    ("kind", "fits", "problem", "says"),
    [
        ("image", "https://a.example/1", "ftp://a.example/1", "not a link"),
        ("video", "https://a.example/1", "a.example", "not a link"),
        ("document", "http://a.example/1", "https://", "not a link"),
        ("coupon_code", "1" * 15, "1" * 16, "longer than 15"),
        ("text", "a    b", "a     b", "more than four spaces"),
        ("text", "https://", "a\tb", "a tab"),
    ],
)
def test_a_value_fits_its_kind(kind: Any, fits: str, problem: str, says: str) -> None:
    wanted = [parameters.Parameter("header", "header", kind)]
    table = csv_batches.read_table(f"to;value\n919812345670;{fits}\n919812345671;{problem}\n".encode())
    found = csv_batches.filled(table, wanted, {"to": 0, "header": 1})
    assert [values for _, _, values in found.messages] == [{"header": fits}]
    [(_, said)] = found.problems
    assert says in said


# --- Rows ----------------------------------------------------------------------------------------------


def filled(content: bytes) -> csv_batches.Filled:
    return csv_batches.filled(csv_batches.read_table(content), WANTED, MAPPED)


def test_rows_become_messages_of_the_template() -> None:
    found = filled(FILE)
    assert found.problems == []
    [first, _] = csv_batches.bodies(DOCUMENT, found)
    assert first == {
        "to": "+919812345678",
        "type": "template",
        "template": {
            "name": "order_update",
            "language": {"code": "en_US"},
            "components": [
                {
                    "type": "body",
                    "parameters": [{"type": "text", "text": "Asha"}, {"type": "text", "text": "A-17"}],
                },
                {
                    "type": "button",
                    "sub_type": "url",
                    "index": "0",
                    "parameters": [{"type": "text", "text": "A-17"}],
                },
            ],
        },
    }


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("98123,A,B", "not a phone number"),
        ("98123 45678,A,B", "lacks its country code: write it with + and the code, e.g. +91 98123 45678"),
        ("4155550100,A,B", "lacks its country code: write it with + and the code, e.g. +91 98123 45678"),
        ("6581234567,A,B", "lacks its country code"),
        (",A,B", "number is empty"),
        ("9.19812E+11,A,B", "shortened by the spreadsheet"),
        ("919812345678,A", "“order” is empty"),
        ("919812345678,A,B,C", "4 cells, but there are 3 columns"),
        ('919812345678,"A\nB",B', "line break"),
        ("919812345670,Asha,A-17", "The same message as row 2"),
    ],
)
def test_a_row_that_cannot_be_sent_says_why_and_the_others_are_sent(row: str, problem: str) -> None:
    found = filled(f"phone,name,order\n919812345670,Asha,A-17\n{row}\n".encode())
    assert [to for _, to, _ in found.messages] == ["919812345670"]
    [(where, said)] = found.problems
    assert where.number == 3
    assert problem in said


def test_a_preview_keeps_the_first_rows_and_counts_all() -> None:
    content = "phone,name,order\n" + "".join(f"91981234567{n % 8},A,{n % 8}\n,A,B\n" for n in range(10))
    found = csv_batches.filled(csv_batches.read_table(content.encode()), WANTED, MAPPED, keep=3)
    assert (found.message_count, found.problem_count) == (8, 12)
    assert [row.number for row, _, _ in found.messages] == [2, 4, 6]
    assert [row.number for row, _ in found.problems] == [3, 5, 7]
    whole = filled(content.encode())
    assert (len(whole.messages), len(whole.problems)) == (8, 12)


def test_a_customer_may_get_two_different_messages() -> None:
    assert len(filled(b"to,name,order\n919812345670,A,1\n919812345670,A,2\n").messages) == 2


@pytest.mark.parametrize(
    ("header", "guessed"),
    [
        ("order,Name,Mobile Number", {"to": 2, "body_name": 1, "body_no": 0}),
        ("body_no,to,body_name", {"to": 1, "body_name": 2, "body_no": 0}),
        ("a,b,c", {"to": 0, "body_name": 1, "body_no": 2}),
        ("name,to,name,no", {"to": 1, "body_name": 0, "body_no": 3}),
        ("मोबाइल,नाम,आदेश", {"to": 0, "body_name": 1, "body_no": 2}),
        ("to", {"to": 0}),
    ],
)
def test_columns_are_found_by_their_names(header: str, guessed: dict[str, int]) -> None:
    body = {"type": "BODY", "text": "Hi {{name}}, order {{no}} left."}
    wanted = parameters.parameters_of({"components": [body]})
    assert csv_batches.guessed(csv_batches.read_table(f"{header}\n1\n".encode()), wanted) == guessed


def test_a_parameter_without_a_name_gets_no_column_for_its_script() -> None:
    wanted = parameters.parameters_of({"components": [{"type": "HEADER", "format": "IMAGE"}]})
    table = csv_batches.read_table("मोबाइल,चित्र\n1,2\n".encode())
    assert csv_batches.guessed(table, wanted) == {"to": 0, "header": 1}


# --- Templates -----------------------------------------------------------------------------------------


def test_every_kind_of_parameter_is_filled_in_and_read_back() -> None:
    document = {
        "name": "sale",
        "language": "hi",
        "parameter_format": "NAMED",
        "components": [
            {"type": "HEADER", "format": "IMAGE"},
            {"type": "BODY", "text": "Hi {{name}}, take {{percent}} off."},
            {"type": "FOOTER", "text": "Shop"},
            {
                "type": "BUTTONS",
                "buttons": [
                    {"type": "QUICK_REPLY", "text": "Stop"},
                    {"type": "COPY_CODE", "example": "SAVE"},
                    {"type": "URL", "text": "See", "url": "https://shop.example/{{1}}"},
                    {"type": "URL", "text": "Shop", "url": "https://shop.example/"},
                ],
            },
        ],
    }
    values = {
        "header": "https://shop.example/a.png",
        "body_name": "Asha",
        "body_percent": "10 %",
        "button_1": "SAVE10",
        "button_2": "sale",
    }
    assert [each.key for each in parameters.parameters_of(document)] == list(values)
    template = parameters.message(document, values)
    assert template["components"] == [
        {"type": "header", "parameters": [{"type": "image", "image": {"link": values["header"]}}]},
        {
            "type": "body",
            "parameters": [
                {"type": "text", "text": "Asha", "parameter_name": "name"},
                {"type": "text", "text": "10 %", "parameter_name": "percent"},
            ],
        },
        {
            "type": "button",
            "sub_type": "copy_code",
            "index": "1",
            "parameters": [{"type": "coupon_code", "coupon_code": "SAVE10"}],
        },
        {"type": "button", "sub_type": "url", "index": "2", "parameters": [{"type": "text", "text": "sale"}]},
    ]
    assert parameters.values_of(template) == values
    read = parameters.as_read(document, values)
    assert ("body", "Hi Asha, take 10 % off.") in read
    assert ("header", "[image]") in read


def test_positional_parameters_go_in_the_order_of_their_numbers() -> None:
    document = {
        "name": "a",
        "language": "en",
        "components": [{"type": "BODY", "text": "On {{2}} for {{1}} and {{10}}: {{2}}"}],
    }
    template = parameters.message(document, {"body_1": "one", "body_2": "two", "body_10": "ten"})
    assert [each["text"] for each in template["components"][0]["parameters"]] == ["one", "two", "ten"]
    assert parameters.message({**document, "components": []}, {}) == {"name": "a", "language": {"code": "en"}}


def test_a_variable_in_the_header_is_filled_in_and_read_back() -> None:
    header = {"type": "HEADER", "format": "TEXT", "text": "Order {{1}}"}
    document = {"name": "a", "language": "en", "components": [header]}
    template = parameters.message(document, {"header": "A-17"})
    assert template["components"] == [{"type": "header", "parameters": [{"type": "text", "text": "A-17"}]}]
    assert parameters.values_of(template) == {"header": "A-17"}
    assert parameters.as_read(document, {"header": "A-17"}) == [("header", "Order A-17")]
    assert parameters.as_read({"components": [{"type": "FOOTER"}]}) == [("footer", "")]


def test_a_currency_and_a_time_read_as_their_text() -> None:
    currency = {
        "type": "currency",
        "currency": {"fallback_value": "₹12", "code": "INR", "amount_1000": 12_000},
    }
    time = {"type": "date_time", "date_time": {"fallback_value": "1 May"}}
    template = {"components": [{"type": "body", "parameters": [currency, time]}]}
    document = {"components": [{"type": "BODY", "text": "{{1}} until {{2}}"}]}
    values = parameters.values_of(template)
    assert parameters.as_read(document, values) == [("body", "₹12 until 1 May")]


@pytest.mark.parametrize(
    "component",
    [
        {"type": "CAROUSEL", "cards": []},
        {"type": "HEADER", "format": "LOCATION"},
        {"type": "BUTTONS", "buttons": [{"type": "FLOW"}]},
    ],
)
def test_a_template_that_no_file_can_fill_is_refused(component: dict[str, Any]) -> None:
    with pytest.raises(parameters.CannotBeFilled, match="with the API"):
        parameters.parameters_of({"components": [component]})


# --- Pages ---------------------------------------------------------------------------------------------


def template_of(number: PhoneNumber, document: dict[str, Any] = DOCUMENT) -> MessageTemplate:
    return MessageTemplate.objects.create(
        tenant=number.tenant,
        account=number.account,
        environment=number.environment,
        template_id=f"41{MessageTemplate.objects.count()}",
        name=document["name"],
        language=document["language"],
        status="APPROVED",
        category="UTILITY",
        document=orjson.dumps(document).decode(),
        changed_at=now(),
    )


@pytest.fixture
def template(number: PhoneNumber) -> MessageTemplate:
    return template_of(number)


def upload(client: Client, content: bytes = FILE, name: str = "diwali.csv") -> str:
    """Upload a file. Returns the path of its page."""
    answer = client.post("/console/batches/file", {"file": SimpleUploadedFile(name, content)})
    assert answer.status_code == 302, html.unescape(answer.content.decode())
    return str(answer["Location"])


def choices(number: PhoneNumber, row: MessageTemplate, **more: str) -> dict[str, str]:
    places = {key: str(place) for key, place in MAPPED.items()}
    return {"from_": number.phone_number_id, "template": str(row.pk), **places, **more}


def test_a_short_row_has_its_number_and_problem_in_their_columns(
    browser: Client, number: PhoneNumber, template: MessageTemplate
) -> None:
    path = upload(browser, FILE + b"98123\n")
    problems = browser.get(f"{path}/problems.csv", choices(number, template)).content.decode()
    [row] = list(csv.DictReader(io.StringIO(problems)))
    assert (row["phone"], row["name"], row["order"], row["row"]) == ("98123", "", "", "4")
    assert "not a phone number" in row["problem"]


def test_a_file_becomes_a_batch_once_however_often_it_is_started(
    browser: Client, number: PhoneNumber, template: MessageTemplate
) -> None:
    path = upload(browser, FILE + b"98123,Chitra,=A-19\n")
    chosen = choices(number, template)
    answer = browser.get(path, chosen)
    page = html.unescape(answer.content.decode())
    for words in ("Hi Asha, your order A-17 is on its way.", "Send 2 messages", "1 row with a problem"):
        assert words in page
    [row] = list(csv.DictReader(io.StringIO(browser.get(f"{path}/problems.csv", chosen).content.decode())))
    assert row["order"] == "'=A-19"
    assert "not a phone number" in row["problem"]
    first = browser.post(f"{path}/start", chosen)
    second = browser.post(f"{path}/start", chosen, follow=True)
    [batch] = Batch.objects.all()
    assert first["Location"] == second.redirect_chain[-1][0] == f"/console/batches/{batch.public_id}"
    for started in (path, f"{path}/problems.csv"):
        assert browser.get(started, chosen)["Location"] == first["Location"]
    assert (batch.total, batch.environment) == (2, "live")
    assert "diwali.csv" in text(browser, "/console/batches")
    item = orjson.loads(bytes(BatchItem.objects.get(batch=batch, idx=1).body))
    assert (item["to"], item["messaging_product"]) == ("+919812345679", "whatsapp")
    assert bytes(BatchFile.objects.get().content) == b""


def test_a_file_may_leave_out_customers_who_opted_out(
    browser: Client, number: PhoneNumber, template: MessageTemplate
) -> None:
    path = upload(browser)
    chosen = choices(number, template, skip_opted_out="on")
    assert "Leave out customers who opted out of marketing" in text(browser, f"{path}?{urlencode(chosen)}")
    page = browser.post(f"{path}/start", chosen)["Location"]
    batch = Batch.objects.get()
    assert batch.skip_opted_out is True
    assert "Nobody left out so far" in text(browser, page)
    BatchItem.objects.filter(batch=batch, idx=1).update(status="skipped", skip_reason="opted_out")
    assert "1 left out" in text(browser, page)


def test_customers_who_opted_out_are_named_before_anything_is_sent(
    browser: Client,
    tenant: Tenant,
    other_tenant: Tenant,
    number: PhoneNumber,
    template: MessageTemplate,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own, other = number.phone_number_id, "919812345679"
    for tenant_id, environment, sender, customer in (
        (tenant.id, "live", own, "919812345678"),
        (tenant.id, "live", "another number", other),
        (tenant.id, "test", own, other),
        (other_tenant.id, "live", own, other),
    ):
        OptOut.objects.create(
            tenant_id=tenant_id,
            environment=environment,
            phone_number_id=sender,
            customer=customer,
            id=uuid7(),
            wrote_stop=True,
            wrote_at=now(),
        )
    path, chosen = upload(browser), choices(number, template)
    page = text(browser, f"{path}?{urlencode(chosen)}")
    assert "1 customer opted out of marketing" in page
    assert "Row 2, +919812345678" in page
    assert "They still get the message" in page
    monkeypatch.setattr("console.csv_batches.ROWS_SHOWN", 1)
    OptOut.objects.filter(phone_number_id="another number").update(phone_number_id=own)
    page = text(browser, f"{path}?{urlencode(chosen)}")
    assert "2 customers opted out of marketing" in page, "also those beyond the rows shown"
    assert "They are left out." in text(browser, f"{path}?{urlencode({**chosen, 'skip_opted_out': 'on'})}")
    OptOut.objects.filter(customer=other).update(customer="553187654321")
    path = upload(browser, FILE.replace(b"919812345679", b"+55 31 98765-4321"))
    page = text(browser, f"{path}?{urlencode(chosen)}")
    assert "2 customers opted out of marketing" in page, "also those whom WhatsApp knows without the 9"


@pytest.mark.django_db(transaction=True)
def test_the_first_message_goes_to_who_makes_the_batch_before_the_others(
    browser: Client, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    document = order_update()
    template_management.create(number.account, body=orjson.dumps(document), members=document)
    MessageTemplate.objects.update(status="APPROVED", document=orjson.dumps(document).decode())

    def is_approved() -> bool:
        account = simulator.control("GET", f"accounts/{number.account.waba_id}")
        return bool(account["templates"][0]["status"] == "APPROVED")

    wait_until(is_approved, "the template was not approved")
    path, chosen = upload(browser), choices(number, MessageTemplate.objects.get())
    trial = {**chosen, "try_to": "+91 98000 00077", "form_id": "a1"}
    answer = browser.post(f"{path}/start", trial, follow=True)
    page = html.unescape(answer.content.decode())
    assert "on its way to +919800000077" in page, page.partition("<main")[2]
    assert "Send 2 messages" in page, "the choices are kept"
    browser.post(f"{path}/start", trial)
    [sent] = [orjson.loads(body) for body in sent_bodies(simulator, number)]
    assert (sent["to"], sent["type"]) == ("+919800000077", "template")
    given = [[each["text"] for each in part["parameters"]] for part in sent["template"]["components"]]
    assert given == [["Asha", "A-17"], ["A-17"]]
    refused = browser.post(f"{path}/start", {**trial, "try_to": "98000", "form_id": "a2"}, follow=True)
    assert "with its country code" in html.unescape(refused.content.decode())
    simulator.faults({"action": "error", "code": 131026, "match": {"path": "/messages$"}})
    refused = browser.post(f"{path}/start", {**trial, "form_id": "a3"}, follow=True)
    assert "(code 131026)" in html.unescape(refused.content.decode())
    assert browser.post(f"{path}/start", {**trial, "form_id": "a4", "to": ""}).status_code == 302
    assert len(sent_bodies(simulator, number)) == 2
    assert not Batch.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_of_starts_at_the_same_moment_one_makes_the_batch(
    browser: Client, tenant: Tenant, number: PhoneNumber, template: MessageTemplate
) -> None:
    stored = BatchFile.objects.get(pk=UUID(upload(browser).rpartition("/")[2]))

    def start() -> Batch | None:
        return csv_batches.start_batch(stored, from_=number.phone_number_id, template=template, mapped=MAPPED)

    assert len([batch for batch in in_threads(*[start] * 4) if batch is not None]) == 1
    assert BatchItem.objects.count() == 2


def test_a_file_that_is_deleted_meanwhile_starts_no_batch(
    browser: Client, number: PhoneNumber, template: MessageTemplate
) -> None:
    stored = BatchFile.objects.get(pk=UUID(upload(browser).rpartition("/")[2]))
    BatchFile.objects.all().delete()
    with pytest.raises(NotFound):
        csv_batches.start_batch(stored, from_=number.phone_number_id, template=template, mapped=MAPPED)
    assert not Batch.objects.exists()


def test_files_of_the_same_name_make_a_batch_each(
    browser: Client, number: PhoneNumber, template: MessageTemplate
) -> None:
    for _ in range(2):
        browser.post(f"{upload(browser, name='customers.csv')}/start", choices(number, template))
    assert len({batch.client_ref for batch in Batch.objects.all()}) == 2
    assert BatchItem.objects.count() == 4


def test_a_wrong_choice_is_explained_and_nothing_is_queued(
    browser: Client, number: PhoneNumber, template: MessageTemplate
) -> None:
    path = upload(browser)
    page = html.unescape(browser.get(path, choices(number, template, button_0="")).content.decode())
    assert "This field is required" in page
    for wrong in ({"to": "9"}, {"template": str(number.account_id)}, {"from_": "1"}):
        browser.post(f"{path}/start", choices(number, template, **wrong))
    assert not Batch.objects.exists()
    unsendable = choices(number, template, to="1")
    refused = browser.post(f"{path}/start", unsendable)
    assert not Batch.objects.exists(), "no row of it can be sent"
    assert refused["Location"] == f"{path}?{urlencode(unsendable)}"


def test_a_file_that_cannot_be_read_or_is_too_large_is_refused(browser: Client, tenant: Tenant) -> None:
    for content, status, words in ((b"to\n", 400, "no rows below"), (b"x" * (4 << 20), 413, "4194304 bytes")):
        answer = browser.post("/console/batches/file", {"file": SimpleUploadedFile("a.csv", content)})
        assert answer.status_code == status
        assert words in html.unescape(answer.content.decode())
    assert not BatchFile.objects.exists()


def test_files_are_few_and_pruned_after_a_day(browser: Client, tenant: Tenant) -> None:
    paths = [upload(browser, name=f"{count}.csv") for count in range(csv_batches.MOST_FILES + 2)]
    assert browser.get(paths[0]).status_code == 404
    assert BatchFile.objects.count() == csv_batches.MOST_FILES
    BatchFile.objects.filter(name="5.csv").update(created_at=now() - csv_batches.KEPT - timedelta(minutes=1))
    assert retention.prune_batch_files() == 1
    assert browser.get(paths[5]).status_code == 404
    assert browser.get(paths[6]).status_code == 200


def test_the_files_of_one_tenant_push_out_none_of_another(browser: Client, stranger: Client) -> None:
    path = upload(stranger)
    for count in range(csv_batches.MOST_FILES + 1):
        upload(browser, name=f"{count}.csv")
    assert stranger.get(path).status_code == 200


def test_another_tenant_and_the_other_environment_see_no_file(
    browser: Client, stranger: Client, number: PhoneNumber, template: MessageTemplate
) -> None:
    path = upload(browser)
    browser.post("/console/preferences", {"environment": "test"})
    for client in (stranger, browser):
        for page in (path, f"{path}/problems.csv"):
            assert client.get(page, choices(number, template)).status_code == 404
        assert client.post(f"{path}/start", choices(number, template)).status_code == 404
    assert not Batch.objects.exists()


def test_a_file_is_sent_with_templates_of_its_own_business_environment_and_account(
    browser: Client, stranger: Client, number: PhoneNumber, template: MessageTemplate, other_tenant: Tenant
) -> None:
    MessageTemplate.objects.filter(pk=template.pk).update(environment="test")
    other = MessageTemplate.objects.get(pk=template_of(number).pk)
    MessageTemplate.objects.filter(pk=other.pk).update(tenant=other_tenant)
    paused = template_of(number)
    MessageTemplate.objects.filter(pk=paused.pk).update(status="PAUSED")
    path = upload(browser)
    account = BusinessAccount.objects.create(tenant=number.tenant, environment="live", waba_id="99")
    elsewhere = template_of(number)
    MessageTemplate.objects.filter(pk=elsewhere.pk).update(account=account)
    carousel = template_of(number, {**DOCUMENT, "components": [{"type": "CAROUSEL", "cards": [{}]}]})
    for unfit in (template, other, paused, elsewhere, carousel):
        browser.post(f"{path}/start", choices(number, unfit))
    assert not Batch.objects.exists()
    assert "belongs to another business account" in html.unescape(
        browser.get(path, choices(number, elsewhere)).content.decode()
    )
    page = html.unescape(browser.get(path, choices(number, carousel)).content.decode())
    assert "can only be sent with the API" in page, page.partition("<main")[2]


def test_failed_messages_come_as_a_file_that_can_be_sent_again(
    browser: Client, number: PhoneNumber, template: MessageTemplate
) -> None:
    path = upload(browser, FILE + b'919812345677,"=HYPERLINK(""x"")",A-19\n')
    browser.post(f"{path}/start", choices(number, template))
    batch = Batch.objects.get()
    error = {"error": {"code": 130429, "message": "Slow down", "error_data": {"details": "@too fast"}}}
    BatchItem.objects.filter(batch=batch, idx__gt=0).update(
        status="failed", http_status=429, response=orjson.dumps(error)
    )
    answer = browser.get(f"/console/batches/{batch.public_id}/failed.csv")
    assert answer["Content-Type"].startswith("text/csv")
    first, second = csv.DictReader(io.StringIO(answer.content.decode()))
    assert first == {
        "to": "'+919812345679",
        "body_1": "Bina",
        "body_2": "A-18",
        "button_0": "A-18",
        "http_status": "429",
        "error_code": "130429",
        "error": "'@too fast",
        "row": "3",
    }
    assert second["body_1"] == '\'=HYPERLINK("x")'
    again = upload(browser, answer.content, "failed.csv")
    page = html.unescape(
        browser.get(again, {"from_": number.phone_number_id, "template": str(template.pk)}).content.decode()
    )
    assert "Send 2 messages" in page
    assert "Hi =HYPERLINK" in page


@pytest.mark.parametrize(
    ("http_status", "error", "is_kept", "is_in_the_file"),
    [
        (400, {"code": 131009}, False, True),
        (None, {"code": "meta_unreachable"}, False, True),
        (None, {"code": "outcome_unknown"}, False, False),
        (200, {"code": "outcome_unknown"}, False, False),
        (500, {"code": 131000}, False, False),
        (500, {"code": 131057}, True, True),
    ],
)
def test_a_message_that_may_have_been_sent_is_not_in_the_file_to_upload_again(
    browser: Client,
    number: PhoneNumber,
    template: MessageTemplate,
    http_status: int | None,
    error: dict[str, Any],
    is_kept: bool,
    is_in_the_file: bool,
) -> None:
    """A message that keeps its body was certainly not sent."""
    path = upload(browser)
    browser.post(f"{path}/start", choices(number, template))
    batch = Batch.objects.get()
    failed = batch.items.filter(idx=0)
    failed.update(status="failed", http_status=http_status, response=orjson.dumps({"error": error}))
    if not is_kept:
        failed.update(body=b"")
    answer = browser.get(f"/console/batches/{batch.public_id}/failed.csv").content.decode()
    rows = [row["error_code"] for row in csv.DictReader(io.StringIO(answer))]
    assert rows == [str(error["code"])] * is_in_the_file


def test_failures_are_named_by_the_row_of_the_spreadsheet(
    browser: Client, number: PhoneNumber, template: MessageTemplate
) -> None:
    """Blank and excluded rows count, because a member looks for the row in the spreadsheet."""
    head, first, second = FILE.splitlines(keepends=True)
    path = upload(browser, b"".join((head, b"98123,Chitra,A-16\n", b"\n", first, second)))
    browser.post(f"{path}/start", choices(number, template))
    assert_failures_are_counted(browser, Batch.objects.get(), name="Row", places=["4", "5"])


def test_failures_of_a_batch_of_the_api_are_counted_from_one(browser: Client, number: PhoneNumber) -> None:
    message = {"to": "+919812345678", "type": "text", "text": {"body": "Hi"}}
    made = lifecycle.create(
        tenant_id=number.tenant_id,
        environment=number.environment,
        raw=orjson.dumps({"from": number.phone_number_id, "messages": [message] * 2}),
    )
    assert_failures_are_counted(browser, made.batch, name="Message", places=["1", "2"])


def assert_failures_are_counted(browser: Client, batch: Batch, *, name: str, places: list[str]) -> None:
    batch.items.update(status="failed", http_status=400)
    Batch.objects.filter(pk=batch.pk).update(failed=2)
    page = browser.get(f"/console/batches/{batch.public_id}").content.decode()
    table = page.partition('aria-label="Failed messages"')[2].partition("</table>")[0]
    assert f'<th class="amount">{name}</th>' in table
    assert re.findall(r'<td class="amount">(\d+)</td>', table) == places
    answer = browser.get(f"/console/batches/{batch.public_id}/failed.csv").content.decode()
    assert [row[name.lower()] for row in csv.DictReader(io.StringIO(answer))] == places


def test_the_rows_of_a_file_are_kept_as_long_as_its_batch(
    browser: Client, number: PhoneNumber, template: MessageTemplate
) -> None:
    path = upload(browser)
    browser.post(f"{path}/start", choices(number, template))
    BatchFile.objects.update(created_at=now() - csv_batches.KEPT - timedelta(minutes=1))
    for count in range(csv_batches.MOST_FILES + 1):
        upload(browser, name=f"{count}.csv")
    assert retention.prune_batch_files() == 0
    batch = Batch.objects.get()
    assert csv_batches.row_numbers_of(batch.id) == [2, 3]
    Batch.objects.update(completed_at=now() - timedelta(days=400))
    assert retention.prune_batches() == 1
    assert csv_batches.row_numbers_of(batch.id) is None


def test_no_name_of_a_column_begins_a_formula(
    browser: Client, number: PhoneNumber, template: MessageTemplate
) -> None:
    """The names of columns come from the sent bodies, which callers can fill with any text."""
    path = upload(browser)
    browser.post(f"{path}/start", choices(number, template))
    batch = Batch.objects.get()
    components = [{"type": "=1+1", "parameters": [{"type": "text", "text": "x"}]}]
    sent = orjson.dumps({"to": "919812345678", "template": {"components": components}})
    BatchItem.objects.filter(batch=batch).update(status="failed", body=sent)
    answer = browser.get(f"/console/batches/{batch.public_id}/failed.csv")
    assert answer.content.startswith(b"to,'=1+1_None,")


def test_strangers_get_no_failed_messages_and_no_progress(
    browser: Client, stranger: Client, number: PhoneNumber, template: MessageTemplate
) -> None:
    path = upload(browser)
    browser.post(f"{path}/start", choices(number, template))
    batch = Batch.objects.get()
    assert "0 of 2 done" in text(browser, f"/console/batches/{batch.public_id}/progress")
    for part in ("failed.csv", "progress"):
        assert stranger.get(f"/console/batches/{batch.public_id}/{part}").status_code == 404
    Batch.objects.update(status="completed", completed_at=now())
    assert browser.get(f"/console/batches/{batch.public_id}/progress?open=1")["HX-Refresh"] == "true"


def test_a_guess_that_lacks_a_column_is_proposed_without_complaint(
    browser: Client, number: PhoneNumber, template: MessageTemplate
) -> None:
    path = upload(browser, b"phone,name\n+91 98123-45678,Asha\n")
    query = f"from_={number.phone_number_id}&template={template.pk}"
    page = text(browser, f"{path}?{query}")
    assert '<option value="1" selected>name</option>' in page
    assert "Please look at" not in page
    assert "Please look at 2 fields" in text(browser, f"{path}?{query}&to=0&body_1=1")
