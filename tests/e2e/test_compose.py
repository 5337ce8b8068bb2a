"""docker-compose.yml: its services run as plain processes, and the quickstart is typed against them through nginx."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tenants.models import Tenant
from tests.certificates import self_signed
from tests.e2e.conftest import until
from tests.faults.service import database_url
from tests.operating import composed
from tests.operating.composed import Composed
from tests.pages import blocks, marked_block
from tests.receiver import Receiver

SANDBOXED = ["web", "edge", "deliveries", "worker", "simulator"]
"""The services that the quickstart needs; batches and beat differ in their queue and nothing else."""


def documented_settings() -> dict[str, str]:
    """The `.env` file that docs/operations.md shows, with what the compose file asks for."""
    block = marked_block("docs/operations.md", "production settings")
    shown = dict(line.split("=", 1) for line in block.strip().splitlines() if not line.startswith("#"))
    del shown["DATABASE_URL"], shown["REDIS_URL"], shown["SANDBOX_GRAPH_URL"]
    return {**shown, "POSTGRES_PASSWORD": "pw"}


def test_each_volume_lies_in_a_folder_that_the_image_made_for_its_user() -> None:
    made = composed.image_folders()
    for name, service in composed.services(documented_settings()).items():
        if service.get("image") != "messaging-gateway":
            continue
        for volume in service.get("volumes", []):
            assert volume.split(":")[1] in made, f"{name} mounts {volume}, which would belong to root"
        for word in service.get("command", composed.image_command()):
            if re.fullmatch(r"/(?!tmp/).+", word):
                assert any(word.startswith(f"{folder}/") for folder in made), f"{name} writes {word}"


def test_every_health_check_asks_for_readiness_by_address() -> None:
    found = composed.services(documented_settings())
    for name, port in (("web", 8000), ("edge", 8050)):
        assert f"http://127.0.0.1:{port}/v1/health/ready" in found[name]["healthcheck"]["test"][-1]


def test_the_compose_file_asks_for_the_password() -> None:
    with pytest.raises(KeyError, match="POSTGRES_PASSWORD"):
        composed.services({})


@pytest.fixture
def running(transactional_db: None, tmp_path: Path) -> Iterator[Composed]:
    """The services of the sandbox, ready behind nginx. http endpoints on this machine are allowed."""
    certificate = self_signed(tmp_path)
    variables = documented_settings() | {
        "BASE_URL": "https://127.0.0.1:443",
        "WEBHOOK_ALLOW_HTTP": "true",
        "WEBHOOK_ALLOW_PRIVATE_NETWORKS": "true",
    }
    everything = Composed(tmp_path, variables, database_url=database_url(), redis_url=os.environ["REDIS_URL"])
    try:
        everything.run("migrate")
        for name in SANDBOXED:
            everything.start(name)
        everything.start_proxy(certificate)
        for name in ("web", "edge"):
            until(lambda name=name: everything.is_healthy(name), f"{name}'s health", seconds=90)
        yield everything
    finally:
        everything.close()


class Shell:
    """Commands of the quickstart, one after another, with the variables that a reader has exported."""

    def __init__(self, **environment: str) -> None:
        self.environment = {"PATH": os.environ["PATH"], **environment}

    def answer(self, command: str) -> Any:
        done = subprocess.run(
            ["bash", "-c", command],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return json.loads(done.stdout)


@pytest.mark.e2e
def test_the_quickstart_runs_on_the_services_of_the_compose_file(
    running: Composed, tenant: Tenant, receiver: Receiver, tmp_path: Path
) -> None:
    manage = ["python", "manage.py", "create_key", "--tenant", str(tenant.id), "--environment", "test"]
    base_url = running.environment("web")["BASE_URL"]
    shell = Shell(
        BASE_URL=base_url,
        API_KEY=running.run("web", manage),
        CURL_CA_BUNDLE=str(tmp_path / "receiver.pem"),
    )
    [inbound] = [block for block in blocks("docs/sandbox.md", "sh") if "/v1/test/inbound" in block]
    shell.environment["FROM"] = shell.answer(inbound)["phone_number_id"]
    commands = blocks("docs/quickstart.md", "sh")
    [send] = [command for command in commands if "quickstart-1" in command]
    assert shell.answer(send)["messages"][0]["id"].startswith("wamid.")

    made = shell.answer(
        f"""curl -s $BASE_URL/v1/webhooks -H "Authorization: Bearer $API_KEY" -H "Content-Type: application/json" \
        -d '{{"url": "{receiver.url}"}}'"""
    )
    assert made["status"] == "active", made
    [send_again] = [command for command in commands if "on its way" in command]
    shell.answer(send_again)
    shell.answer(inbound)
    wanted = {"message.outbound", "message.status", "message.inbound"}
    until(
        lambda: wanted <= {json.loads(got.body)["type"] for got in receiver.received},
        "the events",
        seconds=60,
    )

    # Routes: sends and health are the edge's, the rest is web's; metrics are nobody's.
    assert (
        requests.get(f"{base_url}/metrics", verify=str(tmp_path / "receiver.pem"), timeout=10).status_code
        == 404
    )

    # The accounts of the sandbox outlive their process.
    running.stop("simulator")
    assert shell.environment["FROM"] in (tmp_path / "state/simulator.json").read_text()
    running.start("simulator")
    until(
        lambda: "id" in shell.answer(send_again).get("messages", [{}])[0],
        "a send after the restart",
        seconds=30,
    )
