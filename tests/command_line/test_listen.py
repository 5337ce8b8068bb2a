"""`whabuzz listen` posts every event once to a local program as a signed webhook, even across interruptions."""

import importlib
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web

from messaging.tests.conftest import connected_number
from tenants.models import Tenant
from tests.command_line.conftest import BASE_URL, CommandLine
from tests.receiver import Receiver
from tests.simulated import RunningSimulator
from webhooks.models import Event


def sse(*events: tuple[str, dict[str, Any] | None], ending: str = "") -> bytes:
    """The text of an event stream. None stands for a heartbeat."""
    parts = ["retry: 1000\n"]
    for place, event in events:
        parts.append(f"id: {place}\n" + (f"data: {json.dumps(event)}\n\n" if event else ": alive\n\n"))
    return ("".join(parts) + (f"event: closed\ndata: {ending}\n\n" if ending else "")).encode()


def event_of(number: int, kind: str = "message.inbound") -> dict[str, Any]:
    return {
        "id": f"evt_{number}",
        "type": kind,
        "created_at": "2026-11-22T09:15:03.000Z",
        "wa_id": "919812345678",
        "data": {"message": {"type": "text", "text": {"body": f"Hello {number}"}}},
    }


Answer = bytes | int | httpx.Response | Exception


class Service(httpx.BaseTransport):
    """A service whose event stream gives one of these responses to each connection."""

    def __init__(self, *answers: Answer) -> None:
        self.answers: Iterator[Answer] = iter(answers)
        self.asked: list[httpx.Request] = []

    @property
    def places(self) -> list[str | None]:
        """The `Last-Event-ID` of each connection."""
        return [request.headers.get("last-event-id") for request in self.asked]

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = next(self.answers)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, httpx.Response):
            return answer
        if isinstance(answer, int):
            return httpx.Response(answer, json={"error": {"code": "refused", "message": "No."}})
        return httpx.Response(200, headers={"Content-Type": "text/event-stream"}, content=answer)


@pytest.fixture
def listening(
    stranger: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[CommandLine, Service]]:
    monkeypatch.setenv("WHABUZZ_API_KEY", "wb_test_" + "a" * 40)
    monkeypatch.setenv("WHABUZZ_BASE_URL", BASE_URL)

    def at(*answers: Answer) -> tuple[CommandLine, Service]:
        service = Service(*answers)
        return CommandLine(stranger.home, service), service

    return at


Listening = Callable[..., tuple[CommandLine, Service]]


def test_a_break_loses_and_doubles_nothing(listening: Listening) -> None:
    whabuzz, service = listening(
        sse(("7.", None), ("8.a", event_of(1)), ("9.b", event_of(2))),
        httpx.ReadError("gone"),
        503,
        sse(("11.x", None), ("12.c", event_of(3)), ending="stopping"),
        sse(("13.d", event_of(4))),
    )
    done = whabuzz("listen", "--json", "--count", "4")
    assert [line["event"]["id"] for line in done.lines] == ["evt_1", "evt_2", "evt_3", "evt_4"]
    assert service.places == [None, "9.b", "9.b", "9.b", "12.c"]
    assert "cannot be reached" in done.stderr
    assert whabuzz.slept == [1.0, 1.0, 2.0, 1.0]


def test_after_an_error_it_waits_as_long_as_the_service_asks(listening: Listening) -> None:
    whabuzz, _ = listening(
        httpx.Response(429, headers={"Retry-After": "25"}),
        httpx.Response(503, headers={"Retry-After": "0"}),
        520,
        sse(("8.a", event_of(1))),
    )
    assert whabuzz("listen", "--count", "1").status == 0
    assert whabuzz.slept == [25.0, 2.0, 4.0]


def test_one_line_each(listening: Listening) -> None:
    whabuzz, service = listening(sse(("8.a", event_of(1))))
    done = whabuzz(
        "listen", "--count", "1", "--type", "message.inbound", "--type", "message.status", "--after", "evt_0"
    )
    assert done.output == "09:15:03  message.inbound   evt_1  919812345678  Hello 1\n"
    assert service.places == ["evt_0"]
    assert service.asked[0].url.params["type"] == "message.inbound,message.status"


@pytest.mark.parametrize("reason", ["replaced", "unauthorized", "failed"])
def test_some_endings_are_for_good(listening: Listening, reason: str) -> None:
    whabuzz, service = listening(sse(("8.a", event_of(1)), ending=reason))
    done = whabuzz("listen")
    assert done.status == 1
    assert "Error: " in done.stderr
    assert len(service.asked) == 1


