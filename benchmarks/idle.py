"""The whole stack of `make run` at rest: memory and CPU of every process, time to ready, a worker's first delivery.

Memory is the proportional set size: what processes share counts once. The floor is an interpreter that has imported
nothing: a process in Python cannot have less.
"""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.equipment.harness import Harness, children_by_parent, cpu_of, free_port, memory_of
from benchmarks.equipment.results import Result
from benchmarks.equipment.seed import business, endpoint
from benchmarks.equipment.sink import Sink
from gateway.local_run import processes

SETTLE_SECONDS, MEASURE_SECONDS = 60.0, 60.0
"""What a start leaves to be done is over by then; a minute holds one run of each task that beat calls every minute."""
BEAT_STARTS_SECONDS = 5.0
MOST_MEGABYTES, MOST_OF_A_CORE = 500.0, 0.01
READY_SECONDS, FIRST_DELIVERY_SECONDS = 5.0, 1.0
START_SECONDS = 300.0

Measure = Callable[[int, Mapping[int, list[int]]], float]

_READY = re.compile(r"^Ready after ([0-9.]+) s", re.MULTILINE)


def run(harness: Harness) -> list[Result]:
    """Start the stack twice: the second start is that of a machine where it ran before."""
    first = [_first_delivery(harness, is_forked=is_forked) for is_forked in (True, False)]
    data_dir = harness.data_dir / "stack"
    data_dir.mkdir()
    with _stack(harness, data_dir) as (_, cold):
        pass
    with _stack(harness, data_dir) as (process, warm):
        time.sleep(SETTLE_SECONDS)
        cpu_before, began = _of_each(process.pid, cpu_of), time.monotonic()
        time.sleep(MEASURE_SECONDS)
        seconds = time.monotonic() - began
        shares = {
            name: (spent - cpu_before.get(name, 0.0)) / seconds
            for name, spent in _of_each(process.pid, cpu_of).items()
        }
        memory = _of_each(process.pid, memory_of)
    rest = Result(
        "at rest, MB: " + ", ".join(f"{name} {megabytes:.0f}" for name, megabytes in memory.items()),
        len(memory),
        sum(memory.values()),
        unit="MB",
        floor=_bare_interpreter() * len(memory),
        target=f"≤ {MOST_MEGABYTES:.0f} MB",
    )
    rest.expect(rest.rate <= MOST_MEGABYTES, f"{rest.rate:.0f} MB, not {MOST_MEGABYTES:.0f}")
    all_shares = sum(shares.values())
    cpu = Result(
        "at rest, of a core: " + ", ".join(f"{name} {share:.2%}" for name, share in shares.items()),
        len(shares),
        all_shares * 1000,
        unit="ms of CPU",
        target=f"≤ {MOST_OF_A_CORE:.0%} of a core",
    )
    cpu.expect(all_shares <= MOST_OF_A_CORE, f"{all_shares:.1%} of a core, not {MOST_OF_A_CORE:.0%}")
    ready = Result(
        f"ready after {warm:.1f} s; {cold:.1f} s the first time", 1, 0.0, target=f"≤ {READY_SECONDS:.0f} s"
    )
    ready.expect(warm <= READY_SECONDS, f"{warm:.1f} s, not {READY_SECONDS:.0f}")
    return [rest, cpu, ready, *first]


# As the supervisor restarts a process: told to by a line, in the process that has imported everything.
_FORK = """
import sys
from pathlib import Path
from gateway.local_run import forked, processes
forked.preload()
print("ready", flush=True)
input()
command = processes.worker_command("deliveries")
child = forked.start("deliveries", command, data_dir=Path(sys.argv[1]), process_group=0)
input()
processes.stop(child, seconds=10)
"""


@contextmanager
def _worker(harness: Harness, *, is_forked: bool) -> Iterator[Callable[[], None]]:
    """Yields what starts a deliveries worker: in a new process, or as `make run` does."""
    if not is_forked:

        def start() -> None:
            harness.start("deliveries", processes.worker_command("deliveries"))

        yield start
        harness.stop("deliveries")
        return
    with subprocess.Popen(
        [sys.executable, "-c", _FORK, str(harness.data_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=harness.environment,
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdout.readline()
        yield lambda: print(file=server.stdin, flush=True)
        print(file=server.stdin, flush=True)


def _first_delivery(harness: Harness, *, is_forked: bool) -> Result:
    """A delivery waits; the time from a worker's start until it arrives."""
    from django.db import transaction

    from webhooks.events.new_event import NewEvent
    from webhooks.events.publish import publish

    with Sink() as sink:
        tenant_id = business(1 + is_forked).tenant_id
        endpoint(tenant_id, f"{sink.url}/ok")
        event = NewEvent(type="meta.other", environment="live", dedupe_key="first", data=b"{}")
        with transaction.atomic():
            publish(tenant_id=tenant_id, events=[event])
        # As beside a running beat.
        harness.beat()
        time.sleep(BEAT_STARTS_SECONDS)
        with _worker(harness, is_forked=is_forked) as start:
            began = time.monotonic()
            start()
            harness.wait_until(lambda: sink.count == 1, "the delivery did not arrive")
            seconds = time.monotonic() - began
        harness.stop("beat")
        sink.finish()
    result = Result(
        f"a worker's start{' by make run' if is_forked else ''} to its first delivery: {seconds:.2f} s",
        1,
        0.0,
        target=f"≤ {FIRST_DELIVERY_SECONDS:.0f} s",
    )
    result.expect(seconds <= FIRST_DELIVERY_SECONDS, f"{seconds:.2f} s, not {FIRST_DELIVERY_SECONDS:.0f}")
    return result


@contextmanager
def _stack(harness: Harness, data_dir: Path) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    """`make run` on free ports with servers of its own, and the seconds until it was ready."""
    ports = {name: str(free_port()) for name in ("PORT", "EDGE_PORT", "SIMULATOR_PORT")}
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
        yield process, float(found[1])
    finally:
        processes.stop(process, seconds=60)


def _of_each(supervisor: int, measure: Measure) -> dict[str, float]:
    """A figure of each process of the stack by its name, its own children included."""
    children = children_by_parent()
    figures = {"supervisor": measure(supervisor, {})}
    for process_id in children.get(supervisor, []):
        name = Path(f"/proc/{process_id}/comm").read_text().strip()
        if name.startswith("python"):
            command = Path(f"/proc/{process_id}/cmdline").read_text()
            name = "simulator" if "simulator" in command else "watchdog"
        figures[name] = figures.get(name, 0.0) + measure(process_id, children)
    return figures


def _bare_interpreter() -> float:
    """Megabytes of an interpreter that waits."""
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE) as process:
        time.sleep(0.5)
        megabytes = memory_of(process.pid, {})
        process.kill()
    return megabytes
