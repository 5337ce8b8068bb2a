"""Bots on unmodified public Cloud API libraries reply to a customer's picture through the running service.

Each bot's endpoint has `format: meta`. If the library can verify signatures, it does. The test compares the bot's
report with the messages that Meta received. docs/cloud-api.md shows `LIBRARIES` as a table.
"""

import asyncio
import base64
import hashlib
import json
import os
import queue
import re
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import requests

from tests.certificates import self_signed
from tests.e2e.conftest import ROOT, Stack, until
from tests.e2e.sdks.homes import node_command
from tests.free_ports import free_port
from tests.raw_server import raw_server

pytestmark = pytest.mark.e2e

_HOST = re.compile(rb"Host: (graph\.facebook\.com|gateway\.example)(:\d+)?\r\n", re.IGNORECASE)
BOTS = ROOT / "tests/e2e/libraries"
PYTHON = ROOT / ".venv/libraries/bin/python"
VERIFY_TOKEN = "open sesame & more"
RECEIVED, PICTURE = b"\xff\xd8\xff\xe0 received by a bot", b"\xff\xd8\xff\xe0 sent by a bot"
EVERYTHING = frozenset({"text", "template", "media", "download", "read", "templates"})


@dataclass(frozen=True)
class Library:
    """The features of a library."""

    can: frozenset[str]
    verifies: bool = True
    """Whether the library checks signatures."""


LIBRARIES = {
    "pywa": Library(EVERYTHING),
    "heyoo": Library(EVERYTHING - {"templates"}, verifies=False),
    "python-whatsapp-bot": Library(EVERYTHING - {"templates"}, verifies=False),
    "whatsapp-client": Library(frozenset({"text", "template", "media"})),
    "@kapso/whatsapp-cloud-api": Library(EVERYTHING),
    "@great-detail/whatsapp": Library(EVERYTHING),
    "whatsapp-api-js": Library(EVERYTHING - {"templates"}),
    "whatsapp": Library(frozenset({"text", "template", "media", "read"})),
    "whatsapp-business": Library(EVERYTHING - {"templates"}, verifies=False),
    "whatsapp-cloud-api": Library(frozenset({"text", "template", "media"}), verifies=False),
}


@dataclass
class Bot:
    """A bot's process and its report."""

    process: subprocess.Popen[str]
    url: str
    steps: dict[str, dict[str, Any]] = field(default_factory=dict)
    _lines: "queue.Queue[str]" = field(default_factory=queue.Queue)

    def __post_init__(self) -> None:
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put(json.dumps({"step": "failed", "error": "the bot ended"}))

    def until(self, step: str) -> dict[str, dict[str, Any]]:
        """Wait until the bot reports a step. Returns all steps so far."""
        while step not in self.steps:
            said = json.loads(self._lines.get(timeout=30))
            assert said["step"] != "failed", said["error"]
            self.steps[said["step"]] = said
        return self.steps


