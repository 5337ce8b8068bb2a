"""Floors: minimal programs that a benchmark measures in turns with the service, on the same machine.

The speed of a machine can change by a factor of two within a day. So the target for a rate or for CPU is a ratio to a
floor. Absolute figures are printed and have no target.

- `listener` checks a signature and inserts one row by group commit (`bare_listener.py`). For notifications and reads.
- `forwarder` forwards a body to the upstream and returns the answer (`bare_forwarder.py`). For sends.
- `relay` posts the requests that it receives (`relay.py`). For deliveries at a steady rate.
- `paced` commits one INSERT and uses a relay for each event, at a steady rate.
"""

import socket
import sys
import time

from benchmarks.equipment.harness import Harness, cursor
from benchmarks.equipment.raw_client import Requests, in_turns
from benchmarks.equipment.results import Result, percentiles

LISTENER, FORWARDER, RELAY, POSTGRES = "listener", "forwarder", "relay", "postgres"
"""The names of the processes in CPU figures."""

_BODY = b"x" * 700
_PACED = (
    b"POST /floor HTTP/1.1\r\nHost: floor\r\nContent-Type: application/json\r\nX-Padding: %b\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (b"x" * 350, len(_BODY), _BODY)
)


def listener(harness: Harness, *, name: str = LISTENER, relay_path: str | None = None) -> str:
    """Start a bare listener. Returns its URL as soon as it answers."""
    from django.conf import settings

    program = [sys.executable, "-m", "benchmarks.equipment.bare_listener"]
    arguments = [relay_path] if relay_path else []
    return harness.listen(
        name,
        lambda port: [*program, str(port), *arguments],
        ready="/",
        META_APP_SECRET=settings.META_APP_SECRET,
    )


def relay(harness: Harness, receiver: str, *, name: str = RELAY) -> str:
    """Start a bare relay to the receiver at a URL. Returns the path of the relay's socket as soon as it listens."""
    path, port = harness.data_dir / f"{name}{time.monotonic_ns()}", receiver.rpartition(":")[2]
    harness.start(name, [sys.executable, "-m", "benchmarks.equipment.relay", str(path), port])
    harness.wait_until(path.exists, harness.log(name))
    return str(path)


def forwarder(harness: Harness, upstream: str) -> str:
    """Start a bare forwarder to an upstream. Returns its URL as soon as it answers."""
    return harness.bare("bare_forwarder", name=FORWARDER, META_GRAPH_URL=upstream)


def beside(
    harness: Harness,
    floor: tuple[str, Requests],
    service: tuple[str, Requests],
    *,
    what: str,
    unit: str,
    count: int,
    concurrency: int,
    units: int = 1,
) -> Result:
    """POST `count` requests to a floor and to the service in turns. Each request contains `units` units."""
    bare, own = in_turns(harness, floor, service, count=count, concurrency=concurrency)
    result = Result(
        what,
        count * units,
        count * units / own.seconds,
        unit=unit,
        percentiles=percentiles(own.load.milliseconds),
        cpu=_without_clients(own.cpu_per(count * units)),
        floor=count * units / bare.seconds,
        floor_cpu=_without_clients(bare.cpu_per(count * units)),
    )
    result.expect(bare.load.statuses == {200: count}, f"the floor answered {bare.load.statuses}")
    result.expect(own.load.statuses == {200: count}, f"the service answered {own.load.statuses}")
    return result


def paced(harness: Harness, receiver: str, *, rate: int, seconds: int) -> Result:
    """Measure the floor of an event at a steady rate: commit a row, post a request and read the answer.

    At a low rate most of the CPU is spent on waking processes with cold caches.
    """
    path, count = relay(harness, receiver), rate * seconds
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as signals, cursor() as database:
        signals.connect(path)
        database.execute("DROP TABLE IF EXISTS floor")
        database.execute("CREATE TABLE floor (id bigint PRIMARY KEY, body bytea)")
        database.execute("DEALLOCATE ALL")
        database.execute("PREPARE floor AS INSERT INTO floor VALUES ($1, $2)")
        with harness.measure() as measured:
            began = time.perf_counter()
            for number in range(count):
                time.sleep(max(0.0, began + number / rate - time.perf_counter()))
                database.execute("EXECUTE floor (%s, %s)", [number, _BODY])
                signals.send(_PACED)
    harness.stop(RELAY)
    cpu = {name: spent for name, spent in measured.cpu_per(count).items() if name in {POSTGRES, RELAY}}
    what = f"floor at {rate}/s: a bare INSERT with its commit, a bare relay to the receiver"
    return Result(what, count, count / measured.seconds, unit="rows", cpu=cpu)


def _without_clients(cpu: dict[str, float]) -> dict[str, float]:
    return {name: spent for name, spent in cpu.items() if name not in {"client", "upstream"}}
