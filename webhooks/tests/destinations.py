"""Servers of destinations for tests: SQS and S3 over HTTP, by moto."""

import logging
import socket
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

KEYS = {"access_key_id": "AKIDEXAMPLE", "secret_access_key": "s3cret/of+the-shop", "region": "ap-south-1"}


class Aws:
    """A server of AWS's protocols, and boto3's clients of it."""

    def __init__(self, url: str) -> None:
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
        """A new queue, as the body of an endpoint that sends to it."""
        url = self.sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
        return {"kind": "sqs", "destination": {**KEYS, "queue_url": url}}

    def received(self, made: dict[str, Any]) -> list[dict[str, Any]]:
        """The messages of a queue, which leave it."""
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
        """A new bucket, as the body of an endpoint that archives to it."""
        self.s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": KEYS["region"]})
        return {"kind": "s3", "destination": {**KEYS, "bucket": name, "endpoint_url": self.url, **more}}

    def objects(self, name: str) -> dict[str, bytes]:
        """The objects of a bucket by their names."""
        listed = self.s3.list_objects_v2(Bucket=name).get("Contents", [])
        return {
            each["Key"]: self.s3.get_object(Bucket=name, Key=each["Key"])["Body"].read() for each in listed
        }


@pytest.fixture(scope="module")
def aws() -> Iterator[Aws]:
    """A server for the tests of a file."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", free_port(), verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield Aws(f"http://{host}:{port}")
    server.stop()


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
