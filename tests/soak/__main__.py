"""`python -m tests.soak [--events N] [--sends N] [--faults N] [--seed N]`: run a soak and reconcile it.

Exits with 1 when a promise was broken, the service stopped working after a fault, or the memory of a process grew.
"""

import argparse
import os
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence

import psycopg

from gateway import embedded_addresses
from gateway.local_run import processes
from gateway.local_run.processes import Process
from tests.free_ports import free_port
from tests.soak import load, verdict
from tests.soak.faults import Fault, plan
from tests.soak.ledger import Ledger, open_ledger
from tests.soak.stack import LOOK_SECONDS, Stack

EVENTS_A_FAULT = 2_000
STUCK_SECONDS = 240.0
"""How long a part of the load may take after a fault. If it takes longer, the run ends with StuckError."""
MOST_GROWTH, GROWTH_FLOOR_MB = 1.25, 15.0
"""In the last third of a run, a process may use this many times the memory of the middle third, or this many MB more,
whichever is higher.
"""
SETTLED_PARTS = 60
"""With fewer faults, the memory of a process has not settled, so the report shows it without a verdict."""
SERVERS = {"postgres", "valkey"}
REPORTED_PARTS = 20
"""The number of faults between two reports of memory and remaining time."""
ENVIRONMENT = {
    "DJANGO_SETTINGS_MODULE": "tests.time_limits",
    "PYTHONUNBUFFERED": "1",
    "LOG_LEVEL": "WARNING",
    "API_RATE_PER_SECOND": "100000",
    "API_RATE_BURST": "100000",
    "DELIVERY_LEASE_SECONDS": "3",
    "BATCH_LEASE_SECONDS": "2",
    "UPSTREAM_TIMEOUT_MS": "1500",
    "WEBHOOK_ALLOW_HTTP": "true",
    "WEBHOOK_ALLOW_PRIVATE_NETWORKS": "true",
    "WEBHOOK_RETRY_SCHEDULE": ",".join(["0.5", "0.5", "1", "1", *["2"] * 40]),
}


class StuckError(Exception):
    """The load did not continue, or not all of it arrived in time."""


