"""The catalogue of mutants: each changes one place in a file, names existing tests, and says what would be lost."""

import re
from collections.abc import Callable, Iterator
from functools import cache

from tests.mutants.__main__ import Mutant, catalogue, chosen
from tests.mutants.generated import SETTINGS
from tests.pages import ROOT


def test_each_mutant_names_what_there_is() -> None:
    texts = cache(lambda file: (ROOT / file).read_text() if (ROOT / file).exists() else "")
    wrong = [
        f"{mutant.file}: {mutant.loses}: {problem}"
        for mutant in catalogue()
        for problem in problems(mutant, texts)
    ]
    assert wrong == []


def problems(mutant: Mutant, texts: Callable[[str], str]) -> Iterator[str]:
    if mutant.mutated(texts(mutant.file)) is None:
        yield "stale: its code is not in the file, or occurs more than once"
    if not mutant.tests or not mutant.loses or mutant.find == mutant.replace:
        yield "it has no tests, no loss or no change"
    for test in mutant.tests:
        file, *names = test.partition("[")[0].split("::")
        if not (ROOT / file).exists():
            yield f"no {file}"
        for depth, name in enumerate(names):
            if not re.search(
                rf"^{'    ' * depth}(?:async )?(?:def|class) {name}\b", texts(file), re.MULTILINE
            ):
                yield f"no {test}"


def test_no_mutant_is_listed_twice() -> None:
    places = [(mutant.file, mutant.find, mutant.replace) for mutant in catalogue()]
    assert len(places) == len(set(places)) >= 150


def test_a_mistake_is_put_into_one_place_only() -> None:
    mutant = Mutant("a.py", "x > 1", "x >= 1", "nothing", ("tests",))
    assert mutant.mutated("if x > 1: pass") == "if x >= 1: pass"
    assert mutant.mutated("if x > 2: pass") is None
    assert mutant.mutated("x > 1; x > 1") is None


def test_parts_together_are_all() -> None:
    mutants = catalogue()
    parts = [each for number in (1, 2, 3) for each in chosen(mutants, "", f"{number}/3")]
    assert sorted(parts, key=mutants.index) == mutants
    assert {mutant.file.split("/")[0] for mutant in chosen(mutants, "messaging/", "1/1")} == {"messaging"}


def test_the_modules_of_the_generated_mutants_exist() -> None:
    assert [name for name in SETTINGS["modules"] if not (ROOT / name).exists()] == []
    assert [
        each for each in SETTINGS["mutant"] if not (ROOT / each["file"]).exists() or not each["why"]
    ] == []
