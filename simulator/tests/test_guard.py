"""The control token. When it is set, every route outside of the Graph API requires it. The Graph API still accepts
accounts' tokens.
"""

import pytest
from aiohttp.test_utils import TestClient, TestServer

from simulator.app import make_app
from simulator.config import Config
from simulator.parts import SIMULATOR

TOKEN = "a-token-of-the-operator"


def registered() -> list[tuple[str, str]]:
    """Method and path of every route except the Graph API's."""
    routes = make_app(Config()).router.routes()
    found = {(route.method, route.resource.canonical) for route in routes if route.resource is not None}
    return sorted(
        (method, path.replace("{", "").replace("}", ""))
        for method, path in found
        if method != "*" and path not in {"/sim/health", "/whatsapp_business/attachments/"}
    )


async def test_a_stranger_reaches_no_route() -> None:
    async with TestClient(TestServer(make_app(Config(control_token=TOKEN)))) as client:
        for method, path in registered():
            for headers in ({}, {"Authorization": "Bearer wrong"}):
                async with client.request(method, path, headers=headers) as answer:
                    assert answer.status == 401, (method, path)


@pytest.mark.parametrize(
    "path", ["/", "/phone", "/sim/accounts", "/sim/settings", "/sim/payments", "/sdk.js"]
)
async def test_the_operator_reaches_all(path: str) -> None:
    async with TestClient(TestServer(make_app(Config(control_token=TOKEN)))) as client:
        assert (await client.get(path, headers={"Authorization": f"Bearer {TOKEN}"})).status == 200


async def test_the_graph_api_and_its_files_take_an_accounts_token() -> None:
    app = make_app(Config(control_token=TOKEN))
    async with TestClient(TestServer(app)) as client:
        assert (await client.get("/sim/health")).status == 200
        control = {"Authorization": f"Bearer {TOKEN}"}
        made = await (await client.post("/sim/accounts", json={"numbers": 1}, headers=control)).json()
        number = made["phone_numbers"][0]["id"]
        said = {"phone_number_id": number, "from": "919812345678", "type": "image"}
        wamid = (await (await client.post("/sim/inbound", json=said, headers=control)).json())["id"]
        url = app[SIMULATOR].state.messages[wamid].body["image"]["url"]
        path = url.removeprefix(app[SIMULATOR].config.base_url)
        for at in (f"/v25.0/{number}", path):
            assert (await client.get(at)).status == 401
            headers = {"Authorization": f"Bearer {made['access_token']}"}
            assert (await client.get(at, headers=headers)).status == 200


async def test_without_a_token_all_is_open() -> None:
    async with TestClient(TestServer(make_app(Config()))) as client:
        assert (await client.get("/sim/accounts")).status == 200
