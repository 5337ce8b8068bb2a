"""The control API: seeding, faults, the request log, reset, settings, and the saved state."""

import asyncio
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer

from simulator import customers, request_log
from simulator.app import make_app
from simulator.config import Config
from simulator.parts import SIMULATOR
from simulator.tests.conftest import CUSTOMER, NUMBER, TOKEN, WABA, Gateway, Graph, until
from simulator.world import conversation_log, state
from simulator.world.conversation_log import WINDOW_SECONDS


async def test_seeding_twice_gives_the_same(graph: Graph) -> None:
    body = {
        "waba_id": "100200300400501",
        "numbers": [{"phone_number_id": "200300400500601", "throughput": "HIGH"}, {"coexistence": True}],
    }
    first = await graph.control("POST", "accounts", body)
    again = await graph.control("POST", "accounts", {**body, "numbers": body["numbers"][:1]})
    assert first["waba_id"] == "100200300400501"
    assert len(first["phone_numbers"]) == 2
    assert {**first, "code": ""} == {**again, "code": ""}
    assert first["code"] != again["code"]
    assert graph.sim.state.numbers["200300400500601"].rate == 1000
    assert graph.sim.state.numbers[first["phone_numbers"][1]["id"]].rate == 20


async def test_a_fresh_account_is_not_subscribed_and_can_be_unregistered(graph: Graph) -> None:
    account = await graph.control("POST", "accounts", {"numbers": [{"registered": False}]})
    assert not graph.sim.state.accounts[account["waba_id"]].subscribed
    assert not graph.sim.state.numbers[account["phone_numbers"][0]["id"]].registered


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "accounts", {"numbers": [{"nonsense": 1}]}, 400),
        ("GET", "accounts/1", None, 404),
        ("POST", "codes", {"waba_id": "1"}, 404),
        ("POST", "codes", {"waba_id": WABA, "variant": "x"}, 400),
        ("PUT", "settings", {"nonsense": 1}, 400),
        ("PUT", "settings", {"statuses": {"sent_ms": "1"}}, 400),
        ("PUT", "settings", {"statuses": {"sent_ms": -1}}, 400),
        ("PUT", "settings", {"preset": "none"}, 400),
        ("PUT", "faults", [{"action": "explode"}], 400),
        ("PUT", "faults", [{"action": "hang", "match": {"nonsense": 1}}], 400),
        ("POST", "inbound", {"phone_number_id": "1", "from": "91"}, 404),
        ("POST", "inbound", {"phone_number_id": NUMBER, "from": ""}, 400),
        ("POST", "inbound", {"phone_number_id": NUMBER, "from": "91", "type": "x"}, 400),
        ("POST", "notify", {"field": "x"}, 400),
        ("PATCH", f"phone_numbers/{NUMBER}", {"id": "1"}, 400),
        ("PUT", "inboxes/x", {"secrets": ["whsec_!"]}, 400),
        ("PUT", "inboxes/x", {"mode": "status:99"}, 400),
    ],
)
async def test_what_cannot_be_is_refused(
    graph: Graph, method: str, path: str, body: Any, status: int
) -> None:
    async with graph.client.request(method, f"/sim/{path}", json=body) as response:
        assert response.status == status
        assert (await response.json())["error"]


async def test_a_refused_change_changes_nothing(graph: Graph) -> None:
    before = await graph.control("GET", "settings")
    async with graph.client.put(
        "/sim/settings", json={"statuses": {"sent_ms": 77, "nonsense": 1}}
    ) as response:
        assert response.status == 400
    assert await graph.control("GET", "settings") == before


async def test_requests_are_kept_byte_for_byte(graph: Graph) -> None:
    text = '{ "messaging_product":"whatsapp", "to":"919812345678","type":"text","text":{"body":"caf\\u00e9 1.10"}}'
    await graph.call("POST", f"{NUMBER}/messages", data=text)
    await graph.call("GET", WABA)
    log = await graph.control("GET", f"requests?path=/{NUMBER}/messages&method=POST")
    assert [row["body"] for row in log["data"]] == [text]
    assert log["data"][0]["status"] == 200
    assert log["data"][0]["message_id"] in graph.sim.state.messages
    assert log["counts"] == {"POST messages": 1, "GET node": 1}
    assert (await graph.control("GET", "requests?contains=1.10"))["data"][0]["body"] == text
    await graph.control("PUT", "settings", {"keep": {"requests": 1}})
    assert len((await graph.control("GET", "requests"))["data"]) == 1


