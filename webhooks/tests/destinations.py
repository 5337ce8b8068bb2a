"""Servers of destinations: SQS and S3 by moto, the mock brokers of librdkafka, Debian's RabbitMQ.

Only their users import the clients and moto, because the import would cost every test process 0.2 s.
"""

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from gateway.local_run.process_group import ProcessGroup
from tests.fixtures import wait_until
from tests.free_ports import free_port

KEYS = {"access_key_id": "AKIDEXAMPLE", "secret_access_key": "s3cret/of+the-shop", "region": "ap-south-1"}


class Aws:
    """A server of AWS's protocols, and boto3's clients for it."""

    def __init__(self, url: str) -> None:
        import boto3

        self.url = url
        given = {
            "endpoint_url": url,
            "region_name": KEYS["region"],
            "aws_access_key_id": KEYS["access_key_id"],
            "aws_secret_access_key": KEYS["secret_access_key"],
        }
        self.sqs: Any = boto3.client("sqs", **given)
        self.s3: Any = boto3.client("s3", **given)

    def queue(self, name: str, **attributes: str) -> dict[str, Any]:
        """Create a queue. Returns the body of an endpoint that sends to it."""
        url = self.sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
        return {"kind": "sqs", "destination": {**KEYS, "queue_url": url}}

    def received(self, made: dict[str, Any]) -> list[dict[str, Any]]:
        """Receive and remove the messages of a queue."""
        url: str = made["destination"]["queue_url"]
        found: list[dict[str, Any]] = []
        while True:
            answer = self.sqs.receive_message(
                QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"], AttributeNames=["All"]
            )
            if not answer.get("Messages"):
                return found
            for message in answer["Messages"]:
                self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
                found.append(message)

    def bucket(self, name: str, **more: str) -> dict[str, Any]:
        """Create a bucket. Returns the body of an endpoint that archives to it."""
        self.s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": KEYS["region"]})
        return {"kind": "s3", "destination": {**KEYS, "bucket": name, "endpoint_url": self.url, **more}}

    def objects(self, name: str) -> dict[str, bytes]:
        """The objects of a bucket by name."""
        listed = self.s3.list_objects_v2(Bucket=name).get("Contents", [])
        return {
            each["Key"]: self.s3.get_object(Bucket=name, Key=each["Key"])["Body"].read() for each in listed
        }


@pytest.fixture(scope="module")
def aws() -> Iterator[Aws]:
    """A server for the tests of a file."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", free_port(), verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield Aws(f"http://{host}:{port}")
    server.stop()


class KafkaBrokers:
    """Two brokers, and the records that they receive."""

    def __init__(self) -> None:
        self._brokers = Producer({"test.mock.num.brokers": 2, "bootstrap.servers": "mocked", "log_level": 0})
        found = self._brokers.list_topics(timeout=10).brokers.values()
        self.ports = [each.port for each in found]
        self.servers = ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def topic(self, name: str, **more: str) -> dict[str, Any]:
        """The body of an endpoint that writes to a topic."""
        given = {"bootstrap_servers": self.servers, "topic": name, "security_protocol": "PLAINTEXT"}
        return {"kind": "kafka", "destination": {**given, **more}}

    def records(self, name: str, count: int) -> list[Any]:
        """The first records of a topic."""
        consumer = Consumer(
            {"bootstrap.servers": self.servers, "group.id": "test", "auto.offset.reset": "earliest"}
        )
        partitions = consumer.list_topics(name, timeout=10).topics[name].partitions
        consumer.assign([TopicPartition(name, number, 0) for number in partitions])
        found: list[Any] = consumer.consume(count, timeout=10)
        consumer.close()
        assert [each.error() for each in found] == [None] * count
        return found


@pytest.fixture(scope="module")
def kafka() -> KafkaBrokers:
    """Brokers for the tests of one file. They end with the producer that contains them."""
    return KafkaBrokers()


class Rabbit:
    """A server, and a consumer's connection to it."""

    def __init__(self, port: int) -> None:
        self.port = port

    def exchange(self, name: str, **more: str) -> dict[str, Any]:
        """The body of an endpoint that publishes to an exchange."""
        given = {"url": f"amqp://127.0.0.1:{self.port}/", "username": "guest", "password": "guest"}
        return {"kind": "rabbitmq", "destination": {**given, "exchange": name, **more}}

    def bind(self, name: str, keys: str = "#") -> None:
        """Declare a durable topic exchange and a queue, both with this name."""

        async def declare(channel: Any) -> None:
            await channel.exchange_declare(name, exchange_type="topic")
            await channel.queue_declare(name)
            await channel.queue_bind(name, name, keys)

        self._run(declare)

    def received(self, name: str) -> list[Any]:
        """Receive and remove the messages of a queue."""
        found: list[Any] = []

        async def take(channel: Any) -> None:
            while (message := await channel.basic_get(name, no_ack=True)).body:
                found.append(message)

        self._run(take)
        return found

    def _run(self, use: Callable[[Any], Awaitable[None]]) -> None:
        import aiormq

        async def run() -> None:
            async with aiormq.connect(f"amqp://guest:guest@127.0.0.1:{self.port}/") as connection:
                await use(await connection.channel())

        asyncio.run(run())


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rabbit]:
    """A server for the tests of one file. It has its own port mapper, so that no process outlives the tests."""
    where, port = tmp_path_factory.mktemp("rabbitmq"), free_port()
    environment = {
        **os.environ,
        "HOME": str(where),
        "ERL_EPMD_PORT": str(free_port()),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"test{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(where / "data"),
        "RABBITMQ_LOG_BASE": str(where / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(where / "plugins"),
    }
    group = ProcessGroup(grace_seconds=2)
    started = [
        subprocess.Popen(
            [command],
            env=environment,
            process_group=group.id,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for command in ("/usr/bin/epmd", "/usr/lib/rabbitmq/bin/rabbitmq-server")
    ]
    server = Rabbit(port)
    wait_until(lambda: _answers(port), "RabbitMQ does not answer", seconds=60)
    yield server
    for process in started:
        process.terminate()
        process.wait()
    group.close()


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
