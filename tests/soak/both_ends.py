"""The servers of a soak in a separate process: the tenants' receivers and Meta. They count what arrives, and misbehave
as the ledger says.

They use raw protocols, because a web server would use as much CPU for a request as the service under test.
"""

import argparse
import asyncio
import gzip
import re
from pathlib import Path
from typing import Any

import orjson

from tests.soak.ledger import Ledger, Receiving, Upstream, open_ledger, tenant_of

_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_EVENT_ID = re.compile(rb"(?i)\r\nwebhook-id: *(\w+)")
_EVENT = re.compile(rb'"dedupe_key":"msg:soak(\d+)"')
_SEND = re.compile(rb'"soak send (\d+)"')
_SLOW_SECONDS = 0.5
_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
_ANSWERS = {
    Receiving.REDIRECTS: b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n",
    Receiving.ANSWERS_500: b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\nno",
    Receiving.ANSWERS_100_MB: b"HTTP/1.1 200 OK\r\nContent-Length: 104857600\r\n\r\n" + b"x" * 1_000_000,
}
_BOMB = gzip.compress(bytes(10_000_000))
_ANSWERS[Receiving.ANSWERS_A_GZIP_BOMB] = (
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b" % (len(_BOMB), _BOMB)
)
_TAKEN_WITH_200 = {
    Receiving.WELL,
    Receiving.IS_SLOW,
    Receiving.DRIPS,
    Receiving.ANSWERS_100_MB,
    Receiving.ANSWERS_A_GZIP_BOMB,
}
"""The behaviours that answer 200, so that the service may record the event as delivered."""


class _Connection(asyncio.Protocol):
    """HTTP/1.1 with Content-Length, one request after the other."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end]
            length = _LENGTH.search(head)
            total = end + 4 + (int(length[1]) if length else 0)
            if len(self.buffer) < total:
                return
            body, self.buffer = self.buffer[end + 4 : total], self.buffer[total:]
            self.handle(head, body)

    def handle(self, head: bytes, body: bytes) -> None:
        raise NotImplementedError

    def answer(self, answer: bytes, *, after: float = 0.0) -> None:
        if after:
            asyncio.get_running_loop().call_later(after, self.answer, answer)
        elif not self.transport.is_closing():
            self.transport.write(answer)


class _Receiver(_Connection):
    """The endpoint of each tenant, `/0` to `/3`."""

    def handle(self, head: bytes, body: bytes) -> None:
        if b'"webhook.verify"' in body[:200]:
            challenge = orjson.dumps({"challenge": orjson.loads(body)["challenge"]})
            self.answer(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(challenge), challenge))
            return
        tenant = int(head[len(b"POST /") : head.index(b" ", len(b"POST /"))])
        behaviour = Receiving(self.ledger.receiving[tenant])
        if behaviour in _TAKEN_WITH_200:
            self._count(tenant, head, body)
        if behaviour is Receiving.CLOSES_EARLY:
            self.transport.abort()
        elif behaviour is Receiving.DRIPS:
            self.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            for second in range(1, 30):
                self.answer(b"x", after=second)
        elif behaviour is not Receiving.HANGS:
            slow = _SLOW_SECONDS if behaviour is Receiving.IS_SLOW else 0.0
            self.answer(_ANSWERS.get(behaviour, _OK), after=slow)

    def _count(self, tenant: int, head: bytes, body: bytes) -> None:
        event_id = _EVENT_ID.search(head)
        identity = hash(event_id[1]) & 0xFFFFFFFFFFFFFFFF if event_id else 0
        ledger = self.ledger
        if found := _EVENT.search(body):
            number = int(found[1])
            ledger.strays += tenant_of(number) != tenant
            self._note(ledger.arrived, ledger.event_ids, number, identity)
        elif found := _SEND.search(body):
            self._note(ledger.outbound, ledger.outbound_ids, int(found[1]), identity)

    def _note(self, arrived: Any, ids: Any, number: int, identity: int) -> None:
        if not arrived[number]:
            arrived[number], ids[number] = 1, identity
        elif ids[number] == identity:
            self.ledger.again += 1
        else:
            self.ledger.doubled += 1


class _Upstream(_Connection):
    """The Graph API for messages. Everything else is an error."""

    def handle(self, head: bytes, body: bytes) -> None:
        found = _SEND.search(body)
        if found is None:
            self._error(404, 100)
            return
        number = int(found[1])
        behaviour = Upstream(self.ledger.upstream) if number % 3 == 0 else Upstream.WELL
        if behaviour is Upstream.ANSWERS_429:
            self._error(429, 80007)
            return
        self.ledger.taken[number] = min(self.ledger.taken[number] + 1, 255)
        if behaviour is Upstream.CLOSES:
            self.transport.abort()
        elif behaviour is Upstream.ANSWERS_500:
            self._error(500, 131000)
        elif behaviour is Upstream.ANSWERS_HTML:
            self.answer(
                b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>"
            )
        elif behaviour is not Upstream.HANGS:
            answer = orjson.dumps(
                {
                    "messaging_product": "whatsapp",
                    "contacts": [{"input": "919812345678", "wa_id": "919812345678"}],
                    "messages": [{"id": f"wamid.soak{number}"}],
                }
            )
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(
                answer
            )
            self.answer(head + answer, after=_SLOW_SECONDS if behaviour is Upstream.IS_SLOW else 0.0)

    def _error(self, status: int, code: int) -> None:
        body = orjson.dumps({"error": {"message": "Soak", "type": "OAuthException", "code": code}})
        head = b"HTTP/1.1 %d Error\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        self.answer(head % (status, len(body)) + body)


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.both_ends")
    parser.add_argument("ledger", type=Path)
    for name in ("events", "sends", "receivers", "upstream"):
        parser.add_argument(name, type=int)
    options = parser.parse_args()
    ledger = open_ledger(options.ledger, events=options.events, sends=options.sends)

    async def forever() -> None:
        loop = asyncio.get_running_loop()
        for kind, port in ((_Receiver, options.receivers), (_Upstream, options.upstream)):
            await loop.create_server(lambda kind=kind: kind(ledger), "127.0.0.1", port, backlog=2048)
        await asyncio.Event().wait()

    asyncio.run(forever())


if __name__ == "__main__":
    main()
