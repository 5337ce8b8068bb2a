"""Media: upload, info, download, deletion, and resumable uploads."""

import base64
import hashlib
import io
from functools import partial
from typing import Any

import pytest
from aiohttp import FormData

from simulator import media_urls
from simulator.tests.conftest import CUSTOMER, NUMBER, TOKEN, WABA, Gateway, Graph, until
from simulator.world import media_store, state


def form(data: bytes = b"\xff\xd8jpeg", mime: str = "image/jpeg", **values: str) -> FormData:
    built = FormData()
    for name, value in {"messaging_product": "whatsapp", "type": mime, **values}.items():
        built.add_field(name, value)
    built.add_field("file", io.BytesIO(data), filename="a.bin", content_type=mime)
    return built


async def upload(graph: Graph, **values: Any) -> str:
    status, body = await graph.call("POST", f"{NUMBER}/media", data=form(**values))
    assert status == 200, body
    return str(body["id"])


async def test_what_is_uploaded_comes_back(graph: Graph) -> None:
    data = bytes(range(256)) * 4000
    media_id = await upload(graph, data=data)
    status, info = await graph.call("GET", media_id, params={"phone_number_id": NUMBER})
    assert status == 200
    assert info["sha256"] == hashlib.sha256(data).hexdigest()
    assert (info["file_size"], info["mime_type"], info["id"]) == (str(len(data)), "image/jpeg", media_id)
    path = info["url"].removeprefix(graph.sim.config.base_url)
    async with graph.client.get(path, headers={"Authorization": f"Bearer {TOKEN}"}) as response:
        assert response.status == 200
        assert response.headers["Content-Type"] == "image/jpeg"
        assert response.content_length == len(data)
        assert "a.bin" in response.headers["Content-Disposition"]
        assert await response.read() == data
    assert await graph.call("DELETE", media_id) == (200, {"success": True})
    assert (await graph.call("GET", media_id))[1]["error"]["error_subcode"] == 33


