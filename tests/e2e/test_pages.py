"""The commands of docs/sending.md and docs/platform-apps.md, in order, with the running service."""

from pathlib import Path

import pytest

from tests.e2e.conftest import Stack
from tests.e2e.reading import Reader
from tests.fixtures import wait_until

pytestmark = pytest.mark.e2e

JPEG = b"\xff\xd8\xff\xe0" + b"\0" * 64


def test_a_message_and_a_file_as_documented(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(JPEG)
    reader = Reader("docs/sending.md", stack, tmp_path)
    assert reader.run("/v1/messages")["messages"][0]["id"].startswith("wamid.")
    reader.environment["MEDIA_ID"] = reader.run("-F from")["id"]
    (tmp_path / "photo.jpg").unlink()
    reader.type("-o photo.jpg")
    assert (tmp_path / "photo.jpg").read_bytes() == JPEG
    assert reader.commands == []


def test_a_platform_creates_a_tenant_and_acts_on_it_as_documented(stack: Stack, tmp_path: Path) -> None:
    key = stack.platform_key("Platform of the page")
    reader = Reader("docs/platform-apps.md", stack, tmp_path)
    reader.environment["APP_KEY"] = key
    create = reader.commands[0]
    made = reader.run("/v1/tenants")
    assert (made["status"], made["external_ref"], made["sandbox"]) == ("active", "shop-17", True)
    reader.environment["TENANT_ID"] = made["id"]
    found = stack.api("GET", "/v1/tenants?external_ref=shop-17", key=key).json()["data"]
    assert [tenant["id"] for tenant in found] == [made["id"]]
    tenant = {"X-Service-Tenant": made["id"]}
    wait_until(
        lambda: '"connection_state":"connected"' in stack.api("GET", "/v1/numbers", key=key, **tenant).text,
        "its sandbox is made",
    )
    [number] = reader.run("X-Service-Tenant")["data"]
    assert number["connection_state"] == "connected"
    reader.commands.append(create)
    assert reader.answer("/v1/tenants")["error"]["code"] == "invalid_request"
    assert reader.commands == []
