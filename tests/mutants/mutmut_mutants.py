"""Print the mutants that mutmut makes of some files, a JSON line each. Runs with mutmut alone, without the project:

uv run --no-project --with mutmut==3.8.1 python tests/mutants/mutmut_mutants.py FILE...
"""

import difflib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from mutmut.mutation import file_mutation

LEFT_OUT = {"operator_string", "operator_assignment"}
"""Mutants with other texts, and with None for a variable: there are thousands, and contract tests and type checks
detect them.
"""

file_mutation.mutation_operators = [
    each for each in file_mutation.mutation_operators if each[1].__name__ not in LEFT_OUT
]


def mutants(file: str) -> Iterator[dict[str, object]]:
    """Each mutant of a file: the lines that it replaces, counted from 1, and their replacement."""
    text = Path(file).read_text()
    before = text.splitlines()
    module, mutations, *_ = file_mutation.create_mutations(file, text)
    seen = set()
    for mutation in mutations:
        mutated = file_mutation.deep_replace(module, mutation.original_node, mutation.mutated_node)
        after = mutated.code.splitlines()
        matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
        changes = [change for change in matcher.get_opcodes() if change[0] == "replace"]
        if len(changes) != 1:
            continue
        _, start, end, new_start, new_end = changes[0]
        new = after[new_start:new_end]
        # The type check reports None in place of a value.
        more_none = "".join(new).count("None") > "".join(before[start:end]).count("None")
        if not more_none and (start, *new) not in seen:
            seen.add((start, *new))
            yield {"file": file, "start": start + 1, "end": end, "new": new}


if __name__ == "__main__":
    for name in sys.argv[1:]:
        for mutant in mutants(name):
            sys.stdout.write(json.dumps(mutant) + "\n")
