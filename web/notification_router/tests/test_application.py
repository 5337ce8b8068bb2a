"""The notification router: each cell gets the changes of its own accounts, and 200 means that every cell has its
part.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import orjson
import pytest
from aiohttp import web
from django.conf import settings

from messaging.notifications import incoming, signatures
from messaging.tests.incoming import notification, text_change
from tests.receiver import Received, Receiver
from web.notification_router import application
from web.notification_router.application import Router, RoutingTable

OF_A, OF_B, OF_NOBODY = (
    (waba_id, [text_change(f"2{waba_id}", f"wamid.{waba_id}")]) for waba_id in ("100", "101", "102")
)
WEBHOOK = "/upstream/webhook"
Result = TypeVar("Result")


@pytest.fixture
def table(tmp_path: Path, receiver: Receiver) -> RoutingTable:
    (tmp_path / "a.accounts").write_text("100\n")
    (tmp_path / "b.accounts").write_text("101\n")
    return RoutingTable(tmp_path, {name: f"{receiver.url}/{name}" for name in "ab"}, default="a")


def post(table: RoutingTable, body: bytes, *, secret: str | None = None) -> int:
    """The status of the router's answer to a signed notification."""
    return serving(table, lambda router: posted(router, body, secret=secret))


async def posted(router: Router, body: bytes, *, secret: str | None = None) -> int:
    header = signatures.sign(body, secret or settings.META_APP_SECRET).encode()
    return (await ask(router, "POST", WEBHOOK, b"", body, (b"x-hub-signature-256", header)))[0]