async def test_memory_is_bounded(graph: Graph) -> None:
    preset = {"preset": "benchmark", "keep": {"messages": 10, "requests": 10}}
    await graph.control("PUT", "settings", preset)
    for number in range(30):
        await graph.send(to=f"9198{number % 7:08d}")
    assert len(graph.sim.state.messages) == 10
    assert sum(1 for _ in graph.sim.state.messages.newest_first(NUMBER)) == 10
    assert len((await graph.control("GET", "requests?limit=1000"))["data"]) == 10


async def test_large_messages_and_requests_leave_earlier(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation_log, "MOST_BYTES_OF_NUMBER", 5_000)
    monkeypatch.setattr(request_log, "MOST_BYTES", 5_000)
    other = (await graph.control("POST", "accounts", {}))["phone_numbers"][0]["id"]
    kept = await graph.control("POST", "inbound", {"phone_number_id": other, "from": CUSTOMER, "text": "hi"})
    for _ in range(6):
        assert (await graph.send(text={"body": "x" * 1_500}, type="text"))[0] == 200
    rows = (await graph.control("GET", f"messages?phone_number_id={NUMBER}"))["data"]
    assert 1 <= len(rows) <= 3
    assert kept["id"] in graph.sim.state.messages, "a number drops its own alone"
    assert 1 <= len((await graph.control("GET", "requests?limit=1000"))["data"]) <= 3
    monkeypatch.setattr(conversation_log, "MOST_BYTES", 1_000)
    await graph.send()
    rows = (await graph.control("GET", f"messages?phone_number_id={NUMBER}"))["data"]
    assert len(rows) == 1, "the number with the most bytes drops its own"
    assert kept["id"] in graph.sim.state.messages


async def test_what_a_caller_writes_in_the_place_of_an_edge_is_counted_within_a_bound(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_log, "MOST_COUNTS", 2)
    for edge in ("message_qrdls/A", "message_qrdls/B", "settings", "unheard", "of"):
        await graph.call("GET", f"{NUMBER}/{edge}")
    counts = (await graph.control("GET", "requests"))["counts"]
    assert counts == {"GET message_qrdls": 2, "GET settings": 1, "other": 2}


async def test_while_all_accounts_are_full_an_account_has_room_for_little(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "MOST_BYTES_OF_OBJECTS", 5_000)
    monkeypatch.setattr(state, "LEAST_BYTES_OF_ACCOUNT", 1_000)
    other = (await graph.control("POST", "accounts", {}))["access_token"]
    waba_id = next(reversed(graph.sim.state.accounts))
    flow = {"name": "a", "categories": ["OTHER"], "flow_json": "x" * 3_000}
    made = (await graph.call("POST", f"{WABA}/flows", json=flow))[1]["id"]
    second = {"path": f"{waba_id}/flows", "token": other}
    assert (await graph.call("POST", json=flow, **second))[0] == 200
    small = {**flow, "name": "b", "flow_json": "{}"}
    assert (await graph.call("POST", json=small, **second))[0] == 400
    third = (await graph.control("POST", "accounts", {}))["access_token"]
    newest = next(reversed(graph.sim.state.accounts))
    assert (await graph.call("POST", f"{newest}/flows", json=small, token=third))[0] == 200
    assert (await graph.call("DELETE", made))[0] == 200
    assert (await graph.call("POST", json=small, **second))[0] == 200, "a deletion makes room for all"


