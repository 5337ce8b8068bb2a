"""Accounts, their numbers and the app's subscription."""

from simulator.tests.conftest import NUMBER, WABA, Gateway, Graph, until


async def test_fields_are_selected(graph: Graph) -> None:
    status, body = await graph.call("GET", WABA, params={"fields": "name,owner_business_info{id},currency"})
    assert status == 200
    assert set(body) == {"id", "name", "owner_business_info", "currency"}
    status, body = await graph.call("GET", WABA, params={"fields": "name,nonsense"})
    assert body["error"]["message"] == "(#100) Tried accessing nonexisting field (nonsense)"


async def test_numbers_are_paged_by_cursor(graph: Graph) -> None:
    for _ in range(4):
        await graph.control("POST", f"accounts/{WABA}/phone_numbers", {})
    seen: list[str] = []
    params = {"limit": "2", "fields": "id"}
    while True:
        _, body = await graph.call("GET", f"{WABA}/phone_numbers", params=params)
        seen += [row["id"] for row in body["data"]]
        if "next" not in body["paging"]:
            break
        assert body["paging"]["next"].startswith(graph.sim.config.base_url)
        params["after"] = body["paging"]["cursors"]["after"]
    assert seen == graph.sim.state.accounts[WABA].numbers
    assert len(seen) == 5
    for bogus in ("bogus", "bögus", "\x00"):
        status, body = await graph.call("GET", f"{WABA}/phone_numbers", params={"after": bogus})
        assert (status, body["error"]["code"]) == (400, 131059)


async def test_management_answers_carry_usage(graph: Graph) -> None:
    async with graph.client.get(
        f"/v25.0/{WABA}", headers={"Authorization": "Bearer EAAsimTOKEN123"}
    ) as response:
        assert WABA in response.headers["X-Business-Use-Case-Usage"]


async def test_subscribing_and_overriding(graph: Graph, gateway: Gateway) -> None:
    override = gateway.url.replace("/upstream/webhook", "/override")
    wanted = {"override_callback_uri": override, "verify_token": "sim-verify-token"}
    await graph.call("DELETE", f"{WABA}/subscribed_apps")
    assert (await graph.call("GET", f"{WABA}/subscribed_apps"))[1] == {"data": []}
    status, body = await graph.call("POST", f"{WABA}/subscribed_apps", json=wanted)
    assert (status, body["error"]["code"]) == (400, 100)
    assert (await graph.call("POST", f"{WABA}/subscribed_apps")) == (200, {"success": True})
    assert (await graph.call("POST", f"{WABA}/subscribed_apps", data=wanted)) == (200, {"success": True})
    _, body = await graph.call("GET", f"{WABA}/subscribed_apps")
    assert body["data"][0]["override_callback_uri"] == override
    assert body["data"][0]["whatsapp_business_api_data"]["id"] == graph.sim.config.app_id
    value = {"metadata": {"phone_number_id": NUMBER}}
    assert graph.sim.notifier.callback_for(WABA, "messages", value) == override
    assert graph.sim.notifier.callback_for(WABA, "account_update", value) == gateway.url
    await graph.call("POST", f"{WABA}/subscribed_apps")
    assert graph.sim.notifier.callback_for(WABA, "messages", value) == gateway.url


async def test_an_override_that_fails_its_check_is_refused(graph: Graph, gateway: Gateway) -> None:
    override = gateway.url.replace("/upstream/webhook", "/override")
    wanted = {"override_callback_uri": override, "verify_token": "wrong"}
    status, body = await graph.call("POST", f"{WABA}/subscribed_apps", json=wanted)
    assert (status, body["error"]["code"]) == (400, 2200)
    status, body = await graph.call(
        "POST",
        NUMBER,
        json={"webhook_configuration": {"override_callback_uri": override, "verify_token": "wrong"}},
    )
    assert (status, body["error"]["code"]) == (400, 2200)


