"""Amazon SQS and queues with its JSON protocol. Each event is a message, sent through the client of deliveries.

A queue whose name ends in `.fifo` needs a group for each message: the customer at an ordered endpoint, otherwise the
event. The deduplication id is the event's id, so the queue drops a repetition within five minutes.
"""

from typing import NamedTuple
from urllib.parse import urlsplit

import orjson

from gateway.clock import now
from gateway.monitoring.logs import type_alone
from gateway.outbound.client import Answer
from webhooks.destinations.aws_signature import AwsKeys, signed
from webhooks.destinations.interface import TOO_LARGE, Destination, Message, text_problem, url_problem

MOST_BYTES = 1_048_576
"""The maximum number of bytes of a message with its attributes (Amazon's page "SQS message quotas"). A queue with a
lower limit rejects larger messages itself.
"""
_SHORTER = b"must be shorter than"
"""Part of a queue's error for a message beyond its own limit."""


class SqsSettings(NamedTuple):
    """A queue, and an access key that may send messages to the queue."""

    queue_url: str
    region: str
    access_key_id: str
    secret_access_key: str
    endpoint_url: str | None = None

    def __repr__(self) -> str:
        return type_alone(self)


class Sqs(Destination[SqsSettings]):
    """An SQS queue as a destination."""

    SETTINGS = SqsSettings

    @classmethod
    def problem(cls, given: SqsSettings) -> str | None:
        return (
            url_problem(given.queue_url)
            or url_problem(given.endpoint_url)
            or text_problem(r"[a-z0-9-]{1,40}", region=given.region)
            or text_problem(r"[!-~]{1,128}", access_key_id=given.access_key_id)
        )

    @classmethod
    def address(cls, given: SqsSettings) -> str:
        return given.queue_url

    async def send(self, message: Message) -> Answer:
        found = self._settings
        size = len(message.body) + sum(len(name) + len(value) for name, value in message.headers.items())
        if size > MOST_BYTES:
            return Answer(None, TOO_LARGE, 0, b"", None)
        asked: dict[str, object] = {
            "QueueUrl": found.queue_url,
            "MessageBody": message.body.decode(),
            "MessageAttributes": {
                name: {"DataType": "String", "StringValue": value} for name, value in message.headers.items()
            },
        }
        if found.queue_url.endswith(".fifo"):
            own = message.headers["webhook-id"]
            asked |= {"MessageGroupId": message.key or own, "MessageDeduplicationId": own}
        parts = urlsplit(found.endpoint_url or found.queue_url)
        url, body = f"{parts.scheme}://{parts.netloc}/", orjson.dumps(asked)
        headers = {"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": "AmazonSQS.SendMessage"}
        keys = AwsKeys(found.access_key_id, found.secret_access_key, found.region, "sqs")
        answer = await self._outbound.post(
            url,
            body,
            signed("POST", url, headers, body, keys=keys, at=now()),
            total_timeout=message.seconds,
        )
        if answer.status == 400 and _SHORTER in answer.body:
            return Answer(answer.status, TOO_LARGE, answer.ms, answer.body, None, answer.fields)
        return answer
