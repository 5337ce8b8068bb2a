"""The clients of the Python SDK: connections, options of a call, pages, streams, and texts of errors."""

import asyncio
import json
import mimetypes
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from messaging.media.uploads import MIME_TYPES
from tests.pages import ROOT, page
from tests.raw_server import raw_server
from tests.sdk_import import sdk_from
from tests.sdk_repeats import ALL, ANSWERS, CALLS, KNOWN_AGAIN

SDK = ROOT / "sdks/python/src"
URL = "https://gateway.example"
Answer = Callable[[httpx.Request], httpx.Response]


@pytest.fixture
def sdk() -> Iterator[ModuleType]:
    with sdk_from(SDK) as module:
        yield module


class Service(httpx.MockTransport):
    """Records the requests. It sends the given answers in order, then empty objects."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        super().__init__(self.answer)
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        found = self.answers.pop(0) if self.answers else httpx.Response(200, json={})
        if isinstance(found, Exception):
            raise found
        return found


def client_of(sdk: ModuleType, service: Service, **options: Any) -> Any:
    return sdk.Whabuzz("wb_test_x", URL, http_client=httpx.Client(transport=service), **options)


def test_a_client_of_a_tenant_leaves_the_connections_open(sdk: ModuleType) -> None:
    service = Service()
    with sdk.Whabuzz("wb_live_x", URL) as platform:
        platform._transport.http._transport = service
        for tenant in ("t1", "t2"):
            with platform.for_tenant(tenant) as client:
                client.tenant.get()
        platform.tenant.get()
    assert [request.headers.get("X-Service-Tenant") for request in service.requests] == ["t1", "t2", None]
    assert platform._transport.http.is_closed


def test_a_given_http_client_stays_the_callers(sdk: ModuleType) -> None:
    own = httpx.Client(transport=Service(), timeout=7.0, base_url="https://elsewhere.example")
    with sdk.Whabuzz("wb_test_x", URL, http_client=own) as client:
        client.tenant.get()
    assert not own.is_closed
    assert own.base_url == httpx.URL("https://elsewhere.example")
    assert own.get("/").request.url.host == "elsewhere.example"


def test_an_asynchronous_client_keeps_to_the_same(sdk: ModuleType) -> None:
    async def run() -> tuple[bool, list[str | None]]:
        service = Service()
        own = httpx.AsyncClient(transport=service)
        async with sdk.AsyncWhabuzz("wb_test_x", URL, http_client=own) as client:
            async with client.for_tenant("t1") as other:
                await other.tenant.get()
            await client.with_options(headers={"X-Mine": "1"}).request("GET", "/v1/tenant")
        return own.is_closed, [request.headers.get("X-Mine") for request in service.requests]

    assert asyncio.run(run()) == (False, [None, "1"])


def test_options_of_a_call(sdk: ModuleType) -> None:
    service = Service(httpx.Response(200, json={}), httpx.ReadTimeout("late"))
    client = client_of(sdk, service)
    patient = client.with_options(timeout=2.5, max_retries=0, headers={"X-Mine": "1"})
    patient.tenant.get()
    with pytest.raises(sdk.NoAnswer):
        patient.tenant.get()
    client.tenant.get()
    first, second, last = service.requests
    assert first.extensions["timeout"]["read"] == 2.5
    assert (first.headers["X-Mine"], second.headers["X-Mine"], last.headers.get("X-Mine")) == ("1", "1", None)
    assert last.extensions["timeout"]["read"] != 2.5
    patient.with_options(headers={"X-Other": "2"}).tenant.get()
    assert (service.requests[-1].headers["X-Mine"], service.requests[-1].headers["X-Other"]) == ("1", "2")


REPEATED: list[tuple[str, httpx.Response | Exception]] = [
    *((each.repeated, httpx.Response(each.status, headers=each.headers, json=each.body)) for each in ANSWERS),
    *((ALL, failure("away")) for failure in (httpx.ConnectError, httpx.ConnectTimeout)),
    (ALL, httpx.PoolTimeout("full")),
    *((KNOWN_AGAIN, failure("late")) for failure in (httpx.ReadTimeout, httpx.RemoteProtocolError)),
]


@pytest.mark.parametrize(("repeated", "first"), REPEATED, ids=str)
def test_only_what_cannot_be_done_twice_is_repeated(
    sdk: ModuleType, monkeypatch: pytest.MonkeyPatch, repeated: str, first: httpx.Response | Exception
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    tries = {}
    for kind, (method, path, key, body) in CALLS.items():
        service = Service(first)
        with suppress(sdk.WhabuzzError):
            client_of(sdk, service).request(method, path, idempotency_key=key, body=body)
        tries[kind] = [request.headers.get("Idempotency-Key") for request in service.requests]
    again = repeated.split()
    assert tries == {kind: [key] * (1 + (kind in again)) for kind, (_, _, key, _) in CALLS.items()}


def test_a_send_has_one_key_for_all_of_its_five_tries(
    sdk: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    service = Service(*(httpx.Response(500) for _ in range(9)))
    client = client_of(sdk, service)
    for _ in range(2):
        with suppress(sdk.ServerError):
            client.messages.send({"type": "text"})
    keys = [request.headers["Idempotency-Key"] for request in service.requests]
    assert keys[:5] == [keys[0]] * 5
    assert keys[5:] == [keys[5]] * 5 != keys[:5]
    for lost in (httpx.Response(503), httpx.ReadTimeout("late")):
        service = Service(*[lost] * 5)
        with pytest.raises(sdk.WhabuzzError) as raised:
            client_of(sdk, service).messages.send({"type": "text"})
        assert raised.value.idempotency_key == service.requests[0].headers["Idempotency-Key"]
    assert all(0.25 * 2**n <= wait <= 0.5 * 2**n for n, wait in enumerate(waits[:4]))


def test_a_key_that_no_header_takes_is_refused_before_the_call(sdk: ModuleType) -> None:
    service = Service()
    for key in ("चालान-17", "order 17", "k" * 256, ""):
        with pytest.raises(sdk.WhabuzzError, match="idempotency key"):
            client_of(sdk, service).messages.send({"type": "text"}, idempotency_key=key)
    assert service.requests == []


def test_a_profile_needs_no_command_line_but_the_keyring_of_its_key(
    sdk: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("WHABUZZ_API_KEY", "WHABUZZ_BASE_URL", "WHABUZZ_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for package in ("click", "keyring"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(sdk.WhabuzzError, match="whabuzz login"):
        sdk.Whabuzz.from_profile()
    file = tmp_path / "whabuzz/profiles.json"
    file.parent.mkdir()
    file.touch(0o600)
    file.write_text(json.dumps({"default": {"base_url": URL}}))
    with pytest.raises(sdk.WhabuzzError, match="package keyring"):
        sdk.Whabuzz.from_profile()
    file.write_text(json.dumps({"default": {"base_url": URL, "api_key": "wb_test_x"}}))
    sdk.Whabuzz.from_profile().close()
    file.write_text("{")
    with pytest.raises(sdk.WhabuzzError, match="is not JSON"):
        sdk.Whabuzz.from_profile()


def test_a_file_is_sent_again_unless_it_was_read(
    sdk: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    path = tmp_path / "a.jpg"
    path.write_bytes(b"a picture")
    with path.open("rb") as opened:
        for file, tries in ((path, 2), (b"a picture", 2), (opened, 1), (("a.jpg", opened, "image/jpeg"), 1)):
            service = Service(httpx.Response(429))
            with suppress(sdk.RateLimited):
                client_of(sdk, service).media.upload(file=file, from_="1001", type="image/jpeg")
            assert len(service.requests) == tries, file
            assert tries == 1 or b"a picture" in service.requests[-1].content


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_long_batch_may_take_longer_than_the_time_out(sdk: ModuleType, asynchronous: bool) -> None:
    """The time-out is how long no byte may move, not the time of the whole body."""
    body = {"from": "1", "client_ref": "news", "messages": [{"text": "x" * 24 * 1024 * 1024}]}

    async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(re.findall(rb"(?i)content-length: (\d+)", head)[0])
        for place in range(0, length, 1 << 20):
            await reader.readexactly(min(1 << 20, length - place))
            await asyncio.sleep(0.05)
        writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()

    async def run(url: str) -> dict[str, Any]:
        async with sdk.AsyncWhabuzz("wb_test_x", url, timeout=0.8, max_retries=0) as client:
            answer: dict[str, Any] = await client.messages.create_batch(body)
        return answer

    with raw_server(slowly) as url:
        if asynchronous:
            assert asyncio.run(run(url)) == {}
        else:
            with sdk.Whabuzz("wb_test_x", url, timeout=0.8, max_retries=0) as client:
                assert client.messages.create_batch(body) == {}


def test_a_file_has_the_media_type_of_its_name(
    sdk: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # A slim container has no list of media types, only Python's own.
    monkeypatch.setattr(mimetypes, "guess_type", mimetypes.MimeTypes(filenames=()).guess_type)
    for suffix, media_type in {**MIME_TYPES, "TXT": "text/plain", "zip": "application/zip"}.items():
        path = tmp_path / f"a.b.{suffix}"
        path.write_bytes(b"x")
        service = Service(httpx.Response(200, json={}))
        client_of(sdk, service).media.upload(file=path, from_="1001")
        assert f"Content-Type: {media_type}\r\n".encode() in service.requests[0].content, suffix


def test_values_of_a_query_and_a_path(sdk: ModuleType) -> None:
    service = Service(*(httpx.Response(200, json={"data": []}) for _ in range(2)))
    client = client_of(sdk, service)
    in_india = datetime(2026, 11, 28, 1, 30, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    client.request(
        "GET", "/v1/events", query={"from": in_india, "replays": True, "type": ["a", "b"], "to": None}
    )
    client.events.get("evt/../1")
    first, second = (request.url for request in service.requests)
    assert first.params.multi_items() == [
        *(("from", "2026-11-27T20:00:00Z"), ("replays", "true"), ("type", "a"), ("type", "b"))
    ]
    assert second.raw_path == b"/v1/events/evt%2F..%2F1"


@pytest.mark.parametrize(("age", "is_valid"), [(298, True), (-298, True), (303, False), (-303, False)])
def test_a_delivery_is_valid_for_five_minutes(
    sdk: ModuleType, monkeypatch: pytest.MonkeyPatch, age: int, is_valid: bool
) -> None:
    signed = sdk.webhooks.signed_headers("whsec_c2VjcmV0", id_="evt_1", body=b"{}")
    signed["webhook-signature"] = f"v1,b3RoZXI= {signed['webhook-signature']}"
    at = time.time() + age
    monkeypatch.setattr(time, "time", lambda: at)
    expected = nullcontext() if is_valid else pytest.raises(sdk.InvalidSignature, match="too long ago")
    with expected:
        sdk.WebhookVerifier("whsec_c2VjcmV0").verify(b"{}", signed)


@pytest.mark.parametrize(
    ("tolerance", "age", "is_valid"), [(None, 9e7, True), (9.0, 8, True), (9.0, 12, False)]
)
def test_a_consumer_of_a_queue_chooses_the_highest_age(
    sdk: ModuleType, monkeypatch: pytest.MonkeyPatch, tolerance: float | None, age: float, is_valid: bool
) -> None:
    signed = sdk.webhooks.signed_headers("whsec_c2VjcmV0", id_="evt_1", body=b"{}")
    at = time.time() + age
    monkeypatch.setattr(time, "time", lambda: at)
    expected = nullcontext() if is_valid else pytest.raises(sdk.InvalidSignature, match="too long ago")
    with expected:
        sdk.WebhookVerifier("whsec_c2VjcmV0", tolerance=tolerance).verify(b"{}", signed)


def test_the_events_of_an_object_of_an_archive(sdk: ModuleType) -> None:
    verifier = sdk.WebhookVerifier("whsec_c2VjcmV0", tolerance=None)
    body = b'{"id": "evt_1"}\n{"id": "evt_2"}\n'
    signed = sdk.webhooks.signed_headers("whsec_c2VjcmV0", id_="evs_1", body=body)
    assert [event["id"] for event in verifier.verify_lines(body, signed)] == ["evt_1", "evt_2"]
    with pytest.raises(sdk.InvalidSignature, match="No signature matches"):
        verifier.verify_lines(body + b"{}", signed)


@pytest.mark.parametrize(
    "forged",
    [
        {"webhook-timestamp": "9" * 400},
        {"webhook-timestamp": "9" * 5_000},
        {"webhook-timestamp": "nan"},
        {"webhook-id": "\udcff"},
        {"webhook-signature": "v1,\udcff"},
    ],
    ids=lambda forged: str(forged)[:60],
)
def test_headers_that_no_service_sends_are_no_signature(sdk: ModuleType, forged: dict[str, str]) -> None:
    signed = sdk.webhooks.signed_headers("whsec_c2VjcmV0", id_="evt_1", body=b"{}")
    with pytest.raises(sdk.InvalidSignature):
        sdk.WebhookVerifier("whsec_c2VjcmV0").verify(b"{}", signed | forged)


def test_the_whole_answer_of_a_call(sdk: ModuleType) -> None:
    service = Service(httpx.Response(200, json={"id": "bat_1"}, headers={"Idempotent-Replayed": "true"}))
    answer = client_of(sdk, service).request(
        "POST", "/v1/messages", query={"a": 1}, body={"type": "text"}, idempotency_key="k1"
    )
    assert (answer.headers["Idempotent-Replayed"], answer.json()) == ("true", {"id": "bat_1"})
    [request] = service.requests
    assert (request.headers["Idempotency-Key"], request.url.query) == ("k1", b"a=1")


def test_a_page_goes_on_where_another_client_stopped(sdk: ModuleType) -> None:
    service = Service(
        *(httpx.Response(200, json={"data": [n], "next_cursor": c}) for n, c in ((1, "c1"), (2, None)))
    )
    listed = client_of(sdk, service).events.list(type="message.inbound")
    first = listed.page()
    assert (first.items, first.next_cursor) == ([1], "c1")
    second = listed.page(first.next_cursor)
    assert (second.items, second.next_cursor) == ([2], None)
    assert service.requests[1].url.params["cursor"] == "c1"


def test_an_error_says_what_whatsapp_said_and_when_to_come_again(sdk: ModuleType) -> None:
    body = {
        "source": "meta",
        "hint": "Write the number with its country code.",
        "error": {"code": 131009, "message": "(#131009) Parameter value is not valid"}
        | {"error_data": {"details": "Recipient phone number is not valid."}},
    }
    headers = {"X-Service-Request-Id": "req_1", "Retry-After": "90"}
    with pytest.raises(sdk.RateLimited) as found:
        client_of(sdk, Service(httpx.Response(429, json=body, headers=headers))).tenant.get()
    for words in ("Recipient phone number is not valid.", "Write the number with its country code.", "req_1"):
        assert words in str(found.value)
    assert found.value.retry_after == 90.0
    assert found.value.headers["X-Service-Request-Id"] == "req_1"


def test_a_page_of_a_network_is_no_answer_of_the_service(sdk: ModuleType) -> None:
    page_of_a_hotel = httpx.Response(200, html="<h1>Log in</h1>")
    with pytest.raises(sdk.WhabuzzError, match="not JSON"):
        client_of(sdk, Service(page_of_a_hotel)).tenant.get()


def test_a_service_that_is_away_is_named(sdk: ModuleType) -> None:
    client = client_of(sdk, Service(httpx.ConnectError("refused")), max_retries=0)
    with pytest.raises(
        sdk.NoAnswer, match=r"https://gateway.example/v1/tenant.* Is the service running there\?"
    ):
        client.tenant.get()


def test_a_key_from_a_file_works_and_no_error_shows_a_key(sdk: ModuleType) -> None:
    service = Service()
    http_client = httpx.Client(transport=service)
    sdk.Whabuzz(" wb_test_x\r\n", URL + "/ ", http_client=http_client).tenant.get()
    assert service.requests[0].headers["Authorization"] == "Bearer wb_test_x"
    assert service.requests[0].url == f"{URL}/v1/tenant"
    for wrong in ("wb_test_\nx", "wb_test_…"):
        with pytest.raises(sdk.WhabuzzError, match="characters that no key contains") as refused:
            sdk.Whabuzz(wrong, URL, http_client=http_client).tenant.get()
        assert "wb_test" not in str(refused.value)


def test_a_base_url_may_end_in_the_version_and_has_a_scheme(sdk: ModuleType) -> None:
    service = Service()
    http_client = httpx.Client(transport=service)
    sdk.Whabuzz("wb_test_x", f"{URL}/v1/", http_client=http_client).tenant.get()
    assert service.requests[0].url == f"{URL}/v1/tenant"
    with pytest.raises(sdk.WhabuzzError, match="does not begin with https://"):
        sdk.Whabuzz("wb_test_x", "gateway.example", http_client=http_client)


@pytest.mark.parametrize("given", [("wb_test_x", None), (None, URL)])
def test_a_client_needs_a_key_and_an_address(
    sdk: ModuleType, monkeypatch: pytest.MonkeyPatch, given: tuple[str | None, str | None]
) -> None:
    for name in ("WHABUZZ_API_KEY", "WHABUZZ_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(sdk.WhabuzzError, match="set WHABUZZ_API_KEY and WHABUZZ_BASE_URL"):
        sdk.Whabuzz(*given)


@pytest.mark.parametrize("secret", ["", "whsec_", " ", None, [], [""], "wb_live_x"])
def test_nothing_is_verified_without_a_secret(sdk: ModuleType, secret: Any) -> None:
    with pytest.raises(ValueError, match="secret"):
        sdk.WebhookVerifier(secret)


def test_a_parsed_body_is_named(sdk: ModuleType) -> None:
    verifier = sdk.WebhookVerifier("whsec_c2VjcmV0\n")
    body = {"type": "message.inbound"}
    signed = sdk.webhooks.signed_headers("whsec_c2VjcmV0", id_="evt_1", body=json.dumps(body).encode())
    assert verifier.verify(json.dumps(body), signed) == body
    with pytest.raises(TypeError, match="before any parsing"):
        verifier.verify(body, signed)
    with pytest.raises(sdk.InvalidSignature, match="before any parsing"):
        verifier.verify(json.dumps(body, indent=1), signed)


def test_an_answer_of_another_host_asks_for_the_address(sdk: ModuleType) -> None:
    moved = httpx.Response(301, headers={"Location": "https://other.example/v1/tenant"})
    service = Service(httpx.Response(404, html="<h1>Not here</h1>"), moved, httpx.Response(502, html="nginx"))
    client = client_of(sdk, service, max_retries=0)
    texts = []
    for _ in range(3):
        with pytest.raises(sdk.APIError) as found:
            client.tenant.get()
        texts.append(str(found.value))
    assert texts == [
        "404: The answer is not the service's own. Is base_url right?",
        "301: The answer is not the service's own. Is base_url right? It redirects to https://other.example/v1/tenant",
        "502: The answer is not the service's own.",
    ]


async def _no_pause(_: float) -> None:
    """Replace the pause of an asynchronous stream after an interruption."""


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_stream_goes_on_after_a_break(sdk: ModuleType, asynchronous: bool) -> None:
    def sse(*places: int, end: str = "") -> httpx.Response:
        parts = [f"id: p{n}\ndata: {json.dumps({'id': n})}\n\n" for n in places]
        return httpx.Response(
            200, text="retry: 1\n\n" + "".join(parts) + end, headers={"Content-Type": "text/event-stream"}
        )

    service = Service(
        sse(1, 2), httpx.ConnectError("away"), sse(3, end="event: closed\ndata: unauthorized\n\n")
    )
    seen = []
    options = {"type": "message.inbound", "after": "p0"}
    if asynchronous:
        http = httpx.AsyncClient(transport=service)
        stream = sdk.AsyncWhabuzz("wb_test_x", "https://gateway.example", http_client=http).events.listen(
            **options
        )
        stream._sleep = _no_pause

        async def run() -> None:
            async for streamed in stream:
                seen.append((streamed.place, streamed.event["id"]))  # noqa: PERF401 - the stream raises

        with pytest.raises(sdk.StreamEnded):
            asyncio.run(run())
    else:
        stream = client_of(sdk, service).events.listen(**options)
        stream._sleep = lambda _: None
        with pytest.raises(sdk.StreamEnded):
            seen.extend((streamed.place, streamed.event["id"]) for streamed in stream)
    assert seen == [("p1", 1), ("p2", 2), ("p3", 3)]
    assert [request.headers["Last-Event-ID"] for request in service.requests] == ["p0", "p2", "p2"]
    assert service.requests[0].headers["Authorization"] == "Bearer wb_test_x"
    assert stream.place == "p3"


def test_the_library_needs_nothing_of_the_command_line() -> None:
    """Without click, the library can be imported, and the command line reports the missing package."""
    program = "import sys; sys.modules['click'] = None\nimport whabuzz\nfrom whabuzz.cli import run\nrun()\n"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(SDK)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "The command line needs click: install it with `pip install click`.\n"


def test_the_licence_is_the_same_everywhere() -> None:
    """A new licence must be declared in both packages."""
    assert page("sdks/python/LICENSE").startswith("MIT License\n")
    assert page("sdks/python/LICENSE") == page("sdks/typescript/LICENSE")
    assert 'license = "MIT"' in page("sdks/python/pyproject.toml")
    assert json.loads(page("sdks/typescript/package.json"))["license"] == "MIT"
