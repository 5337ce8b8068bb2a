"""Applies each mutant of the catalogue to a copy of the project and runs the tests that must detect it.

    python -m tests.mutants                     all mutants
    python -m tests.mutants messaging/ 2/4      the second quarter of the mutants in files with this prefix
    python -m tests.mutants --changed           mutants in files that this branch changed

Exits with 1 when a mutant survives without a reason or no longer applies, or when tests fail without any
mutant.
"""

import argparse
import compileall
import os
import py_compile
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
import redis

from gateway import embedded_addresses
from gateway.local_run import embedded_servers
from gateway.local_run.process_group import ProcessGroup

ROOT = Path(__file__).resolve().parents[2]
CATALOGUE = Path(__file__).with_name("catalogue.toml")
LINKED = (".venv", "tests/node/node_modules")
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", ".local*", "node_modules", "__pycache__", ".*_cache", ".pytest*"
)
MUTANT_SECONDS = 180.0
SOUND_SECONDS = 1800.0
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+::.+?|\S+)(?: - .*)?$", re.MULTILINE)
"""A line of pytest's summary."""
SET_BY_DJANGO = {"DJANGO_SETTINGS_MODULE"}
"""Variables that imports set in this process. They are removed from the environment of the tests."""
TEST_DATABASE: LiteralString = "test_gateway"


@dataclass(frozen=True)
class Mutant:
    """A mistake in one place of one file."""

    file: str
    find: str
    replace: str
    loses: str
    tests: tuple[str, ...]
    survives: str | None = None

    def mutated(self, text: str) -> str | None:
        """The text with the mistake. None unless `find` occurs exactly once."""
        return text.replace(self.find, self.replace) if text.count(self.find) == 1 else None


def catalogue() -> list[Mutant]:
    """All mutants, in the order of the catalogue."""
    entries = tomllib.loads(CATALOGUE.read_text())["mutant"]
    return [Mutant(**{**entry, "tests": tuple(entry["tests"])}) for entry in entries]


