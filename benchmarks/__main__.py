"""`python -m benchmarks [NAME …]`: run benchmarks, each in a separate process on fresh servers, and print one table.

A long benchmark has PARTS, each on fresh servers. `NAME:PART` runs one part.

Exits with 1 if a target was missed, or anything was lost, duplicated or refused.
"""

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.equipment.harness import Harness
from benchmarks.equipment.results import Result, table

NAMES = (
    "incoming",
    "intake",
    "bulkhead",
    "hostile",
    "delivery",
    "lone",
    "ordered",
    "filters",
    "latency",
    "steady",
    "crash",
    "calls",
    "isolation",
    "many_tenants",
    "growth",
    "send",
    "request_log",
    "projection",
    "stream",
    "batch",
    "scheduled",
    "media",
    "parse",
    "reads",
    "console",
    "idle",
    "capacity",
)
"""Modules of this package, in the order in which they run."""


def main() -> int:
    """Run the benchmarks that the command line names, or all. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(NAMES)}")
    parser.add_argument("--into", type=Path, help="write the results of one benchmark there, as JSON")
    options = parser.parse_args()
    names = options.names or list(NAMES)
    names = [each for name in names for each in (_parts(name) or [name])]
    if unknown := [name for name in names if not _is_known(name)]:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(NAMES)}")
    results = {name: _here(name) if len(names) == 1 else _apart(name) for name in names}
    if options.into:
        options.into.write_text(json.dumps([result.as_json() for result in results[names[0]]]))
    else:
        print(table(results))
    return int(any(result.failures for many in results.values() for result in many))


def _parts(name: str) -> list[str]:
    """The parts of the benchmark `name`. Empty if the benchmark has no parts, or if `name` is a part."""
    if name not in NAMES:
        return []
    module = importlib.import_module(f"benchmarks.{name}")
    return [f"{name}:{part}" for part in getattr(module, "PARTS", ())]


def _is_known(name: str) -> bool:
    whole, is_part, _ = name.partition(":")
    return name in _parts(whole) if is_part else name in NAMES


def _here(name: str) -> list[Result]:
    print(f"{name} ...", file=sys.stderr, flush=True)
    whole, is_part, part = name.partition(":")
    module = importlib.import_module(f"benchmarks.{whole}")
    with Harness() as harness:
        results: list[Result] = module.run(harness, part) if is_part else module.run(harness)
    return results


def _apart(name: str) -> list[Result]:
    """Run a benchmark in a separate process, with separate servers, settings and memory."""
    with tempfile.NamedTemporaryFile(suffix=".json") as into:
        command = [sys.executable, "-m", "benchmarks", name, "--into", into.name]
        code = subprocess.run(command, check=False).returncode
        text = Path(into.name).read_text()
    if not text:
        return [Result("did not finish", 0, 0.0, failures=[f"ended with exit code {code}"])]
    return [Result(**values) for values in json.loads(text)]


if __name__ == "__main__":
    sys.exit(main())
