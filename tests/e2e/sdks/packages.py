"""Runs the bot of an SDK's README as a process, and lists the messages that it sent."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests

from tests.e2e.conftest import Stack, until
from tests.free_ports import free_port


def settings(stack: Stack, base_url: str | None = None) -> dict[str, str]:
    """The environment variables that the READMEs export."""
    return {
        "WHABUZZ_BASE_URL": base_url or stack.ready["base_url"],
        "WHABUZZ_API_KEY": stack.ready["api_key"],
        "FROM": stack.ready["phone_number_id"],
    }


@contextmanager
def bot(command: list[str], directory: Path, environment: dict[str, str]) -> Iterator[int]:
    """Run the bot of a README, and wait until its endpoint is verified. Yields the port."""
    port = free_port()
    printed = directory / "printed"
    with printed.open("w") as output:
        process = subprocess.Popen(
            command,
            cwd=directory,
            env={**os.environ, **environment, "PORT": str(port)},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            until(lambda: "active" in printed.read_text() or process.poll() is not None, "the bot")
            assert process.poll() is None, printed.read_text()
            yield port
        finally:
            os.killpg(process.pid, 9)
            process.wait(10)


def endpoints_at(stack: Stack, port: int) -> list[dict[str, Any]]:
    """The endpoints at a port."""
    found: list[dict[str, Any]] = stack.api("GET", "/v1/webhooks?limit=200").json()["data"]
    return [endpoint for endpoint in found if endpoint["url"].endswith(f":{port}/")]


def remove_endpoint(stack: Stack, port: int) -> None:
    for endpoint in endpoints_at(stack, port):
        assert stack.api("DELETE", f"/v1/webhooks/{endpoint['id']}").status_code == 200


def sends_to(stack: Stack, customer: str) -> list[dict[str, object]]:
    """The messages to a customer in the event log."""
    answer = stack.api("GET", f"/v1/events?type=message.outbound&wa_id={customer}")
    assert answer.status_code == 200, answer.text
    found: list[dict[str, object]] = answer.json()["data"]
    return found


def customer_writes(stack: Stack, customer: str) -> None:
    """Send a customer's text to the demo number."""
    body = {"phone_number_id": stack.ready["phone_number_id"], "from": customer, "text": "Do you have it?"}
    answer = requests.post(f"{stack.ready['simulator_url']}/sim/inbound", json=body, timeout=10)
    assert answer.ok, answer.text
