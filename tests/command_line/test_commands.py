"""Commands against the service in this process: send, look up, replay and send a file, with text and JSON output."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from messaging.models import Batch
from messaging.tests.conftest import connected_number
from phone_numbers.models import PhoneNumber
from tenants.models import Tenant
from tests.command_line.conftest import CommandLine
from tests.simulated import RunningSimulator
from webhooks.models import Delivery, Endpoint, Event
from webhooks.tests.publishing import dead_delivery, endpoint_of

pytestmark = pytest.mark.django_db(transaction=True)

TO = "+919812345678"


def sent_body(whabuzz: CommandLine, wamid: str) -> Any:
    return whabuzz("messages", "get", wamid, "--json").json["request"]


def test_a_text_goes_from_the_only_number(whabuzz: CommandLine, number: PhoneNumber) -> None:
    done = whabuzz("send", TO, "Hello", "--json")
    assert done.status == 0, done.stderr
    wamid = done.json["messages"][0]["id"]
    assert Event.objects.get(type="message.outbound").wamid == wamid
    assert sent_body(whabuzz, wamid)["text"] == {"body": "Hello"}
    assert "sent wamid." in whabuzz("send", TO, "Hello again").output
    written = whabuzz("send", "+91-98123 (45678)", "Hello", "--json").json["messages"][0]["id"]
    assert sent_body(whabuzz, written)["to"] == TO


def test_templates_files_and_json(whabuzz: CommandLine, number: PhoneNumber, tmp_path: Path) -> None:
    picture = tmp_path / "a.jpg"
    picture.write_bytes(b"\xff\xd8\xff\xe0" + b"0" * 100)
    sent = whabuzz("send", TO, "Look", "--file", str(picture), "--json")
    assert sent.status == 0, sent.stderr
    assert sent_body(whabuzz, sent.json["messages"][0]["id"])["image"]["caption"] == "Look"
    for kind in ("audio", "sticker"):
        refused = whabuzz("send", TO, "Look", "--file", str(picture), "--kind", kind)
        assert (refused.status, f"no caption with this file ({kind})" in refused.stderr) == (2, True)
    data = '{"type": "location", "location": {"latitude": 1.5, "longitude": 2.5}}'
    sent = whabuzz("send", TO, "--data", "-", "--json", stdin=data)
    assert sent_body(whabuzz, sent.json["messages"][0]["id"])["location"]["latitude"] == 1.5
    # Some editors begin a file in UTF-8 with a mark.
    text = '\ufeff{"type": "text", "text": {"body": "नमस्ते ₹"}}'
    (tmp_path / "m.json").write_text(text, encoding="utf-8")
    for source, stdin in ((f"@{tmp_path / 'm.json'}", None), ("-", text)):
        sent = whabuzz("send", TO, "--data", source, "--json", stdin=stdin)
        assert sent.status == 0, sent.stderr
        assert sent_body(whabuzz, sent.json["messages"][0]["id"])["text"]["body"] == "नमस्ते ₹"
    assert whabuzz("send", TO, "x", "--template", "y").status == 2
    assert whabuzz("send", TO).status == 2
    assert "--data" in whabuzz("send", TO, "--data", "[1]").stderr


def test_a_repeat_with_the_same_key_sends_nothing(whabuzz: CommandLine, number: PhoneNumber) -> None:
    first, again = (whabuzz("send", TO, "Hi", "--idempotency-key", "k", "--json").json for _ in range(2))
    assert first == again
    assert Event.objects.filter(type="message.outbound").count() == 1


def test_a_repeat_with_the_same_key_and_file_sends_nothing(
    whabuzz: CommandLine, number: PhoneNumber, tmp_path: Path, simulator: RunningSimulator
) -> None:
    picture = tmp_path / "a.jpg"
    picture.write_bytes(b"\xff\xd8\xff\xe0" + b"0" * 100)
    command = ("send", TO, "Look", "--file", str(picture), "--idempotency-key")
    first, again = (whabuzz(*command, "k", "--json") for _ in range(2))
    assert (again.status, again.output) == (0, first.output), again.stderr
    assert whabuzz(*command, "k2", "--json").json != first.json
    assert Event.objects.filter(type="message.outbound").count() == 2
    # Another file with the key is another message.
    picture.write_bytes(b"\xff\xd8\xff\xe0" + b"1" * 100)
    assert "422 idempotency_conflict" in whabuzz(*command, "k").stderr
    (stored,) = whabuzz.home.glob("uploads.json")
    assert stored.stat().st_mode & 0o077 == 0
    stored.write_text("broken")
    assert whabuzz(*command, "k3").status == 0


def test_what_the_service_refuses_is_one_sentence(whabuzz: CommandLine, number: PhoneNumber) -> None:
    done = whabuzz("send", "+919812340030", "Hi")
    assert (done.status, done.output) == (1, "")
    assert "Error: 400 131030" in done.stderr
    assert "req_" in done.stderr
    assert "{" not in done.stderr
    assert whabuzz("events", "get", "evt_01M6AYX330E008000000000001").status == 1


def test_a_refusal_ends_with_its_details(whabuzz: CommandLine, tenant: Tenant) -> None:
    refused = whabuzz("webhooks", "create", "--url", "https://127.0.0.1/hook")
    assert (refused.status, refused.output) == (1, "")
    endpoint = Endpoint.objects.get()
    details = json.loads("{" + refused.stderr.rpartition("\n{\n")[2])
    assert (details["endpoint_id"], details["secret"]) == (str(endpoint.id), endpoint.secret)


def test_any_operation_by_method_and_path(whabuzz: CommandLine, number: PhoneNumber, tmp_path: Path) -> None:
    body = {"from": number.phone_number_id, "to": TO, "type": "text", "text": {"body": "Hi"}}
    (tmp_path / "body.json").write_text(json.dumps(body))
    call = ("api", "post", "/v1/messages", "--data", f"@{tmp_path / 'body.json'}", "--idempotency-key", "k")
    first, again = whabuzz(*call), whabuzz(*call)
    assert first.status == 0, first.stderr
    assert first.json == again.json
    wamid = first.json["messages"][0]["id"]
    listed = whabuzz("api", "GET", f"/v1/events?type=message.outbound&wamid={wamid}&limit=1")
    assert [event["wamid"] for event in listed.json["data"]] == [wamid]
    assert whabuzz("api", "GET", "/v1/openapi.yaml").output.startswith("openapi: 3.1")
    refused = whabuzz("api", "GET", "/v1/events?limit=0")
    assert (refused.status, refused.output) == (1, "")
    assert "400 invalid_request" in refused.stderr


@pytest.mark.parametrize("path", ["https://elsewhere.example/v1/numbers", "v1/numbers", "@elsewhere.example"])
def test_a_key_goes_to_no_other_host(whabuzz: CommandLine, path: str) -> None:
    done = whabuzz("api", "GET", path)
    assert done.status == 2
    assert "slash" in done.stderr


def test_without_one_connected_number_it_asks_which(whabuzz: CommandLine, tenant: Tenant) -> None:
    done = whabuzz("send", TO, "Hi")
    assert done.status == 2
    assert "--from" in done.stderr


def test_with_several_connected_numbers_it_asks_which(
    whabuzz: CommandLine, tenant: Tenant, number: PhoneNumber, simulator: RunningSimulator, people: Path
) -> None:
    other = connected_number(tenant, simulator.account(), environment="test")
    for command in (("send", TO, "Hi"), ("batch", "send", str(people), "--text", "Hi")):
        done = whabuzz(*command)
        assert done.status == 2
        for each in ("--from", number.phone_number_id, other.phone_number_id):
            assert each in done.stderr
    assert not Event.objects.filter(type="message.outbound").exists()
    assert not Batch.objects.exists()
    other.connection_state = "pending"
    other.save()
    assert whabuzz("send", TO, "Hi").status == 0


def test_looking_up(whabuzz: CommandLine, number: PhoneNumber) -> None:
    wamids = [whabuzz("send", TO, f"{n}", "--json").json["messages"][0]["id"] for n in range(3)]
    listed = whabuzz("events", "list", "--type", "message.outbound", "--limit", "2", "--json").lines
    assert [event["wamid"] for event in listed] == wamids[:0:-1]
    assert wamids[2] == whabuzz("events", "get", listed[0]["id"]).json["event"]["wamid"]
    assert len(whabuzz("events", "list", "--since", "10m").output.splitlines()) == 3
    assert (
        whabuzz("events", "list", "--since", "2020-01-01", "--type", "message.echo").output == "No events.\n"
    )
    assert whabuzz("events", "list", "--since", "yesterday").status == 2
    assert [row["wamid"] for row in whabuzz("messages", "list", "--json").lines] == wamids[::-1]
    assert "accepted" in whabuzz("messages", "list").output
    shown = whabuzz("messages", "get", wamids[0]).output
    assert wamids[0] in shown
    assert "message.outbound" in shown
    assert number.phone_number_id in whabuzz("numbers", "list").output
    [row] = whabuzz("numbers", "list", "--json").lines
    assert row["connection_state"] == "connected"
    assert (
        whabuzz("numbers", "health", number.phone_number_id, "--json").json["connection_state"] == "connected"
    )


def test_the_sandbox_follows_the_commands(whabuzz: CommandLine, simulator: RunningSimulator) -> None:
    wrote = whabuzz("trigger", "inbound", "Hello", "--from", "919812345678", "--json")
    assert wrote.json["customer"] == "919812345678"
    assert whabuzz("trigger", "inbound", "--type", "image").status == 0
    named = whabuzz("trigger", "inbound", "--data", '{"from": "919812345679", "text": "Hi"}', "--json")
    assert named.json["customer"] == "919812345679"
    wamid = whabuzz("send", TO, "Hi", "--from", wrote.json["phone_number_id"], "--json").json["messages"][0][
        "id"
    ]
    assert whabuzz("trigger", "status", wamid, "failed", "--code", "131026").output == f"{wamid} is failed\n"
    assert whabuzz("trigger", "status", wamid, "lost").status == 1
    assert whabuzz("trigger", "number", "NAME_APPROVED", "--json").json["name_status"] == "APPROVED"
    refused = whabuzz("trigger", "template", "410000000000001", "REJECTED", "--reason", "SCAM")
    assert "Error: 404" in refused.stderr
    assert whabuzz("trigger", "example", "message.inbound", "--endpoint", "x").status == 1


def delivery_of(tenant: Tenant) -> Delivery:
    endpoint = endpoint_of(tenant, environment="test")
    return dead_delivery(endpoint, Event.objects.get(type="message.outbound"))


def test_replays_say_how_much_before_they_begin(
    whabuzz: CommandLine, number: PhoneNumber, tenant: Tenant
) -> None:
    whabuzz("send", TO, "Hi")
    delivery = delivery_of(tenant)
    endpoint = str(delivery.endpoint_id)
    assert delivery.public_id in whabuzz("deliveries", "list", "--status", "dead").output
    assert whabuzz("deliveries", "replay", "--endpoint", endpoint, "--dry-run", "--json").json["count"] == 1
    refused = whabuzz("deliveries", "replay", "--endpoint", endpoint, stdin="n\n")
    assert (refused.status, Delivery.objects.count()) == (1, 1)
    assert whabuzz("deliveries", "replay", "--endpoint", endpoint, "--yes", "--json").json == {"queued": 1}
    assert whabuzz("deliveries", "replay").status == 2
    again = whabuzz("deliveries", "replay", delivery.public_id, "--json").lines
    assert again[0]["replay_of"] == delivery.public_id


PEOPLE = "name,to,city\r\nAsha,+91 98000 01001,Pune\r\nBina,919800001002,Delhi\r\nChitra,919800001003,Goa\r\n"


@pytest.fixture
def people(tmp_path: Path) -> Path:
    file = tmp_path / "people.csv"
    file.write_text("\ufeff" + PEOPLE, newline="")
    return file


def test_a_file_is_checked_and_shown_before_anything_is_sent(
    whabuzz: CommandLine, people: Path, number: PhoneNumber
) -> None:
    options = ("--template", "order", "--param", "name", "--param", "city")
    done = whabuzz("batch", "send", str(people), *options, "--dry-run", "--json").json
    assert done["total"] == 3
    assert done["examples"][0]["to"] == "+919800001001"
    values = done["examples"][0]["template"]["components"][0]["parameters"]
    assert [value["text"] for value in values] == ["Asha", "Pune"]
    assert [each["to"] for each in done["examples"]] == ["+919800001001", "+919800001002", "+919800001003"]
    rows = (
        "Asha,12",
        ",919800001002",
        "Bina,98123 45678",
        '"12 MG Road\nPune",919800001002',
        "Tan,8123 4567",
    )
    people.write_text("\n".join(("name,to", *rows, "")))
    done = whabuzz("batch", "send", str(people), "--template", "order", "--param", "name")
    assert done.status == 1
    assert f"{people}:2: '12' is not a phone number" in done.stderr
    assert f"{people}:3: name is empty" in done.stderr
    assert f"{people}:4: '98123 45678' lacks its country code" in done.stderr
    assert f"{people}:6: name has a line break" in done.stderr
    assert f"{people}:7: '8123 4567' lacks its country code" in done.stderr
    assert "Its columns: name, to" in whabuzz("batch", "send", str(people), "--text", "{age}").stderr
    assert whabuzz("batch", "send", str(people)).status == 2
    assert not Batch.objects.exists()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("name,to\nJosé,919800001001\n".encode("cp1252"), "is not UTF-8 text. In Excel, save it as"),
        ("name,to\nJosé,919800001001\n".encode("utf-16"), "is not UTF-8 text. In Excel, save it as"),
        (b'name,to\n"Asha,919800001001\n' + b"x" * 200_000, "cannot be read: field larger than"),
    ],
    ids=["cp1252", "utf-16", "an open quote"],
)
def test_a_file_that_is_no_csv_in_utf_8_is_refused_in_a_sentence(
    whabuzz: CommandLine, people: Path, content: bytes, says: str
) -> None:
    people.write_bytes(content)
    refused = whabuzz("batch", "send", str(people), "--text", "Hello {name}", "--dry-run")
    assert (refused.status, says in refused.stderr) == (2, True)


def test_the_same_command_goes_on_where_it_was(
    whabuzz: CommandLine, people: Path, number: PhoneNumber
) -> None:
    command = ("batch", "send", str(people), "--text", "Hello {name}", "--size", "2", "--no-wait", "--json")
    first = whabuzz(*command).json
    assert first["total"] == 3
    assert [each["total"] for each in first["batches"]] == [2, 1]
    assert whabuzz(*command[:-1]).output == "0 accepted, 0 failed, 0 not sent, 3 waiting\n"
    again = whabuzz(*command).json
    assert [each["id"] for each in again["batches"]] == [each["id"] for each in first["batches"]]
    another = whabuzz(*command, "--ref", "once-more").json
    assert Batch.objects.count() == 4
    assert "0 of 2 accepted" in whabuzz("batch", "list").output
    assert whabuzz("batch", "cancel", another["batches"][0]["id"], "--json").json["status"] == "cancelled"
    assert "cancelled" in whabuzz("batch", "get", another["batches"][0]["id"]).output


def test_the_same_file_with_another_option_is_another_sending(
    whabuzz: CommandLine,
    tenant: Tenant,
    people: Path,
    number: PhoneNumber,
    simulator: RunningSimulator,
    tmp_path: Path,
) -> None:
    """Each option that changes what is sent counts, but not the file's place."""
    people.write_text("to,phone\n919800001001,919800001002\n")
    other = connected_number(tenant, simulator.account(), environment="test")

    def send(*options: str, file: Path = people) -> str:
        command = ("batch", "send", str(file), "--no-wait", "--json", *options)
        sent = whabuzz(*command)
        assert sent.status == 0, sent.stderr
        [made] = sent.json["batches"]
        return str(made["id"])

    of_number = ("--from", number.phone_number_id)
    sendings = [
        ("--text", "Hi", *of_number),
        ("--text", "Hi", "--from", other.phone_number_id),
        ("--text", "Hello", *of_number),
        ("--text", "Hi", *of_number, "--to-column", "phone"),
        ("--text", "Hi", *of_number, "--size", "1"),
        ("--template", "order", *of_number),
        ("--template", "offer", *of_number),
        ("--template", "order", *of_number, "--language", "hi"),
        ("--template", "order", *of_number, "--param", "phone"),
    ]
    made = [send(*options) for options in sendings]
    assert len(set(made)) == len(sendings)
    copied = tmp_path / "copied.csv"
    copied.write_bytes(people.read_bytes())
    assert [send(*options, file=copied) for options in sendings] == made


