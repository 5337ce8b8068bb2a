"""Amazon S3 and stores with its protocol: an archive of objects, with one event as JSON on each line.

An object's name contains the hour and a random id, so no object is ever overwritten. If an answer is lost, the next
attempt stores the same events a second time. The bucket's name is part of the path.
"""

from typing import NamedTuple
from urllib.parse import quote

from gateway import ids
from gateway.clock import now
from gateway.monitoring.logs import type_alone
from gateway.outbound.client import Answer
from webhooks.destinations.aws_signature import AwsKeys, signed
from webhooks.destinations.interface import Destination, Message, text_problem, url_problem


class S3Settings(NamedTuple):
    """A bucket, a prefix for its objects, and an access key that may store objects there."""

    bucket: str
    region: str
    access_key_id: str
    secret_access_key: str
    prefix: str = ""
    endpoint_url: str | None = None

    def __repr__(self) -> str:
        return type_alone(self)


class S3(Destination[S3Settings]):
    """An S3 bucket as a destination."""

    SETTINGS = S3Settings

    @classmethod
    def problem(cls, given: S3Settings) -> str | None:
        return (
            url_problem(given.endpoint_url)
            or text_problem(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", bucket=given.bucket)
            or text_problem(r"[a-z0-9-]{1,40}", region=given.region)
            or text_problem(r"[!-~]{1,128}", access_key_id=given.access_key_id)
            # The prefix must not leave its folder, for example by `..`.
            or text_problem(r"(?!.*\.\.)(?:[A-Za-z0-9_.=-][A-Za-z0-9_.=/-]{0,199})?", prefix=given.prefix)
        )

    @classmethod
    def address(cls, given: S3Settings) -> str:
        return f"s3://{given.bucket}/{given.prefix}"

    async def send(self, message: Message) -> Answer:
        found, at = self._settings, now()
        origin = (found.endpoint_url or f"https://s3.{found.region}.amazonaws.com").rstrip("/")
        name = f"{at:%Y/%m/%d/%H}/{at:%Y%m%dT%H%M%S}-{ids.uuid7()}.jsonl"
        path = "/".join(filter(None, (found.bucket, found.prefix.rstrip("/"), name)))
        url = f"{origin}/{quote(path)}"
        keys = AwsKeys(found.access_key_id, found.secret_access_key, found.region, "s3")
        headers = {
            "Content-Type": "application/x-ndjson",
            **{f"x-amz-meta-{header.lower()}": value for header, value in message.headers.items()},
        }
        return await self._outbound.request(
            "PUT",
            url,
            message.body,
            signed("PUT", url, headers, message.body, keys=keys, at=at),
            total_timeout=message.seconds,
        )
