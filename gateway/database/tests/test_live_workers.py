"""Registrations of workers: which workers count as dead, and which do not."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest
from django.db import connection

from gateway.database import live_workers
from gateway.database.live_workers import DeadWorkers, Registration
from gateway.database.statements import LoopConnection

pytestmark = pytest.mark.django_db(transaction=True)

SECONDS = 10.0
NOBODY = 7
"""A worker that never registered, or whose process has ended."""


@pytest.fixture(autouse=True)
def _short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_workers, "GRACE_SECONDS", 0.2)


class Workers:
    """A worker that takes leases over, another worker, and a database connection for queries."""

    def __init__(self) -> None:
        self.taking, self.other = Registration(), Registration()
        self.database = LoopConnection()
        holders = f"SELECT unnest(ARRAY[{self.other.id}, {self.taking.id}, {NOBODY}]::bigint[])"
        self.dead_workers = DeadWorkers(self.taking, holders)

    async def dead(self) -> list[int]:
        return await self.database.run(self.dead_workers.finding({}))

    async def dead_after_grace(self) -> list[int]:
        await self.dead()
        await asyncio.sleep(live_workers.GRACE_SECONDS * 1.5)
        return await self.dead()

    async def close_other(self) -> None:
        """End the other worker's registration. Returns when Postgres has freed its lock."""
        await self.other.close()
        async with (
            await psycopg.AsyncConnection.connect(**_parameters()) as asking,
            asyncio.timeout(SECONDS),
        ):
            while await (await asking.execute(_SESSIONS.format("pid", self.other.id))).fetchall():
                await asyncio.sleep(0.005)

    async def cut(self, cut: Registration) -> None:
        """End a worker's connection, as a restart of Postgres would. Returns when the worker has noticed."""
        held_since = cut._held_since
        async with await psycopg.AsyncConnection.connect(**_parameters()) as ending:
            await ending.execute(_SESSIONS.format("pg_terminate_backend(pid)", cut.id))
        await until(lambda: cut._held_since != held_since)


_SESSIONS = """SELECT {} FROM pg_locks JOIN pg_stat_activity a USING (pid)
    WHERE locktype = 'advisory' AND objsubid = 1 AND (classid::bigint << 32 | objid::bigint) = {}"""


def _parameters() -> dict[str, Any]:
    return {**connection.get_connection_params(), "cursor_factory": psycopg.AsyncCursor}


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not holds():
            await asyncio.sleep(0.005)


def with_workers(check: Callable[[Workers], Awaitable[None]]) -> None:
    """Run a check with two registered workers."""

    async def run() -> None:
        workers = Workers()
        await workers.taking.start()
        await workers.other.start()
        assert workers.taking.holder
        assert workers.other.holder
        try:
            await check(workers)
        finally:
            await workers.taking.close()
            await workers.other.close()
            await workers.database.close()

    asyncio.run(run())


def test_a_worker_whose_process_ended_is_dead_when_it_was_gone_twice() -> None:
    async def check(workers: Workers) -> None:
        assert await workers.dead() == []
        assert workers.dead_workers.has_suspects
        assert await workers.dead() == [], "the second time was too soon"
        assert await workers.dead_after_grace() == [NOBODY]

    with_workers(check)


def test_a_worker_that_closes_its_registration_is_dead() -> None:
    async def check(workers: Workers) -> None:
        await workers.close_other()
        assert sorted(await workers.dead_after_grace()) == sorted([NOBODY, workers.other.id])

    with_workers(check)


def test_a_worker_that_lost_its_connection_and_came_back_is_alive() -> None:
    async def check(workers: Workers) -> None:
        await workers.cut(workers.other)
        assert await workers.dead() == []
        await until(lambda: workers.other.holder is not None)
        await asyncio.sleep(live_workers.GRACE_SECONDS * 1.5)
        assert await workers.dead() == [NOBODY]

    with_workers(check)


def test_a_worker_whose_own_registration_broke_reports_nobody_as_dead() -> None:
    """After a restart of Postgres all locks are free, and some workers may not have reacquired theirs yet."""

    async def check(workers: Workers) -> None:
        await workers.dead()
        await asyncio.sleep(live_workers.GRACE_SECONDS * 1.5)
        await workers.cut(workers.taking)
        await until(lambda: workers.taking.holder is not None)
        assert await workers.dead() == []
        assert await workers.dead_after_grace() == [NOBODY]

    with_workers(check)


def test_while_leases_are_ended_their_worker_does_not_come_back() -> None:
    async def check(workers: Workers) -> None:
        await workers.close_other()
        returning = Registration()
        returning.id = workers.other.id
        finding = workers.dead_workers.finding({})
        async with await psycopg.AsyncConnection.connect(**_parameters()) as ending:
            statement, values = next(finding)
            found = await ending.execute(statement, values)
            assert (workers.other.id,) in await found.fetchall()
            coming = asyncio.create_task(returning.start())
            await asyncio.sleep(0.2)
            assert not returning.holder
        await coming
        assert returning.holder == workers.other.id
        await returning.close()

    with_workers(check)


def test_an_open_registration_holds_back_no_vacuum() -> None:
    async def check(workers: Workers) -> None:
        async with await psycopg.AsyncConnection.connect(**_parameters()) as asking:
            session = await asking.execute(
                _SESSIONS.format("state, backend_xid, backend_xmin", workers.other.id)
            )
            assert await session.fetchall() == [("idle in transaction", None, None)]

    with_workers(check)
