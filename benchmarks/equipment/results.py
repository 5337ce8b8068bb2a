"""Results of benchmarks, and the one table that shows them.

A rate alone says little. Compare it with the floor's rate from the same run.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

_HEADER = (
    "what",
    "count",
    "rate/s",
    "p50 ms",
    "p95 ms",
    "p99 ms",
    "CPU µs a unit",
    "floor/s",
    "ratio",
    "floor's CPU µs",
    "target",
)


@dataclass
class Result:
    """One line of results. `rate` is units a second. `failures` names each missed target and each loss."""

    what: str
    count: int
    rate: float
    unit: str = "unit"
    percentiles: Mapping[str, float] | None = None
    """`p50`, `p95` and `p99` in milliseconds."""
    cpu: Mapping[str, float] = field(default_factory=dict)
    """CPU microseconds per unit, by process."""
    floor: float | None = None
    """The floor's rate in units a second."""
    floor_cpu: Mapping[str, float] = field(default_factory=dict)
    """The floor's CPU microseconds per unit, by process."""
    target: str = ""
    failures: list[str] = field(default_factory=list)

    @property
    def ratio(self) -> float | None:
        """The rate as a share of the floor's rate."""
        return self.rate / self.floor if self.floor else None

    def expect(self, holds: bool, otherwise: str) -> None:
        """Record `otherwise` as a failure if the condition does not hold."""
        if not holds:
            self.failures.append(otherwise)

    def expect_rate(self, share: float) -> None:
        """Record a failure unless this share of the floor's rate was reached."""
        self._aim(f"rate ≥ {share:.2f} of the floor's")
        self.expect((self.ratio or 0) >= share, f"{self.ratio or 0:.2f} of the floor's rate, not {share:.2f}")

    def expect_cpu(self, processes: Sequence[str], times: float, *, floor: Sequence[str]) -> None:
        """Record a failure if the processes used more than `times` the CPU of the floor's processes."""
        own = sum(self.cpu.get(name, 0.0) for name in processes)
        bare = sum(self.floor_cpu.get(name, 0.0) for name in floor)
        self._aim(f"{' + '.join(processes)} ≤ {times:g} × floor's {' + '.join(floor)} ({own / bare:.2f})")
        self.expect(
            own <= times * bare, f"{own:,.0f} µs of {' + '.join(processes)}, {own / bare:.2f} × the floor's"
        )

    def expect_times(self, alone: "Result", times: float, *, least_ms: float) -> None:
        """Record a failure if the p99 exceeds `times` the p99 of `alone`, which counts as at least `least_ms`."""
        before, beside = ((each.percentiles or {}).get("p99", 0.0) for each in (alone, self))
        self._aim(f"p99 ≤ {times} × alone ({beside / before:.2f})")
        most = times * max(before, least_ms)
        self.expect(beside <= most, f"p99 {beside:.1f} ms, {beside / before:.2f} × {before:.1f} ms")

    def _aim(self, target: str) -> None:
        self.target = f"{self.target}, {target}" if self.target else target

    def as_json(self) -> dict[str, Any]:
        """The result for the process that prints the table of several benchmarks."""
        return asdict(self)


def percentiles(milliseconds: Sequence[float]) -> dict[str, float] | None:
    """p50, p95 and p99 of a sample. None for fewer than two values."""
    if len(milliseconds) < 2:
        return None
    cuts = statistics.quantiles(milliseconds, n=100, method="inclusive")
    return {"p50": cuts[49], "p95": cuts[94], "p99": cuts[98]}


def table(results: Mapping[str, Sequence[Result]]) -> str:
    """All results by benchmark as an aligned text table, with the failures below it."""
    rows = [_HEADER, *(_row(name, result) for name, many in results.items() for result in many)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    lines += [
        f"FAILED {name}, {result.what}: {failure}"
        for name, many in results.items()
        for result in many
        for failure in result.failures
    ]
    return "\n".join(lines)


def _row(name: str, result: Result) -> tuple[str, ...]:
    p = result.percentiles or {}
    return (
        f"{name}: {result.what}",
        f"{result.count:,}",
        f"{result.rate:,.0f} {result.unit}",
        *(f"{p[key]:.1f}" if key in p else "" for key in ("p50", "p95", "p99")),
        " ".join(f"{process} {microseconds:,.0f}" for process, microseconds in result.cpu.items()),
        f"{result.floor:,.0f}" if result.floor else "",
        f"{result.ratio:.2f}" if result.ratio is not None else "",
        " ".join(f"{process} {microseconds:,.0f}" for process, microseconds in result.floor_cpu.items()),
        result.target,
    )
