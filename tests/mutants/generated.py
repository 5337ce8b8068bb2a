"""Mutants that are generated from a file. Each is tried with the tests that run the mutated lines.

    python -m tests.mutants.generated messaging/idempotency.py              all of a file
    python -m tests.mutants.generated --most 50 billing/ledger.py           fifty of them, evenly spread
    python -m tests.mutants.generated --most 40 --seed 7 messaging          a random sample of a package
    python -m tests.mutants.generated --most 100 --seed 7                   of the modules in generated.toml
    python -m tests.mutants.generated --changed                             mutants of the lines that a branch changed
    python -m tests.mutants.generated --tests web/tests messaging/pacing.py with these tests instead of the package's
    python -m tests.mutants.generated --all-tests --most 40 messaging       with the tests of every package

`mutmut_mutants.py` generates the mutants, coverage's contexts choose the tests, and `Copy` runs the tests in a copy of
the project. `generated.toml` lists survivors without a visible effect. Exit code 1 when another mutant survives.
"""

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from tests.mutants.__main__ import MUTANT_SECONDS, ROOT, SOUND_SECONDS, Copy, base, git
from tests.mutants.warm import Warm

MUTMUT, COVERAGE = "mutmut==3.8.1", "pytest-cov==7.1.0"
MADE_BY = Path(__file__).with_name("mutmut_mutants.py")
SETTINGS = tomllib.loads(Path(__file__).with_name("generated.toml").read_text())
CHECKS = (
    "tests/api_contract/test_openapi.py::test_the_committed_document_is_the_generated_one",
    "tests/documentation/test_docs.py",
    "gateway/tests/test_logs.py",
)
"""Tests that read the sources, or compare all of them with a document. No context names them."""
FEW_TESTS = 25
"""The number of tests for a file that no test imports, evenly chosen."""
PACKAGES = ("gateway", "tenants", "webhooks", "phone_numbers", "messaging", "billing", "web", "console")
ALL_TESTS = (
    *PACKAGES,
    *("tests/api_contract", "tests/documentation", "tests/staff", "tests/state_machines"),
    *("tests/test_audit.py", "tests/test_limits.py", "tests/test_mistakes.py"),
    *("tests/test_pruning_edges.py", "tests/test_window_edges.py"),
)
"""The tests that run the code in the process of the tests, where coverage sees it."""
Contexts = Mapping[str, Mapping[int, Sequence[str]]]
"""The tests that run each line, by file and line."""


@dataclass(frozen=True)
class Generated:
    """Replacement lines for some lines of a file."""

    file: str
    start: int
    end: int
    new: tuple[str, ...]

    def mutated(self, text: str) -> str:
        """The text of the file with the mistake."""
        lines = text.split("\n")
        return "\n".join([*lines[: self.start - 1], *self.new, *lines[self.end :]])

    @property
    def old(self) -> str:
        """The code that is replaced, with its lines joined by blanks."""
        return _line((ROOT / self.file).read_text().split("\n")[self.start - 1 : self.end])

    def __str__(self) -> str:
        return f"{self.file}:{self.start}: {self.old}  →  {_line(self.new)}"


def _line(lines: Sequence[str]) -> str:
    return " ".join(line.strip() for line in lines)


