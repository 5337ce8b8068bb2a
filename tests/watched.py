"""What the watches share that read what our code does in every test (`owned_rows.py`, `locked_rows.py`)."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType

import pytest

ROOT = Path(__file__).resolve().parents[1]
HERE = f"{ROOT}/"
SHARED = ("gateway/database/", "gateway/api/pagination.py")
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


@cache
def place(code: CodeType) -> str:
    """The file and name of a function of ours. Empty for other functions, and for those of `SHARED`."""
    is_ours = code.co_filename.startswith(HERE) and "/.venv/" not in code.co_filename
    file = code.co_filename.removeprefix(HERE)
    return f"{file}:{code.co_qualname}" if is_ours and not file.startswith(SHARED) else ""


@cache
def is_of_tests(file: str) -> bool:
    """Whether a file has tests, their fixtures or benchmarks."""
    return bool(_OF_TESTS.search(file))
