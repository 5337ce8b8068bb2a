"""Applies each mutant of the catalogue to a copy of the project and runs the tests that must notice it.

    python -m tests.mutants                     all of them
    python -m tests.mutants messaging/ 2/4      those of files that begin so; the second quarter of them

Exit code 1 when a mutant survives without a reason, no longer applies, or its tests fail without it.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import LiteralString

import psycopg
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
TIMEOUT_SECONDS = 600.0
SET_BY_DJANGO = {"DJANGO_SETTINGS_MODULE"}
"""Set in this process by what it imports; the tests refuse to start with it."""
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
        """The file with the mistake; None when its place is not found exactly once."""
        return text.replace(self.find, self.replace) if text.count(self.find) == 1 else None


def catalogue() -> list[Mutant]:
    """All mutants, in the order of the catalogue."""
    entries = tomllib.loads(CATALOGUE.read_text())["mutant"]
    return [Mutant(**{**entry, "tests": tuple(entry["tests"])}) for entry in entries]


class Servers:
    """A Postgres and a Valkey for all runs: starting and migrating them takes longer than most tests."""

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
        """Nothing in Valkey, and of the database what the migrations make."""
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


class Copy:
    """The project in a directory of its own, in which mistakes do no harm."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "project"
        shutil.copytree(ROOT, self.root, ignore=LEFT_OUT)
        for name in LINKED:
            if (ROOT / name).exists():
                (self.root / name).symlink_to((ROOT / name).resolve())
        self.servers = Servers(directory / "servers", self.root)
        self._sound: dict[tuple[str, ...], bool] = {}

    def passes(self, tests: Sequence[str]) -> bool:
        """Whether the tests pass. A mistake that hangs them is noticed as well."""
        self.servers.clean()
        try:
            return (
                subprocess.run(
                    [
                        sys.executable,
                        "-m",
                        "pytest",
                        "-q",
                        "-x",
                        "-p",
                        "no:cacheprovider",
                        "--reuse-db",
                        *tests,
                    ],
                    cwd=self.root,
                    env=self.servers.environment,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    timeout=TIMEOUT_SECONDS,
                    check=False,
                ).returncode
                == 0
            )
        except subprocess.TimeoutExpired:
            return False

    def sound(self, tests: tuple[str, ...]) -> bool:
        """Whether the tests pass without any mistake; asked once."""
        if tests not in self._sound:
            self._sound[tests] = self.passes(tests)
        return self._sound[tests]

    def verdict(self, mutant: Mutant) -> str:
        """What became of a mutant: noticed, survives, stale, or the tests fail without it."""
        path = self.root / mutant.file
        text = path.read_text() if path.exists() else ""
        mutated = mutant.mutated(text)
        if mutated is None:
            return "stale"
        if not self.sound(mutant.tests):
            return "unsound"
        path.write_text(mutated)
        try:
            return "survives" if self.passes(mutant.tests) else "noticed"
        finally:
            path.write_text(text)


def chosen(mutants: Sequence[Mutant], beginning: str, part: str) -> list[Mutant]:
    """The mutants of files that begin so; of these the given part, `2/4` for the second quarter."""
    number, parts = (int(each) for each in part.split("/"))
    return [mutant for mutant in mutants if mutant.file.startswith(beginning)][number - 1 :: parts]


def main() -> int:
    """Try the chosen mutants one by one; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("beginning", nargs="?", default="")
    parser.add_argument("part", nargs="?", default="1/1")
    arguments = parser.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        copy = Copy(Path(directory))
        try:
            for mutant in chosen(catalogue(), arguments.beginning, arguments.part):
                verdict = copy.verdict(mutant)
                expected = "survives" if mutant.survives else "noticed"
                bad += verdict != expected
                reason = f" ({mutant.survives})" if verdict == expected == "survives" else ""
                _say(f"{verdict:<9} {mutant.file}: {mutant.loses}{reason}")
        finally:
            copy.servers.close()
    return 1 if bad else 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
