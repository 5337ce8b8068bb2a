"""Children of a run: restarts, back-off, crash loops, and no child left when the owner is killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from gateway.local_run import processes
from gateway.local_run.process_group import ProcessGroup
from gateway.local_run.processes import Child, StartError
from gateway.local_run.supervisor import locked

OWNER = """
import subprocess, sys, time
from pathlib import Path
from gateway.local_run.process_group import ProcessGroup
from gateway.local_run.supervisor import locked
with locked(Path(sys.argv[1])) as lock:
    group = ProcessGroup(keep_open=(lock,), grace_seconds=1)
    child = subprocess.Popen(["sh", "-c", sys.argv[2]], process_group=group.id, stdout=subprocess.PIPE)
    child.stdout.readline()
    print(child.pid, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def group() -> Iterator[ProcessGroup]:
    group = ProcessGroup(grace_seconds=1)
    yield group
    group.close()


def wait_until(condition: Callable[[], bool], *, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def running(process_id: int) -> bool:
    """Whether a process runs. An ended process that its new parent has not collected does not count."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def child_of(command: str, *, data_dir: Path, group: ProcessGroup) -> Child:
    start = partial(
        processes.start, "worker", ["sh", "-c", command], data_dir=data_dir, process_group=group.id
    )
    return Child("worker", data_dir=data_dir, start=start, stop=partial(processes.stop, seconds=5))


def process_ids(data_dir: Path) -> list[int]:
    """The process ids in the log: each start writes `echo $$`."""
    return [int(line) for line in processes.log_path(data_dir, "worker").read_text().split()]


@pytest.mark.parametrize(
    "command",
    ["echo; exec sleep 60", "trap '' TERM; echo; while :; do sleep 0.1; done"],
    ids=["obedient", "deaf"],
)
def test_children_end_when_their_owner_is_killed(tmp_path: Path, command: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path), command], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        child = int(owner.stdout.readline())
        assert running(child)
        owner.kill()
    with locked(tmp_path):
        assert not running(child)


def test_closing_a_group_ends_what_is_left_in_it(group: ProcessGroup) -> None:
    deaf = "trap '' TERM; echo; while :; do sleep 0.1; done"
    other = ProcessGroup(grace_seconds=0.2)
    with subprocess.Popen(["sh", "-c", deaf], process_group=other.id, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        other.close()
        assert child.wait(5) == -signal.SIGKILL


def test_a_child_that_somebody_kills_is_restarted_every_time(
    tmp_path: Path, group: ProcessGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "MAX_BACK_OFF_SECONDS", 0.01)
    child = child_of("echo $$; exec sleep 60", data_dir=tmp_path, group=group)
    child.start()

    def lives() -> int:
        child.tend()
        return len(process_ids(tmp_path))

    for life in range(1, 2 * processes.MAX_CRASHES):
        wait_until(lambda life=life: lives() == life)  # type: ignore[misc]
        os.kill(process_ids(tmp_path)[-1], signal.SIGKILL)
    wait_until(lambda: lives() == 2 * processes.MAX_CRASHES)
    child.stop()
    assert not running(process_ids(tmp_path)[-1])


def test_restarts_back_off() -> None:
    assert [processes.back_off(lives) for lives in range(8)] == [0, 0.25, 0.75, 1.75, 3.75, 7.75, 10, 10]


def test_a_crash_loop_ends_the_run_with_the_end_of_the_log(
    tmp_path: Path, group: ProcessGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "MAX_BACK_OFF_SECONDS", 0.01)
    child = child_of("echo no such module; exit 3", data_dir=tmp_path, group=group)
    child.start()

    def tend() -> bool:
        child.tend()
        return False

    with pytest.raises(StartError, match=r"worker ended 5 times .* exit code 3(.|\n)*no such module"):
        wait_until(tend)


def test_a_child_that_ends_while_starting_says_so_with_its_log(tmp_path: Path, group: ProcessGroup) -> None:
    child = child_of("echo cannot bind; exit 1", data_dir=tmp_path, group=group)
    child.start()

    def check() -> bool:
        child.check_alive()
        return False

    with pytest.raises(StartError, match=r"worker ended with exit code 1 while starting(.|\n)*cannot bind"):
        wait_until(check)


def test_a_deaf_process_is_killed_after_its_time(tmp_path: Path, group: ProcessGroup) -> None:
    command = ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"]
    process = processes.start("deaf", command, data_dir=tmp_path, process_group=group.id)
    wait_until(lambda: processes.log_path(tmp_path, "deaf").read_text() == "ready\n")
    processes.stop(process, seconds=0.1)
    assert process.returncode == -signal.SIGKILL


def test_a_large_log_is_set_aside_while_its_process_writes_on(
    tmp_path: Path, group: ProcessGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "MAX_LOG_BYTES", 10)
    log, turn = processes.log_path(tmp_path, "web"), tmp_path / "turn"
    command = f"echo the first run; until [ -e {turn} ]; do sleep 0.01; done; echo second"
    process = processes.start("web", ["sh", "-c", command], data_dir=tmp_path, process_group=group.id)
    wait_until(lambda: log.read_text() == "the first run\n")
    processes.bound_logs(tmp_path)
    turn.touch()
    process.wait()
    processes.bound_logs(tmp_path)
    assert log.read_text() == "second\n"
    assert (tmp_path / "logs" / "web.log.1").read_text() == "the first run\n"