def test_failed_rows_come_back_as_a_file(whabuzz: CommandLine, people: Path, number: PhoneNumber) -> None:
    whabuzz("batch", "send", str(people), "--text", "Hello {name}", "--size", "2", "--no-wait")
    for batch in Batch.objects.order_by("id"):
        is_last = batch.total == 1
        batch.items.update(
            status="failed" if is_last else "accepted",
            response=b'{"error": {"code": 131026, "message": "cannot"}}' if is_last else b"{}",
        )
        Batch.objects.filter(pk=batch.pk).update(
            status="completed", accepted=0 if is_last else 2, failed=1 if is_last else 0
        )
    done = whabuzz("batch", "send", str(people), "--text", "Hello {name}", "--size", "2")
    assert done.status == 1
    assert "2 accepted, 1 failed, 0 not sent" in done.output
    # Without the mark, a spreadsheet would read another encoding.
    assert (people.parent / "people.failed.csv").read_bytes().startswith(b"\xef\xbb\xbf")
    with (people.parent / "people.failed.csv").open(newline="", encoding="utf-8-sig") as file:
        [row] = csv.DictReader(file)
    assert (row["name"], row["error"]) == ("Chitra", "131026 cannot")


def test_rows_of_a_batch_that_ended_early_come_back_and_are_no_success(
    whabuzz: CommandLine, people: Path, number: PhoneNumber
) -> None:
    command = ("batch", "send", str(people), "--text", "Hello {name}")
    whabuzz(*command, "--no-wait")
    batch = Batch.objects.get()
    batch.items.filter(idx=0).update(status="accepted")
    Batch.objects.update(accepted=1)
    assert whabuzz("batch", "cancel", batch.public_id).status == 0
    done = whabuzz(*command)
    assert (done.status, "1 accepted, 0 failed, 2 not sent" in done.output) == (1, True)
    with (people.parent / "people.failed.csv").open(newline="", encoding="utf-8-sig") as file:
        rows = [(row["name"], row["error"]) for row in csv.DictReader(file)]
    assert rows == [("Bina", "skipped: batch_ended"), ("Chitra", "skipped: batch_ended")]
    batch.items.update(status="accepted")
    Batch.objects.update(status="completed", accepted=3)
    assert whabuzz(*command).status == 0


