"""Operators that mutmut lacks: mistakes of a refactoring. Each yields a node without one of its parts.

- an element of a collection of texts or constants, such as a status
- one side of `and` and `or`
- a call whose result is not used, such as an audit entry
- a guard: an `if` that only raises, returns or continues
- `.filter(…)`, `.exclude(…)` and `.select_for_update(…)` of a queryset
- a condition or a lock in SQL
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import libcst as cst
import libcst.matchers as m

_ENDS = (cst.Raise, cst.Return, cst.Continue)
_NARROWING = {"filter", "exclude", "select_for_update"}
_CONSTANT = m.MatchIfTrue(str.isupper)
_NAMED = (
    m.Element(m.SimpleString()) | m.Element(m.Attribute(attr=m.Name(_CONSTANT))) | m.StarredElement(m.Name())
)
_SQL = re.compile(r"\b(?:SELECT|UPDATE|DELETE FROM|WHERE|JOIN|AND)\b")
_END_OF_CONDITION = r"(?=\s+(?:AND|OR|ORDER|GROUP|LIMIT|FOR|RETURNING|WINDOW|UNION)\b|\s*\)|\s*\n|\s*[\"'])"
_CONDITION = r"(?:[^()\n\"']|'[^'\n]*'|\((?:[^()\n]|\([^()\n]*\))*\))+?"
_IN_BETWEEN = re.compile(r"\bBETWEEN\s+\S+\s+$")
_REMOVED = [
    (re.compile(rf"\bAND\s+{_CONDITION}{_END_OF_CONDITION}"), ""),
    (re.compile(rf"\bWHERE\s+(?!true\b){_CONDITION}{_END_OF_CONDITION}"), "WHERE true"),
    (re.compile(r"\bFOR (?:NO KEY )?UPDATE(?: OF \w+)?(?: SKIP LOCKED)?"), ""),
]


def without_element(node: Any) -> Iterator[cst.CSTNode]:
    """The collection without one of its elements."""
    elements = node.elements
    if len(elements) < 2 or not all(m.matches(each, _NAMED) for each in elements):
        return
    for place in range(len(elements)):
        rest = [*elements[:place], *elements[place + 1 :]]
        yield node.with_changes(elements=[*rest[:-1], rest[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)])


def one_side(node: cst.BooleanOperation) -> Iterator[cst.CSTNode]:
    """The left side, and the right side."""
    for side in (node.left, node.right):
        yield side.with_changes(lpar=[*node.lpar, *side.lpar], rpar=[*side.rpar, *node.rpar])


def without_statement(node: cst.SimpleStatementLine) -> Iterator[cst.CSTNode]:
    """`pass` in place of a call whose result is not used."""
    if m.matches(node, m.SimpleStatementLine([m.Expr(m.Call() | m.Await(m.Call()))])):
        yield node.with_changes(body=[cst.Pass()])


def without_guard(node: cst.If) -> Iterator[cst.CSTNode]:
    """`if False` in place of the condition of a guard."""
    last = node.body.body[-1] if isinstance(node.body, cst.IndentedBlock) else None
    is_guard = isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], _ENDS)
    if is_guard and node.orelse is None:
        yield node.with_changes(test=cst.Name("False"))


def without_call(node: cst.Call) -> Iterator[cst.CSTNode]:
    """The queryset that a call narrows or locks."""
    if isinstance(node.func, cst.Attribute) and node.func.attr.value in _NARROWING:
        yield node.func.value


def without_condition(node: Any) -> Iterator[cst.CSTNode]:
    """A text of SQL, or a part of a formatted one, without one of its conditions or locks."""
    text = node.value
    if not _SQL.search(text):
        return
    for pattern, instead in _REMOVED:
        for found in pattern.finditer(text):
            before, after = text[: found.start()], text[found.end() :]
            if not _IN_BETWEEN.search(before):
                yield node.with_changes(value=before + instead + after)


OPERATORS: list[tuple[type[cst.CSTNode], Callable[[Any], Iterator[cst.CSTNode]]]] = [
    (cst.Set, without_element),
    (cst.List, without_element),
    (cst.Tuple, without_element),
    (cst.BooleanOperation, one_side),
    (cst.SimpleStatementLine, without_statement),
    (cst.If, without_guard),
    (cst.Call, without_call),
    (cst.SimpleString, without_condition),
    (cst.FormattedStringText, without_condition),
]