async def test_the_numbers_override_wins(graph: Graph, gateway: Gateway) -> None:
    override = gateway.url.replace("/upstream/webhook", "/override")
    config = {"override_callback_uri": override, "verify_token": "sim-verify-token"}
    assert (await graph.call("POST", NUMBER, json={"webhook_configuration": config}))[0] == 200
    _, body = await graph.call("GET", NUMBER, params={"fields": "webhook_configuration"})
    assert body["webhook_configuration"]["phone_number"] == override
    await graph.send()
    await until(lambda: gateway.bodies)
    config = {"override_callback_uri": "", "verify_token": ""}
    assert (await graph.call("POST", NUMBER, json={"webhook_configuration": config}))[0] == 200
    assert graph.sim.state.numbers[NUMBER].override_callback_uri is None


async def test_the_apps_subscription(graph: Graph, gateway: Gateway) -> None:
    path, token = f"{graph.sim.config.app_id}/subscriptions", graph.app_token
    wanted = {
        "object": "whatsapp_business_account",
        "callback_url": gateway.url,
        "verify_token": "sim-verify-token",
        "fields": "messages",
    }
    assert (await graph.call("POST", path, token=token, data=wanted))[0] == 200
    status, body = await graph.call("POST", path, token=token, data={**wanted, "fields": "nonsense"})
    assert (status, body["error"]["code"]) == (400, 100)
    assert (await graph.call("POST", path, token=token, data={**wanted, "fields": "security"}))[0] == 200
    _, body = await graph.call("GET", path, token=token)
    assert [field["name"] for field in body["data"][0]["fields"]] == ["messages", "security"]
    await graph.control("POST", "notify", {"waba_id": WABA, "field": "flows", "value": {}})
    await graph.control(
        "POST", "notify", {"waba_id": WABA, "field": "security", "value": {"event": "PIN_CHANGED"}}
    )
    await until(lambda: gateway.bodies)
    assert [change["field"] for change in gateway.changes] == ["security"]
    assert (await graph.call("DELETE", path, token=token))[0] == 200


async def test_adding_a_number(graph: Graph) -> None:
    body = {"cc": "91", "phone_number": "98000 00099", "verified_name": "Shop two"}
    status, answer = await graph.call("POST", f"{WABA}/phone_numbers", json=body)
    assert status == 200
    fields = "status,platform_type,code_verification_status,display_phone_number"
    _, number = await graph.call("GET", answer["id"], params={"fields": fields})
    assert number == {
        "id": answer["id"],
        "status": "PENDING",
        "platform_type": "NOT_APPLICABLE",
        "code_verification_status": "NOT_VERIFIED",
        "display_phone_number": "+91 98000 00099",
    }
    status, again = await graph.call("POST", f"{WABA}/phone_numbers", json=body)
    assert (status, again["error"]["error_subcode"]) == (400, 2388012)


async def test_migrating_a_number(graph: Graph) -> None:
    source = await graph.control(
        "POST", "accounts", {"numbers": [{"display_phone_number": "+91 98000 00077", "pin": "123456"}]}
    )
    body = {"cc": "91", "phone_number": "9800000077", "migrate_phone_number": True}
    status, answer = await graph.call("POST", f"{WABA}/phone_numbers", json=body)
    assert (status, answer["error"]["error_subcode"]) == (400, 2388103)
    old = source["phone_numbers"][0]["id"]
    await graph.control("PATCH", f"phone_numbers/{old}", {"pin": None})
    _, answer = await graph.call("POST", f"{WABA}/phone_numbers", json=body)
    new = answer["id"]
    assert graph.sim.state.numbers[old].registered
    register = {"messaging_product": "whatsapp", "pin": "111111"}
    _, refused = await graph.call("POST", f"{new}/register", json=register)
    assert refused["error"]["code"] == 133006
    await graph.call("POST", f"{new}/request_code", data={"code_method": "SMS", "language": "en"})
    _, wrong = await graph.call("POST", f"{new}/verify_code", data={"code": "x"})
    assert wrong["error"]["code"] == 136025
    account = await graph.control("GET", f"accounts/{WABA}")
    code = account["phone_numbers"][-1]["verification_code"]
    assert (await graph.call("POST", f"{new}/verify_code", data={"code": code}))[0] == 200
    assert (await graph.call("POST", f"{new}/register", json=register))[0] == 200
    assert graph.sim.state.numbers[new].registered
    assert graph.sim.state.numbers[old].status == "MIGRATED"
