"""The TypeScript SDK, installed from its npm package, against the running service: in Node and in an edge runtime."""

import json
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from tests.e2e.conftest import ROOT, Stack, until
from tests.e2e.dropping_proxy import dropping_proxy
from tests.e2e.sdks.homes import node_command, run
from tests.e2e.sdks.packages import bot, customer_writes, endpoints_at, remove_endpoint, sends_to, settings
from tests.pages import blocks
from tests.sdk_repeats import ANSWERS, CALLS, KNOWN_AGAIN

pytestmark = pytest.mark.e2e

README = "sdks/typescript/README.md"
PROGRAMS = ROOT / "tests/node/sdk"
NODE_MODULES = ROOT / "tests/node/node_modules"
SECRETS = ["whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]


@pytest.fixture
def home(node_home: Path) -> Path:
    """The folder with the installed package and the test programs."""
    for program in PROGRAMS.iterdir():
        shutil.copy(program, node_home)
    return node_home


def signed() -> dict[str, Any]:
    """A ping from the service, signed with the second of the endpoint's two secrets, the headers of one that was signed
    too early or too late, and an object of an archive.
    """
    body, now = '{"type":"webhook.verify","challenge":"chl_ä"}', int(time.time())

    def headers(at: int, body: str = body) -> dict[str, str]:
        signature = Webhook(SECRETS[1]).sign("evt_1", datetime.fromtimestamp(at, UTC), body)
        return {"webhook-id": "evt_1", "webhook-timestamp": str(at), "webhook-signature": signature}

    untimely = [headers(now - 310), headers(now + 360)]
    text = '{"id":"evt_1"}\n{"id":"evt_2"}\n'
    lines = {"body": text, "headers": headers(now, text)}
    return {"secrets": SECRETS, "body": body, "headers": headers(now), "untimely": untimely, "lines": lines}


@pytest.mark.parametrize(("runtime", "tag"), [("node", "41"), ("edge", "42")])
def test_the_package_does_what_it_promises(runtime: str, tag: str, stack: Stack, home: Path) -> None:
    # The proxy drops the response to the first keyed send, and to the POST after the repeat.
    with dropping_proxy(stack.ready["base_url"], drops={1, 3}) as proxy:
        task = {
            "baseUrl": stack.ready["base_url"],
            "proxyUrl": proxy.url,
            "apiKey": stack.ready["api_key"],
            "from": stack.ready["phone_number_id"],
            "tag": tag,
            "signed": signed(),
        }
        command = node_command(f"{runtime}.mjs", json.dumps(task), str(NODE_MODULES))
        seen = json.loads(run(command, home).strip().splitlines()[-1])
    wamid = seen.pop("lossy")
    assert seen == {
        "pages": 3,
        "firstPage": 2,
        "missed": True,
        "ended": [True, [["p1", "evt_1"], ["p3", "evt_3"]], [None, "p1", "p1"], "p3"],
        "contentType": "image/jpeg",
        "bytes": [255, 216, 255],
        "streamed": 3,
        "described": "image/jpeg",
        "batches": [2, 1],
        "sameBatches": True,
        "differs": [True, 2],
        "cut": [2, 1],
        "error": [True, 400, "invalid_request", ["from"], True],
        "noAnswer": True,
        "fromAFile": "string",
        "withVersion": "string",
        "noScheme": "The baseUrl gateway.example does not begin with https://.",
        "noKey": "The apiKey is no key: it has characters that no key has.",
        "away": "GET http://127.0.0.1:2/v1/tenant: TypeError: fetch failed: connect ECONNREFUSED 127.0.0.1:2",
        "another": "404: The answer is not the service's own. Is baseUrl right?",
        "stopped": "enough",
        "verified": "chl_ä",
        "late": "chl_ä",
        "lines": ["evt_1", "evt_2"],
        "noSecret": ["At least one secret (whsec_…) is needed."] * 4
        + ["A secret must be whsec_ and base64."],
        "parsedBody": "Give verify the body as it arrived, before any parsing.",
        "forged": [True] * 8,
        "reply": {
            "from": "2003",
            "recipient": "IN.1",
            "context": {"message_id": "wamid.1"},
            "type": "text",
            "text": {"body": "Hi"},
        },
        "to": "+6581234567",
    }
    assert [event["wamid"] for event in sends_to(stack, f"9170009{tag}301")] == [wamid]
    keys = stack.api("GET", "/v1/api-keys?limit=200").json()["data"]
    assert [key["name"] for key in keys if key["name"] == f"lost-{tag}"] == [f"lost-{tag}"]


def test_only_what_cannot_be_done_twice_is_repeated(home: Path) -> None:
    answers = [{"status": each.status, "headers": each.headers, "body": each.body} for each in ANSWERS]
    # Without a generic call, no call can have a key that its operation ignores.
    calls = {
        kind: {"key": key, "body": body} for kind, (_, _, key, body) in CALLS.items() if kind != "ignored"
    }
    task = json.dumps({"answers": [*answers, None], "calls": calls})
    seen = json.loads(run(node_command("repeats.mjs", task), home).strip().splitlines()[-1])
    repeated = [each.repeated.split() for each in ANSWERS] + [KNOWN_AGAIN.split()]
    assert seen == [
        {kind: [call["key"]] * (1 + (kind in kinds)) for kind, call in calls.items()} for kinds in repeated
    ]


def test_a_call_ends_with_its_time_and_its_signal_and_a_stream_with_its_answer(home: Path) -> None:
    seen = json.loads(run(node_command("limits.mjs"), home).strip().splitlines()[-1])
    moved = (
        "301: The answer is not the service's own. Is baseUrl right? It redirects to https://other.example/"
    )
    what = "GET https://gateway.example/v1/tenant answered text/html, not JSON: is baseUrl the service's?"
    assert seen == {
        **{kind: ["enough", True, True] for kind in ("json", "page", "file")},
        # A short body and a long one: the long ones have more time.
        "uploads": ["timed out"] * 2 + ["answered"] * 2,
        "another": [True, what],
        "keys": [True, True],
        "refusedKeys": ["An idempotency key has 1 to 255 visible ASCII characters, and no blanks."] * 5 + [0],
        "streams": [[[25_000, 2_000, 4_000, 1_000], True, False], [[], False, True]],
        "elsewhere": [["manual"] * 2, [moved] * 2],
    }


def test_the_quickstart_of_the_readme(stack: Stack, node_home: Path) -> None:
    (node_home / "send.mjs").write_text(blocks(README, "js")[0])
    printed = run(node_command("send.mjs"), node_home, **settings(stack))
    assert "sent wamid." in printed
    assert "logged evt_" in printed


def test_the_bot_of_the_readme_answers_a_customer(stack: Stack, node_home: Path) -> None:
    (node_home / "bot.mjs").write_text(blocks(README, "js")[1])
    with bot(node_command("bot.mjs"), node_home, settings(stack)) as first:
        [made] = endpoints_at(stack, first)
    with bot(node_command("bot.mjs"), node_home, settings(stack)) as port:
        assert endpoints_at(stack, first) == []
        assert [each["id"] for each in endpoints_at(stack, port)] == [made["id"]]
        customer_writes(stack, "917000900041")
        until(lambda: sends_to(stack, "917000900041"), "the bot's answer")
        remove_endpoint(stack, port)
    assert len(sends_to(stack, "917000900041")) == 1


def test_it_is_required_as_well_as_imported(node_home: Path) -> None:
    program = (
        'const { NotFound, APIError } = require("whabuzz"); import("whabuzz").then((m) => '
        "console.log(typeof m.Whabuzz, new NotFound(404, {}, new Headers()) instanceof APIError))"
    )
    (node_home / "required.cjs").write_text(program)
    assert run(node_command("required.cjs"), node_home).split() == ["function", "true"]


def test_types_accept_right_calls_and_reject_wrong_ones(home: Path) -> None:
    options = ["--noEmit", "--strict", "--target", "ES2022", "--module", "NodeNext", "--lib", "ES2022,DOM"]
    options += ["--moduleResolution", "NodeNext", "--skipLibCheck", "false"]
    # Check the declaration files of the package, but not those of TypeScript.
    options += ["--skipDefaultLibCheck"]
    run(node_command(str(NODE_MODULES / "typescript/bin/tsc"), *options, "typed.ts"), home)
