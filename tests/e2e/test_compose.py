"""The services of docker-compose.yml run as plain processes, and the quickstart runs against them through nginx."""

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from gateway.__main__ import ROLES
from tenants.credentials import api_keys
from tenants.models import Tenant
from tests.certificates import self_signed
from tests.e2e.conftest import until
from tests.faults.service import database_url
from tests.operating import composed
from tests.operating.composed import Composed, documented_settings
from tests.pages import blocks
from tests.receiver import Receiver

SANDBOXED = ["gateway", "simulator"]
"""The services for the quickstart: the small host and the simulator."""


def test_each_volume_lies_in_a_folder_that_the_image_made_for_its_user() -> None:
    made = composed.image_folders()
    for name, service in composed.services(documented_settings()).items():
        if service.get("image") != "messaging-gateway":
            continue
        for volume in service.get("volumes", []):
            assert volume.split(":")[1] in made, f"{name} mounts {volume}, which would belong to root"
        for word in composed.words_of(service.get("command", composed.image_command())):
            if re.fullmatch(r"/(?!tmp/).+", word):
                assert any(word.startswith(f"{folder}/") for folder in made), f"{name} writes {word}"


def test_every_health_check_asks_for_readiness_by_address() -> None:
    found = composed.services(documented_settings())
    for name in ("gateway", "gateway-2"):
        assert "http://127.0.0.1:8000/v1/health/ready" in found[name]["healthcheck"]["test"][-1]


def test_no_container_may_more_than_it_needs() -> None:
    for name, service in composed.services(documented_settings()).items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["logging"]["options"].keys() == {"max-size", "max-file"}, name
        if service["image"] == "messaging-gateway":
            assert "cap_add" not in service, name
            assert "mem_limit" in service, name


def test_the_two_web_containers_differ_in_their_journals_alone() -> None:
    found = composed.services(documented_settings())
    first, second = dict(found["gateway"]), dict(found["gateway-2"])
    assert (first.pop("volumes"), second.pop("volumes")) == (["data:/data"], ["data-2:/data"])
    assert first == second
    assert first["networks"]["default"]["aliases"] == ["web"]


def test_split_roles_are_all_roles() -> None:
    found = composed.services({**documented_settings(), "ROLES": "web"})
    split = {name for name, service in found.items() if service.get("profiles") == ["split"]}
    assert {"web", *split} == set(ROLES)
    assert composed.words_of(found["gateway"]["command"])[-1] == "web"
    assert all(composed.words_of(found[name]["command"])[-1] == name for name in split)


@pytest.mark.parametrize("name", ["POSTGRES_PASSWORD", "VALKEY_PASSWORD"])
def test_the_compose_file_asks_for_the_passwords(name: str) -> None:
    with pytest.raises(KeyError, match=name):
        composed.services({**documented_settings(), name: ""})


def test_valkey_has_the_password_that_the_service_uses() -> None:
    found = composed.services(documented_settings())
    assert '--requirepass "$$VALKEY_PASSWORD"' in found["valkey"]["command"][-1]
    assert found["valkey"]["environment"] == {"VALKEY_PASSWORD": "valkey-password"}
    assert urlsplit(found["gateway"]["environment"]["REDIS_URL"]).password == "valkey-password"


def test_valkey_has_a_limit_below_the_memory_of_its_container() -> None:
    """Otherwise the alert about a full Valkey cannot fire, and the kernel kills the server."""
    found = composed.services(documented_settings())["valkey"]
    assert "--maxmemory 700mb " in found["command"][-1]
    assert found["mem_limit"] == "1g"


def test_the_file_counts_its_own_proxy_unless_env_says_otherwise() -> None:
    found = composed.services(documented_settings())["gateway"]["environment"]
    assert (found["TRUSTED_PROXY_COUNT"], found["TRUST_PROXY_HEADERS"]) == (1, True)
    behind_two = composed.services({**documented_settings(), "TRUSTED_PROXY_COUNT": "2"})
    assert behind_two["gateway"]["environment"]["TRUSTED_PROXY_COUNT"] == 2


def test_the_simulator_gets_the_secrets_of_the_sandbox_and_no_other() -> None:
    given = documented_settings()
    simulator = composed.services(given)["simulator"]
    assert not simulator["env_file"]
    values = set(simulator["environment"].values())
    secret = {
        name for name, value in given.items() if len(value) > 30 or "PASSWORD" in name or name == "EMAIL_URL"
    }
    assert {name for name in secret if given[name] in values} == {
        "SANDBOX_APP_SECRET",
        "SANDBOX_CONTROL_TOKEN",
    }
    assert not {name for name in secret for value in values if given[name] in str(value)} - {
        "SANDBOX_APP_SECRET",
        "SANDBOX_CONTROL_TOKEN",
    }


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
        everything.wait_for("gateway", "/v1/health/ready")
        assert everything.is_healthy("gateway")
        yield everything
    finally:
        everything.close()


def test_a_server_on_a_port_that_begins_like_one_of_the_file_keeps_its_address(tmp_path: Path) -> None:
    """Servers of a test get any free port: 44312 begins with the proxy's 443."""
    database, valkey = "postgresql://gateway:pw@127.0.0.1:44312/gateway", "redis://127.0.0.1:44313/0"
    with contextlib.closing(
        Composed(tmp_path, documented_settings(), database_url=database, redis_url=valkey)
    ) as made:
        environment = made.environment("gateway")
    assert (environment["DATABASE_URL"], environment["REDIS_URL"]) == (database, valkey)


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
    key = api_keys.create(name="quickstart", environment="test", tenant=tenant).key
    base_url = running.environment("gateway")["BASE_URL"]
    shell = Shell(
        BASE_URL=base_url,
        API_KEY=key,
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

    # Strangers cannot read the metrics, and the proxy's log contains no credential.
    verify = str(tmp_path / "receiver.pem")
    assert requests.get(f"{base_url}/metrics", verify=verify, timeout=10).status_code == 404
    for path in ("/v25.0/1234567/phone_numbers?access_token=wb_live_secret", "/invitation/secret-token"):
        requests.get(f"{base_url}{path}", verify=verify, timeout=10)
    log = tmp_path / "nginx/access.log"  # nginx writes a line after the response
    until(
        lambda: '"GET /invitation/..." ' in log.read_text(), "the last request in the proxy's log", seconds=10
    )
    logged = log.read_text()
    assert '"GET /v25.0/1234567/phone_numbers" ' in logged
    assert "secret" not in logged

    # The accounts of the sandbox survive a restart of the simulator.
    running.stop("simulator")
    assert shell.environment["FROM"] in (tmp_path / "state/simulator.json").read_text()
    running.start("simulator")
    until(
        lambda: "id" in shell.answer(send_again).get("messages", [{}])[0],
        "a send after the restart",
        seconds=30,
    )
