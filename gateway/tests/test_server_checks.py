"""Checks of the servers: the id of each finding, and a process that starts despite findings."""

import time
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from django.core.management import CommandError, call_command
from django.db import connection

from gateway import checks
from gateway.valkey.connection import valkey

pytestmark = pytest.mark.django_db


def found() -> list[str]:
    return [str(finding.id) for finding in checks.check_servers(databases=["default"])]


def test_the_servers_of_the_tests_are_fit() -> None:
    assert found() == []


def test_nothing_is_asked_without_a_database() -> None:
    assert checks.check_servers() == []


def test_an_evicting_valkey_is_refused_by_migrate(empty_valkey: redis.Redis) -> None:
    empty_valkey.config_set("maxmemory-policy", "allkeys-lru")
    try:
        assert found() == ["gateway.E033"]
        with pytest.raises(CommandError, match="allkeys-lru"):
            call_command("check", databases=["default"])
    finally:
        empty_valkey.config_set("maxmemory-policy", "noeviction")


def test_a_valkey_that_is_away_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    away = redis.Redis.from_url("unix:///nonexistent")
    monkeypatch.setattr(checks, "valkey", lambda: away)
    assert found() == ["gateway.W031"]


@pytest.mark.parametrize(
    ("version", "codes"),
    [
        *((version, ["gateway.E032"]) for version in ("6.2.14", "6.9", "2.8.24")),
        *((version, []) for version in ("7.0.0", "7.2.4", "8.0.1", "10.0.0")),
    ],
)
def test_a_server_before_redis_7_is_refused(
    monkeypatch: pytest.MonkeyPatch, version: str, codes: list[str]
) -> None:
    facts = {**valkey().info(), "redis_version": version}
    monkeypatch.setattr(checks, "valkey", lambda: SimpleNamespace(info=lambda: facts))
    assert found() == codes


def test_postgres_15_is_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks.OLDEST_POSTGRES == 15
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version_num")
        own = int(cursor.fetchone()[0]) // 10_000
    for oldest, codes in ((own, []), (own + 1, ["gateway.E030"])):
        monkeypatch.setattr(checks, "OLDEST_POSTGRES", oldest)
        assert found() == codes


def test_old_servers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Old:
        def info(self) -> dict[str, Any]:
            return {**valkey().info(), "redis_version": "6.2.1"}

    monkeypatch.setattr(checks, "valkey", Old)
    monkeypatch.setattr(checks, "OLDEST_POSTGRES", 99)
    assert found() == ["gateway.E030", "gateway.E032"]


@pytest.mark.django_db(transaction=True)
def test_a_process_logs_the_findings_at_its_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    away = redis.Redis.from_url("unix:///nonexistent")
    monkeypatch.setattr(checks, "valkey", lambda: away)
    checks.report_at_start()
    deadline = time.monotonic() + 10
    while "gateway.W031" not in caplog.text:
        assert time.monotonic() < deadline, "nothing was logged"
        time.sleep(0.01)
