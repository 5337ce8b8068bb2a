"""The benchmarks: what `make bench` names is there and can be run."""

import importlib
from pathlib import Path

import pytest

import benchmarks
from benchmarks.__main__ import NAMES


def test_every_benchmark_is_named() -> None:
    modules = Path(benchmarks.__path__[0]).glob("[!_]*.py")
    assert {module.stem for module in modules} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_can_be_imported(name: str) -> None:
    assert callable(importlib.import_module(f"benchmarks.{name}").run)
