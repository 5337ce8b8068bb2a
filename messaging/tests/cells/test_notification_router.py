"""The notification router: each cell gets its own accounts' changes, and 200 means that every cell has its part."""

import asyncio
import os
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from django.conf import settings

from gateway.upstream.notifications import signature
from messaging.cells.notification_router import Router, Routes
from messaging.notifications import incoming
from messaging.tests.incoming import notification, text_change
from tests.receiver import Received, Receiver

OF_A, OF_B, OF_NOBODY = (
    (waba_id, [text_change(f"2{waba_id}", f"wamid.{waba_id}")]) for waba_id in ("100", "101", "102")
)


@pytest.fixture
def routes(tmp_path: Path, receiver: Receiver) -> Routes:
    (tmp_path / "a.accounts").write_text("100\n")
    (tmp_path / "b.accounts").write_text("101\n")
    return Routes(tmp_path, {name: f"{receiver.url}/{name}" for name in "ab"}, default="a")


def post(routes: Routes, body: bytes, *, secret: str | None = None) -> tuple[int, bytes]:
    """Status and body of the router's answer to a signed notification."""
    header = signature.sign(body, secret or settings.META_APP_SECRET).encode()
    return call(routes, "POST", b"", body, [(b"x-hub-signature-256", header)])


def call(
    routes: Routes, method: str, query: bytes, body: bytes, headers: list[tuple[bytes, bytes]]
) -> tuple[int, bytes]:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        sent.append(message)

    async def answered() -> None:
        router = Router(routes)
        async with router.running():
            scope = {"type": "http", "method": method, "query_string": query, "headers": headers}
            await router(scope, receive, send)

    asyncio.run(answered())
    return sent[0]["status"], sent[1]["body"]


def by_cell(receiver: Receiver) -> dict[str, Received]:
    found = {got.path.split("/")[2]: got for got in receiver.received}
    assert len(found) == len(receiver.received)
    for got in receiver.received:
        assert got.path.endswith("/upstream/webhook")
        assert signature.verify(got.body, got.headers["X-Hub-Signature-256"], settings.META_APP_SECRET)
    return found


def accounts(got: Received) -> list[str]:
    return [entry["id"] for entry in orjson.loads(got.body)["entry"]]


def test_the_notification_of_one_cell_arrives_byte_for_byte(routes: Routes, receiver: Receiver) -> None:
    body = notification(OF_B).replace(b'": ', b'" :  ')
    assert post(routes, body) == (200, b"")
    assert {cell: got.body for cell, got in by_cell(receiver).items()} == {"b": body}


def test_the_notification_of_two_cells_is_cut_and_the_rest_goes_to_the_default(
    routes: Routes, receiver: Receiver
) -> None:
    assert post(routes, notification(OF_A, OF_B, OF_NOBODY)) == (200, b"")
    assert {cell: accounts(got) for cell, got in by_cell(receiver).items()} == {
        "a": ["100", "102"],
        "b": ["101"],
    }


def test_a_cell_that_does_not_take_its_part_makes_the_upstream_repeat_the_whole(
    routes: Routes, receiver: Receiver
) -> None:
    receiver.answer = lambda got: web.Response(status=503 if "/b/" in got.path else 200)
    assert post(routes, notification(OF_A, OF_B)) == (503, b"")
    assert set(by_cell(receiver)) == {"a", "b"}


def test_a_cell_that_is_away_makes_the_upstream_repeat(tmp_path: Path, routes: Routes) -> None:
    away = Routes(tmp_path, dict.fromkeys("ab", "http://127.0.0.1:9"), default="a")
    assert post(away, notification(OF_B)) == (503, b"")


def test_what_nobody_can_read_is_kept_by_the_default_cell(routes: Routes, receiver: Receiver) -> None:
    assert post(routes, b'{"object": "whatsapp_business_account"') == (200, b"")
    assert set(by_cell(receiver)) == {"a"}
    receiver.received.clear()
    half = notification(OF_A, OF_B)[:-2] + b', {"id": "103", "changes": 7}]}'
    assert post(routes, half) == (200, b"")
    found = by_cell(receiver)
    assert (found["a"].body, accounts(found["b"])) == (half, ["101"])


def test_a_wrong_signature_reaches_no_cell_and_the_challenge_is_answered(
    routes: Routes, receiver: Receiver
) -> None:
    assert post(routes, notification(OF_A), secret="another")[0] == 401
    token = settings.META_WEBHOOK_VERIFY_TOKEN
    query = f"hub.mode=subscribe&hub.verify_token={token}&hub.challenge=42".encode()
    assert call(routes, "GET", query, b"", []) == (200, b"42")
    assert call(routes, "GET", query.replace(token.encode(), b"wrong"), b"", [])[0] == 403
    assert receiver.received == []


def test_a_body_that_is_too_large_is_refused(
    routes: Routes, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incoming, "MAX_BODY_BYTES", 100)
    assert post(routes, notification(OF_A))[0] == 413
    assert receiver.received == []


def test_routes_follow_the_files(routes: Routes, tmp_path: Path) -> None:
    assert (routes.cell_of("100"), routes.cell_of("101"), routes.cell_of(None, "7")) == ("a", "b", "a")
    # The tenant of 100 has moved to b; a has not written its part anew.
    for name, text, moment in (("b", "100\n101\n", 2), ("a", "", 4)):
        path = tmp_path / f"{name}.accounts"
        path.write_text(text)
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime + moment))
        routes.read()
        assert (routes.cell_of("100"), routes.cell_of("101")) == ("b", "b")
