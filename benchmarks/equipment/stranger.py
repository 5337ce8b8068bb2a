"""A stranger: `python -m benchmarks.equipment.stranger URL KIND=COUNT …` holds COUNT connections of each KIND.

It runs until it is stopped, and prints a line when it has tried to open every connection. A closed connection is opened
again. `--address` is the source address of the connections. Several addresses are used in turn. Kinds:

- `idle` sends nothing. `headers` sends a byte of a header each second.
- `bodies` sends a byte of a notification's body each second. `forms` sends a byte of a log-in form each second.
- `readers` requests a long page repeatedly and does not read the answers.
- `keys` sends messages with unknown keys. `unsigned` sends notifications with a wrong signature.
"""

import argparse
import asyncio
import contextlib
import itertools
import os
import random
import socket
from collections.abc import Callable, Coroutine
from urllib.parse import urlsplit

import uvloop

from benchmarks.equipment import raw_client

AGAIN_SECONDS = 2.0
"""The mean pause before a connection that was closed, or could not be opened, is tried again."""
SMALL_BUFFER = 4096
READY = "every connection was tried"

Held = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[None, None, None]]


def request(method: str, path: str, *headers: str, body: bytes = b"", length: int | None = None) -> bytes:
    """The bytes of a request. `length` announces a body that is sent later."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers]
    if body or length is not None:
        lines.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join([*lines, "", ""]).encode() + body


async def _idle(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


def _dripping(begun: bytes) -> Held:
    async def held(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(begun)
        closed = asyncio.ensure_future(reader.read())
        while not closed.done():
            writer.write(b"x")
            await asyncio.wait([closed], timeout=1)

    return held


async def _readers(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
    writer.transport.pause_reading()  # type: ignore[attr-defined]  # of every transport that reads
    while not writer.is_closing():
        writer.write(request("GET", "/v1/openapi.json"))
        await asyncio.sleep(1)


def _repeating(make: Callable[[int], bytes]) -> Held:
    numbers = itertools.count()

    async def held(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(make(next(numbers)))
            head = await reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            await reader.readexactly(int(length or 0))

    return held


def _with_unknown_key(number: int) -> bytes:
    return request("POST", "/v1/messages", f"Authorization: Bearer wb_live_{number:040}", body=b"{}")


def _unsigned(number: int) -> bytes:
    return request("POST", "/upstream/webhook", f"X-Hub-Signature-256: sha256={number:064}", body=b"{}" * 500)


KINDS: dict[str, Held] = {
    "idle": _idle,
    "headers": _dripping(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Drip: "),
    "bodies": _dripping(request("POST", "/upstream/webhook", length=60_000)),
    "forms": _dripping(request("POST", "/login", length=60_000)),
    "readers": _readers,
    "keys": _repeating(_with_unknown_key),
    "unsigned": _repeating(_unsigned),
}


async def hold(url: str, counts: dict[str, int], addresses: list[str]) -> None:
    """Hold the connections until the task is cancelled."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 0
    tls = raw_client.unverified() if parts.scheme == "https" else None
    untried, all_tried = sum(counts.values()), asyncio.Event()

    async def one(kind: str, address: str) -> None:
        nonlocal untried
        # An idle connection does not start TLS.
        secured = None if kind == "idle" else tls
        # A random start, because real strangers do not send their bytes at the same moment.
        await asyncio.sleep(random.random())
        for attempt in itertools.count():
            with contextlib.suppress(OSError, EOFError, asyncio.LimitOverrunError):
                try:
                    async with asyncio.timeout(30):
                        reader, writer = await asyncio.open_connection(
                            host, port, local_addr=(address, 0), ssl=secured
                        )
                finally:
                    untried -= not attempt
                    if not untried:
                        all_tried.set()
                with contextlib.closing(writer):
                    await KINDS[kind](reader, writer)
            await asyncio.sleep(2 * AGAIN_SECONDS * random.random())

    of = itertools.cycle(addresses)
    tasks = [asyncio.create_task(one(kind, next(of))) for kind, count in counts.items() for _ in range(count)]
    await all_tried.wait()
    print(READY, flush=True)
    await asyncio.gather(*tasks)


def main() -> None:
    """Hold the connections that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.equipment.stranger")
    parser.add_argument("url")
    parser.add_argument("held", nargs="+", metavar="KIND=COUNT", help=f"kinds: {', '.join(KINDS)}")
    parser.add_argument("--address", action="append", help="where connections come from (127.0.0.2)")
    options = parser.parse_args()
    # Real strangers use other machines. So this process uses only CPU that the service does not need.
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    counts = {kind: int(count) for kind, _, count in (each.partition("=") for each in options.held)}
    uvloop.run(hold(options.url, counts, options.address or ["127.0.0.2"]))


if __name__ == "__main__":
    main()
