"""Parameters of prepared statements, by name or by position, for statements of any length. Connections that have ended
are replaced.
"""

import asyncio
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction

from gateway.database.statements import LoopConnection, Statements, bulk_cursor, run
from tenants.models import Tenant
from tests.database_settings import connected_with

LONG = f"-- {'x' * 5_000}\n"
NAMED = "SELECT %(b)s::int, %(a)s::text, %(b)s::int + 1, '5%%', 7 %% 4"
PLACED = "SELECT %s::int, %s::text, '5%%'"


def asked(statement: str, parameters: Any) -> Statements[list[tuple[Any, ...]]]:
    return (yield statement, parameters)


CASES = pytest.mark.parametrize(
    ("statement", "parameters", "expected"),
    [
        (NAMED, {"a": "%s $1 %(b)s", "b": 2, "unused": 3}, (2, "%s $1 %(b)s", 3, "5%", 3)),
        (LONG + NAMED, {"b": 2, "a": "O'Neill"}, (2, "O'Neill", 3, "5%", 3)),
        (PLACED, [1, "a"], (1, "a", "5%")),
        (LONG + PLACED, (1, "a"), (1, "a", "5%")),
        ("SELECT '5%%'", {}, ("5%",)),
        ("SELECT '5%%'", None, ("5%%",)),
    ],
)


@CASES
@pytest.mark.django_db
def test_on_djangos_connection(statement: str, parameters: Any, expected: tuple[Any, ...]) -> None:
    for _ in range(2):
        with bulk_cursor(prepared=True) as cursor:
            cursor.execute(statement, parameters)
            assert cursor.fetchall() == [expected]
    assert run(asked(statement, parameters)) == run(asked(statement, parameters), prepared=True) == [expected]


@CASES
@pytest.mark.django_db(transaction=True)
def test_on_the_connection_of_a_loop(statement: str, parameters: Any, expected: tuple[Any, ...]) -> None:
    async def twice() -> list[Any]:
        loop_connection = LoopConnection()
        try:
            return [await loop_connection.run(asked(statement, parameters)) for _ in range(2)]
        finally:
            await loop_connection.close()

    connection.ensure_connection()
    assert asyncio.run(twice()) == [[expected]] * 2


@pytest.mark.parametrize("at_once", [True, False], ids=["run", "run_each"])
@pytest.mark.django_db(transaction=True)
def test_a_connection_that_ended_while_idle_is_replaced(at_once: bool) -> None:
    """A restart of Postgres ends idle connections. The next caller gets its rows rather than an error."""

    async def sessions() -> list[int]:
        loop_connection = LoopConnection()
        run_ = loop_connection.run if at_once else loop_connection.run_each
        try:
            [[first]] = await run_(asked("SELECT pg_backend_pid()", None))
            parameters = {**connection.get_connection_params(), "cursor_factory": psycopg.AsyncCursor}
            async with await psycopg.AsyncConnection.connect(**parameters) as ending:
                # Returns once the session has ended.
                answer = await ending.execute("SELECT pg_terminate_backend(%s, 10000)", [first])
                assert await answer.fetchone() == (True,)
            [[second]] = await run_(asked("SELECT pg_backend_pid()", None))
            [[third]] = await run_(asked("SELECT pg_backend_pid()", None))
            return [first, second, third]
        finally:
            await loop_connection.close()

    connection.ensure_connection()
    first, second, third = asyncio.run(sessions())
    assert first != second == third


@pytest.mark.django_db(transaction=True)
def test_a_transaction_that_was_closed_halfway_undoes_no_later_write(tenant: Tenant) -> None:
    """The pool has one connection, so the later write gets the one of the transaction."""
    options = connection.settings_dict["OPTIONS"]
    with connected_with(OPTIONS=options | {"pool": options["pool"] | {"min_size": 1, "max_size": 1}}):
        with transaction.atomic():
            assert Tenant.objects.exists()
            connection.close()
        with bulk_cursor() as cursor:
            cursor.execute("UPDATE tenants_tenant SET name = 'Later'")
        assert set(Tenant.objects.values_list("name", flat=True)) == {"Later"}
