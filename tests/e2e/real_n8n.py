"""The n8n node in n8n itself, with the running service (`make n8n`, which installs n8n: 2.8 GB)."""

import itertools
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import requests

from gateway.embedded_addresses import database_url, socket_dir
from tests.e2e.conftest import ROOT, Stack, until
from tests.e2e.sdks.homes import node_command
from tests.e2e.sdks.packages import customer_writes
from tests.free_ports import free_port

pytestmark = pytest.mark.e2e

N8N = ROOT / ".venv/n8n/node_modules/n8n/bin/n8n"
CUSTOMER = "919800000077"
SENDS = "n8n-nodes-whabuzz.whabuzz"
OWNER = {"email": "owner@shop.example", "firstName": "Asha", "lastName": "Rao", "password": "Passw0rd123"}


class Editor(requests.Session):
    """The HTTP calls of n8n's editor."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url

    def call(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.request(method, f"{self.url}/rest{path}", json=body, timeout=60)
        assert answer.ok, answer.text
        return answer.json()["data"]

    def is_up(self) -> bool:
        try:
            return self.get(f"{self.url}/healthz/readiness", timeout=5).ok
        except requests.ConnectionError:
            return False


@pytest.fixture
def editor(stack: Stack, packages: Path, tmp_path: Path) -> Iterator[Editor]:
    """A new n8n with the node installed and an owner, on its own database."""
    folder = tmp_path / ".n8n/nodes"
    package = folder / "node_modules/n8n-nodes-whabuzz"
    package.mkdir(parents=True)
    (folder / "package.json").write_text('{"private": true, "dependencies": {"n8n-nodes-whabuzz": "1.0.0"}}')
    [tarball] = packages.glob("n8n-*.tgz")
    subprocess.run(["tar", "xzf", tarball, "--strip-components=1", "-C", package], check=True)
    with psycopg.connect(database_url(stack.data_dir), autocommit=True) as connection:
        connection.execute("CREATE DATABASE n8n")
    port = free_port()
    settings = {
        "N8N_USER_FOLDER": str(tmp_path),
        "DB_TYPE": "postgresdb",
        "DB_POSTGRESDB_HOST": str(socket_dir(stack.data_dir)),
        "DB_POSTGRESDB_USER": "gateway",
        "DB_POSTGRESDB_DATABASE": "n8n",
        "N8N_PORT": str(port),
        "N8N_LISTEN_ADDRESS": "127.0.0.1",
        "N8N_RUNNERS_BROKER_PORT": str(free_port()),
        "WEBHOOK_URL": f"http://127.0.0.1:{port}/",
        "N8N_SECURE_COOKIE": "false",
        "N8N_DISABLED_MODULES": "mcp-registry",
        "N8N_DIAGNOSTICS_ENABLED": "false",
        "N8N_VERSION_NOTIFICATIONS_ENABLED": "false",
        "N8N_TEMPLATES_ENABLED": "false",
        "N8N_PERSONALIZATION_ENABLED": "false",
    }
    printed = tmp_path / "printed"
    with printed.open("w") as output:
        process = subprocess.Popen(
            node_command(str(N8N), "start"),
            env={**os.environ, **settings},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            made = Editor(f"http://127.0.0.1:{port}")
            until(lambda: made.is_up() or process.poll() is not None, "n8n", seconds=180)
            assert process.poll() is None, printed.read_text()
            made.call("POST", "/owner/setup", OWNER)
            yield made
        finally:
            os.killpg(process.pid, 9)
            process.wait(10)


def test_a_workflow_receives_answers_and_ends(stack: Stack, editor: Editor) -> None:
    right = {"baseUrl": stack.ready["base_url"], "apiKey": stack.ready["api_key"]}
    kept = {"name": "Gateway", "type": "whabuzzApi", "data": right}
    credential = editor.call("POST", "/credentials", kept)["id"]
    for given, status in ((right, "OK"), ({**right, "apiKey": "wb_live_x"}, "Error")):
        test = {"credentials": {"id": credential, **kept, "data": given}}
        assert editor.call("POST", "/credentials/test", test)["status"] == status

    customer = {
        "from": "={{ $('Message').item.json.phone_number_id }}",
        "to": "=+{{ $('Message').item.json.wa_id }}",
    }
    nodes = [
        {
            **_node(
                "Message", "n8n-nodes-whabuzz.whabuzzTrigger", {"filter": '{"data.message.type": "text"}'}
            ),
            "webhookId": str(uuid4()),
        },
        _node(
            "Once",
            "n8n-nodes-base.removeDuplicates",
            {"operation": "removeItemsSeenInPreviousExecutions", "dedupeValue": "={{ $json.dedupe_key }}"},
        ),
        _node("Read", SENDS, {"operation": "markRead"}),
        _node("Reply", SENDS, {**customer, "text": "Here it is."}),
        _node("Sent", SENDS, {"operation": "getMessage", "messageId": "={{ $json.messages[0].id }}"}),
        _node("File", "n8n-nodes-base.convertToFile", {"operation": "toText", "sourceProperty": "wamid"}),
        _node("Send file", SENDS, {**customer, "operation": "sendMedia", "type": "document"}),
    ]
    for each in nodes:
        if "whabuzz" in each["type"]:
            each["credentials"] = {"whabuzzApi": {"id": credential, "name": "Gateway"}}
    names = [each["name"] for each in nodes]
    workflow = editor.call(
        "POST",
        "/workflows",
        {
            "name": "Replies",
            "nodes": nodes,
            "connections": {
                name: {"main": [[{"node": following, "type": "main", "index": 0}]]}
                for name, following in itertools.pairwise(names)
            },
            "settings": {"saveDataSuccessExecution": "all"},
        },
    )
    path = f"/workflows/{workflow['id']}"
    editor.call("POST", f"{path}/activate", {"versionId": workflow["versionId"]})
    endpoint = until(lambda: _endpoint(stack, editor), "the endpoint")
    assert (endpoint["event_types"], endpoint["filter"]) == (
        ["message.inbound"],
        {"data.message.type": "text"},
    )
    assert requests.post(endpoint["url"], json={"type": "message.inbound"}, timeout=10).status_code == 401

    customer_writes(stack, CUSTOMER)
    _succeeded(editor, 1)
    [delivery] = stack.api("GET", f"/v1/webhook-deliveries?endpoint_id={endpoint['id']}").json()["data"]
    again = stack.api("POST", f"/v1/webhook-deliveries/{delivery['id']}/replay").json()
    assert again["status"] == "delivered"
    _succeeded(editor, 2)
    log = stack.api("GET", f"/v1/messages?wa_id={CUSTOMER}").json()["data"]
    assert sorted(each["type"] for each in log if each["direction"] == "outbound") == ["document", "text"]

    editor.call("POST", f"{path}/deactivate", {})
    until(lambda: _endpoint(stack, editor) is None, "the endpoint's pause")
    assert [each["status"] for each in _endpoints(stack, editor)] == ["paused"]


def _succeeded(editor: Editor, count: int) -> None:
    """Wait until a number of executions have ended, all without an error."""

    def ended() -> list[dict[str, Any]] | None:
        found: list[dict[str, Any]] = editor.call("GET", "/executions")["results"]
        open_ones = [each for each in found if each["status"] in {"new", "running", "waiting"}]
        return found if len(found) == count and not open_ones else None

    for each in until(ended, f"execution {count}"):
        assert each["status"] == "success", editor.call("GET", f"/executions/{each['id']}")


def _node(name: str, kind: str, parameters: dict[str, Any]) -> dict[str, Any]:
    version = {"n8n-nodes-base.convertToFile": 1.1, "n8n-nodes-base.removeDuplicates": 2}.get(kind, 1)
    return {
        "id": str(uuid4()),
        "name": name,
        "type": kind,
        "typeVersion": version,
        "position": [0, 0],
        "parameters": parameters,
    }


def _endpoints(stack: Stack, editor: Editor) -> list[dict[str, Any]]:
    """The endpoints whose URL is at n8n's address."""
    found: list[dict[str, Any]] = stack.api("GET", "/v1/webhooks?limit=200").json()["data"]
    return [each for each in found if each["url"].startswith(editor.url)]


def _endpoint(stack: Stack, editor: Editor) -> dict[str, Any] | None:
    """The active endpoint whose URL is at n8n's address."""
    active = [each for each in _endpoints(stack, editor) if each["status"] == "active"]
    return active[0] if active else None
