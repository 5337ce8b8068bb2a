"""What a process remembers of the database for a moment, so that a busy flow does not ask at every turn."""

import weakref
from time import monotonic
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

MOST_REMEMBERED = 10_000

_all: "weakref.WeakSet[Remembered[object, object]]" = weakref.WeakSet()


class Remembered(Generic[Key, Value]):
    """Values by key, each for `seconds`; when there are very many it forgets all. For any number of threads.

    For facts of which those of a moment ago do as well, in every process: another one may have changed them since.
    """

    def __init__(self, *, seconds: float) -> None:
        self._seconds = seconds
        self._values: dict[Key, tuple[float, Value]] = {}
        _all.add(self)  # type: ignore[arg-type]

    def get(self, key: Key) -> Value | None:
        """The value, unless it is unknown or its time is over."""
        until, value = self._values.get(key, (0.0, None))
        return value if until > monotonic() else None

    def put(self, key: Key, value: Value) -> None:
        """Remember a value from now on."""
        if len(self._values) >= MOST_REMEMBERED:
            self._values.clear()
        self._values[key] = monotonic() + self._seconds, value

    def clear(self) -> None:
        """Forget every value."""
        self._values.clear()


def forget_all() -> None:
    """Forget everything, for tests."""
    for each in _all:
        each.clear()
