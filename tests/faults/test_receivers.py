"""Misbehaving receivers, and a dispatcher in a separate process with real sockets.

Every delivery to such a receiver ends in limited time and memory with the right error. A healthy receiver gets its
events at once.
"""

import asyncio
import gzip
import os
import socket
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from pathlib import Path

import orjson
import pytest
from django.db import transaction

from tenants.models import Tenant
from tests.faults.forked import ROOT
from tests.faults.service import LONG, database_url
from tests.fixtures import Api
from tests.raw_server import raw_server
from webhooks.events.envelope import NewEvent
from webhooks.events.publish import publish
from webhooks.models import Delivery, Endpoint

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True)]

EVENTS = 8
TIMEOUT_SECONDS = 15.0 if LONG else 2.0
BIG = 100 * 1024 * 1024
MOST_GROWN_MB = 30
"""The limit for the growth of memory, far below a single response of 100 MB."""

# One run of the dispatcher. Prints the growth of the process's peak memory in kB.
DISPATCHER = """
import re, sys
from pathlib import Path
import django
django.setup()
from webhooks.requests import signed_request
from webhooks.delivery import dispatcher
signed_request.TOTAL_TIMEOUT = float(sys.argv[1])
dispatcher.LINGER_SECONDS = 0.2
def largest():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
before = largest()
dispatcher.run()
print(largest() - before)
"""

Manner = Callable[[asyncio.StreamWriter], Awaitable[None]]


def says(data: bytes) -> Manner:
    """Send `data` and close."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()

    return answer


def drips(data: bytes) -> Manner:
    """Send `data`, then one byte a second without end."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(1)

    return answer


def pours(head: bytes, piece: bytes, size: int = BIG) -> Manner:
    """Send a head, then a number of bytes as fast as the client reads them."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        for _ in range(size // len(piece)):
            writer.write(piece)
            await writer.drain()

    return answer


async def hangs(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(3600)


async def resets(writer: asyncio.StreamWriter) -> None:
    peer: socket.socket = writer.get_extra_info("socket")
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@cache
def bomb() -> bytes:
    """A small body that decompresses to 100 MB."""
    return gzip.compress(b"0" * BIG, 1)


async def explodes(writer: asyncio.StreamWriter) -> None:
    await says(OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb()) + bomb())(writer)


OK = b"HTTP/1.1 200 OK\r\n"
LARGE = b"Content-Length: %d\r\n\r\n" % BIG
MANNERS: dict[str, tuple[Manner, str, str | None]] = {
    "is-well": (says(OK + b"Content-Length: 2\r\n\r\nok"), "delivered", None),
    "hangs": (hangs, "failed", "timeout"),
    "drips-its-body": (drips(OK + b"Content-Length: 100000\r\n\r\n"), "failed", "timeout"),
    "drips-its-headers": (drips(OK + b"X-Endless: "), "failed", "timeout"),
    "drips-a-refusal": (drips(b"HTTP/1.1 503 No\r\nContent-Length: 9999\r\n\r\n"), "failed", "http_5xx"),
    "closes-without-an-answer": (says(b""), "failed", "connection_error"),
    "closes-in-its-headers": (says(OK + b"Content-Le"), "failed", "connection_error"),
    "closes-in-its-body": (says(OK + b"Content-Length: 1000\r\n\r\nhalf"), "failed", "connection_error"),
    "resets": (resets, "failed", "connection_error"),
    "speaks-no-http": (says(b"220 mail.shop.example ESMTP\r\n"), "failed", "connection_error"),
    "redirects": (
        says(b"HTTP/1.1 307 Else\r\nLocation: /is-well\r\nContent-Length: 0\r\n\r\n"),
        "failed",
        "http_3xx",
    ),
    "answers-100-mb": (pours(OK + LARGE, b"x" * 65536), "delivered", None),
    "refuses-with-100-mb": (pours(b"HTTP/1.1 500 No\r\n" + LARGE, b"x" * 65536), "failed", "http_5xx"),
    "answers-a-gzip-bomb": (explodes, "delivered", None),
    "sends-headers-without-end": (
        pours(OK, b"X-More: 0123456789\r\n" * 1000),
        "failed",
        "response_too_large",
    ),
}


@pytest.fixture
def receivers() -> Iterator[tuple[str, Counter[str]]]:
    """A server with a different misbehaviour at each path, and the count of calls by path. It answers
    pings correctly.
    """
    calls: Counter[str] = Counter()
    bomb()  # otherwise the first call would wait for the compression

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:-2])
        body = await reader.readexactly(int(headers["content-length"]))
        if headers["x-service-event-type"] == "webhook.verify":
            challenge: str = orjson.loads(body)["challenge"]
            await says(OK + b"Content-Length: %d\r\n\r\n" % len(challenge) + challenge.encode())(writer)
            return
        manner = head.split(" ", 2)[1].removeprefix("/")
        calls[manner] += 1
        await MANNERS[manner][0](writer)

    with raw_server(connected) as url:
        yield url, calls


def test_receivers_that_misbehave_cost_bounded_time_and_memory_and_are_named(
    api: Api, tenant: Tenant, receivers: tuple[str, Counter[str]], tmp_path: Path
) -> None:
    url, calls = receivers
    for manner in MANNERS:
        assert api.post("/v1/webhooks", {"url": f"{url}/{manner}"}).status_code == 201
    with transaction.atomic():
        publish(
            tenant_id=tenant.id,
            events=[
                NewEvent(type="message.inbound", environment="live", dedupe_key=f"msg:{number}", data=b"{}")
                for number in range(EVENTS)
            ],
        )
    done = subprocess.run(
        [sys.executable, "-c", DISPATCHER, str(TIMEOUT_SECONDS)],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": database_url(), "WEBHOOK_RETRY_SCHEDULE": "600"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS + 30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert int(done.stdout.splitlines()[-1]) / 1024 < MOST_GROWN_MB
    assert calls == Counter(dict.fromkeys(MANNERS, EVENTS)), (
        "each was called once, redirects were not followed"
    )
    found = {}
    for endpoint in Endpoint.objects.all():
        deliveries = Delivery.objects.filter(endpoint_id=endpoint.id)
        found[endpoint.url.rpartition("/")[2]] = {(each.status, each.last_error) for each in deliveries}
        for delivery in deliveries:
            (entry,) = delivery.attempt_log
            assert entry["ms"] < (TIMEOUT_SECONDS + 2) * 1000
            assert len(str(delivery.answers)) < 16_000
    assert found == {manner: {(status, error)} for manner, (_, status, error) in MANNERS.items()}
    quick = Delivery.objects.filter(endpoint_id=Endpoint.objects.get(url=f"{url}/is-well").id)
    assert max(delivery.last_response_ms or 0 for delivery in quick) < 2000
