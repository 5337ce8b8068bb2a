"""The control token: with it set, strangers reach the Graph API and the sign-up alone."""

import pytest
from aiohttp.test_utils import TestClient, TestServer

from simulator.app import make_app
from simulator.config import Config

TOKEN = "a-token-of-the-operator"


@pytest.mark.parametrize(
    "path",
    ["/", "/phone", "/sim/accounts", "/sim/settings", "/sim/requests", "/sim/inboxes", "/sim/payments"],
)
async def test_a_stranger_reaches_no_route_of_the_simulators_own(path: str) -> None:
    async with TestClient(TestServer(make_app(Config(control_token=TOKEN)))) as client:
        assert (await client.get(path)).status == 401
        wrong = await client.get(path, headers={"Authorization": "Bearer wrong"})
        assert wrong.status == 401
        right = await client.get(path, headers={"Authorization": f"Bearer {TOKEN}"})
        assert right.status == 200


async def test_what_the_gateway_and_browsers_need_stays_open() -> None:
    async with TestClient(TestServer(make_app(Config(control_token=TOKEN)))) as client:
        for path in ("/sim/health", "/sdk.js", "/embedded-signup"):
            assert (await client.get(path)).status == 200


async def test_without_a_token_all_is_open() -> None:
    async with TestClient(TestServer(make_app(Config()))) as client:
        assert (await client.get("/sim/accounts")).status == 200
