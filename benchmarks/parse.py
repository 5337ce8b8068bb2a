"""The CPU to convert callers' bodies to the upstream's bodies: one message, and a batch of 10,000 messages.

The floor splits the same bytes with the Python scanner `gateway/json_spans.py`. For whole messages, the service uses
msgspec instead. No server is involved. The figures are the CPU of one process. It holds the interpreter lock during
this work.
"""

import time
from collections.abc import Callable
from typing import Any

import orjson

from benchmarks.equipment.harness import Harness
from benchmarks.equipment.results import Result

ITEMS = 10_000
BATCH_OF_FLOOR = 4.0
"""Required share of the rate at which the scanner splits a batch."""
MESSAGES, ROUNDS = 20_000, 5


def run(harness: Harness) -> list[Result]:
    """Parse and check one message, then a batch, and split each into the upstream's bodies."""
    from gateway import process_limits
    from gateway.api.json import parse_object
    from messaging import idempotency
    from messaging.batches import body as batch_body
    from messaging.sending import outbound

    process_limits.calm_collector()
    one = orjson.dumps({"from": "100200300", **_message(0)})
    batch = orjson.dumps({"from": "100200300", "messages": [_message(place) for place in range(ITEMS)]})

    def parse_one() -> bytes:
        return outbound.outgoing(one, parse_object(one))

    def parse_batch() -> list[bytes]:
        return list(batch_body.outgoing(batch, batch_body.read(batch)))

    results = [
        _result("one message", parse_one, MESSAGES, floor=lambda: _scanned(one)),
        _result("one message, hash of a key", lambda: idempotency.body_hash(one), MESSAGES),
        _result(
            f"batch of {ITEMS:,} ({len(batch) / 1e6:.2f} MB)",
            parse_batch,
            ROUNDS,
            floor=lambda: _scanned_batch(batch),
        ),
    ]
    results[2].expect_rate(BATCH_OF_FLOOR)
    results[0].expect(parse_one() == _scanned(one), "the bytes of a message differ")
    results[2].expect(parse_batch() == _scanned_batch(batch), "the bytes of a batch differ")
    return results


def _result(
    what: str, work: Callable[[], Any], count: int, *, floor: Callable[[], Any] | None = None
) -> Result:
    seconds = _seconds(work, count)
    return Result(
        what,
        count,
        count / seconds,
        unit="bodies",
        cpu={"parse": seconds / count * 1e6},
        floor=max(1, count // 10) / _seconds(floor, max(1, count // 10)) if floor else None,
    )


def _seconds(work: Callable[[], Any], count: int) -> float:
    work()
    began = time.process_time()
    for _ in range(count):
        work()
    return time.process_time() - began


def _scanned(body: bytes) -> bytes:
    from gateway.json_spans import cut, root_members

    parts = [cut(body, member) for name, member in root_members(body).items() if name != "from"]
    return b'{"messaging_product":"whatsapp",' + b",".join(parts) + b"}"


def _scanned_batch(body: bytes) -> list[bytes]:
    from gateway.json_spans import cut, items_at, root_members

    return [_scanned(cut(body, span)) for span in items_at(body, root_members(body)["messages"].value)]


def _message(place: int) -> dict[str, Any]:
    parameters = [{"type": "text", "text": text} for text in ("Asha", f"A-{place}", "tomorrow")]
    return {
        "to": f"+91{place:010d}",
        "type": "template",
        "template": {
            "name": "order_shipped",
            "language": {"code": "en_US"},
            "components": [{"type": "body", "parameters": parameters}],
        },
    }
