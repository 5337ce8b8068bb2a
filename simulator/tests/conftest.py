"""Fixtures: a simulator in this process with a real socket, and a receiver in place of the gateway."""

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from simulator.app import make_app
from simulator.config import Config
from simulator.parts import SIMULATOR, Simulator

WABA = "100200300400500"
NUMBER = "200300400500600"
TOKEN = "EAAsimTOKEN123"
CUSTOMER = "919812345678"


async def until(condition: Callable[[], Any], seconds: float = 30.0) -> Any:
    """Wait until the condition is true. Returns its value."""
    end = asyncio.get_running_loop().time() + seconds
    while not (value := condition()):
        assert asyncio.get_running_loop().time() < end, "the condition never came true"
        await asyncio.sleep(0.005)
    return value


class Gateway:
    """Receives notifications, checks their signature, answers with `status`."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.status = 200
        self.url = ""
        self.verify_token = "sim-verify-token"

    async def post(self, request: web.Request) -> web.Response:
        body = await request.read()
        mac = hmac.new(Config().app_secret.encode(), body, hashlib.sha256).hexdigest()
        assert request.headers["X-Hub-Signature-256"] == f"sha256={mac}"
        assert request.headers["User-Agent"] == "facebookexternalua"
        self.bodies.append(body)
        return web.Response(status=self.status)

    async def verify(self, request: web.Request) -> web.Response:
        if request.query["hub.verify_token"] != self.verify_token:
            return web.Response(status=403)
        return web.Response(text=request.query["hub.challenge"])

    @property
    def changes(self) -> list[dict[str, Any]]:
        """Every change of every notification so far."""
        return [
            change
            for body in self.bodies
            for entry in json.loads(body)["entry"]
            for change in entry["changes"]
        ]

    def statuses(self, message_id: str) -> list[str]:
        """The statuses that arrived for a message, in order of arrival."""
        return [
            item["status"]
            for change in self.changes
            for item in change["value"].get("statuses", ())
            if item["id"] == message_id
        ]


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    receiver = Gateway()
    app = web.Application(client_max_size=2**24)
    app.router.add_post("/upstream/webhook", receiver.post)
    app.router.add_post("/override", receiver.post)
    app.router.add_get("/override", receiver.verify)
    app.router.add_get("/upstream/webhook", receiver.verify)
    server = TestServer(app)
    await server.start_server()
    receiver.url = str(server.make_url("/upstream/webhook"))
    yield receiver
    await server.close()


class Graph:
    """A client of the simulator: Graph calls with the seeded token, control calls without."""

    def __init__(self, client: TestClient[Any, Any], sim: Simulator) -> None:
        self.client = client
        self.sim = sim
        self.app_token = f"{sim.config.app_id}|{sim.config.app_secret}"

    async def call(
        self, method: str, path: str, *, token: str | None = TOKEN, **options: Any
    ) -> tuple[int, dict[str, Any]]:
        """Make a Graph call. Returns the status and the JSON body."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self.client.request(method, f"/v25.0/{path}", headers=headers, **options) as response:
            return response.status, await response.json()

    async def send(self, **body: Any) -> tuple[int, dict[str, Any]]:
        """Send a message from the seeded number. The default is a text to the usual customer."""
        body = {"messaging_product": "whatsapp", "to": CUSTOMER, **body}
        if "type" not in body:
            body.update(type="text", text={"body": "Hello"})
        return await self.call("POST", f"{NUMBER}/messages", json=body)

    async def control(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Make a control call, which must succeed. Returns the JSON body."""
        async with self.client.request(method, f"/sim/{path}", json=body) as response:
            assert response.status < 300, await response.text()
            return dict(await response.json())


@pytest.fixture
async def graph(gateway: Gateway) -> AsyncIterator[Graph]:
    """A simulator with one subscribed account, one number and one token. It sends statuses without delay."""
    config = Config(callback_url=gateway.url)
    app = make_app(config)
    client = TestClient(TestServer(app))
    await client.start_server()
    config.base_url = str(client.make_url("")).rstrip("/")
    graph = Graph(client, app[SIMULATOR])
    # Most tests send texts although no customer has written. Tests of the 24-hour window turn the rule on.
    await graph.control("PUT", "settings", {"preset": "instant", "recipients": {"window": False}})
    await graph.control(
        "POST",
        "accounts",
        {
            "name": "Shop",
            "waba_id": WABA,
            "subscribed": True,
            "access_token": TOKEN,
            "numbers": [{"phone_number_id": NUMBER, "display_phone_number": "+91 98000 00001"}],
        },
    )
    yield graph
    await client.close()