def made(files: Sequence[str], *options: str) -> list[Generated]:
    """Make the mutants of some files."""
    printed = subprocess.run(
        [_uv(), "run", "--no-project", "--quiet", "--with", MUTMUT, "python", str(MADE_BY), *options, *files],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    return [
        Generated(**{**each, "new": tuple(each["new"])}) for each in map(json.loads, printed.splitlines())
    ]


def _uv() -> str:
    return str(Path(sys.executable).with_name("uv"))


def sources(names: Sequence[str]) -> list[str]:
    """The named files, and the production files of the named directories."""
    return sorted(
        str(path.relative_to(ROOT))
        for name in names
        for path in ((ROOT / name).rglob("*.py") if (ROOT / name).is_dir() else [ROOT / name])
        if not {"tests", "migrations"} & set(path.relative_to(ROOT).parts)
    )


def changed_lines() -> dict[str, set[int]]:
    """The production lines that this branch changed since it left main, including uncommitted changes."""
    diff = git("diff", "--unified=0", base(), "--", "*.py")
    found: dict[str, set[int]] = {}
    for part in re.split(r"^diff --git ", diff, flags=re.MULTILINE)[1:]:
        name = re.search(r"^\+\+\+ b/(.+)$", part, re.MULTILINE)
        if (
            name is None
            or "/tests/" in name[1]
            or "/migrations/" in name[1]
            or not name[1].startswith(PACKAGES)
        ):
            continue
        for start, count in re.findall(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@", part, re.MULTILINE):
            found.setdefault(name[1], set()).update(range(int(start), int(start) + int(count or 1)))
    return found


def contexts(copies: Sequence[Copy], files: Sequence[str], tests: Sequence[str], directory: Path) -> Contexts:
    """Run all tests once, divided among the copies, and return the tests that run each line.

    Raises SystemExit when a test fails.
    """
    subprocess.run(
        [
            _uv(),
            "pip",
            "install",
            "--quiet",
            "--python",
            sys.executable,
            "--target",
            str(directory),
            COVERAGE,
        ],
        check=True,
    )
    sys.path.insert(0, str(directory))
    shares = [share for lane in range(len(copies)) if (share := _test_files(tests)[lane :: len(copies)])]
    found: dict[str, dict[int, set[str]]] = {file: {} for file in files}
    with ThreadPoolExecutor(len(shares)) as pool:
        for measured in pool.map(partial(_contexts, files, directory), copies, shares):
            for file, line, names in measured:
                found[file].setdefault(line, set()).update(names)
    return {file: {line: sorted(names) for line, names in by_line.items()} for file, by_line in found.items()}


def _test_files(named: Sequence[str]) -> list[str]:
    """The files of the named tests. A test that is named by its node id stays as it is."""
    return sorted(
        {
            str(path.relative_to(ROOT)) if path.is_file() else name
            for name in named
            for path in ((ROOT / name).rglob("test_*.py") if (ROOT / name).is_dir() else [ROOT / name])
        }
    )


def _contexts(
    files: Sequence[str], directory: Path, copy: Copy, tests: Sequence[str]
) -> list[tuple[str, int, set[str]]]:
    """The tests that run each line, as file, line and tests, from one run in one copy."""
    from coverage import CoverageData  # type: ignore[import-not-found]  # installed for this run alone

    data = copy.root.with_name("measured")
    copy.servers.environment |= {"PYTHONPATH": str(directory), "COVERAGE_FILE": str(data)}
    # Name files by path, because coverage would import a module's package before Django is set up.
    config = copy.root.with_name("coveragerc")
    config.write_text("[run]\ninclude =\n" + "".join(f"    {file}\n" for file in files))
    options = ("--cov", f"--cov-config={config}", "--cov-context=test", "--cov-report=")
    run = copy.run(tests, *options, seconds=SOUND_SECONDS)
    if not run.passed:
        raise SystemExit(run.output)
    read = CoverageData(str(data))
    read.read()
    return [
        (file, line, {test.partition("|")[0] for test in names if test})
        for file in files
        for line, names in read.contexts_by_lineno(str(copy.root / file)).items()
    ]


def is_explained(mutant: Generated) -> bool:
    """Whether `generated.toml` says why the mutant has no visible effect."""
    return any(
        (each["file"], each["new"]) == (mutant.file, _line(mutant.new))
        and each.get("old", mutant.old) == mutant.old
        for each in SETTINGS["mutant"]
    )


@cache
def lines_in_functions(file: str) -> frozenset[int]:
    """The lines of a file that do not run when the file is imported."""
    functions = [
        node
        for node in ast.walk(ast.parse((ROOT / file).read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return frozenset(
        line
        for function in functions
        for line in range(function.body[0].lineno, (function.end_lineno or function.lineno) + 1)
    )


def tests_of(mutant: Generated, known: Contexts, sizes: Mapping[str, int]) -> list[str]:
    """The tests that run the mutated lines, those that run the fewest lines first.

    If a line runs at import, these are all tests of the file, because coverage attributes the import only to the first
    test. If no test imports the file, because all of it runs before the first test, these are a few tests of all files.
    """
    of_file, in_functions = known[mutant.file], lines_in_functions(mutant.file)
    changed = [line for line in range(mutant.start, mutant.end + 1) if line in in_functions]
    lines = [of_file[line] for line in changed if of_file.get(line)] or list(of_file.values())
    if not changed and not lines:
        every = sorted({test for each in known.values() for tests in each.values() for test in tests})
        return every[:: -(-len(every) // FEW_TESTS) or 1]
    return sorted({test for tests in lines for test in tests}, key=lambda test: (sizes[test], test))


def verdict(copy: Copy, warm: Warm, mutant: Generated, tests: Sequence[str]) -> str:
    """`noticed`, `survives`, or `not run` by any test."""
    if not tests:
        return "not run"
    path = copy.root / mutant.file
    text = path.read_text()
    mutated = mutant.mutated(text)
    if warm.notices(mutant.file, mutated, tests, seconds=SOUND_SECONDS):
        return "noticed"
    path.write_text(mutated)
    try:
        passed = copy.run(tests, "-x", seconds=SOUND_SECONDS).passed and passes_checks(copy, mutant)
    finally:
        path.write_text(text)
    return "survives" if passed else "noticed"


def passes_checks(copy: Copy, mutant: Generated) -> bool:
    """Whether a mutant passes the type check and `CHECKS`, and a mutant of a model needs no migration, as `make test`
    checks.
    """
    commands = [["-m", "mypy"]]
    if mutant.file.endswith("models.py"):
        commands.append(["-W", "ignore", "manage.py", "makemigrations", "--check", "--dry-run"])
    return copy.run(CHECKS, "-x", seconds=MUTANT_SECONDS).passed and all(
        subprocess.run(
            [sys.executable, *command],
            cwd=copy.root,
            env=copy.servers.environment,
            capture_output=True,
            check=False,
        ).returncode
        == 0
        for command in commands
    )


def main() -> int:
    """Try the mutants, with a copy and servers for each core. Print the survivors and a score for each package."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.generated")
    parser.add_argument("files", nargs="*")
    parser.add_argument("--most", type=int, default=10_000)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--changed", action="store_true")
    parser.add_argument("--tests", action="append", default=[])
    parser.add_argument("--all-tests", action="store_const", dest="tests", const=ALL_TESTS)
    arguments = parser.parse_args()
    lines = changed_lines() if arguments.changed else {}
    files = sorted(lines) if arguments.changed else sources(arguments.files or SETTINGS["modules"])
    drawn = arguments.seed is not None
    sampled = ["--seed", str(arguments.seed), "--most", str(arguments.most)] if drawn else []
    mutants = made(files, *sampled) if files else []
    mutants = [each for each in mutants if not lines or each.start in lines[each.file]]
    mutants = mutants[:: -(-len(mutants) // arguments.most)] if mutants else []
    if not mutants:
        sys.stdout.write("There is no mutant of these lines.\n")
        return 0
    files = sorted({mutant.file for mutant in mutants})
    tests = arguments.tests or sorted({f"{file.partition('/')[0]}/" for file in files})
    scores: Counter[tuple[str, str]] = Counter()
    lanes = min(os.cpu_count() or 1, len(mutants))
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory, ThreadPoolExecutor(lanes) as pool:
        copies = list(pool.map(Copy, [Path(directory, str(lane)) for lane in range(lanes)]))
        for each in copies:
            if (cache_of_types := ROOT / ".mypy_cache").exists():
                shutil.copytree(cache_of_types, each.root / cache_of_types.name)

        warm: list[Warm] = []

        def tried(lane: int) -> None:
            for mutant in mutants[lane::lanes]:
                found = verdict(copies[lane], warm[lane], mutant, tests_of(mutant, known, sizes))
                if found != "noticed" and is_explained(mutant):
                    found = "explained"
                scores[mutant.file.partition("/")[0], found] += 1
                if found not in {"noticed", "explained"}:
                    sys.stdout.write(f"{found:<9} {mutant}\n")
                    sys.stdout.flush()

        try:
            known = contexts(copies, files, tests, Path(directory, "coverage"))
            sizes = Counter(test for each in known.values() for tests in each.values() for test in tests)
            warm += [Warm(copy, tests) for copy in copies]
            list(pool.map(tried, range(lanes)))
        finally:
            for process in warm:
                process.close()
            for copy in copies:
                copy.servers.close()
    for package in sorted({package for package, _ in scores}):
        counts = {found: count for (of, found), count in scores.items() if of == package}
        noticed = counts.get("noticed", 0)
        sys.stdout.write(
            f"{package}: {noticed / (sum(counts.values()) - counts.get('explained', 0)):.0%} {counts}\n"
        )
    return 1 if any(found in {"survives", "not run"} for _, found in scores) else 0


if __name__ == "__main__":
    sys.exit(main())
