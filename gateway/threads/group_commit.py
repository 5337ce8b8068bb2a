"""Group commit: items of concurrent threads are written in one call by one of those threads."""

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Waiting(Generic[Item, Result]):
    """An item, and the thread that waits for its result or for its turn to write."""

    def __init__(self, item: Item) -> None:
        self.item = item
        self.result: Result | None = None
        self.error: Exception | None = RuntimeError("The work was broken off.")
        self.is_done = False
        self._woken = threading.Lock()
        self._woken.acquire()

    def wait(self) -> None:
        self._woken.acquire()

    def wake(self) -> None:
        self._woken.release()


class GroupCommit(Generic[Item, Result]):
    """Calls `work` in one thread at a time, with every item that arrived since the last call.

    A thread that finds no other at work writes its own item at once, so a lone item never waits. `work` gets the items
    in their order, at most `most` by their `size`, and returns a result for each. An exception that `is_common` fails
    everyone waiting. Any other exception: each item of the group is retried alone.
    """

    def __init__(
        self,
        work: Callable[[Sequence[Item]], Sequence[Result]],
        *,
        size: Callable[[Item], int],
        most: int,
        is_common: Callable[[Exception], bool],
    ) -> None:
        self._work, self._size, self._most, self._is_common = work, size, most, is_common
        self._lock = threading.Lock()
        self._gathered: list[_Waiting[Item, Result]] = []
        self._is_at_work = False

    def do(self, item: Item) -> Result:
        """The result of an item, by this thread's work or by another's."""
        mine: _Waiting[Item, Result] = _Waiting(item)
        with self._lock:
            self._gathered.append(mine)
            leads, self._is_at_work = not self._is_at_work, True
        if not leads:
            mine.wait()
        if not mine.is_done:
            group = self._take()
            try:
                self._do(group)
            finally:
                self._pass_on(group, mine)
        if mine.error is not None:
            raise mine.error
        return mine.result  # type: ignore[return-value]  # what is done without an error has one

    def _take(self) -> list[_Waiting[Item, Result]]:
        """The first of what has gathered; this thread's own item is at its head."""
        with self._lock:
            end, size = 1, self._size(self._gathered[0].item)
            while end < len(self._gathered):
                size += self._size(self._gathered[end].item)
                if size > self._most:
                    break
                end += 1
            group, self._gathered = self._gathered[:end], self._gathered[end:]
        return group

    def _do(self, group: list[_Waiting[Item, Result]]) -> None:
        """Give each of the group a result or an error: at first all at once."""
        parts = [list(group)]
        while parts:
            part = parts.pop(0)
            try:
                for each, result in zip(part, self._work([each.item for each in part]), strict=True):
                    each.result, each.error = result, None
            except Exception as error:  # noqa: BLE001 - whoever waits for an item gets its error
                if self._is_common(error):
                    # Those who wait have waited for it as well: trying again for them would take as long once more.
                    with self._lock:
                        waiting, self._gathered = self._gathered, []
                    group += waiting
                    for each in (*part, *(each for (each,) in parts), *waiting):
                        each.error = error
                    return
                if len(part) == 1:
                    part[0].error = error
                else:
                    parts = [[each] for each in part]

    def _pass_on(self, group: list[_Waiting[Item, Result]], mine: _Waiting[Item, Result]) -> None:
        """Have the next thread work, and let those whose items are done go."""
        with self._lock:
            following = self._gathered[0] if self._gathered else None
            self._is_at_work = following is not None
        if following is not None:
            following.wake()
        for each in group:
            each.is_done = True
            if each is not mine:
                each.wake()