@pytest.fixture(scope="module")
def graph(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Run a TLS proxy for the gateway with the host names that libraries require. Yields the environment of a bot."""
    certificate = self_signed(tmp_path_factory.mktemp("tls"), names=["graph.facebook.com", "gateway.example"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    port = int(stack.ready["base_url"].rsplit(":", 1)[1])

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection("127.0.0.1", port)

        async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            with closing(sink), suppress(ConnectionError):
                while chunk := await source.read(65536):
                    # Set the Host header as a real proxy does, because the gateway answers only requests for its own
                    # name.
                    sink.write(_HOST.sub(b"Host: 127.0.0.1:%d\r\n" % port, chunk))
                    await sink.drain()

        await asyncio.gather(copy(reader, ours), copy(theirs, writer))

    with raw_server(forward, context) as url:
        yield {
            "REDIRECTED_HOSTS": "graph.facebook.com,gateway.example",
            "REDIRECTED_PORT": url.rsplit(":", 1)[1],
            "NODE_EXTRA_CA_CERTS": str(certificate),
        }


def versions() -> dict[str, str]:
    """The version of each library, by its name."""
    lines = (BOTS / "requirements.in").read_text().splitlines()
    of_node: dict[str, str] = json.loads((BOTS / "package.json").read_text())["dependencies"]
    return dict(line.split("==") for line in lines if "==" in line) | of_node


def program(name: str, library: str) -> list[str]:
    """The command that runs a program for a library, in Node or Python."""
    if library in json.loads((BOTS / "package.json").read_text())["dependencies"]:
        command = node_command("--require", str(BOTS / "redirect.cjs"), str(BOTS / f"{name}.mjs"))
        needed = BOTS / "node_modules"
    else:
        command, needed = [str(PYTHON), str(BOTS / f"{name}.py")], PYTHON
    assert needed.exists(), "`make pytest` installs tests/e2e/libraries"
    return [*command, library]


@contextmanager
def running(name: str, **environment: str) -> Iterator[Bot]:
    """Run a bot in a separate process."""
    port = free_port()
    process = subprocess.Popen(
        program("bots", name),
        env={"PATH": os.environ["PATH"], "PORT": str(port), "VERIFY_TOKEN": VERIFY_TOKEN, **environment},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        bot = Bot(process, f"http://127.0.0.1:{port}/")
        yield bot
    finally:
        process.kill()
        process.wait(10)
        bot.reader.join(10)


@pytest.fixture(scope="module")
def account(stack: Stack) -> str:
    """The demo's business account."""
    [number] = [
        row
        for row in stack.api("GET", "/v1/numbers").json()["data"]
        if row["phone_number_id"] == stack.ready["phone_number_id"]
    ]
    waba_id: str = number["waba_id"]
    approved_template(stack, waba_id, "hello_world")
    return waba_id


def approved_template(stack: Stack, waba_id: str, name: str) -> str:
    """The id of an approved template. The template is created if it is missing."""
    components = [{"type": "BODY", "text": "Hello world."}]
    body = {"name": name, "language": "en_US", "category": "UTILITY", "components": components}
    made: str = stack.api("POST", f"/v1/templates?waba_id={waba_id}", body).json().get("id", "")
    if made:
        stack.simulator("POST", f"/sim/templates/{made}", {"event": "APPROVED"})
    return made


def endpoint_at(stack: Stack, url: str, secret: str) -> str:
    """Create an unverified endpoint with `format: meta`. Returns the id."""
    body = {
        "url": url,
        "format": "meta",
        "verify_token": VERIFY_TOKEN,
        "event_types": ["message.inbound"],
        "secret": secret,
        "status": "pending",
    }
    answer = stack.api("POST", "/v1/webhooks", body)
    assert answer.status_code == 201, answer.text
    endpoint_id: str = answer.json()["id"]
    return endpoint_id


def image(stack: Stack, customer: str) -> dict[str, Any]:
    """Make the simulator send a customer's picture."""
    picture = {"data": base64.b64encode(RECEIVED).decode(), "mime_type": "image/jpeg"}
    source = {"from": customer, "type": "image", "image": picture}
    made: dict[str, Any] = stack.simulator(
        "POST", "/sim/inbound", {"phone_number_id": stack.ready["phone_number_id"], **source}
    )
    return made


@pytest.mark.parametrize("place", range(len(LIBRARIES)), ids=list(LIBRARIES))
def test_a_bot_on_the_library_answers_a_picture(
    stack: Stack, graph: dict[str, str], account: str, tmp_path: Path, place: int
) -> None:
    name = list(LIBRARIES)[place]
    library, customer = LIBRARIES[name], f"9170001{place:05d}"
    secret = "whsec_" + base64.b64encode(os.urandom(32)).decode()
    picture = tmp_path / "picture.jpg"
    picture.write_bytes(PICTURE)
    environment = {
        **graph,
        "GATEWAY": stack.ready["base_url"],
        "KEY": stack.ready["api_key"],
        "PHONE": stack.ready["phone_number_id"],
        "ACCOUNT": account,
        "SECRET": secret,
        "PICTURE": str(picture),
    }
    with running(name, **environment) as bot:
        bot.until("listening")
        endpoint_id = endpoint_at(stack, bot.url, secret)
        try:
            verified = stack.api("POST", f"/v1/webhooks/{endpoint_id}/verify")
            assert verified.status_code == 200, verified.text
            if library.verifies:
                forged = requests.post(
                    bot.url,
                    json={"object": "whatsapp_business_account", "entry": []},
                    headers={"X-Hub-Signature-256": "sha256=" + "0" * 64},
                    timeout=10,
                )
                assert forged.status_code >= 400, "its own verification is on"
            image(stack, customer)
            steps = bot.until("done")
        finally:
            stack.api("DELETE", f"/v1/webhooks/{endpoint_id}")
    assert set(steps) - {"listening", "done"} == library.can
    if "download" in library.can:
        assert steps["download"]["sha256"] == hashlib.sha256(RECEIVED).hexdigest()
    if "templates" in library.can:
        mirrored = stack.api("GET", "/v1/templates?limit=100").json()["data"]
        assert steps["templates"]["names"]
        assert set(steps["templates"]["names"]) <= {row["name"] for row in mirrored}
    sent = {row["id"]: row for row in messages(stack, customer)}
    assert sent[steps["text"]["id"]]["body"]["text"]["body"] == "Thank you for the picture."
    assert sent[steps["media"]["id"]]["body"]["type"] == "image"
    assert sent[steps["template"]["id"]]["body"]["template"]["name"] == "hello_world"
    [received] = [row for row in sent.values() if row["direction"] == "inbound"]
    if "read" in library.can:
        assert steps["read"]["id"] == received["id"]
    for step in ("text", "media", "template"):
        path = f"/v1/events?wamid={quote(steps[step]['id'])}&type=message.outbound"
        until(lambda path=path: stack.api("GET", path).json()["data"], f"the event of the {step}")


def test_the_page_says_what_the_libraries_can() -> None:
    columns = ["text", "template", "media", "download", "read", "templates"]
    tables = [line.split("|") for line in (ROOT / "docs/cloud-api.md").read_text().splitlines()]
    rows = {
        cells[1].split(" (")[0].strip(): [cell.strip() for cell in cells[2:-1]]
        for cells in tables
        if len(cells) == 12 and " (" in cells[1]
    }
    assert set(rows) == set(LIBRARIES)
    pinned = versions()
    for name, (version, _, *marks) in rows.items():
        assert version == pinned[name]
        library = LIBRARIES[name]
        can = [column in library.can for column in columns]
        assert [mark == "yes" for mark in marks] == [*can, library.verifies], name


def messages(stack: Stack, customer: str) -> list[dict[str, Any]]:
    """The messages of a conversation that Meta has."""
    rows: list[dict[str, Any]] = stack.simulator("GET", f"/sim/messages?customer={customer}&limit=100")[
        "data"
    ]
    return rows