def test_a_refused_key_ends_it(listening: Listening) -> None:
    whabuzz, service = listening(401)
    assert "Error: 401" in whabuzz("listen").stderr
    assert len(service.asked) == 1


def test_a_key_with_a_line_break_is_used_and_an_address_without_a_scheme_is_named(
    listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    whabuzz, service = listening(sse(("8.a", event_of(1))))
    key = "wb_test_" + "a" * 40
    monkeypatch.setenv("WHABUZZ_API_KEY", f"{key}\n")
    monkeypatch.setenv("WHABUZZ_BASE_URL", f"{BASE_URL}/v1")
    assert whabuzz("listen", "--count", "1").status == 0
    assert service.asked[0].headers["Authorization"] == f"Bearer {key}"
    assert service.asked[0].url.path == "/v1/events/stream"
    monkeypatch.setenv("WHABUZZ_BASE_URL", "gateway.example")
    assert "does not begin with https://" in whabuzz("listen").stderr
    assert len(service.asked) == 1


def test_a_local_program_gets_a_signed_webhook(listening: Listening, receiver: Receiver) -> None:
    whabuzz, _ = listening(sse(("8.a", event_of(1)), ("9.b", event_of(2))))
    done = whabuzz("listen", "--json", "--count", "2", "--forward-to", receiver.url)
    secret = done.stderr.split("signed with ")[1].split()[0]
    verifier = importlib.import_module("whabuzz").WebhookVerifier(secret)
    verified = [verifier.verify(request.body, request.headers) for request in receiver.received]
    assert [event["id"] for event in verified] == ["evt_1", "evt_2"]
    assert receiver.received[0].path == "/hook"
    for name, value in (("Event-Type", "message.inbound"), ("Attempt", "1")):
        assert receiver.received[0].headers[f"X-Service-{name}"] == value
    assert [line["forwarded"]["status"] for line in done.lines] == [200, 200]


def test_what_the_program_answers_is_shown_and_counts(listening: Listening, receiver: Receiver) -> None:
    receiver.answer = lambda request: web.Response(status=500)
    whabuzz, _ = listening(sse(("8.a", event_of(1))))
    secret = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    done = whabuzz("listen", "--count", "1", "--forward-to", receiver.url, "--secret", secret)
    assert "→ 500 (" in done.output
    assert len(receiver.received) == 1


def test_it_waits_for_a_program_that_is_not_there_yet(
    listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    whabuzz, _ = listening(sse(("8.a", event_of(1))))
    started: list[socket.socket] = []

    def sleep(seconds: float) -> None:
        # The program starts while the command line waits. It accepts the connection and sends no response.
        server = socket.create_server(("127.0.0.1", port))
        started.append(server)

    whabuzz.sleep = sleep  # type: ignore[method-assign]
    monkeypatch.setattr(importlib.import_module("whabuzz.cli.listen"), "ANSWER_SECONDS", 0.2)
    done = whabuzz("listen", "--count", "1", "--forward-to", str(port))
    started[0].close()
    assert "waiting for it" in done.stderr
    assert "ReadTimeout" in done.output
    assert len(started) == 1


@pytest.mark.parametrize(
    ("typed", "url"),
    [
        ("3000", "http://localhost:3000"),
        ("localhost:3000/hook", "http://localhost:3000/hook"),
        ("https://10.0.0.2/x", "https://10.0.0.2/x"),
    ],
)
def test_addresses_as_people_type_them(typed: str, url: str) -> None:
    assert importlib.import_module("whabuzz.cli.listen").local_url(typed) == url


def test_an_address_that_is_none_is_refused(listening: Listening) -> None:
    whabuzz, _ = listening()
    assert whabuzz("listen", "--forward-to", "ftp://x").status == 2
    assert whabuzz("listen", "--forward-to", "http://:x").status == 2


@pytest.mark.django_db(transaction=True)
def test_the_services_own_stream_is_understood(
    whabuzz: CommandLine, simulator: RunningSimulator, tenant: Tenant, receiver: Receiver, tmp_path: Path
) -> None:
    connected_number(tenant, simulator.account(), environment="test")
    wamids = [whabuzz("send", "+919812345678", f"{n}", "--json").json["messages"][0]["id"] for n in range(3)]
    first = Event.objects.get(wamid=wamids[0])
    done = whabuzz(
        "listen", "--after", first.public_id, "--count", "2", "--json", "--forward-to", receiver.url
    )
    assert [line["event"]["wamid"] for line in done.lines] == wamids[1:]
    assert [request.json["wamid"] for request in receiver.received] == wamids[1:]
    assert whabuzz("listen", "--after", "evt_01M6AYX330E008000000000001").status == 1