def main() -> int:
    """Run what the command line requests. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--events", type=int, default=1_000_000, help="inbound messages of the upstream")
    parser.add_argument("--sends", type=int, default=200_000, help="messages of the customers")
    parser.add_argument("--faults", type=int, help=f"one for each {EVENTS_A_FAULT:,} events")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    options = parser.parse_args()
    faults = options.faults or max(1, options.events // EVENTS_A_FAULT)
    print(
        f"seed {options.seed}: {options.events:,} events, {options.sends:,} sends, {faults} faults",
        flush=True,
    )
    findings = _soak(options.events, options.sends, faults, options.seed)
    for finding in findings:
        print(f"FAILED: {finding}")
    if findings:
        print(
            f"Again: make soak EVENTS={options.events} SENDS={options.sends} FAULTS={faults} SEED={options.seed}"
        )
    return int(bool(findings))


def _soak(events: int, sends: int, faults: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    planned = plan(faults, chance)
    with Stack() as stack:
        file = stack.data_dir / "ledger"
        ledger = open_ledger(file, events=events, sends=sends)
        receivers, upstream = free_port(), free_port()
        os.environ |= ENVIRONMENT | {
            "DATA_DIR": str(stack.data_dir),
            "DATABASE_URL": embedded_addresses.database_url(stack.data_dir),
            "REDIS_URL": embedded_addresses.valkey_url(stack.data_dir),
            "META_GRAPH_URL": load.at_port(upstream),
        }
        stack.start()
        stack.run("tests.soak.both_ends", file, events, sends, receivers, upstream)
        calls = stack.run("tests.soak.load", file, events, sends, seed, receivers, *stack.ports.values())
        memory: list[dict[str, float]] = []
        began = time.monotonic()
        try:
            _cause(planned, stack, ledger, chance, calls, memory)
            items = _settle(stack, ledger, calls)
        except StuckError as error:
            stack.keeps_files = True
            return [str(error), f"the logs are in {stack.data_dir / 'logs'}"]
        seconds = time.monotonic() - began
        broken = verdict.broken(ledger, items)
        stack.keeps_files = bool(broken)
    _report(ledger, items, seconds, memory)
    findings = [
        f"{len(numbers):,} {finding}: {', '.join(map(str, numbers[: verdict.SHOWN]))}"
        for finding, numbers in broken.items()
    ]
    if broken:
        findings.append(f"the logs are in {stack.data_dir / 'logs'}")
    return [*findings, *(grown(memory) if len(memory) >= SETTLED_PARTS else [])]


def _cause(
    planned: Sequence[Fault],
    stack: Stack,
    ledger: Ledger,
    chance: random.Random,
    calls: Process,
    memory: list[dict[str, float]],
) -> None:
    """Cause one fault in each part of the load. A part begins when the part before it is done."""
    started = time.monotonic()
    for place, fault in enumerate(planned, 1):
        ledger.allowed = place / len(planned)
        stack.pause(chance.uniform(0.0, 0.5))
        began = time.monotonic()
        fault.happen(stack, ledger, chance)
        over = time.monotonic()
        _wait(
            lambda part=ledger.allowed: (
                ledger.events_done >= int(ledger.events * part)
                and ledger.sends_done >= int(ledger.sends * part) - load.LARGEST_BATCH
            ),
            f"fault {place} ({fault.name}): the calls did not go on after it",
            stack,
            calls,
        )
        memory.append(stack.megabytes())
        print(
            f"{place:>6} {fault.name}: {over - began:.1f} s, its part of the calls done "
            f"{time.monotonic() - over:.1f} s later",
            flush=True,
        )
        if place % REPORTED_PARTS == 0:
            left = (time.monotonic() - started) / place * (len(planned) - place)
            print(
                f"{'':>6} {ledger.events_done:,} events, {ledger.sends_done:,} sends, about {left / 60:.0f} "
                f"min left; {_shown(memory[-1])}",
                flush=True,
            )


def _shown(megabytes: Mapping[str, float]) -> str:
    return ", ".join(f"{kind} {most:.0f}" for kind, most in sorted(megabytes.items())) + " MB"


def _settle(stack: Stack, ledger: Ledger, calls: Process) -> dict[int, verdict.Item]:
    """Wait until no call or item is open, or the time is over. Returns the items of the batches."""
    _wait(
        lambda: ledger.events_done == ledger.events and ledger.sends_done == ledger.sends,
        "the calls did not end",
        stack,
        calls,
    )
    items = _items(stack)
    deadline = time.monotonic() + STUCK_SECONDS
    while time.monotonic() < deadline and verdict.lost(ledger, items):
        stack.pause(1.0)
        items = _items(stack)
    return items


def _wait(holds: Callable[[], bool], otherwise: str, stack: Stack, calls: Process) -> None:
    deadline = time.monotonic() + STUCK_SECONDS
    while not holds():
        if calls.poll() is not None:
            raise StuckError(f"the calls ended; {processes.log_tail(stack.data_dir, 'load')}")
        if time.monotonic() > deadline:
            raise StuckError(otherwise)
        stack.tend()
        time.sleep(LOOK_SECONDS)


def _items(stack: Stack) -> dict[int, verdict.Item]:
    """The items of all batches, by message number."""
    with psycopg.connect(embedded_addresses.database_url(stack.data_dir)) as database:
        rows = database.execute(
            "SELECT substr(client_ref, 6)::int + idx, item.status, http_status, "
            "coalesce(position('outcome_unknown'::bytea IN response) > 0, false) "
            "FROM messaging_batchitem item JOIN messaging_batch batch ON batch.id = batch_id"
        ).fetchall()
    return {number: verdict.Item(*rest) for number, *rest in rows}


def grown(memory: Sequence[Mapping[str, float]]) -> list[str]:
    """Findings for processes whose memory grew between the middle and the last third of the run."""
    third = len(memory) // 3
    findings = []
    for kind in memory[-1].keys() - SERVERS:
        middle, last = (
            max(part.get(kind, 0.0) for part in memory[start : start + third]) for start in (third, 2 * third)
        )
        if last > max(MOST_GROWTH * middle, middle + GROWTH_FLOOR_MB):
            findings.append(f"the memory of {kind} grew from {middle:.0f} to {last:.0f} MB")
    return findings


def _report(
    ledger: Ledger,
    items: Mapping[int, verdict.Item],
    seconds: float,
    memory: Sequence[Mapping[str, float]],
) -> None:
    print(f"{seconds:,.0f} s: {ledger.events / seconds:,.0f} events/s, {ledger.sends / seconds:,.0f} sends/s")
    print(f"{ledger.again:,} deliveries of events that had arrived before")
    for name, count in verdict.outcomes(ledger, items).items():
        print(f"{count:>10,} {name}")
    for kind in sorted(memory[0]):
        parts = [each.get(kind, 0.0) for each in memory]
        thirds = [
            parts[start : start + (len(parts) // 3 or 1)]
            for start in (0, len(parts) // 3, 2 * len(parts) // 3)
        ]
        print(f"{kind:>12}: {' → '.join(f'{max(each):.0f}' for each in thirds)} MB at most in each third")


if __name__ == "__main__":
    sys.exit(main())
