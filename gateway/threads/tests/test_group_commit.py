"""Work done together: nobody waits who need not, everybody gets the result of their own item."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from gateway.threads.group_commit import GroupCommit

DEADLINE = 10.0


class AwayError(Exception):
    """What concerns everybody."""


class Work:
    """Doubles numbers, but not 13; notes its groups, and stops in each until it may go on."""

    def __init__(self, *, stops: bool = False) -> None:
        self.groups: list[list[int]] = []
        self.begun = threading.Semaphore(0)
        self.go_on = threading.Semaphore(0 if stops else 1_000_000)
        self.error: Exception | None = None
        self.inside = self.most_inside = 0

    def __call__(self, items: Sequence[int]) -> list[int]:
        self.groups.append(list(items))
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        self.begun.release()
        assert self.go_on.acquire(timeout=DEADLINE)
        self.inside -= 1
        if self.error is not None:
            raise self.error
        if 13 in items:
            raise ValueError("not this one")
        return [item * 2 for item in items]


def together(work: Work, most: int = 100) -> GroupCommit[int, int]:
    return GroupCommit(
        work, size=lambda item: 1, most=most, is_common=lambda error: isinstance(error, AwayError)
    )


def in_threads(
    do: Callable[[int], int], items: Sequence[int]
) -> tuple[list[threading.Thread], dict[int, Any]]:
    """A thread for each item; what came of each, a result or an error, is in the dictionary at the end."""
    came: dict[int, Any] = {}

    def run(item: int) -> None:
        try:
            came[item] = do(item)
        except BaseException as error:  # noqa: BLE001 - it is what the test looks at
            came[item] = error

    threads = [threading.Thread(target=run, args=(item,)) for item in items]
    for thread in threads:
        thread.start()
    return threads, came


def at_work(
    work: Work, most: int = 100
) -> tuple[GroupCommit[int, int], list[threading.Thread], dict[int, Any]]:
    """A thread that stands in the middle of the work for 1, so that others must wait."""
    shared = together(work, most)
    threads, came = in_threads(shared.do, [1])
    assert work.begun.acquire(timeout=DEADLINE)
    return shared, threads, came


def wait_for(shared: GroupCommit[int, int], count: int) -> None:
    """Until so many items have gathered."""
    deadline = threading.Event()
    for _ in range(int(DEADLINE * 1000)):
        if len(shared._gathered) == count:
            return
        deadline.wait(0.001)
    raise TimeoutError


def test_one_alone_is_done_at_once() -> None:
    work = Work()
    shared = together(work)
    assert [shared.do(1), shared.do(2)] == [2, 4]
    assert work.groups == [[1], [2]]


def test_what_gathers_while_one_works_is_done_together_in_its_order() -> None:
    work = Work(stops=True)
    shared, first, came = at_work(work)
    threads = []
    for count, item in enumerate((2, 3, 4), start=1):
        started, more = in_threads(shared.do, [item])
        threads += [(started[0], more)]
        wait_for(shared, count)
    work.go_on.release(2)
    for thread, more in [(first[0], came), *threads]:
        thread.join(DEADLINE)
        came |= more
    assert came == {1: 2, 2: 4, 3: 6, 4: 8}
    assert work.groups == [[1], [2, 3, 4]]


def test_who_comes_while_another_took_over_waits_too() -> None:
    work = Work(stops=True)
    shared, first, came = at_work(work)
    second, more = in_threads(shared.do, [2])
    wait_for(shared, 1)
    work.go_on.release()
    assert work.begun.acquire(timeout=DEADLINE), "the second thread is at work"
    third, last = in_threads(shared.do, [3])
    wait_for(shared, 1)
    work.go_on.release(2)
    for thread in first + second + third:
        thread.join(DEADLINE)
    assert came | more | last == {1: 2, 2: 4, 3: 6}
    assert work.most_inside == 1


def test_a_group_has_its_bound_and_the_next_one_takes_the_rest() -> None:
    work = Work(stops=True)
    shared, first, came = at_work(work, most=2)
    others, more = in_threads(shared.do, [2, 3, 4, 5, 6])
    wait_for(shared, 5)
    work.go_on.release(4)
    for thread in first + others:
        thread.join(DEADLINE)
    assert came | more == {item: item * 2 for item in range(1, 7)}
    assert [len(group) for group in work.groups] == [1, 2, 2, 1]


def test_an_error_that_concerns_all_reaches_all_and_is_not_tried_again() -> None:
    work = Work(stops=True)
    shared, first, came = at_work(work)
    others, more = in_threads(shared.do, [2, 3])
    wait_for(shared, 2)
    work.error = AwayError("the database is away")
    work.go_on.release(2)
    for thread in first + others:
        thread.join(DEADLINE)
    assert all(isinstance(error, AwayError) for error in (came | more).values())
    assert work.groups == [[1]], "nobody waits for the same trouble twice"
    work.error = None
    work.go_on.release()
    assert shared.do(5) == 10, "the next one is not harmed"


def test_the_fault_of_one_is_not_the_others() -> None:
    work = Work(stops=True)
    shared, first, came = at_work(work)
    others, more = in_threads(shared.do, [2, 13, 3])
    wait_for(shared, 3)
    work.go_on.release(10)
    for thread in first + others:
        thread.join(DEADLINE)
    assert isinstance(more.pop(13), ValueError)
    assert came | more == {1: 2, 2: 4, 3: 6}


def test_an_error_of_all_while_each_is_done_alone_leaves_nobody_waiting() -> None:
    work = Work(stops=True)
    shared, first, came = at_work(work)
    others, more = in_threads(shared.do, [13, 3])
    wait_for(shared, 2)
    work.go_on.release(2)  # the first, and both together, of which one is at fault
    for _ in range(2):
        assert work.begun.acquire(timeout=DEADLINE)
    last, latest = in_threads(shared.do, [4])
    wait_for(shared, 1)
    work.error = AwayError("the database is away")
    work.go_on.release(10)
    for thread in first + others + last:
        thread.join(DEADLINE)
    assert came == {1: 2}
    assert {item: type(error) for item, error in (more | latest).items()} == dict.fromkeys(
        (13, 3, 4), AwayError
    )


def test_nobody_has_a_result_of_work_that_was_broken_off() -> None:
    class BreakingOff(Work):
        def __call__(self, items: Sequence[int]) -> list[int]:
            doubled = super().__call__(items)
            if 2 in items:
                raise SystemExit
            return doubled

    work = BreakingOff(stops=True)
    shared, first, came = at_work(work)
    breaking, _ = in_threads(shared.do, [2])
    wait_for(shared, 1)
    others, more = in_threads(shared.do, [3])
    wait_for(shared, 2)
    work.go_on.release(10)
    for thread in first + breaking + others:
        thread.join(DEADLINE)
    assert came == {1: 2}
    assert [type(error) for error in more.values()] == [RuntimeError]


@pytest.mark.parametrize("most", [1, 7, 1000])
def test_many_threads_each_get_their_own(most: int) -> None:
    work = Work()
    shared = together(work, most)

    def many(start: int) -> int:
        return sum(shared.do(item) for item in range(start, start + 200) if item != 13)

    threads, came = in_threads(many, range(1000, 9000, 1000))
    for thread in threads:
        thread.join(DEADLINE)
    assert came == {
        start: sum(item * 2 for item in range(start, start + 200)) for start in range(1000, 9000, 1000)
    }
    assert sum(len(group) for group in work.groups) == 1600