async def ask(
    router: Router,
    method: str,
    path: str,
    query: bytes = b"",
    body: bytes = b"",
    *headers: tuple[bytes, bytes],
) -> tuple[int, bytes]:
    """Status and body of a response."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    length = (b"content-length", b"%d" % len(body))
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query,
        "headers": [length, *headers],
    }
    await router(scope, receive, send)
    return sent[0]["status"], sent[1]["body"]


def serving(table: RoutingTable, asking: Callable[[Router], Awaitable[Result]]) -> Result:
    """Run a router together with its client, until both end."""

    async def run() -> Result:
        router = Router(table)
        async with router.running():
            return await asking(router)

    return asyncio.run(run())


def by_cell(receiver: Receiver) -> dict[str, Received]:
    found = {got.path.split("/")[2]: got for got in receiver.received}
    assert len(found) == len(receiver.received)
    for got in receiver.received:
        assert got.path.endswith("/upstream/webhook")
        assert signatures.verify(got.body, got.headers["X-Hub-Signature-256"], settings.META_APP_SECRET)
    return found


def accounts(got: Received) -> list[str]:
    return [entry["id"] for entry in orjson.loads(got.body)["entry"]]


def test_the_notification_of_one_cell_arrives_byte_for_byte(table: RoutingTable, receiver: Receiver) -> None:
    body = notification(OF_B).replace(b'": ', b'" :  ')
    assert post(table, body) == 200
    assert {cell: got.body for cell, got in by_cell(receiver).items()} == {"b": body}


def test_the_notification_of_two_cells_is_cut_and_the_rest_goes_to_the_default(
    table: RoutingTable, receiver: Receiver
) -> None:
    assert post(table, notification(OF_A, OF_B, OF_NOBODY)) == 200
    assert {cell: accounts(got) for cell, got in by_cell(receiver).items()} == {
        "a": ["100", "102"],
        "b": ["101"],
    }


def test_a_cell_that_does_not_take_its_part_makes_the_upstream_repeat_the_whole(
    table: RoutingTable, receiver: Receiver
) -> None:
    receiver.answer = lambda got: web.Response(status=503 if "/b/" in got.path else 200)
    assert post(table, notification(OF_A, OF_B)) == 503
    assert set(by_cell(receiver)) == {"a", "b"}


def test_a_cell_that_is_away_makes_the_upstream_repeat(tmp_path: Path, table: RoutingTable) -> None:
    away = RoutingTable(tmp_path, dict.fromkeys("ab", "http://127.0.0.1:9"), default="a")
    assert post(away, notification(OF_B)) == 503


def test_what_nobody_can_read_is_kept_by_the_default_cell(table: RoutingTable, receiver: Receiver) -> None:
    assert post(table, b'{"object": "whatsapp_business_account"') == 200
    assert set(by_cell(receiver)) == {"a"}
    receiver.received.clear()
    half = notification(OF_A, OF_B)[:-2] + b', {"id": "103", "changes": 7}]}'
    assert post(table, half) == 200
    found = by_cell(receiver)
    assert (found["a"].body, accounts(found["b"])) == (half, ["101"])


def test_a_wrong_signature_reaches_no_cell_and_the_challenge_is_answered(
    table: RoutingTable, receiver: Receiver
) -> None:
    assert post(table, notification(OF_A), secret="another") == 401
    token = settings.META_WEBHOOK_VERIFY_TOKEN
    query = f"hub.mode=subscribe&hub.verify_token={token}&hub.challenge=42".encode()
    assert serving(table, lambda router: ask(router, "GET", WEBHOOK, query)) == (200, b"42")
    wrong = query.replace(token.encode(), b"wrong")
    assert serving(table, lambda router: ask(router, "GET", WEBHOOK, wrong))[0] == 403
    assert receiver.received == []


def test_a_body_that_is_too_large_is_refused(
    table: RoutingTable, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incoming, "MAX_BODY_BYTES", 100)
    assert post(table, notification(OF_A)) == 413
    assert receiver.received == []


def test_routes_follow_the_files(table: RoutingTable, tmp_path: Path) -> None:
    assert (table.cell_of("100"), table.cell_of("101"), table.cell_of(None, "7")) == ("a", "b", "a")
    # The tenant of account 100 has moved to b; a has not rewritten its file yet.
    for name, text, moment in (("b", "100\n101\n", 2), ("a", "", 4)):
        path = tmp_path / f"{name}.accounts"
        path.write_text(text)
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime + moment))
        table.read()
        assert (table.cell_of("100"), table.cell_of("101")) == ("b", "b")


def test_what_is_no_notification_is_told_so(table: RoutingTable, receiver: Receiver) -> None:
    for method, path, status in (
        ("GET", "/v1/health/live", 200),
        ("HEAD", "/v1/health/live", 200),
        ("GET", "/v1/messages", 404),
        ("PUT", WEBHOOK, 405),
    ):
        assert serving(table, lambda router: ask(router, method, path))[0] == status  # noqa: B023
    assert receiver.received == []


def test_a_redirect_of_a_cell_is_not_followed(table: RoutingTable, receiver: Receiver) -> None:
    receiver.answer = lambda got: web.Response(status=307, headers={"Location": f"{receiver.url}/elsewhere"})
    assert post(table, notification(OF_B)) == 503
    assert set(by_cell(receiver)) == {"b"}


class Hanging:
    """Responses that do not arrive before the end of the test."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over = asyncio.Event()

    async def __call__(self, _: Received) -> web.StreamResponse:
        self._loop = asyncio.get_running_loop()
        await self._over.wait()
        return web.Response()

    def end(self) -> None:
        """Let them arrive."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._over.set)


@pytest.fixture
def never(receiver: Receiver) -> Iterator[Hanging]:
    hanging = Hanging()
    yield hanging
    hanging.end()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def test_a_hanging_cell_costs_only_its_own_notifications(
    table: RoutingTable, receiver: Receiver, never: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "ANSWER_SECONDS", 10.0)
    monkeypatch.setattr(application, "MOST_CALLS", 150)

    async def asking(router: Router) -> tuple[list[float], list[float]]:
        alone = [await took(router) for _ in range(100)]
        receiver.answer = lambda got: never(got) if "/b/" in got.path else web.Response()
        hanging = [asyncio.create_task(posted(router, notification(OF_B))) for _ in range(200)]
        await until(lambda: sum("/b/" in got.path for got in receiver.received) == 150)
        # Notifications beyond the limit are rejected at once, so that Meta repeats them.
        assert [task.result() for task in hanging if task.done()] == [503] * 50
        beside = [await took(router) for _ in range(100)]
        # A notification of both cells: the healthy one has its part at once, and Meta repeats the whole.
        assert await posted(router, notification(OF_A, OF_B)) == 503
        assert sum(task.done() for task in hanging) == 50
        assert "/a/" in receiver.received[-1].path
        for task in hanging:
            task.cancel()
        await asyncio.wait(hanging)
        receiver.answer = lambda _: web.Response()
        # Every call has released its place.
        again = await asyncio.gather(*(posted(router, notification(OF_B)) for _ in range(150)))
        assert again == [200] * 150
        return alone, beside

    async def took(router: Router) -> float:
        began = time.perf_counter()
        assert await posted(router, notification(OF_A)) == 200
        return time.perf_counter() - began

    alone, beside = serving(table, asking)
    # A busy machine delays some of them. Most are as quick as before, and none waits for the hanging cell.
    assert median(beside) <= max(1.5 * median(alone), 0.1)
    assert max(beside) < 5


def test_a_hanging_cell_holds_only_so_many_bytes(
    table: RoutingTable, receiver: Receiver, never: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "MOST_BYTES", 1_000_000)
    large = notification(OF_B).replace(b'": ', b'":' + b" " * 20_000)
    assert 300_000 < len(large) < 500_000

    async def asking(router: Router) -> None:
        receiver.answer = lambda got: never(got) if "/b/" in got.path else web.Response()
        hanging = [asyncio.create_task(posted(router, large)) for _ in range(2)]
        await until(lambda: len(receiver.received) == 2)
        assert await posted(router, large) == 503
        assert not any(task.done() for task in hanging)
        assert await posted(router, notification(OF_A)) == 200
        for task in hanging:
            task.cancel()
        await asyncio.wait(hanging)

    serving(table, asking)


def test_a_cell_that_does_not_answer_in_time_makes_the_upstream_repeat(
    table: RoutingTable, receiver: Receiver, never: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert application.ANSWER_SECONDS < 5, "the upstream gives up after 5 seconds or later"
    monkeypatch.setattr(application, "ANSWER_SECONDS", 0.2)
    receiver.answer = never
    began = time.monotonic()
    assert post(table, notification(OF_B)) == 503
    assert time.monotonic() - began < 10


def test_routes_that_cannot_be_read_stay_as_they_were(
    table: RoutingTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "REFRESH_SECONDS", 0.01)
    file = tmp_path / "b.accounts"

    async def asking(_: Router) -> None:
        file.write_bytes(b"\xff")
        os.utime(file, (1, 1))
        await asyncio.sleep(0.1)
        assert table.cell_of("101") == "b"
        file.write_text("101\n103\n")
        await until(lambda: table.cell_of("103") == "b")

    serving(table, asking)
