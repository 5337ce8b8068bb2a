"""The bot of docs/answering.md, run unchanged, answers every customer once, even customers without a phone number."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests

from gateway.upstream.tests.notifications import BODIES
from messaging.tests.incoming import delivered, events_of, number_of, post
from tenants.models import Tenant
from tests.pages import blocks
from webhooks.requests import signed_request
from webhooks.requests.signed_request import key_of, new_secret

SECRET = new_secret()
WABA, NUMBER = "100200300400500", "200300400500600"


class Gateway(ThreadingHTTPServer):
    """Replaces the service. It records the calls of the bot, and returns content for any media."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Calls)
        self.calls: list[tuple[str, Any, dict[str, str]]] = []

    def sent(self) -> list[dict[str, Any]]:
        return [body for path, body, _ in self.calls if path == "/v1/messages"]


class Calls(BaseHTTPRequestHandler):
    server: Gateway

    def do_GET(self) -> None:
        self.answer(None, b"12345")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(json.loads(body), b"{}")

    def answer(self, body: Any, content: bytes) -> None:
        self.server.calls.append((self.path, body, dict(self.headers)))
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    server = Gateway()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def bot(gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run the code block of the page in a process. Yields the bot's URL."""
    directory: Path = tmp_path_factory.mktemp("bot")
    [code] = blocks("docs/answering.md", "python")
    (directory / "bot.py").write_text(code)
    with ThreadingHTTPServer(("127.0.0.1", 0), Calls) as probe:
        port = probe.server_port
    process = subprocess.Popen(
        [sys.executable, "bot.py"],
        cwd=directory,
        stderr=subprocess.DEVNULL,
        env={
            "PATH": os.environ["PATH"],
            "BASE_URL": f"http://127.0.0.1:{gateway.server_port}",
            "API_KEY": "wb_test_key",
            "WEBHOOK_SECRET": SECRET,
            "PORT": str(port),
        },
    )
    url = f"http://127.0.0.1:{port}/"
    try:
        until(lambda: _listens(url))
        yield url
    finally:
        process.kill()
        process.wait(10)


def _listens(url: str) -> bool:
    try:
        return requests.post(url, data=b"{}", timeout=5).status_code == 401
    except requests.ConnectionError:
        return False


def until(holds: Any) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline, "the bot did not react within 20 seconds"
        time.sleep(0.02)


def deliver(bot: str, body: bytes) -> int:
    headers = signed_request.headers(
        keys=(key_of(SECRET),),
        message_id="evt_01M6AYX330E008000000000001",
        timestamp=int(time.time()),
        body=body,
        event_type="message.inbound",
    )
    return requests.post(bot, data=body, headers=headers, timeout=10).status_code


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("name", "customer"),
    [
        ("messages__text", {"to": "+919812345678"}),
        ("messages__phone_only", {"to": "+919812345678"}),
        ("messages__user_id_only", {"recipient": "IN.77889900112233445566"}),
        ("messages__image", {"to": "+919812345678"}),
    ],
)
def test_a_customer_is_answered(
    bot: str, gateway: Gateway, tenant: Tenant, name: str, customer: dict[str, str]
) -> None:
    number_of(tenant, waba_id=WABA, phone_number_id=NUMBER)
    assert post(BODIES[name]).status_code == 200
    (event,) = events_of(tenant)
    gateway.calls.clear()
    assert deliver(bot, delivered(event)) == 200
    until(gateway.sent)
    (body,) = gateway.sent()
    assert body["from"] == NUMBER
    assert {member: body[member] for member in ("to", "recipient") if member in body} == customer
    *media, (_, _, headers) = gateway.calls
    assert headers["Idempotency-Key"] == event.dedupe_key
    assert headers["Authorization"] == "Bearer wb_test_key"
    wanted = [f"/v1/media/51000000000001?from={NUMBER}"] if name == "messages__image" else []
    assert [path for path, _, _ in media] == wanted


@pytest.mark.django_db(transaction=True)
def test_what_needs_no_answer_gets_none(bot: str, gateway: Gateway, tenant: Tenant) -> None:
    number_of(tenant, waba_id=WABA, phone_number_id=NUMBER)
    names = ["messages__reaction", "messages__system_user_changed_user_id", "messages__status_read"]
    for name in [*names, "messages__text"]:
        assert post(BODIES[name]).status_code == 200
    gateway.calls.clear()
    for event in events_of(tenant):
        assert deliver(bot, delivered(event)) == 200
    until(gateway.sent)
    assert len(gateway.sent()) == 1, "only the text, which was delivered last, gets an answer"


def test_what_the_service_did_not_sign_is_refused(bot: str) -> None:
    assert requests.post(bot, data=b'{"type":"message.inbound"}', timeout=5).status_code == 401