async def test_a_full_account_makes_nothing_more_until_it_deletes(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "MOST_BYTES_OF_ACCOUNT", 5_000)
    other = (await graph.control("POST", "accounts", {}))["access_token"]
    flow = {"name": "a", "categories": ["OTHER"], "flow_json": "x" * 3_000}
    made = (await graph.call("POST", f"{WABA}/flows", json=flow))[1]["id"]
    code = {"prefilled_message": "x" * 2_500}
    assert (await graph.call("POST", f"{NUMBER}/message_qrdls", json=code))[0] == 200
    for path, body in ((f"{NUMBER}/message_qrdls", code), (f"{WABA}/flows", flow), (made, {"name": "b"})):
        assert "delete something" in (await graph.call("POST", path, json=body))[1]["error"]["message"]
    group = {"messaging_product": "whatsapp", "subject": "Friends"}
    assert (await graph.call("POST", f"{NUMBER}/groups", json=group))[0] == 400
    assert (await graph.send())[0] == 200, "messages have bounds of their own"
    waba_id = next(reversed(graph.sim.state.accounts))
    assert (await graph.call("POST", f"{waba_id}/flows", json=flow, token=other))[0] == 200
    assert (await graph.call("DELETE", made))[0] == 200
    assert (await graph.call("POST", f"{NUMBER}/message_qrdls", json=code))[0] == 200


