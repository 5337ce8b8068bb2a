"""The order in which a parallel run assigns files to processes."""

from types import SimpleNamespace

import pytest

from conftest import LONG_FILES
from tests.pages import ROOT
from tests.scheduling import Scheduling

TESTS = [
    *("long.py::only", "other.py::first", "other.py::second", "other.py::last"),
    *("next.py::first", "next.py::second", "short.py::first", "short.py::second"),
]


class Process:
    """A process of the run, with the tests that were assigned to it."""

    gateway = SimpleNamespace(id="gw")

    def __init__(self) -> None:
        self.given: list[str] = []
        self.shutting_down = False

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given += [TESTS[index] for index in indices]

    def shutdown(self) -> None:
        self.shutting_down = True


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> tuple[Scheduling, Process, Process]:
    """A run of two processes that have their first tests."""
    monkeypatch.setattr("xdist.scheduler.loadscope.parse_tx_spec_config", lambda _: range(2))
    scheduling = Scheduling(SimpleNamespace(option=SimpleNamespace(loadscopereorder=False)), None)  # type: ignore[arg-type]
    one, other = Process(), Process()
    for process in (one, other):
        scheduling.add_node(process)  # type: ignore[arg-type]
        scheduling.add_node_collection(process, TESTS)  # type: ignore[arg-type]
    scheduling.schedule()
    return scheduling, one, other


def test_a_file_of_one_test_is_followed_by_the_last_of_the_queue(
    run: tuple[Scheduling, Process, Process],
) -> None:
    _, one, other = run
    assert one.given == ["long.py::only", "short.py::first", "short.py::second"]
    assert other.given == TESTS[1:4]


def test_a_process_gets_its_next_file_when_one_test_is_left(run: tuple[Scheduling, Process, Process]) -> None:
    scheduling, _, other = run
    scheduling.mark_test_complete(other, 1)  # type: ignore[arg-type]
    assert other.given == TESTS[1:4]
    scheduling.mark_test_complete(other, 2)  # type: ignore[arg-type]
    assert other.given == TESTS[1:6]


@pytest.mark.parametrize("start", LONG_FILES)
def test_the_long_files_are_there(start: str) -> None:
    assert (ROOT / start).exists()