class Servers:
    """A Postgres and a Valkey for all runs, because starting and migrating them takes longer than most tests."""

    def __init__(self, directory: Path, project: Path) -> None:
        self._group = ProcessGroup()
        self._postgres = embedded_servers.start_postgres(
            directory, process_group=self._group.id, durable=False
        )
        self._valkey = embedded_servers.start_valkey(directory, process_group=self._group.id)
        self.environment = {
            name: value for name, value in os.environ.items() if name not in SET_BY_DJANGO
        } | {
            "DATABASE_URL": embedded_addresses.database_url(directory),
            "REDIS_URL": embedded_addresses.valkey_url(directory),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self._database("CREATE DATABASE migrated")
        subprocess.run(
            [sys.executable, "manage.py", "migrate", "--verbosity", "0"],
            cwd=project,
            env=self.environment
            | {"DATABASE_URL": embedded_addresses.database_url(directory, database="migrated")},
            check=True,
        )

    def clean(self) -> None:
        """Empty Valkey, and reset the database to the state after the migrations."""
        redis.Redis.from_url(self.environment["REDIS_URL"]).flushall()
        self._database(f"DROP DATABASE IF EXISTS {TEST_DATABASE} WITH (FORCE)")
        self._database(f"CREATE DATABASE {TEST_DATABASE} TEMPLATE migrated")

    def close(self) -> None:
        embedded_servers.stop_valkey(self._valkey)
        embedded_servers.stop_postgres(self._postgres)
        self._group.close()

    def _database(self, statement: LiteralString) -> None:
        with psycopg.connect(self.environment["DATABASE_URL"], autocommit=True) as connection:
            connection.execute(statement)


@dataclass(frozen=True)
class Run:
    """The result of a pytest run."""

    code: int
    failed: tuple[str, ...]
    """Node ids of the failed tests, or the reason why there are no ids."""
    output: str

    @property
    def passed(self) -> bool:
        return self.code == pytest.ExitCode.OK


class Copy:
    """A copy of the project in a directory, with its own servers. The mutants change only the copy."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "project"
        shutil.copytree(ROOT, self.root, ignore=LEFT_OUT)
        # Compiled files save each test process a second. They are checked by hash, so even a change within the same
        # second is detected.
        compileall.compile_dir(
            self.root, quiet=2, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH
        )
        for name in LINKED:
            if (ROOT / name).exists():
                (self.root / name).symlink_to((ROOT / name).resolve())
        self.servers = Servers(directory / "servers", self.root)

    def run(self, tests: Iterable[str], *options: str, seconds: float) -> Run:
        """Run tests. A run that takes too long counts as failed, because a mistake that makes tests hang counts as
        detected.
        """
        self.servers.clean()
        command = [sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=no", "-p", "no:cacheprovider"]
        try:
            ended = subprocess.run(
                [*command, "--reuse-db", *options, *tests],
                cwd=self.root,
                env=self.servers.environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Run(code=-1, failed=("a test that hangs",), output="")
        failed = tuple(FAILED.findall(ended.stdout)) or ("the import of the tests",)
        return Run(code=ended.returncode, failed=failed, output=ended.stdout)

    def unsound(self, mutants: Sequence[Mutant]) -> set[str]:
        """The tests of these mutants that fail without a mutant. Raises SystemExit when the tests cannot run."""
        tests = sorted({test for mutant in mutants for test in mutant.tests})
        run = self.run(tests, seconds=SOUND_SECONDS)
        if run.code not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:
            raise SystemExit(run.output or f"the tests took more than {SOUND_SECONDS:g} s")
        return set() if run.passed else set(run.failed)

    def verdict(self, mutant: Mutant, unsound: Collection[str] = ()) -> tuple[str, str]:
        """Try a mutant. Returns noticed, survives, stale or unsound, and the failed test."""
        path = self.root / mutant.file
        text = path.read_text() if path.exists() else ""
        mutated = mutant.mutated(text)
        if mutated is None:
            return "stale", ""
        for failed in unsound:
            if failed.startswith(mutant.tests):
                return "unsound", failed
        path.write_text(mutated)
        try:
            run = self.run(mutant.tests, "-x", seconds=MUTANT_SECONDS)
        finally:
            path.write_text(text)
        return ("survives", "") if run.passed else ("noticed", run.failed[0])


def chosen(mutants: Sequence[Mutant], beginning: str, part: str) -> list[Mutant]:
    """The mutants of files with this prefix. `part` selects a fraction: `2/4` is the second quarter."""
    number, parts = (int(each) for each in part.split("/"))
    return [mutant for mutant in mutants if mutant.file.startswith(beginning)][number - 1 :: parts]


def git(*words: str) -> str:
    """The output of a git command."""
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def base() -> str:
    """The commit at which this branch left main. Raises SystemExit if the clone has no main."""
    mains = git("for-each-ref", "--format=%(refname)", "refs/heads/main", "refs/remotes/origin/main").split()
    if not mains:
        raise SystemExit("This clone has no main with which to compare: fetch it.")
    return git("merge-base", mains[0], "HEAD").strip()


def changed() -> set[str]:
    """The files that this branch changed since it left main, including uncommitted changes."""
    return set(git("diff", "--name-only", base()).splitlines())


def tried(directory: Path, mutants: Sequence[Mutant]) -> int:
    """Try the mutants one by one in a copy of the project. Returns the number of unexpected results."""
    copy = Copy(directory)
    bad = 0
    try:
        unsound = copy.unsound(mutants)
        for mutant in mutants:
            verdict, test = copy.verdict(mutant, unsound)
            expected = "survives" if mutant.survives else "noticed"
            bad += verdict != expected
            note = mutant.survives if verdict == expected == "survives" else test
            _say(f"{verdict:<9} {mutant.file}: {mutant.loses}" + (f" ({note})" if note else ""))
    finally:
        copy.servers.close()
    return bad


def main() -> int:
    """Try the chosen mutants, with a copy and servers for each core. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("beginning", nargs="?", default="")
    parser.add_argument("part", nargs="?", default="1/1")
    parser.add_argument("--changed", action="store_true")
    arguments = parser.parse_args()
    files = changed() if arguments.changed else None
    mutants = [mutant for mutant in catalogue() if files is None or mutant.file in files]
    mutants = chosen(mutants, arguments.beginning, arguments.part)
    if not mutants:
        _say("The catalogue has no mutant of these files.")
        return 0
    lanes = min(os.cpu_count() or 1, len(mutants))
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory, ThreadPoolExecutor(lanes) as pool:
        shares = [mutants[lane::lanes] for lane in range(lanes)]
        bad = sum(pool.map(tried, [Path(directory, str(lane)) for lane in range(lanes)], shares))
    return 1 if bad else 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
