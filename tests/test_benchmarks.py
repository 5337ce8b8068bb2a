"""The benchmarks: every benchmark of `make bench` exists and can be run."""

import importlib
from pathlib import Path

import pytest

import benchmarks
from benchmarks.__main__ import NAMES
from benchmarks.equipment.results import Result


def test_every_benchmark_is_named() -> None:
    modules = Path(benchmarks.__path__[0]).glob("[!_]*.py")
    assert {module.stem for module in modules} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_can_be_imported(name: str) -> None:
    assert callable(importlib.import_module(f"benchmarks.{name}").run)


@pytest.mark.parametrize(
    ("speed", "cpu", "failures"), [(50, 20.0, 0), (49, 20.0, 1), (50, 20.1, 1), (49, 20.1, 2)]
)
def test_a_rate_and_cpu_are_compared_with_the_floor_of_the_same_run(
    speed: int, cpu: float, failures: int
) -> None:
    for machine in (1, 2, 10):
        result = Result("a load", 1, speed * machine, floor=100 * machine)
        result.cpu, result.floor_cpu = (
            {"web": cpu / machine},
            {"listener": 8 / machine, "postgres": 2 / machine},
        )
        result.expect_rate(0.5)
        result.expect_cpu(("web",), 2.0, floor=("listener", "postgres"))
        assert len(result.failures) == failures
