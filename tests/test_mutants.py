"""The catalogue of mutants: each changes one place of a file, names tests that exist, and says what is lost."""

import re

import pytest

from tests.mutants.__main__ import Mutant, catalogue, chosen
from tests.pages import ROOT


@pytest.mark.parametrize("mutant", catalogue(), ids=lambda mutant: f"{mutant.file}: {mutant.loses}")
def test_a_mutant_names_what_there_is(mutant: Mutant) -> None:
    changed = mutant.mutated((ROOT / mutant.file).read_text())
    assert changed is not None, "stale: the code that it changes is not there, or more than once"
    assert mutant.tests
    for test in mutant.tests:
        file, *names = test.split("::")
        assert (ROOT / file).exists(), test
        for depth, name in enumerate(names):
            named = re.compile(rf"^{'    ' * depth}(?:async )?(?:def|class) {name}\b", re.MULTILINE)
            assert named.search((ROOT / file).read_text()), test
    assert mutant.find != mutant.replace
    assert mutant.loses


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