def test_a_row_that_may_have_been_sent_does_not_come_back(
    whabuzz: CommandLine, people: Path, number: PhoneNumber
) -> None:
    command = ("batch", "send", str(people), "--text", "Hello {name}")
    whabuzz(*command, "--no-wait")
    batch = Batch.objects.get()
    answers = [(400, b'{"error": {"code": 131026}}'), (500, b'{"error": {"code": 131000}}')]
    answers += [(None, b'{"error": {"code": "outcome_unknown"}}')]
    for idx, (http_status, response) in enumerate(answers):
        batch.items.filter(idx=idx).update(status="failed", http_status=http_status, response=response)
    Batch.objects.update(status="completed", failed=3)
    done = whabuzz(*command)
    assert "2 failed rows may have been sent" in done.stderr
    file = people.parent / "people.failed.csv"
    rows = csv.DictReader(file.read_text(encoding="utf-8-sig").splitlines())
    assert [row["name"] for row in rows] == ["Asha"]
    file.unlink()
    batch.items.filter(idx=0).update(http_status=500)
    whabuzz(*command)
    assert not file.exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands(stranger: CommandLine, shell: str) -> None:
    assert "_WHABUZZ_COMPLETE" in stranger("completion", shell).output


def test_every_command_has_help_and_takes_json(stranger: CommandLine) -> None:
    def walk(*path: str) -> list[tuple[str, ...]]:
        text = stranger(*path, "--help").output
        if "Commands:" not in text:
            assert ("--json" in text) is (path[0] != "completion"), path
            return [path]
        names = [line.split()[0] for line in text.partition("Commands:")[2].splitlines() if line.strip()]
        return [found for name in names for found in walk(*path, name)]

    assert len(walk()) == 70


