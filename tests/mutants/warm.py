"""Runs tests with a mutated function in a fork of a process that has already imported all tests.

A mutant costs only the time of its tests, because nothing is imported for it. A mutant outside of functions, such as a
constant or a decorator's argument, takes effect at the import, so it needs a new process (`Copy.run`).

    python -m tests.mutants.warm TEST...

The process reads a run from each line of its input, and writes the first failed test as a line. `Warm` starts it.
"""

import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from inspect import CO_OPTIMIZED
from pathlib import Path
from tempfile import TemporaryFile
from types import CodeType, FunctionType
from typing import IO, TYPE_CHECKING, Any

import pytest
from _pytest import config

if TYPE_CHECKING:
    # It imports the settings, which conftest.py must be the first to do.
    from tests.mutants.__main__ import Copy

OPTIONS = ("-q", "-x", "--tb=no", "-p", "no:cacheprovider", "--reuse-db")
HANGS = "a test that hangs"
Place = tuple[str, str, int]
"""The file, qualified name and first line of a function."""


class Warm:
    """The process for the tests of a copy of the project."""

    def __init__(self, copy: "Copy", tests: Sequence[str]) -> None:
        self._copy = copy
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.mutants.warm", *tests],
            cwd=copy.root,
            env=copy.servers.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def notices(self, file: str, text: str, tests: Sequence[str], *, seconds: float) -> bool:
        """Whether one of the tests, in this order, fails with this text of a file, and passes without it. A run that
        takes too long counts as failed.

        False proves nothing: the text may differ in what only an import changes.
        """
        failed = self._failed(file, text, tests, seconds)
        if failed not in tests:
            return failed == HANGS
        return not self._failed(file, (self._copy.root / file).read_text(), [failed], seconds)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _failed(self, file: str, text: str, tests: Sequence[str], seconds: float) -> str:
        """The test that fails, if any."""
        self._copy.servers.clean()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"file": file, "text": text, "tests": list(tests), "seconds": seconds}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return str(json.loads(self._process.stdout.readline()))


def functions() -> dict[Place, list[FunctionType]]:
    """The functions of the project that this process has imported. A decorated function keeps the original alive."""
    here = str(Path.cwd())
    gc.unfreeze()
    found: dict[Place, list[FunctionType]] = {}
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename.startswith(here):
            found.setdefault(_place(each.__code__), []).append(each)
    gc.freeze()
    return found


def _place(code: CodeType) -> Place:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _parts(code: CodeType) -> list[CodeType]:
    return [each for each in code.co_consts if isinstance(each, CodeType)]


def _own(code: CodeType) -> object:
    """What a code does, apart from its lines and from the functions in it."""
    constants = [None if isinstance(each, CodeType) else repr(each) for each in code.co_consts]
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, constants


def changes(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Yield each function that differs, in its own code or in that of a function within it, with its new code."""
    inner = [change for part in zip(_parts(old), _parts(new), strict=False) for change in changes(*part)]
    if old.co_flags & CO_OPTIMIZED and (inner or _own(old) != _own(new)):
        yield old, new
    yield from inner


def swap(known: Mapping[Place, Sequence[FunctionType]], file: str, text: str) -> None:
    """Give the functions of a file the code that they have in a text."""
    path = Path(file).resolve()
    old, new = (compile(each, path, "exec", dont_inherit=True) for each in (path.read_text(), text))
    for before, after in changes(old, new):
        for function in known.get(_place(before), ()):
            # A closure whose new code uses other names around it is replaced with the function that makes it.
            with suppress(ValueError):
                function.__code__ = after


class FirstFailure:
    """A plugin that writes the id of each failed test into a file."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._file.write(report.nodeid + "\n")
            self._file.flush()


def failed_test(known: Mapping[Place, Sequence[FunctionType]], asked: Mapping[str, Any]) -> str:
    """Run tests with a mutant in a fork of this process, and return the first that fails. Empty if all pass."""
    with TemporaryFile("w+") as failed:
        fork = os.fork()
        if not fork:
            os.setsid()
            swap(known, asked["file"], asked["text"])
            pytest.main([*OPTIONS, *asked["tests"]], plugins=[FirstFailure(failed)])
            os._exit(0)
        deadline = time.monotonic() + asked["seconds"]
        while not os.waitpid(fork, os.WNOHANG)[0]:
            if time.monotonic() > deadline:
                os.killpg(fork, signal.SIGKILL)
                os.waitpid(fork, 0)
                return HANGS
            time.sleep(0.02)
        failed.seek(0)
        return failed.readline().rstrip()


def main() -> None:
    """Import the tests, then run those that each line of the input names."""
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    # pytest imports each conftest.py anew, and the one of the project may run only once.
    config.import_path = cache(config.import_path)  # type: ignore[assignment,attr-defined]
    pytest.main(["--collect-only", *OPTIONS, *sys.argv[1:]])
    known = functions()
    for line in sys.stdin:
        replies.write(json.dumps(failed_test(known, json.loads(line))) + "\n")


if __name__ == "__main__":
    main()
