"""Group commit on an event loop: grouping, bad items, an unreachable or hanging database."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import psycopg
import pytest
from django.db import DataError, OperationalError, connection, connections

from gateway.database import statements
from gateway.database.statements import LoopGroupCommit, Statements

pytestmark = pytest.mark.django_db(transaction=True)

Doubler = LoopGroupCommit[str, int]


class Writer:
    """Doubles texts that are numbers, with one statement for each group. Waits for a lock when it receives `wait`."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []

    def __call__(self, items: Sequence[str]) -> Statements[list[int]]:
        self.groups.append(list(items))
        if "wait" in items:
            yield "SELECT pg_advisory_xact_lock(17)", []
            return [0] * len(items)
        rows = yield (
            "SELECT 2 * v::int FROM unnest(%s::text[]) WITH ORDINALITY AS t(v, place) ORDER BY place",
            [list(items)],
        )
        return [row[0] for row in rows]


@pytest.fixture
async def commit() -> AsyncIterator[Callable[..., tuple[Doubler, Writer]]]:
    made: list[Doubler] = []

    def make(*, connections: int = 1, most: int = 100) -> tuple[Doubler, Writer]:
        writer = Writer()
        made.append(LoopGroupCommit(writer, connections=connections, size=lambda _: 1, most=most))
        return made[-1], writer

    yield make
    for each in made:
        await each.close()


async def test_what_arrives_together_is_one_group_and_each_gets_its_own(
    commit: Callable[..., tuple[Doubler, Writer]],
) -> None:
    doubler, writer = commit(most=50)
    assert await asyncio.gather(*(doubler.do(str(n)) for n in range(120))) == [2 * n for n in range(120)]
    assert [len(group) for group in writer.groups] == [50, 50, 20]


@pytest.mark.parametrize(
    ("connections", "items", "groups"),
    [
        (2, 32, [16, 16]),
        (2, 41, [21, 20]),
        (2, 20, [16, 4]),
        (2, 16, [16]),
        (3, 90, [30, 30, 30]),
        (1, 32, [32]),
    ],
)
async def test_idle_connections_share_what_arrives_together(
    commit: Callable[..., tuple[Doubler, Writer]], connections: int, items: int, groups: list[int]
) -> None:
    """With a single group, a busy process would answer all callers together, and would be idle while the database
    works.
    """
    doubler, writer = commit(connections=connections)
    for _ in range(2):
        assert await asyncio.gather(*(doubler.do(str(n)) for n in range(items))) == [
            2 * n for n in range(items)
        ]
        # The order in which the connections open does not matter.
        assert sorted((len(group) for group in writer.groups), reverse=True) == groups
        writer.groups.clear()


async def test_a_bad_item_fails_alone(commit: Callable[..., tuple[Doubler, Writer]]) -> None:
    doubler, _ = commit()
    results = await asyncio.gather(*(doubler.do(each) for each in ("1", "x", "3")), return_exceptions=True)
    assert (results[0], results[2]) == (2, 6)
    assert isinstance(results[1], DataError)
    assert await doubler.do("4") == 8


async def test_a_caller_that_goes_away_takes_no_other_of_its_group_along(
    commit: Callable[..., tuple[Doubler, Writer]],
) -> None:
    doubler, writer = commit()
    gone, left = asyncio.create_task(doubler.do("1")), asyncio.create_task(doubler.do("2"))
    await asyncio.sleep(0)
    gone.cancel()
    assert await asyncio.wait_for(left, 10) == 4
    assert writer.groups == [["1", "2"]]


async def test_a_group_that_waits_for_a_lock_does_not_hold_up_the_others(
    commit: Callable[..., tuple[Doubler, Writer]],
) -> None:
    doubler, writer = commit(connections=2)
    other = await asyncio.to_thread(_locked)
    try:
        waiting = asyncio.create_task(doubler.do("wait"))
        async with asyncio.timeout(10):
            while not writer.groups:
                await asyncio.sleep(0.01)
        assert await asyncio.wait_for(doubler.do("5"), 10) == 10
        assert not waiting.done()
    finally:
        await asyncio.to_thread(other)
    assert await asyncio.wait_for(waiting, 10) == 0


async def test_a_statement_that_hangs_fails_in_time_and_the_next_is_well(
    commit: Callable[..., tuple[Doubler, Writer]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statements, "STATEMENT_SECONDS", 0.3)
    doubler, _ = commit()
    other = await asyncio.to_thread(_locked)
    try:
        with pytest.raises(OperationalError):
            await asyncio.wait_for(doubler.do("wait"), 10)
    finally:
        await asyncio.to_thread(other)
    monkeypatch.setattr(statements, "STATEMENT_SECONDS", 10.0)
    assert await doubler.do("6") == 12


async def test_without_a_database_all_waiting_callers_fail_at_once(
    commit: Callable[..., tuple[Doubler, Writer]], monkeypatch: pytest.MonkeyPatch
) -> None:
    doubler, _ = commit(most=1)
    tries: list[object] = []
    connect = psycopg.AsyncConnection.connect

    async def counted(*args: Any, **kwargs: Any) -> Any:
        tries.append(args)
        return await connect(*args, **kwargs)

    with monkeypatch.context() as stopped:
        stopped.setattr(psycopg.AsyncConnection, "connect", counted)
        stopped.setitem(connection.settings_dict, "HOST", "/nonexistent")
        everyone = asyncio.gather(*(doubler.do(str(n)) for n in range(10)), return_exceptions=True)
        results = await asyncio.wait_for(everyone, 10)
    assert all(isinstance(result, OperationalError) for result in results)
    assert len(tries) == 1, "one try failed all callers"
    assert await doubler.do("7") == 14


def _locked() -> Callable[[], None]:
    """Hold the lock for which the item `wait` waits, on another connection. Returns the function that releases it."""
    other = connections.create_connection("default")
    other.inc_thread_sharing()
    with other.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(17)")

    def release() -> None:
        with other.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(17)")
        other.close()

    return release
