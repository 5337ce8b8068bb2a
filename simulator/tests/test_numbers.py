"""One number: registration, PIN, codes, coexistence, profile."""

from typing import Any

import pytest

from simulator.tests.conftest import NUMBER, TOKEN, WABA, Gateway, Graph, until


async def register(graph: Graph, pin: str = "123456", number: str = NUMBER) -> tuple[int, dict[str, Any]]:
    body = {"messaging_product": "whatsapp", "pin": pin}
    return await graph.call("POST", f"{number}/register", json=body)


async def test_registering_sets_and_then_asks_for_the_pin(graph: Graph) -> None:
    assert await register(graph, "123456") == (200, {"success": True})
    status, body = await register(graph, "654321")
    assert (status, body["error"]["code"]) == (400, 133005)
    assert (await register(graph, "123456"))[0] == 200
    assert (await register(graph, "12345"))[1]["error"]["code"] == 100


async def test_deregistered_numbers_cannot_send(graph: Graph) -> None:
    assert await graph.call("POST", f"{NUMBER}/deregister") == (200, {"success": True})
    _, body = await graph.call("GET", NUMBER, params={"fields": "status,platform_type,throughput"})
    assert (body["status"], body["platform_type"]) == ("DISCONNECTED", "NOT_APPLICABLE")
    assert (await graph.send())[1]["error"]["code"] == 133010
    assert (await register(graph))[0] == 200
    assert (await graph.send())[0] == 200


async def test_registrations_are_limited(graph: Graph) -> None:
    codes = [(await register(graph))[1].get("error", {}).get("code") for _ in range(11)]
    assert codes == [None] * 10 + [133016]


async def test_pin_guesses_are_limited(graph: Graph) -> None:
    await register(graph, "123456")
    codes = [(await register(graph, "000000"))[1]["error"]["code"] for _ in range(6)]
    assert codes == [133005] * 5 + [133008]


async def test_code_requests_are_limited(graph: Graph) -> None:
    number = (await graph.control("POST", f"accounts/{WABA}/phone_numbers", {"registered": False}))["id"]
    form = {"code_method": "VOICE", "language": "en_US"}
    answers = [await graph.call("POST", f"{number}/request_code", json=form) for _ in range(6)]
    assert [status for status, _ in answers] == [200] * 5 + [400]
    assert answers[-1][1]["error"]["code"] == 136024
    _, body = await graph.call(
        "POST", f"{number}/request_code", json={"code_method": "FAX", "language": "en"}
    )
    assert body["error"]["code"] == 100


async def test_coexistence_numbers_are_left_alone(graph: Graph) -> None:
    number = (await graph.control("POST", f"accounts/{WABA}/phone_numbers", {"coexistence": True}))["id"]
    for status, body in (
        await register(graph, number=number),
        await graph.call("POST", f"{number}/deregister"),
    ):
        assert (status, body["error"]["code"]) == (400, 100)
    sync = {"messaging_product": "whatsapp", "sync_type": "history"}
    assert (await graph.call("POST", f"{number}/smb_app_data", json=sync))[0] == 200
    assert (await graph.call("POST", f"{number}/smb_app_data", json=sync))[1]["error"]["code"] == 2593107


async def test_old_chats_keep_their_ids_when_a_number_is_connected_again(
    graph: Graph, gateway: Gateway
) -> None:
    number = (await graph.control("POST", f"accounts/{WABA}/phone_numbers", {"coexistence": True}))["id"]
    sync = {"messaging_product": "whatsapp", "sync_type": "history"}

    def ids() -> list[str]:
        pieces = [change["value"]["history"] for change in gateway.changes if change["field"] == "history"]
        threads = [thread for piece in pieces for thread in piece[0]["threads"]]
        return [message["id"] for thread in threads for message in thread["messages"]]

    assert (await graph.call("POST", f"{number}/smb_app_data", json=sync))[0] == 200
    await until(lambda: len(ids()) == 7)
    await graph.control("POST", f"phone_numbers/{number}/events", {"event": "APP_REMOVED"})
    assert (await graph.call("POST", f"{number}/smb_app_data", json=sync))[0] == 200
    await until(lambda: len(ids()) == 14)
    assert len(set(ids())) == 7


