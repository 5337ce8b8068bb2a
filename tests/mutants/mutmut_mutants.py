"""Print the mutants of some files, one JSON line for each mutant: those of mutmut's operators and of
`semantic_operators.py`. Runs with mutmut alone, without the project:

uv run --no-project --with mutmut==3.8.1 python tests/mutants/mutmut_mutants.py FILE...
"""

import argparse
import difflib
import json
import random
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import libcst as cst
from mutmut.mutation import file_mutation
from semantic_operators import OPERATORS

LEFT_OUT = {"operator_string", "operator_assignment"}
"""Operators that change texts or assign None. They make thousands of mutants, which contract tests and type checks
detect.
"""

DEFENCES = re.compile(r",? ?\b(strict|frozen|slots|daemon)=(?:True|False)?|, (?=\))")
"""Arguments that only a mistake elsewhere would make visible, and a comma that an argument less leaves."""


class InAllFunctions(file_mutation.MutationVisitor):  # type: ignore[misc]
    """Also mutates decorated functions: views, tasks and properties. mutmut wraps each mutated function and cannot wrap
    these. Here a mutant is a whole file.
    """

    def _skip_node_and_children(self, node: cst.CSTNode) -> bool:
        return not isinstance(node, cst.FunctionDef) and bool(super()._skip_node_and_children(node))


file_mutation.MutationVisitor = InAllFunctions
file_mutation.mutation_operators = [
    *(each for each in file_mutation.mutation_operators if each[1].__name__ not in LEFT_OUT),
    *OPERATORS,
]


def mutants(file: str) -> Iterator[Callable[[], dict[str, object] | None]]:
    """Yield a function for each mutant of a file. The function returns the mutant, or None to skip it."""
    text = Path(file).read_text()
    module, mutations, *_ = file_mutation.create_mutations(file, text)
    for mutation in mutations:
        yield partial(rendered, file, text, module, mutation)


def rendered(file: str, text: str, module: Any, mutation: Any) -> dict[str, object] | None:
    """A mutant: the replaced lines, counted from 1, and the replacement. None for a mutant to skip."""
    before = text.splitlines()
    mutated = file_mutation.deep_replace(module, mutation.original_node, mutation.mutated_node)
    after = mutated.code.splitlines()
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    changes = [change for change in matcher.get_opcodes() if change[0] != "equal"]
    if len(changes) != 1 or changes[0][0] == "insert":
        return None
    _, start, end, new_start, new_end = changes[0]
    new = after[new_start:new_end]
    old_text, new_text = "".join(before[start:end]), "".join(new)
    # The type check detects None in place of a value, so the tests need not.
    if new_text.count("None") > old_text.count("None"):
        return None
    if DEFENCES.sub("", old_text) == DEFENCES.sub("", new_text):
        return None
    return {"file": file, "start": start + 1, "end": end, "new": new}


def main() -> None:
    """Print the mutants, or with `--most` and `--seed` a random sample of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="+")
    parser.add_argument("--most", type=int)
    parser.add_argument("--seed", type=int)
    arguments = parser.parse_args()
    makers = [maker for file in arguments.files for maker in mutants(file)]
    if arguments.seed is not None:
        random.Random(arguments.seed).shuffle(makers)
    seen: set[str] = set()
    for maker in makers:
        mutant = maker()
        if mutant is not None and (line := json.dumps(mutant)) not in seen:
            seen.add(line)
            sys.stdout.write(line + "\n")
        if len(seen) == arguments.most:
            break


if __name__ == "__main__":
    main()
