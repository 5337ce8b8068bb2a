"""Threads beside an event loop: waiting work is limited, and work occupies its place until it has ended."""

import asyncio
import threading

import pytest

from gateway.api import access_log
from gateway.api.errors import ServiceUnavailable
from gateway.api.event_loop import ThreadPool


@pytest.mark.django_db
async def test_what_waits_for_a_thread_is_bounded() -> None:
    may_end = threading.Event()
    pool = ThreadPool("few", threads=1, waiting=1)
    try:
        waiting = [asyncio.create_task(pool.run(may_end.wait)) for _ in range(2)]
        await asyncio.sleep(0)
        # The caller is gone, but its work continues and still counts.
        waiting[0].cancel()
        await asyncio.sleep(0)
        with pytest.raises(ServiceUnavailable):
            await pool.run(may_end.wait)
        may_end.set()
        assert await waiting[1]
        assert await pool.run(may_end.wait), "the places are free again"
    finally:
        may_end.set()
        pool.close()


@pytest.mark.django_db
async def test_the_time_of_metas_calls_in_a_thread_is_the_callers() -> None:
    pool = ThreadPool("one", threads=1, waiting=0)
    access_log.start_timing()
    try:
        access_log.add_upstream_ms(300.0)
        await pool.run(access_log.add_upstream_ms, 15.0)
        assert access_log.upstream_ms() == 315.0
    finally:
        pool.close()
