"""Debounced work: runs rarely, never too early, and always after the last request."""

import threading

from gateway.valkey.write_behind import Debounced

DEADLINE = 10.0


def test_many_threads_ask_and_the_last_asking_is_seen() -> None:
    written = 0
    lock = threading.Lock()
    seen: list[int] = []
    all_seen = threading.Event()

    def work() -> None:
        seen.append(written)
        if written == 8 * 200:
            all_seen.set()

    coalesced = Debounced(work, seconds=0.005)

    def ask() -> None:
        nonlocal written
        for _ in range(200):
            with lock:
                written += 1
            coalesced.ask()

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all_seen.wait(DEADLINE), "what was written last was not seen"
    assert len(seen) < 8 * 200 / 4, "the work was done for nearly every asking"


def test_asked_again_too_soon_it_waits_unless_it_is_to_hurry() -> None:
    worked, again = threading.Event(), threading.Event()

    def work() -> None:
        (again if worked.is_set() else worked).set()

    debounced = Debounced(work, seconds=60.0)
    debounced.ask()
    assert worked.wait(DEADLINE), "the first asking was not followed at once"
    debounced.ask()
    assert not again.wait(0.2)
    debounced.ask(hurry=True)
    assert again.wait(DEADLINE)


def test_what_collects_takes_together_what_comes_until_it_is_to_hurry() -> None:
    waiting: list[str] = []
    taken: list[list[str]] = []
    worked = threading.Event()

    def work() -> None:
        taken.append(list(waiting))
        worked.set()

    collecting = Debounced(work, seconds=60.0, collects=True)
    waiting.append("first")
    collecting.ask()
    assert not worked.wait(0.2), "it began with the first asking"
    waiting.append("second")
    collecting.ask(hurry=True)
    assert worked.wait(DEADLINE)
    assert taken == [["first", "second"]]


def test_what_collects_begins_by_itself() -> None:
    worked = threading.Event()
    Debounced(worked.set, seconds=0.01, collects=True).ask()
    assert worked.wait(DEADLINE)


def test_asked_while_it_works_it_works_again() -> None:
    working, go_on, again = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        if working.is_set():
            again.set()
        working.set()
        go_on.wait(DEADLINE)

    coalesced = Debounced(work, seconds=0.0)
    coalesced.ask()
    assert working.wait(DEADLINE)
    coalesced.ask()
    go_on.set()
    assert again.wait(DEADLINE)


def test_the_caller_does_not_wait_for_the_work() -> None:
    go_on, done = threading.Event(), threading.Event()

    def work() -> None:
        go_on.wait(DEADLINE)
        done.set()

    Debounced(work, seconds=0.0).ask()
    assert not done.is_set()
    go_on.set()
    assert done.wait(DEADLINE)


def test_work_that_failed_is_done_when_asked_again() -> None:
    failed, done = threading.Event(), threading.Event()

    def work() -> None:
        if not failed.is_set():
            failed.set()
            raise ValueError
        done.set()

    debounced = Debounced(work, seconds=0.0)
    debounced.ask()
    assert failed.wait(DEADLINE)
    debounced.ask()
    assert done.wait(DEADLINE)