async def test_tokens_of_an_account_are_bounded(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MOST_TOKENS_OF_ACCOUNT", 2)
    await graph.control("POST", "accounts", {})
    tokens = [(await graph.control("POST", "tokens", {"waba_id": WABA}))["access_token"] for _ in range(3)]
    found = [(await graph.call("GET", WABA, token=token))[0] for token in tokens]
    assert found == [401, 200, 200]
    assert len(graph.sim.state.tokens) == 3, "another account keeps its own"


async def test_messages_are_listed(graph: Graph) -> None:
    await graph.send(to="919811111111")
    await graph.control("POST", "inbound", {"phone_number_id": NUMBER, "from": CUSTOMER, "text": "hi"})
    listed = await graph.control("GET", f"messages?phone_number_id={NUMBER}")
    assert [row["direction"] for row in listed["data"]] == ["inbound", "outbound"]
    listed = await graph.control("GET", f"messages?phone_number_id={NUMBER}&customer={CUSTOMER}")
    assert len(listed["data"]) == 1
    chats = await graph.control("GET", f"conversations?phone_number_id={NUMBER}")
    assert {chat["customer"] for chat in chats["data"]} == {CUSTOMER, "919811111111"}


async def rules(graph: Graph, *rows: dict[str, Any]) -> None:
    await graph.control("PUT", "faults", list(rows))


async def test_error_faults_match_and_run_out(graph: Graph) -> None:
    await rules(
        graph,
        {"match": {"to": "+919811111111"}, "action": "error", "code": 131000, "status": 500, "times": 2},
        {"match": {"phone_number_id": NUMBER, "method": "GET"}, "action": "throttle"},
        {"match": {"template": "x"}, "action": "error", "code": 4},
    )
    assert [(await graph.send(to="919811111111"))[0] for _ in range(3)] == [500, 500, 200]
    assert (await graph.send())[0] == 200
    assert (await graph.call("GET", NUMBER))[1]["error"]["code"] == 130429
    template = {"name": "x", "language": {"code": "en"}}
    assert (await graph.send(type="template", template=template))[1]["error"]["code"] == 4
    shown = await graph.control("GET", "faults")
    assert [rule["used"] for rule in shown["rules"]] == [2, 1, 1]


async def test_html_and_slow_faults(graph: Graph) -> None:
    await rules(graph, {"action": "html", "status": 502, "times": 1}, {"action": "slow", "ms": 50})
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with graph.client.get(f"/v25.0/{WABA}", headers=headers) as response:
        assert response.status == 502
        assert response.content_type == "text/html"
    began = time.monotonic()
    assert (await graph.call("GET", WABA))[0] == 200
    assert time.monotonic() - began >= 0.05


async def test_reset_after_loses_only_the_answer(graph: Graph) -> None:
    await rules(graph, {"match": {"path": "messages"}, "action": "reset", "when": "after"})
    with pytest.raises(aiohttp.ClientError):
        await graph.send()
    assert len(graph.sim.state.messages) == 1
    await rules(graph, {"match": {"path": "messages"}, "action": "reset"})
    with pytest.raises(aiohttp.ClientError):
        await graph.send()
    assert len(graph.sim.state.messages) == 1


async def leave_a_call_that_hangs(graph: Graph) -> None:
    """Make a call, and disconnect as soon as a fault delays the answer."""
    call = asyncio.create_task(graph.call("GET", WABA))
    while not (await graph.control("GET", "faults"))["rules"][0]["used"]:
        assert not call.done()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_hang_until_the_client_leaves(graph: Graph) -> None:
    await rules(graph, {"action": "hang"})
    await leave_a_call_that_hangs(graph)
    log = await graph.control("GET", "requests")
    assert log["data"][0]["fault"] == "hang"


async def test_reset_clears_the_state(graph: Graph) -> None:
    await graph.send()
    await graph.control("PUT", "faults", [{"action": "html"}])
    await graph.control("POST", "reset", {"keep": "accounts"})
    assert graph.sim.state.accounts
    assert not graph.sim.state.messages
    assert graph.sim.settings.statuses.sent_ms == 300
    assert (await graph.send())[0] == 200
    await graph.control("POST", "reset")
    assert not graph.sim.state.accounts
    health = await graph.control("GET", "health")
    assert (health["ok"], health["accounts"], health["requests"]) == (True, 0, 0)


async def serve(config: Config) -> TestClient[Any, Any]:
    client = TestClient(TestServer(make_app(config)))
    await client.start_server()
    return client


async def test_the_state_survives_a_restart(tmp_path: Path) -> None:
    config = Config(state_file=tmp_path / "deep" / "state.json")
    client = await serve(config)
    body = {"waba_id": WABA, "access_token": TOKEN, "subscribed": True, "numbers": 1}
    async with client.post("/sim/accounts", json=body) as response:
        number = (await response.json())["phone_numbers"][0]["id"]
    headers = {"Authorization": f"Bearer {TOKEN}"}
    template = {
        "name": "a",
        "language": "en",
        "category": "UTILITY",
        "components": [{"type": "BODY", "text": "x"}],
    }
    async with client.post(f"/v25.0/{WABA}/message_templates", json=template, headers=headers) as response:
        template_id = (await response.json())["id"]
    async with client.put("/sim/inboxes/shop", json={"secrets": ["whsec_c2VjcmV0"]}):
        pass
    inbound = {"phone_number_id": number, "from": CUSTOMER, "text": "hi"}
    async with client.post("/sim/inbound", json=inbound) as response:
        assert response.ok
    await until(lambda: config.state_file is not None and config.state_file.exists())
    await client.close()

    client = await serve(config)
    sim = client.app[SIMULATOR]
    assert sim.state.messages.is_open(number, CUSTOMER, time.time())
    assert not sim.state.messages.is_open(number, CUSTOMER, time.time() + WINDOW_SECONDS)
    assert not sim.state.messages.is_open(number, "919800000099", time.time())
    async with client.get(f"/v25.0/{number}", headers=headers) as response:
        assert response.status == 200
    async with client.get(f"/v25.0/{template_id}", headers=headers) as response:
        assert response.status == 200
    async with client.get("/sim/inboxes/shop") as response:
        assert (await response.json())["secrets"] == 1
    await client.close()


async def test_an_unreadable_state_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text('{"accounts": [{"nonsense": 1}]}')
    client = await serve(Config(state_file=path))
    async with client.get("/sim/health") as response:
        assert (await response.json())["accounts"] == 0
    await client.close()
    assert (tmp_path / "state.json.unreadable").exists()


def test_configuration_comes_from_the_environment() -> None:
    config = Config.from_environment({"SIMULATOR_PORT": "9000", "PORT": "9001", "META_APP_ID": ""})
    assert config.base_url == "http://127.0.0.1:9000"
    assert config.callback_url == "http://127.0.0.1:9001/upstream/webhook"
    assert config.app_id == "900100200300400"
    config = Config.from_environment({"BASE_URL": "https://gw.example/", "SIMULATOR_STATE": "/x/y"})
    assert config.callback_url == "https://gw.example/upstream/webhook"
    assert config.state_file == Path("/x/y")


async def test_a_stuck_call_does_not_delay_the_stop(graph: Graph) -> None:
    await rules(graph, {"action": "hang"})
    await leave_a_call_that_hangs(graph)
    await asyncio.wait_for(graph.client.close(), 5)


async def test_a_busy_number_drops_only_its_own_messages(graph: Graph) -> None:
    await graph.control("PUT", "settings", {"preset": "benchmark", "keep": {"messages_of_number": 3}})
    other = (await graph.control("POST", "accounts", {}))["phone_numbers"][0]["id"]
    kept = await graph.control("POST", "inbound", {"phone_number_id": other, "from": CUSTOMER, "text": "hi"})
    for _ in range(6):
        await graph.send()
    rows = (await graph.control("GET", f"messages?phone_number_id={NUMBER}"))["data"]
    assert len(rows) == 3
    assert kept["id"] in graph.sim.state.messages
    assert graph.sim.state.messages.is_open(other, CUSTOMER, time.time())


async def test_what_an_account_knows_of_a_customer_no_other_sees(graph: Graph) -> None:
    other = await graph.control("POST", "accounts", {})
    foreign = other["phone_numbers"][0]["id"]
    said = {"from": CUSTOMER, "text": "hi", "name": "Secret Name", "identity": "user_id"}
    await graph.control("POST", "inbound", {"phone_number_id": foreign, **said})
    await graph.control("POST", "inbound", {"phone_number_id": NUMBER, "from": CUSTOMER, "text": "hi"})
    (mine,) = (await graph.control("GET", f"conversations?phone_number_id={NUMBER}"))["data"]
    (theirs,) = (await graph.control("GET", f"conversations?phone_number_id={foreign}"))["data"]
    assert theirs["contact"]["profile"]["name"] == "Secret Name"
    assert mine["contact"]["profile"]["name"] != "Secret Name"
    assert mine["contact"]["wa_id"] == CUSTOMER
    state = graph.sim.state
    user_id = theirs["contact"]["user_id"]
    assert customers.resolve(state, state.accounts[other["waba_id"]], user_id) == CUSTOMER
    assert customers.resolve(state, state.accounts[WABA], user_id) == user_id


async def test_customers_of_an_account_are_bounded(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(customers, "MOST_OF_ACCOUNT", 2)
    for number in range(4):
        body = {"phone_number_id": NUMBER, "from": f"91981234567{number}", "text": "hi"}
        await graph.control("POST", "inbound", body)
    assert list(graph.sim.state.customers[WABA]) == ["919812345672", "919812345673"]
    assert len(graph.sim.state.user_ids) == 2


async def test_the_upstream_decides_about_a_number(graph: Graph, gateway: Gateway) -> None:
    for event in ("FLAGGED", "UPGRADE", "NAME_REJECTED", "PIN_CHANGED"):
        changed = await graph.control("POST", f"phone_numbers/{NUMBER}/events", {"event": event})
    assert (changed["quality_rating"], changed["messaging_limit_tier"]) == ("RED", "TIER_10K")
    assert changed["name_status"] == "DECLINED"
    await until(lambda: len(gateway.changes) == 4)
    assert [change["field"] for change in gateway.changes] == [
        "phone_number_quality_update",
        "phone_number_quality_update",
        "phone_number_name_update",
        "security",
    ]
    async with graph.client.post(f"/sim/phone_numbers/{NUMBER}/events", json={"event": "X"}) as response:
        assert response.status == 400


async def test_what_belongs_to_another_account_is_not_found(graph: Graph) -> None:
    _, body = await graph.send()
    wamid = body["messages"][0]["id"]
    stored = graph.sim.state.media.store(
        graph.sim.state.numbers[NUMBER], data=b"x", mime_type="image/png", filename=None, days=1
    )
    for waba_id, expected in (("1", 404), (WABA, 200)):
        asked = {"status": "read", "waba_id": waba_id}
        async with graph.client.post(f"/sim/messages/{wamid}/status", json=asked) as response:
            assert response.status == expected
        async with graph.client.get(f"/sim/media/{stored.id}?waba_id={waba_id}") as response:
            assert response.status == expected
