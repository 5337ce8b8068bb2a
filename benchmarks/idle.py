"""The idle service: memory and CPU of the small host and of split roles, CPU of each role's start, time until ready.

Memory is the proportional set size, in which shared memory counts once. The floor is a Python interpreter that has
imported nothing, because no Python process can use less.
"""

import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.equipment.harness import Harness, children_by_parent, cpu_of, memory_of
from benchmarks.equipment.results import Result
from benchmarks.equipment.seed import business, endpoint
from benchmarks.equipment.sink import Sink
from gateway.local_run import processes
from tests.free_ports import free_port

SETTLE_SECONDS, MEASURE_SECONDS = 50.0, 60.0
"""The seconds that a start takes, and the seconds of the measurement after it. Each task with an interval of one minute
runs once in the measurement.
"""
BEAT_STARTS_SECONDS = 5.0
MOST_MEGABYTES, MOST_OF_A_CORE = 250.0, 0.01
"""Limits for the memory of the small host without Postgres and Valkey, and for the CPU of the service with both."""
READY_SECONDS, FIRST_DELIVERY_SECONDS = 5.0, 1.0
START_SECONDS = 300.0

_READY = re.compile(r"^Ready after ([0-9.]+) s", re.MULTILINE)


def run(harness: Harness, part: str) -> list[Result]:
    """Run one part: either two starts (the second on existing data), or the idle service in one form."""
    return PARTS[part](harness)


def _start(harness: Harness) -> list[Result]:
    first = _first_delivery(harness)
    data_dir = harness.data_dir / "stack"
    data_dir.mkdir()
    with _stack(harness, data_dir) as cold:
        pass
    with _stack(harness, data_dir) as warm:
        pass
    ready = Result(
        f"ready after {warm:.1f} s; {cold:.1f} s the first time", 1, 0.0, target=f"≤ {READY_SECONDS:.0f} s"
    )
    ready.expect(warm <= READY_SECONDS, f"{warm:.1f} s, not {READY_SECONDS:.0f}")
    return [ready, first]


def _small_host(harness: Harness) -> list[Result]:
    harness.small_host()
    memory, cpu = _at_rest(harness, "small host", "gateway")
    memory.target = f"≤ {MOST_MEGABYTES:.0f} MB"
    memory.expect(memory.rate <= MOST_MEGABYTES, f"{memory.rate:.0f} MB, not {MOST_MEGABYTES:.0f}")
    return [memory, cpu]


def _split(harness: Harness) -> list[Result]:
    harness.web()
    workers = ("deliveries", "batches", "tasks")
    for role in workers:
        harness.worker(name=role, role=role)
    harness.beat()
    return list(_at_rest(harness, "split", "web", *workers, "beat"))


PARTS = {"start": _start, "small_host": _small_host, "split": _split}


def _at_rest(harness: Harness, what: str, *names: str) -> tuple[Result, Result]:
    """Measure the idle service after its start: the memory of its processes, and the CPU of processes and servers."""
    children = children_by_parent()
    starts = {name: cpu_of(harness.running[name].pid, children) for name in names}
    time.sleep(SETTLE_SECONDS)
    with harness.measure() as measured:
        time.sleep(MEASURE_SECONDS)
    shares = {name: measured.cpu[name] / measured.seconds for name in (*names, "postgres", "valkey")}
    memory = {name: harness.memory(name) for name in names}
    of_a_core = Result(
        f"{what} at rest, of a core: {_shown(shares, '{:.2%}')}",
        len(shares),
        sum(shares.values()) * 1000,
        unit="ms of CPU",
        target=f"≤ {MOST_OF_A_CORE:.0%} of a core",
    )
    of_a_core.expect(of_a_core.rate <= MOST_OF_A_CORE * 1000, f"{of_a_core.rate / 10:.1f} % of a core")
    return (
        Result(
            f"{what}, MB: {_shown(memory, '{:.0f}')}; CPU until ready: {_shown(starts, '{:.1f} s')}",
            len(memory),
            sum(memory.values()),
            unit="MB",
            floor=_bare_interpreter() * len(memory),
        ),
        of_a_core,
    )


def _shown(figures: Mapping[str, float], form: str) -> str:
    return ", ".join(f"{name} {form.format(figure)}" for name, figure in figures.items())


def _first_delivery(harness: Harness) -> Result:
    """Measure the time from the start of a deliveries process until a waiting delivery arrives."""
    from django.db import transaction

    from webhooks.events.envelope import NewEvent
    from webhooks.events.publish import publish

    with Sink() as sink:
        tenant_id = business(1).tenant_id
        endpoint(tenant_id, f"{sink.url}/ok")
        event = NewEvent(type="meta.other", environment="live", dedupe_key="first", data=b"{}")
        with transaction.atomic():
            publish(tenant_id=tenant_id, events=[event])
        # In production, beat is already running.
        harness.beat()
        time.sleep(BEAT_STARTS_SECONDS)
        began = time.monotonic()
        harness.start("deliveries", processes.service_command("deliveries"))
        harness.wait_until(lambda: sink.count == 1, "the delivery did not arrive")
        seconds = time.monotonic() - began
        harness.stop("deliveries")
        harness.stop("beat")
        sink.finish()
    result = Result(
        f"the start of deliveries to its first delivery: {seconds:.2f} s",
        1,
        0.0,
        target=f"≤ {FIRST_DELIVERY_SECONDS:.0f} s",
    )
    result.expect(seconds <= FIRST_DELIVERY_SECONDS, f"{seconds:.2f} s, not {FIRST_DELIVERY_SECONDS:.0f}")
    return result


@contextmanager
def _stack(harness: Harness, data_dir: Path) -> Iterator[float]:
    """Start `make run` on free ports with its own servers. Yields the seconds until it was ready."""
    ports = {name: str(free_port()) for name in ("PORT", "SIMULATOR_PORT")}
    given = {
        name: value
        for name, value in harness.environment.items()
        if name not in ("DATABASE_URL", "REDIS_URL")
    }
    output = harness.data_dir / "stack.log"
    with output.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "gateway.local_run.supervisor", "run"],
            env={**given, **ports, "DATA_DIR": str(data_dir)},
            stdout=log,
            stderr=log,
        )
    try:
        harness.wait_until(
            lambda: bool(_READY.search(output.read_text())) or process.poll() is not None,
            f"the stack did not start: {output.read_text()}",
            seconds=START_SECONDS,
        )
        found = _READY.search(output.read_text())
        if found is None:
            raise RuntimeError(f"the stack did not start: {output.read_text()}")
        yield float(found[1])
    finally:
        processes.stop(process, seconds=60)


def _bare_interpreter() -> float:
    """The memory of an idle Python interpreter in megabytes."""
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE) as process:
        time.sleep(0.5)
        megabytes = memory_of(process.pid, {})
        process.kill()
    return megabytes
