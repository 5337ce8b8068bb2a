"""A Graph API on loopback with scripted answers, for answers that the simulator never gives."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.raw_server import raw_server

VERSION = "/v25.0"
TOKEN_REFUSED = {
    "error": {"message": "Invalid token", "type": "OAuthException", "code": 190, "fbtrace_id": "A"}
}
"""Meta's answer to a call whose token is not valid. Its status is 401."""


@dataclass(frozen=True, slots=True)
class Received:
    """A request as received."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes


@dataclass
class ScriptedGraph:
    """Answers by method and path (without the version), in the order of the script. The last answer repeats."""

    url: str = ""
    received: list[Received] = field(default_factory=list)
    script: defaultdict[tuple[str, str], list[bytes]] = field(default_factory=lambda: defaultdict(list))
    otherwise: list[bytes] = field(default_factory=list)
    """The answer to all calls that the script does not name."""

    def answers(
        self,
        method: str,
        path: str,
        body: Any,
        *,
        status: int = 200,
        content_type: str = "application/json; charset=UTF-8",
    ) -> None:
        """Add an answer. A body of bytes is sent unchanged, any other as JSON."""
        self.script[method, path].append(_answer(body, status, content_type))

    def always_answers(self, body: Any, *, status: int = 200) -> None:
        """Set the answer to all other calls."""
        self.otherwise = [_answer(body, status, "application/json")]

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            line, *lines = head.rstrip().split("\r\n")
            method, target, _ = line.split(" ")
            path, _, query = target.partition("?")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            path = path.removeprefix(VERSION)
            self.received.append(Received(method, path, query, headers, body))
            script = self.script[method, path] or self.otherwise
            writer.write(script.pop(0) if len(script) > 1 else script[0])
            await writer.drain()


def _answer(body: Any, status: int, content_type: str) -> bytes:
    payload = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {content_type}\r\nContent-Length: {len(payload)}\r\n\r\n"
    return head.encode() + payload


@contextmanager
def scripted_graph() -> Iterator[ScriptedGraph]:
    """Serve a scripted Graph API inside the block."""
    graph = ScriptedGraph()
    with raw_server(graph.connected) as url:
        graph.url = url
        yield graph
