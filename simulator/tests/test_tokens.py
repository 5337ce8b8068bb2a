"""OAuth, debug_token, token scoping, appsecret_proof."""

import hashlib
import hmac
import time
from typing import Any

import pytest

from simulator.config import APP_ID, APP_SECRET
from simulator.tests.conftest import NUMBER, TOKEN, WABA, Graph


async def exchange(graph: Graph, code: str, **changes: str) -> tuple[int, dict[str, Any]]:
    params = {"client_id": APP_ID, "client_secret": APP_SECRET, "code": code, **changes}
    return await graph.call("GET", "oauth/access_token", token=None, params=params)


async def new_code(graph: Graph, **body: Any) -> str:
    return str((await graph.control("POST", "codes", {"waba_id": WABA, **body}))["code"])


async def debug(graph: Graph, token: str) -> dict[str, Any]:
    status, body = await graph.call(
        "GET", "debug_token", token=graph.app_token, params={"input_token": token}
    )
    assert status == 200
    return dict(body["data"])


async def test_a_code_becomes_a_token_once(graph: Graph) -> None:
    code = await new_code(graph)
    status, body = await exchange(graph, code)
    assert (status, body["token_type"]) == (200, "bearer")
    assert (await graph.call("GET", f"{WABA}", token=body["access_token"]))[0] == 200
    status, body = await exchange(graph, code)
    assert (status, body["error"]["code"], body["error"]["error_subcode"]) == (400, 100, 36009)


async def test_codes_that_do_not_work(graph: Graph) -> None:
    late = await new_code(graph, seconds=-1)
    assert (await exchange(graph, late))[1]["error"]["error_subcode"] == 36007
    code = await new_code(graph)
    assert (await exchange(graph, code, client_secret="x"))[1]["error"]["code"] == 1
    assert (await exchange(graph, code, client_id="1"))[1]["error"]["code"] == 101
    assert (await exchange(graph, "nonsense"))[1]["error"]["code"] == 100
    assert (await exchange(graph, code))[0] == 200, "a refused call does not use the code up"


async def test_the_apps_own_token(graph: Graph) -> None:
    params = {"client_id": APP_ID, "client_secret": APP_SECRET, "grant_type": "client_credentials"}
    _, body = await graph.call("GET", "oauth/access_token", token=None, params=params)
    assert body["access_token"] == graph.app_token
    status, body = await graph.call("POST", f"{NUMBER}/messages", token=graph.app_token, json={})
    assert (status, body["error"]["code"]) == (403, 200)


async def test_debug_token_of_a_usual_token(graph: Graph) -> None:
    data = await debug(graph, TOKEN)
    assert data["is_valid"] is True
    assert (data["app_id"], data["expires_at"]) == (APP_ID, 0)
    assert {scope["scope"]: scope["target_ids"] for scope in data["granular_scopes"]} == {
        "whatsapp_business_management": [WABA],
        "whatsapp_business_messaging": [WABA],
    }


@pytest.mark.parametrize(
    ("variant", "check"),
    [
        ("no_target_ids", lambda d: all("target_ids" not in scope for scope in d["granular_scopes"])),
        ("manage_events", lambda d: "whatsapp_business_management" not in d["scopes"]),
        ("no_messaging", lambda d: "whatsapp_business_messaging" not in d["scopes"]),
        ("other_app", lambda d: d["app_id"] != APP_ID and d["is_valid"]),
        ("60_days", lambda d: abs(d["expires_at"] - time.time() - 60 * 86400) < 60),
        ("expiring", lambda d: abs(d["expires_at"] - time.time() - 6 * 86400) < 60),
        ("expired", lambda d: d["is_valid"] is False and d["error"]["subcode"] == 463),
        ("invalid", lambda d: d["is_valid"] is False and d["error"]["code"] == 190 and d["scopes"] == []),
    ],
)
async def test_debug_token_variants(graph: Graph, variant: str, check: Any) -> None:
    token = (await graph.control("POST", "tokens", {"waba_id": WABA, "variant": variant}))["access_token"]
    assert check(await debug(graph, token))


async def test_a_token_with_the_newer_scope_still_lists_numbers(graph: Graph) -> None:
    token = (await graph.control("POST", "tokens", {"waba_id": WABA, "variant": "manage_events"}))[
        "access_token"
    ]
    assert (await graph.call("GET", f"{WABA}/phone_numbers", token=token))[0] == 200


@pytest.mark.parametrize(("variant", "subcode"), [("expired", 463), ("invalid", 467)])
async def test_dead_tokens_are_401(graph: Graph, variant: str, subcode: int) -> None:
    token = (await graph.control("POST", "tokens", {"waba_id": WABA, "variant": variant}))["access_token"]
    status, body = await graph.call("GET", WABA, token=token)
    assert (status, body["error"]["code"], body["error"]["error_subcode"]) == (401, 190, subcode)


async def test_a_token_can_be_withdrawn(graph: Graph) -> None:
    await graph.control("PATCH", "tokens", {"access_token": TOKEN, "invalidated": True})
    assert (await graph.call("GET", WABA))[0] == 401


async def test_no_token_and_another_accounts_token(graph: Graph) -> None:
    assert (await graph.call("GET", WABA, token=None))[0] == 401
    other = (await graph.control("POST", "accounts", {}))["access_token"]
    for path in (WABA, NUMBER, f"{WABA}/phone_numbers", f"{NUMBER}/whatsapp_business_profile"):
        status, body = await graph.call("GET", path, token=other)
        assert (status, body["error"]["code"], body["error"]["error_subcode"]) == (400, 100, 33), path


async def test_appsecret_proof_is_checked_when_sent(graph: Graph) -> None:
    proof = "dbafe967a0a4c22ad4110fe2960351217f76ab1580d657bb1033bde75d286176"
    assert (await graph.call("GET", WABA, params={"appsecret_proof": proof}))[0] == 200
    status, body = await graph.call("GET", WABA, params={"appsecret_proof": "0" * 64})
    assert (status, body["error"]["code"]) == (400, 100)
    assert "Invalid appsecret_proof" in body["error"]["message"]


@pytest.mark.parametrize(("age", "status"), [(0, 200), (290, 200), (310, 400)])
async def test_a_timed_proof_ages(graph: Graph, age: int, status: int) -> None:
    stamp = str(int(time.time()) - age)
    proof = hmac.new(APP_SECRET.encode(), f"{TOKEN}|{stamp}".encode(), hashlib.sha256).hexdigest()
    params = {"appsecret_proof": proof, "appsecret_time": stamp}
    assert (await graph.call("GET", WABA, params=params))[0] == status


async def test_no_token_or_secret_is_kept_in_the_request_log(graph: Graph) -> None:
    await exchange(graph, await new_code(graph))
    await graph.call("GET", WABA, token=None, params={"access_token": TOKEN, "fields": "name"})
    log = await graph.control("GET", "requests")
    assert log["data"][0]["query"] == "fields=name"
    assert APP_SECRET not in str(log)
    assert TOKEN not in str(log)