async def test_settings_hold_no_credential(graph: Graph) -> None:
    calling = {"calling": {"status": "ENABLED"}}
    proof = {"appsecret_proof": graph.sim.state.proof(TOKEN), "access_token": TOKEN}
    assert (await graph.call("POST", f"{NUMBER}/settings", params=proof, json=calling))[0] == 200
    assert await graph.call("GET", f"{NUMBER}/settings") == (200, calling)


async def test_a_changed_pin_is_announced(graph: Graph, gateway: Gateway) -> None:
    assert await graph.call("POST", NUMBER, json={"pin": "222222"}) == (200, {"success": True})
    await until(lambda: gateway.bodies)
    assert gateway.changes[0] == {
        "value": {"display_phone_number": "919800000001", "event": "PIN_CHANGED"},
        "field": "security",
    }
    assert b'"time":' in gateway.bodies[0]
    assert (await register(graph, "222222"))[0] == 200


async def test_the_profile_is_kept(graph: Graph) -> None:
    path = f"{NUMBER}/whatsapp_business_profile"
    profile = {
        "messaging_product": "whatsapp",
        "about": "Open",
        "websites": ["https://e.x/"],
        "vertical": "RETAIL",
    }
    assert await graph.call("POST", path, json=profile) == (200, {"success": True})
    assert (await graph.call("GET", path))[1] == {"data": [profile]}
    _, body = await graph.call("GET", path, params={"fields": "about"})
    assert body == {"data": [{"messaging_product": "whatsapp", "about": "Open"}]}


@pytest.mark.parametrize(
    "change",
    [
        {"about": "x" * 140},
        {"websites": ["a", "b", "c"]},
        {"vertical": "X"},
        {"profile_picture_handle": "4::no"},
    ],
)
async def test_profiles_refused(graph: Graph, change: dict[str, Any]) -> None:
    body = {"messaging_product": "whatsapp", **change}
    status, answer = await graph.call("POST", f"{NUMBER}/whatsapp_business_profile", json=body)
    assert (status, answer["error"]["code"]) == (400, 100)


async def test_what_meta_would_change_can_be_changed(graph: Graph) -> None:
    await graph.control("PATCH", f"phone_numbers/{NUMBER}", {"quality_rating": "RED", "throughput": "HIGH"})
    _, body = await graph.call("GET", NUMBER, params={"fields": "quality_rating,throughput"})
    assert (body["quality_rating"], body["throughput"]) == ("RED", {"level": "HIGH"})


async def test_a_new_display_name_waits_for_its_review(graph: Graph) -> None:
    fields = {"fields": "verified_name,new_display_name,new_name_status"}
    before = (await graph.call("GET", NUMBER, params=fields))[1]
    assert "new_display_name" not in before
    status, body = await graph.call("POST", NUMBER, params={"new_display_name": "Lucky Shrub"})
    assert (status, body) == (200, {"success": True})
    after = (await graph.call("GET", NUMBER, params=fields))[1]
    assert after == before | {"new_display_name": "Lucky Shrub", "new_name_status": "PENDING_REVIEW"}


async def test_what_can_be_changed_of_a_number_can_be_changed_at_once(graph: Graph) -> None:
    changes = {
        "connection_status": "CONNECTED",
        "search_visibility": "VISIBLE",
        "username": "lucky_shrub",
        "whatsapp_business_api_data": {"pin": "222222", "show_security_notifications": True},
    }
    assert await graph.call("POST", NUMBER, json=changes) == (200, {"success": True})
    shown = (await graph.call("GET", NUMBER, params={"fields": "search_visibility,username,status"}))[1]
    assert (shown["search_visibility"], shown["username"], shown["status"]) == (
        "VISIBLE", "lucky_shrub", "CONNECTED",
    )  # fmt: skip
    assert (await register(graph, "222222"))[0] == 200
    for refused in ({}, {"search_visibility": "MAYBE"}, {"connection_status": "GONE"}, {"pin": "22"}):
        assert (await graph.call("POST", NUMBER, json=refused))[1]["error"]["code"] == 100
