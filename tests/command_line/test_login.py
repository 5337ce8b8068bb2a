"""`whabuzz login`, `whoami` and `logout`: a member confirms a key, the command stores it, and a log-out ends it."""

import importlib
import json
import stat
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import keyring
import keyring.errors
import pytest
from django.test import Client
from keyring.backend import KeyringBackend

from tenants import device_login
from tenants.credentials import key_cache
from tenants.models import ApiKey, DeviceLogin, Tenant, User
from tests.command_line.conftest import BASE_URL, CommandLine

pytestmark = pytest.mark.django_db


class InMemory(KeyringBackend):
    """A keyring for this test."""

    priority = 1.0  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        if self.kept.pop((service, username), None) is None:
            raise keyring.errors.PasswordDeleteError


@pytest.fixture
def in_memory() -> Iterator[InMemory]:
    before = keyring.get_keyring()
    backend = InMemory()
    keyring.set_keyring(backend)
    yield backend
    keyring.set_keyring(before)


class Person(CommandLine):
    """A command line whose user decides on the confirmation page as soon as the command starts to wait."""

    decision: dict[str, str] = {"environment": "test"}
    browser: Client

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if len(self.slept) == 2:
            code = device_login.shown(DeviceLogin.objects.get().user_code)
            self.browser.post("/console/device", {"code": code, **self.decision})


@pytest.fixture
def laptop(stranger: CommandLine, tenant: Tenant) -> Person:
    laptop = Person(stranger.home, stranger.transport)
    laptop.browser = Client()
    laptop.browser.force_login(User.objects.create_user("a@traders.example", "pw", tenant=tenant))
    return laptop


LOGIN = ("login", "--base-url", f"{BASE_URL}/", "--no-browser")


def test_from_nothing_to_a_key_and_back(laptop: Person, tenant: Tenant) -> None:
    assert "You are not logged in" in laptop("whoami").stderr
    done = laptop(*LOGIN, "--no-keyring", "--json")
    assert done.status == 0, done.stderr
    code = device_login.shown(DeviceLogin.objects.get().user_code)
    assert f"Your code is {code}" in done.stderr
    assert f"/console/device?code={code}" in done.stderr
    assert laptop.slept == [3, 3], "it asks as often as the service says"
    key = ApiKey.objects.get()
    assert done.json["tenant_name"] == tenant.name
    assert done.json["prefix"] == key.prefix
    assert "key" not in done.json
    assert laptop("whoami", "--json").json == {
        "tenant_id": str(tenant.id),
        "name": tenant.name,
        "environment": "test",
        "base_url": BASE_URL,
        "prefix": key.prefix,
        "kept_in": "file",
    }
    assert laptop("logout").status == 0
    key.refresh_from_db()
    assert key.revoked_at is not None
    assert laptop("whoami").status == 1


def test_a_key_that_cannot_be_revoked_stays(laptop: Person) -> None:
    laptop(*LOGIN, "--no-keyring")
    key = ApiKey.objects.get()
    key.scopes = ["messages", "settings"]
    key.save()
    key_cache.write_key(key)
    refused = laptop("logout")
    assert (refused.status, "403 forbidden" in refused.stderr) == (1, True)
    assert laptop("whoami").status == 0
    key.revoked_at = key.created_at
    key.save()
    key_cache.write_key(key)
    assert laptop("logout").output == f"Logged out: {key.prefix}… was not valid any more.\n"
    assert "You are not logged in" in laptop("whoami").stderr


def test_the_file_is_for_its_owner_alone(laptop: Person) -> None:
    laptop(*LOGIN, "--no-keyring")
    file = laptop.home / "profiles.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(laptop.home.stat().st_mode) == 0o700
    assert [path.name for path in laptop.home.iterdir()] == ["profiles.json"]
    file.chmod(0o644)
    assert "chmod 600" in laptop("whoami").stderr


def test_a_keyring_keeps_the_key(laptop: Person, in_memory: InMemory) -> None:
    assert laptop(*LOGIN).status == 0
    assert "wb_test_" not in (laptop.home / "profiles.json").read_text()
    [kept] = in_memory.kept.values()
    assert kept.startswith("wb_test_")
    assert laptop("whoami", "--json").json["kept_in"] == "keyring"
    laptop("logout")
    assert in_memory.kept == {}


def test_a_keyring_that_does_not_open_is_passed_by(laptop: Person, in_memory: InMemory) -> None:
    def locked(*_: Any) -> None:
        raise keyring.errors.KeyringLocked

    in_memory.set_password = locked  # type: ignore[method-assign]
    assert laptop(*LOGIN).status == 0
    assert json.loads((laptop.home / "profiles.json").read_text())["default"]["api_key"].startswith(
        "wb_test_"
    )


def test_profiles_are_kept_apart(laptop: Person) -> None:
    laptop(*LOGIN, "--no-keyring")
    laptop.slept.clear()
    DeviceLogin.objects.all().delete()
    laptop.decision = {"environment": "live"}
    laptop("--profile", "live", *LOGIN, "--no-keyring")
    assert laptop("whoami", "--json").json["environment"] == "test"
    assert laptop("--profile", "live", "whoami", "--json").json["environment"] == "live"


def test_a_refusal_ends_the_wait(laptop: Person) -> None:
    laptop.decision = {"deny": "yes"}
    done = laptop(*LOGIN)
    assert done.status == 1
    assert "refused" in done.stderr
    assert not laptop.home.exists()


def test_a_key_of_the_environment_goes_before_the_profile(whabuzz: CommandLine, tmp_path: Path) -> None:
    assert whabuzz("whoami", "--json").json["kept_in"] == "environment"
    assert "WHABUZZ_API_KEY" in whabuzz("logout").stderr
    assert ApiKey.objects.get().revoked_at is None


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("WHABUZZ_API_KEY", "wb_live_" + "b" * 40, "set WHABUZZ_BASE_URL too"),
        ("WHABUZZ_BASE_URL", "https://elsewhere.example", f"the key of this profile is for {BASE_URL}"),
        ("WHABUZZ_BASE_URL", f"{BASE_URL}/v1/", ""),
    ],
)
def test_a_key_goes_only_to_its_own_service(
    laptop: Person, monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    laptop(*LOGIN, "--no-keyring")
    monkeypatch.setenv(name, value)
    monkeypatch.setenv("WHABUZZ_CONFIG_DIR", str(laptop.home))
    done = laptop("whoami")
    assert (done.status, said in done.stderr) == (1 if said else 0, True), done.stderr
    sdk = importlib.import_module("whabuzz")
    with pytest.raises(sdk.WhabuzzError, match=said) if said else nullcontext():
        sdk.Whabuzz.from_profile()