async def test_the_url_needs_token_signature_and_time(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    media_id = await upload(graph)
    other = (await graph.control("POST", "accounts", {}))["access_token"]

    async def status(url: str, token: str | None) -> int:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with graph.client.get(url.removeprefix(graph.sim.config.base_url), headers=headers) as response:
            return int(response.status)

    url = (await graph.call("GET", media_id))[1]["url"]
    assert await status(url, TOKEN) == 200
    assert await status(url, None) == 401
    assert await status(url, other) == 404
    assert await status(url.replace("hash=AT", "hash=AX"), TOKEN) == 404
    monkeypatch.setattr(media_urls, "URL_SECONDS", -1)
    url = (await graph.call("GET", media_id))[1]["url"]
    assert await status(url, TOKEN) == 404


async def test_media_belong_to_an_account(graph: Graph) -> None:
    media_id = await upload(graph)
    other = await graph.control("POST", "accounts", {})
    assert (await graph.call("GET", media_id, token=other["access_token"]))[0] == 400
    asked = {"phone_number_id": other["phone_numbers"][0]["id"]}
    assert (await graph.call("GET", media_id, params=asked))[0] == 400


@pytest.mark.parametrize(
    ("size", "mime", "code"),
    [
        (1, "image/gif", 100),
        (1, "text/csv", 100),
        (1, "application/zip", 100),
        (1, "application/octet-stream", 100),
        (5 * 1024 * 1024 + 1, "image/png", 131053),
        (500 * 1024 + 1, "image/webp", 131053),
    ],
)
async def test_files_refused(graph: Graph, size: int, mime: str, code: int) -> None:
    status, body = await graph.call("POST", f"{NUMBER}/media", data=form(data=b"x" * size, mime=mime))
    assert (status, body["error"]["code"]) == (400, code)


async def test_a_form_without_its_parts_is_refused(graph: Graph) -> None:
    assert (await graph.call("POST", f"{NUMBER}/media", json={}))[1]["error"]["code"] == 100
    data = form(messaging_product="x")
    assert (await graph.call("POST", f"{NUMBER}/media", data=data))[1]["error"]["code"] == 100


async def test_a_customers_picture_can_be_fetched(graph: Graph, gateway: Gateway) -> None:
    picture = {"data": base64.b64encode(b"picture").decode(), "mime_type": "image/jpeg", "caption": "Look"}
    body = {"phone_number_id": NUMBER, "from": CUSTOMER, "type": "image", "image": picture}
    await graph.control("POST", "inbound", body)
    await until(lambda: gateway.bodies)
    image = gateway.changes[0]["value"]["messages"][0]["image"]
    assert image["caption"] == "Look"
    assert base64.b64decode(image["sha256"]) == hashlib.sha256(b"picture").digest()
    path = image["url"].removeprefix(graph.sim.config.base_url)
    async with graph.client.get(path, headers={"Authorization": f"Bearer {TOKEN}"}) as response:
        assert await response.read() == b"picture"
    assert (await graph.call("GET", image["id"]))[1]["mime_type"] == "image/jpeg"
    status, refused = await graph.call("GET", image["id"], params={"phone_number_id": NUMBER})
    assert (status, refused["error"]["code"], "error_subcode" in refused["error"]) == (400, 100, False)


async def session(graph: Graph, length: int, kind: str = "image/jpeg") -> str:
    params = {"file_name": "a.jpg", "file_length": str(length), "file_type": kind}
    status, body = await graph.call("POST", f"{graph.sim.config.app_id}/uploads", params=params)
    assert status == 200, body
    return str(body["id"])


async def put(graph: Graph, upload_id: str, data: bytes, offset: int) -> tuple[int, dict[str, Any]]:
    headers = {"Authorization": f"OAuth {TOKEN}", "file_offset": str(offset)}
    async with graph.client.post(f"/v25.0/{upload_id}", data=data, headers=headers) as response:
        return response.status, await response.json()


async def test_an_upload_in_a_session_gives_a_handle(graph: Graph) -> None:
    upload_id = await session(graph, 6)
    assert upload_id.startswith("upload:")
    assert (await put(graph, upload_id, b"abc", 0))[0] == 400
    _, body = await graph.call("GET", upload_id)
    assert body["file_offset"] == 3
    status, body = await put(graph, upload_id, b"def", 3)
    assert status == 200
    assert body["h"].startswith("4::")
    profile = {"messaging_product": "whatsapp", "profile_picture_handle": body["h"]}
    assert (await graph.call("POST", f"{NUMBER}/whatsapp_business_profile", json=profile))[0] == 200
    _, answer = await graph.call("GET", f"{NUMBER}/whatsapp_business_profile")
    path = answer["data"][0]["profile_picture_url"].removeprefix(graph.sim.config.base_url)
    async with graph.client.get(path) as response:
        assert await response.read() == b"abcdef"


async def test_sessions_refused(graph: Graph) -> None:
    path = f"{graph.sim.config.app_id}/uploads"
    for params in (
        {"file_length": "0", "file_type": "image/jpeg"},
        {"file_length": "5", "file_type": "text/html"},
    ):
        assert (await graph.call("POST", path, params=params))[1]["error"]["code"] == 100
    upload_id = await session(graph, 3)
    assert (await put(graph, upload_id, b"abcd", 0))[0] == 400
    assert (await put(graph, upload_id.split("?")[0], b"abc", 0))[0] == 400
    assert (await graph.call("POST", f"{WABA}/uploads", params={}))[0] == 400


async def test_a_message_takes_only_media_that_its_number_has(graph: Graph) -> None:
    media_id = await upload(graph)
    assert (await graph.send(type="image", image={"id": media_id}))[0] == 200
    assert await graph.call("DELETE", media_id) == (200, {"success": True})
    for gone in (media_id, "1"):
        status, body = await graph.send(type="image", image={"id": gone})
        assert (status, body["error"]["code"]) == (400, 100)
        assert "not a valid whatsapp business account media attachment ID" in body["error"]["message"]


async def test_executables_are_refused(graph: Graph) -> None:
    named = FormData()
    named.add_field("messaging_product", "whatsapp")
    named.add_field("file", io.BytesIO(b"MZ"), filename="setup.EXE", content_type="application/octet-stream")
    for built in (named, form(b"MZ", "application/x-msdownload")):
        status, body = await graph.call("POST", f"{NUMBER}/media", data=built)
        assert (status, body["error"]["code"]) == (400, 100)


async def test_a_file_in_a_header_is_checked_too(graph: Graph) -> None:
    button = {"type": "reply", "reply": {"id": "a", "title": "A"}}
    for media_id, expected in ((await upload(graph), 200), ("1", 400)):
        interactive = {
            "type": "button",
            "header": {"type": "image", "image": {"id": media_id}},
            "body": {"text": "Which?"},
            "action": {"buttons": [button]},
        }
        status, _ = await graph.send(type="interactive", interactive=interactive)
        assert status == expected


@pytest.mark.parametrize(
    ("kind", "mime", "fails"),
    [
        ("image", "image/png", False),
        ("image", "application/pdf", True),
        ("image", "image/webp", True),
        ("sticker", "image/webp", False),
        ("sticker", "image/png", True),
        ("audio", "audio/ogg; codecs=opus", False),
        ("audio", "audio/opus", False),
        ("audio", "video/mp4", True),
        ("video", "video/3gpp", False),
        ("document", "image/png", False),
    ],
)
async def test_a_file_of_the_wrong_type_fails_after_the_200(
    graph: Graph, gateway: Gateway, kind: str, mime: str, fails: bool
) -> None:
    await graph.control("PUT", "settings", {"preset": "instant"})
    status, body = await graph.send(type=kind, **{kind: {"id": await upload(graph, mime=mime)}})
    assert status == 200
    wamid = body["messages"][0]["id"]
    await until(lambda: gateway.statuses(wamid) == ["failed"] if fails else "read" in gateway.statuses(wamid))
    if fails:
        (error,) = gateway.changes[0]["value"]["statuses"][0]["errors"]
        assert error["code"] == 131053
        assert mime in error["error_data"]["details"]


@pytest.mark.parametrize(
    ("kind", "link", "fails"),
    [
        ("image", "https://shop.example/a.png?x=1", False),
        ("image", "https://shop.example/picture", False),
        ("image", "https://shop.example/a.webp", True),
        ("sticker", "https://shop.example/a.png", True),
        ("video", "https://shop.example/a.MOV", True),
        ("audio", "https://shop.example/a.mp4", False),
        ("document", "https://localhost/a.pdf", True),
        ("document", "https://shop.example/a.pdf", False),
    ],
)
async def test_a_link_to_a_wrong_or_unreachable_file_fails_after_the_200(
    graph: Graph, gateway: Gateway, kind: str, link: str, fails: bool
) -> None:
    status, body = await graph.send(type=kind, **{kind: {"link": link}})
    assert status == 200
    wamid = body["messages"][0]["id"]
    await until(lambda: gateway.statuses(wamid))
    assert (gateway.statuses(wamid) == ["failed"]) is fails
    if fails:
        (error,) = gateway.changes[0]["value"]["statuses"][0]["errors"]
        assert error["code"] == 131053


async def test_an_account_that_uploads_much_drops_its_own_files(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(media_store, "MOST_BYTES_OF_ACCOUNT", 2_000)
    other = await graph.control("POST", "accounts", {"access_token": "EAAother"})
    number = other["phone_numbers"][0]["id"]
    _, body = await graph.call("POST", f"{number}/media", data=form(b"x" * 900), token="EAAother")
    first, second, third = [await upload(graph, data=b"x" * 900) for _ in range(3)]
    assert (await graph.call("GET", first))[0] == 400
    assert [(await graph.call("GET", kept))[0] for kept in (second, third)] == [200, 200]
    assert (await graph.call("GET", body["id"], token="EAAother"))[0] == 200


async def test_sessions_of_an_account_are_bounded_in_bytes(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit counts the announced lengths of the sessions, not the received bytes."""
    monkeypatch.setattr(state, "MOST_UPLOAD_BYTES_OF_ACCOUNT", 2_000)
    await graph.control("POST", "accounts", {"access_token": "EAAother"})
    asked = {"file_length": "900", "file_type": "image/png"}
    begin = partial(graph.call, "POST", f"{graph.sim.config.app_id}/uploads", params=asked)
    foreign = (await begin(token="EAAother"))[1]["id"]
    first, second, third = [(await begin())[1]["id"] for _ in range(3)]
    assert (await graph.call("GET", first))[0] == 400
    assert [(await graph.call("GET", kept))[0] for kept in (second, third)] == [200, 200]
    assert (await graph.call("GET", foreign, token="EAAother"))[0] == 200
    monkeypatch.setattr(state, "MOST_UPLOAD_BYTES", 2_000)
    last = (await begin())[1]["id"]
    found = [(await graph.call("GET", session))[0] for session in (second, third, last)]
    assert found == [400, 400, 200]
    assert (await graph.call("GET", foreign, token="EAAother"))[0] == 200, "the largest account drops its own"


async def test_an_account_with_many_sessions_drops_only_its_own(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "UPLOADS_KEPT", 2)
    await graph.control("POST", "accounts", {"access_token": "EAAother"})
    asked = {"file_length": "1", "file_type": "image/png"}
    begin = partial(graph.call, "POST", f"{graph.sim.config.app_id}/uploads", params=asked)
    foreign = (await begin(token="EAAother"))[1]["id"]
    own = [(await begin())[1]["id"] for _ in range(3)]
    assert [(await graph.call("GET", session))[0] for session in own] == [400, 200, 200]
    assert (await graph.call("GET", foreign, token="EAAother"))[0] == 200


async def test_the_largest_account_drops_its_files_for_those_of_others(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(media_store, "MOST_BYTES", 2_000)
    other = await graph.control("POST", "accounts", {"access_token": "EAAother"})
    path = f"{other['phone_numbers'][0]['id']}/media"
    _, body = await graph.call("POST", path, data=form(b"x" * 500), token="EAAother")
    first, second = [await upload(graph, data=b"x" * 900) for _ in range(2)]
    assert [(await graph.call("GET", each))[0] for each in (first, second)] == [400, 200]
    assert (await graph.call("GET", body["id"], token="EAAother"))[0] == 200
