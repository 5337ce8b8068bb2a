"""The dispatcher's connection for signals is given up when Valkey refuses, is silent, or speaks nonsense."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio

from webhooks.delivery.signals.signal_connection import SignalConnection

SECONDS = 10.0


async def answered_by(path: Path, answers: Sequence[bytes], *, seconds: float) -> list[Any]:
    """What comes of two commands to a server that writes these bytes: their answers, or nothing when it is lost."""
    found: list[Any] = []
    ended, lost, served = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"SECOND\r\n")
        for part in answers:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
        await reader.read()
        writer.close()
        await writer.wait_closed()
        served.set()

    def take(answers: Sequence[Any]) -> None:
        found.extend(answers)
        ended.set()

    def lose() -> None:
        lost.set()
        ended.set()

    async with await asyncio.start_unix_server(serve, path):
        opened: Any = redis.asyncio.UnixDomainSocketConnection(
            path=str(path), protocol=2, driver_info=None, maint_notifications_config=None
        )
        await opened.connect()
        connection = SignalConnection(opened, on_answered=take, on_lost=lose)
        assert connection.may_ask
        connection.ask([("FIRST",), ("SECOND",)], seconds=seconds)
        async with asyncio.timeout(SECONDS):
            await ended.wait()
        assert not connection.is_asked
        assert connection.may_ask is bool(found)
        await opened.disconnect(nowait=True)
        async with asyncio.timeout(SECONDS):
            await lost.wait()
            await served.wait()
    return found


@pytest.mark.parametrize(
    "parts", [[b"+OK\r\n*1\r\n$3\r\nabc\r\n"], [b"+OK\r", b"\n*1\r\n$3\r\na", b"bc\r\n"]]
)
def test_answers_come_together_however_they_are_cut(tmp_path: Path, parts: list[bytes]) -> None:
    assert asyncio.run(answered_by(tmp_path / "s", parts, seconds=SECONDS)) == [b"OK", [b"abc"]]


@pytest.mark.parametrize(
    ("parts", "seconds"),
    [
        ([b"+OK\r\n-READONLY You can't write against a read only replica.\r\n"], SECONDS),
        ([b"HTTP/1.1 400 Bad Request\r\n"], SECONDS),
        ([b"+OK\r\n"], 0.05),
    ],
    ids=["an error", "no RESP", "silence"],
)
def test_it_is_lost(tmp_path: Path, parts: list[bytes], seconds: float) -> None:
    assert asyncio.run(answered_by(tmp_path / "s", parts, seconds=seconds)) == []
