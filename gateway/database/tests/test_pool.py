"""Connections of web processes: one plan for each prepared statement, together with the operator's options."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import connection, connections

from gateway.database import pool
from gateway.database.statements import bulk_cursor

pytestmark = pytest.mark.django_db


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The database settings of a process that has not started yet."""
    database: dict[str, Any] = {"OPTIONS": {"connect_timeout": 2}}
    monkeypatch.setattr(settings, "DATABASES", {"default": database})
    monkeypatch.setattr(pool, "POOL_SIZE", 3)
    return database


def shown(options: str, name: str) -> str:
    """The value of a setting on a connection with these options."""
    parameters = {**connection.get_connection_params(), "options": options}
    with psycopg.connect(**parameters) as connected:
        row = connected.execute(f"SHOW {name}").fetchone()
    assert row is not None
    return str(row[0])


def test_a_prepared_statement_is_planned_once(database: dict[str, Any]) -> None:
    pool.begin()

    assert shown(database["OPTIONS"]["options"], "plan_cache_mode") == "force_generic_plan"
    assert database["OPTIONS"]["pool"]["max_size"] == 3


def test_a_literal_statement_holds_its_parameters() -> None:
    """With its parameters in the text, Postgres plans a statement for them in any plan mode."""
    found = []
    for literal in (False, True):
        with bulk_cursor(literal=literal) as cursor:
            cursor.execute("SELECT %s::int, current_query()", [1234])
            found.append(cursor.fetchone())

    assert found == [(1234, "SELECT $1::int, current_query()"), (1234, "SELECT 1234::int, current_query()")]


def test_the_operators_own_options_stay(database: dict[str, Any]) -> None:
    database["OPTIONS"]["options"] = "-c statement_timeout=7s"

    pool.begin()

    assert shown(database["OPTIONS"]["options"], "statement_timeout") == "7s"
    assert shown(database["OPTIONS"]["options"], "plan_cache_mode") == "force_generic_plan"


@pytest.mark.parametrize(
    ("setting", "value"), [("DATABASE_PREPARED_STATEMENTS", False), ("DATABASE_IS_DISTRIBUTED", True)]
)
def test_nothing_is_asked_of_a_pooler_that_keeps_no_statements_or_of_citus(
    database: dict[str, Any], monkeypatch: pytest.MonkeyPatch, setting: str, value: bool
) -> None:
    monkeypatch.setattr(settings, setting, value)

    pool.begin()

    assert "options" not in database["OPTIONS"]


def test_strangers_take_no_connection_of_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers and strangers have one connection each here. The strangers' is in use while a caller's statement runs."""
    monkeypatch.setattr(pool, "STRANGERS_CONNECTIONS", 1)
    monkeypatch.setattr(pool, "_strangers_pools", {})
    pools: dict[str, Any] = {}
    is_held, goes_on = threading.Event(), threading.Event()

    def borrow(*, is_stranger: bool) -> None:
        database = connections["default"]
        own = {"min_size": 0, "max_size": 1, "timeout": 2.0}
        options = {**database.settings_dict["OPTIONS"], "pool": own}
        database.settings_dict = {**database.settings_dict, "OPTIONS": options}
        database._connection_pools = pools  # type: ignore[attr-defined]
        if is_stranger:
            pool.use_strangers_pool()
        try:
            with database.cursor() as cursor:
                cursor.execute("SELECT 1")
                if is_stranger:
                    is_held.set()
                    assert goes_on.wait(30)
        finally:
            database.close()
            del connections["default"]

    with ThreadPoolExecutor(2) as threads:
        held = threads.submit(borrow, is_stranger=True)
        try:
            assert is_held.wait(30)
            threads.submit(borrow, is_stranger=False).result(30)
        finally:
            goes_on.set()
        held.result(30)
    for each in (*pools.values(), *pool._strangers_pools.values()):
        each.close()