def test_operations_of_a_resource_are_commands(
    whabuzz: CommandLine, tenant: Tenant, number: PhoneNumber, tmp_path: Path
) -> None:
    """The parameters of an operation become arguments, choices, repeated options, flags, JSON and files."""
    made = whabuzz(
        "keys", "create", "--name", "server", "--scopes", "messages", "--scopes", "events",
        "--data", '{"name": "another"}',
    )  # fmt: skip
    assert made.status == 0, made.stderr
    assert (made.json["name"], made.json["scopes"]) == ("server", ["events", "messages"])
    assert made.json["prefix"] in whabuzz("keys", "list").output
    assert whabuzz("keys", "revoke", made.json["id"]).json["id"] == made.json["id"]

    picture = tmp_path / "a.jpg"
    picture.write_bytes(b"\xff\xd8\xff\xe0" + b"0" * 100)
    sender = number.phone_number_id
    media = whabuzz("media", "upload", str(picture), "--from", sender)
    assert media.status == 0, media.stderr
    copy = tmp_path / "b.jpg"
    assert whabuzz("media", "get", media.json["id"], "--from", sender, "--output", str(copy)).status == 0
    assert copy.read_bytes() == picture.read_bytes()

    endpoint = endpoint_of(tenant, environment="test")
    changed = whabuzz("webhooks", "update", str(endpoint.id), "--metadata", '{"team": "a"}', "--ordered")
    assert changed.status == 0, changed.stderr
    assert (changed.json["metadata"], changed.json["ordered"]) == ({"team": "a"}, True)
    assert not whabuzz("webhooks", "update", str(endpoint.id), "--no-ordered").json["ordered"]
    for given, stored in (('{"type": "message.inbound"}', {"type": "message.inbound"}), ("null", None)):
        changed = whabuzz("webhooks", "update", str(endpoint.id), "--filter", given)
        assert (changed.json["filter"], changed.json["metadata"]) == (stored, {"team": "a"})
    assert whabuzz("webhooks", "delete", str(endpoint.id)).status == 0


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["webhooks", "create", "--event-types", "message.inbund"], "message.inbund"),
        (["webhooks", "update", "we_1", "--headers", "{"], "this is not JSON"),
        (["webhooks", "nothing"], "No such command"),
        (["keys", "revoke"], "Missing argument 'KEY_ID'"),
        (["media", "upload", "nowhere.jpg", "--from", "1"], "does not exist"),
    ],
)
def test_wrong_commands_are_errors_and_send_nothing(
    stranger: CommandLine, command: list[str], said: str
) -> None:
    done = stranger(*command)
    assert (done.status, said in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(("no_color", "is_coloured"), [("", True), ("1", False)])
def test_statuses_have_colours_unless_they_are_unwanted(
    whabuzz: CommandLine,
    number: PhoneNumber,
    monkeypatch: pytest.MonkeyPatch,
    no_color: str,
    is_coloured: bool,
) -> None:
    whabuzz.on_terminal = True
    monkeypatch.setenv("NO_COLOR", no_color)
    assert ("\x1b[32mconnected\x1b[0m" in whabuzz("numbers", "list").output) == is_coloured
