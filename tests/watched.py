"""What the watches share that read what our code does in every test: `owned_rows.py`, `locked_rows.py` and others."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType

import pytest

ROOT = Path(__file__).resolve().parents[1]
HERE = f"{ROOT}/"
_WATCHES = tuple(f"tests/{name}.py" for name in ("locked_rows", "owned_rows", "local_settings"))
SHARED = ("gateway/database/", "gateway/api/pagination.py", *_WATCHES)
"""Code that runs the statements of its callers."""
_OF_TESTS = re.compile(r"(^|/)(tests|benchmarks|conftest)(/|\.py)")

found: list[str] = []
"""What the running test's code did against a rule. A watch appends to it, because our code may catch an exception."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Fail a test whose code did something against a rule."""
    found.clear()
    yield
    assert not found, found[0]


def frames(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame and those that called it, the innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def caller(frame: FrameType) -> str:
    """Our function that made a call: the innermost from a frame on. Empty without one."""
    return next(filter(None, (place(each.f_code) for each in frames(frame))), "")


@cache
def place(code: CodeType) -> str:
    """The file and name of a function of ours. Empty for other functions, and for those of `SHARED`."""
    is_ours = code.co_filename.startswith(HERE) and "/.venv/" not in code.co_filename
    file = code.co_filename.removeprefix(HERE)
    return f"{file}:{code.co_qualname}" if is_ours and not file.startswith(SHARED) else ""


def is_excepted(function: str, exceptions: Iterable[str]) -> bool:
    """Whether a rule does not hold for a function from `place`: it is of the tests, or its name begins like an
    exception.
    """
    is_of_tests = _OF_TESTS.search(function.partition(":")[0])
    return bool(is_of_tests) or function.startswith(tuple(exceptions))
