"""Statements that lock and change a limited number of rows: these rows are found once, whatever the plan."""

import re

from tests.citus.statements import statements

_LOCKS = re.compile(r"\bFOR (?:NO KEY )?UPDATE\b")
_CHANGES = re.compile(r"\bUPDATE \w+\b.*\bSET\b|\bDELETE FROM\b", re.DOTALL)


def _openings(text: str) -> list[int]:
    """The positions of the parentheses that are still open at the end of a text."""
    found: list[int] = []
    for place, character in enumerate(text):
        if character == "(":
            found.append(place)
        elif character == ")":
            found.pop()
    return found


def _may_repeat(statement: str) -> bool:
    """Whether a statement changes the rows of a subquery, and the subquery locks rows up to a limit and may run again
    in a join.
    """
    if not _CHANGES.search(statement):
        return False
    for lock in _LOCKS.finditer(statement):
        for opening in reversed(_openings(statement[: lock.start()])):
            before = statement[:opening].rstrip()
            if before.endswith(("ARRAY", " AS MATERIALIZED", " AS")):
                break
            if not before.endswith("LATERAL") and "LIMIT" in statement[opening : lock.start()]:
                return True
    return False


def test_rows_that_a_statement_locks_up_to_a_limit_are_found_once() -> None:
    """A subquery after FROM, USING or IN runs again for each row if the planner makes it the inner side of a join.
    Each run locks more rows, because it skips the rows that the statement has already changed.
    """
    assert _may_repeat("UPDATE t SET a = 1 WHERE id IN (SELECT id FROM t LIMIT 5 FOR UPDATE SKIP LOCKED)")
    assert _may_repeat("DELETE FROM t USING (SELECT id FROM t LIMIT 5 FOR NO KEY UPDATE) AS o WHERE true")
    found = statements()
    assert not [name for name, text in found.items() if _may_repeat(text)]
    assert len([text for text in found.values() if _LOCKS.search(text) and "LIMIT" in text]) > 8
