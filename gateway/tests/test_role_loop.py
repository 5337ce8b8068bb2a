"""The thread of a worker's loop restarts the loop after any end, until the process stops."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from gateway import role_loop
from gateway.role_loop import LoopThread

SECONDS = 10.0


class _Loop:
    """Calls one of the given functions in each run. After the last function, a run lasts until it is stopped."""

    __name__ = "the.loop"

    def __init__(self, *runs: Callable[[], bool]) -> None:
        self._runs = iter(runs)
        self.lasts = threading.Event()
        self.stopped = threading.Event()

    async def work(self) -> bool:
        if (run := next(self._runs, None)) is not None:
            return run()
        self.lasts.set()
        assert await asyncio.to_thread(self.stopped.wait, SECONDS)
        return False

    def stop(self) -> None:
        self.stopped.set()


def fail() -> bool:
    raise RuntimeError("the loop's own mistake")


@pytest.mark.parametrize(
    ("earlier", "errors"),
    [
        pytest.param([lambda: True], 0, id="it had nothing to do for long"),
        pytest.param([lambda: False], 0, id="another loop of the process runs it"),
        pytest.param([fail, fail], 2, id="it failed twice"),
    ],
)
def test_a_loop_that_ends_by_itself_begins_again(
    earlier: list[Callable[[], bool]],
    errors: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(role_loop, "PAUSE_SECONDS", 0.01)
    loop = _Loop(*earlier)
    with LoopThread(loop):
        assert loop.lasts.wait(SECONDS)
        assert not loop.stopped.is_set()
    assert [record.levelname for record in caplog.records if "loop_failed" in record.getMessage()] == [
        "ERROR"
    ] * errors


def test_it_pauses_after_a_failure_and_a_stop_does_not_wait_for_that(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(role_loop, "PAUSE_SECONDS", 3600.0)
    failed = threading.Event()

    def fail_and_signal() -> bool:
        failed.set()
        return fail()

    loop = _Loop(fail_and_signal)
    with LoopThread(loop) as thread:
        assert failed.wait(SECONDS)
    assert not thread._thread.is_alive()
    assert loop.stopped.is_set()
    assert not loop.lasts.is_set(), "nothing runs again after the stop, nor before the pause is over"


def test_one_that_is_stopped_before_it_begins_ends() -> None:
    loop = _Loop()
    with LoopThread(loop) as thread:
        pass
    assert not thread._thread.is_alive()
