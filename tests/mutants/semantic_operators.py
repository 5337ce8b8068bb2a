"""Operators that mutmut lacks: mistakes of a refactoring. Each yields a node without one of its parts.

- an element of a list, of a dictionary, and of a collection of texts, constants or classes, such as a status
- one side of `and`, `or`, `+` and `-`, and one case of `… if … else …`
- a call whose result is not used, such as an audit entry, and an assignment to an attribute or item, such as a header
- a guard: an `if` that only raises, returns or continues
- `.filter(…)`, `.select_for_update(…)` and similar calls, which narrow, lock or convert what they are called on
- a condition, a lock or an assigned column in SQL
- the `if` of a comprehension, the manager of a `with` block, such as a lock, and a decorator, such as `never_cache`

Some yield the opposite: the rows of a tenant in place of those of an environment, the last in place of
the first, and `max` in place of `min`.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import libcst as cst
import libcst.matchers as m

_ENDS = (cst.Raise, cst.Return, cst.Continue)
_NARROWING = {
    "filter",
    "exclude",
    "select_for_update",
    "order_by",
    "distinct",
    "astimezone",
    "strip",
    "lower",
}
_OPPOSITES = {"min": "max", "Min": "Max", "first": "last", "earliest": "latest"}
_OPPOSITES |= {name: opposite for opposite, name in _OPPOSITES.items()}
_ORDERING = {"order_by", "earliest", "latest"}
_ORDERED = m.Call(m.Attribute(attr=m.Name("order_by")))
_CONSTANT = m.MatchIfTrue(str.isupper)
_CLASS = m.MatchIfTrue(lambda name: name[:1].isupper() and not name.isupper())
_NAMED = m.Element(
    m.SimpleString() | m.Attribute(attr=m.Name(_CONSTANT)) | m.Name(_CLASS)
) | m.StarredElement(m.Name())
_UNUSED = m.SimpleStatementLine(
    [m.Expr(m.Call() | m.Await(m.Call())) | m.Assign(targets=[m.AssignTarget(m.Attribute() | m.Subscript())])]
)
_DESCRIBING = {
    *("property", "cached_property", "classmethod", "staticmethod", "abstractmethod", "contextmanager"),
    *(
        "cache",
        "lru_cache",
        "asynccontextmanager",
        "extend_schema",
        "extend_schema_field",
        "display",
        "wraps",
        "overload",
        "override",
    ),
}
"""Decorators without which a function cannot be called, and those that only describe it or make it faster."""
_SQL = re.compile(r"\b(?:SELECT|UPDATE|DELETE FROM|WHERE|JOIN|AND)\b")
_END_OF_CONDITION = r"(?=\s+(?:AND|OR|ORDER|GROUP|LIMIT|FOR|RETURNING|WINDOW|UNION)\b|\s*\)|\s*\n|\s*[\"'])"
_CONDITION = r"(?:[^()\n\"']|'[^'\n]*'|\((?:[^()\n]|\([^()\n]*\))*\))+?"
_IN_BETWEEN = re.compile(r"\bBETWEEN\s+\S+\s+$")
_CHANGED = [
    (re.compile(rf"\bAND\s+{_CONDITION}{_END_OF_CONDITION}"), ""),
    (re.compile(rf"\bWHERE\s+(?!true\b){_CONDITION}{_END_OF_CONDITION}"), "WHERE true"),
    (re.compile(r"\bFOR (?:NO KEY )?UPDATE(?: OF \w+)?(?: SKIP LOCKED)?"), ""),
    (re.compile(r",\s*\w+ = (?:now\(\)|NULL|true|false|%\(\w+\)s|\w+(?:\.\w+)?)(?=,|\s)"), ""),
    (re.compile(r"\bmin(?=\()"), "max"),
    (re.compile(r"\bmax(?=\()"), "min"),
]


def without_element(node: Any) -> Iterator[cst.CSTNode]:
    """The collection without one of its elements."""
    elements = node.elements
    is_short = len(elements) < (1 if isinstance(node, cst.Dict) else 2)
    is_mixed = isinstance(node, cst.Tuple | cst.Set) and not all(m.matches(each, _NAMED) for each in elements)
    if is_short or is_mixed:
        return
    for place in range(len(elements)):
        rest = [*elements[:place], *elements[place + 1 :]]
        last = [each.with_changes(comma=cst.MaybeSentinel.DEFAULT) for each in rest[-1:]]
        yield node.with_changes(elements=[*rest[:-1], *last])


def one_side(node: Any) -> Iterator[cst.CSTNode]:
    """The left side, and the right side."""
    for side in (node.left, node.right):
        yield _in_place_of(node, side)


def one_term(node: cst.BinaryOperation) -> Iterator[cst.CSTNode]:
    """The left side of a sum or difference, and the right side of a sum."""
    if isinstance(node.operator, cst.Add):
        yield from one_side(node)
    elif isinstance(node.operator, cst.Subtract):
        yield _in_place_of(node, node.left)


def one_case(node: cst.IfExp) -> Iterator[cst.CSTNode]:
    """The value if the condition holds, and the other value."""
    for case in (node.body, node.orelse):
        yield _in_place_of(node, case)


def _in_place_of(node: Any, part: Any) -> cst.CSTNode:
    """A part of an expression, with the parentheses of the expression."""
    changed: cst.CSTNode = part.with_changes(lpar=[*node.lpar, *part.lpar], rpar=[*part.rpar, *node.rpar])
    return changed


def without_statement(node: cst.SimpleStatementLine) -> Iterator[cst.CSTNode]:
    """`pass` in place of a call whose result is not used, or of an assignment to an attribute or item."""
    if m.matches(node, _UNUSED):
        yield node.with_changes(body=[cst.Pass()])


def without_guard(node: cst.If) -> Iterator[cst.CSTNode]:
    """`if False` in place of the condition of a guard."""
    last = node.body.body[-1] if isinstance(node.body, cst.IndentedBlock) else None
    is_guard = isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], _ENDS)
    if is_guard and node.orelse is None:
        yield node.with_changes(test=cst.Name("False"))


def without_call(node: cst.Call) -> Iterator[cst.CSTNode]:
    """What a call narrows, locks or converts."""
    if isinstance(node.func, cst.Attribute) and node.func.attr.value in _NARROWING:
        yield node.func.value


def without_filter(node: cst.CompFor) -> Iterator[cst.CSTNode]:
    """A comprehension without one of its conditions."""
    for place in range(len(node.ifs)):
        yield node.with_changes(ifs=[*node.ifs[:place], *node.ifs[place + 1 :]])


def without_manager(node: cst.With) -> Iterator[cst.CSTNode]:
    """A `with` block without a context manager whose value is not used, such as a lock or a transaction."""
    for place, item in enumerate(node.items):
        rest = [*node.items[:place], *node.items[place + 1 :]]
        if item.asname is None and rest:
            yield node.with_changes(
                items=[*rest[:-1], rest[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)]
            )
        elif item.asname is None:
            yield cst.If(cst.Name("True"), node.body)


def without_decorator(node: cst.FunctionDef) -> Iterator[cst.CSTNode]:
    """A function without one of its decorators."""
    for place, each in enumerate(node.decorators):
        called = each.decorator.func if isinstance(each.decorator, cst.Call) else each.decorator
        name = called.attr if isinstance(called, cst.Attribute) else called
        if not (isinstance(name, cst.Name) and name.value in _DESCRIBING):
            yield node.with_changes(decorators=[*node.decorators[:place], *node.decorators[place + 1 :]])


def of_all_environments(node: cst.Call) -> Iterator[cst.CSTNode]:
    """The rows of a tenant in place of its rows of one environment."""
    if m.matches(node.func, m.Attribute(attr=m.Name("for_environment"))):
        first = node.args[0]
        tenant = m.matches(first, m.Arg(star="**")) and cst.parse_expression('scope["tenant_id"]')
        yield node.with_changes(
            func=node.func.with_changes(attr=cst.Name("for_tenant")),
            args=[cst.Arg(tenant.with_changes(value=first.value) if tenant else first.value)],
        )


def opposite(node: cst.Call) -> Iterator[cst.CSTNode]:
    """The last in place of the first, and a reversed order."""
    name = node.func.attr if isinstance(node.func, cst.Attribute) else node.func
    if not isinstance(name, cst.Name):
        return
    other = _OPPOSITES.get(name.value)
    if other and (name.value not in {"first", "last"} or m.findall(node.func, _ORDERED)):
        yield node.with_deep_changes(name, value=other)
    if name.value in _ORDERING and node.args and isinstance(order := node.args[0].value, cst.SimpleString):
        text = order.raw_value
        yield node.with_deep_changes(order, value=f'"{text[1:] if text[0] == "-" else "-" + text}"')


def without_condition(node: Any) -> Iterator[cst.CSTNode]:
    """A text of SQL, or a part of a formatted one, without one of its conditions, locks or assigned columns, or with
    the greatest value in place of the least.
    """
    text = node.value
    if not _SQL.search(text):
        return
    for pattern, instead in _CHANGED:
        for found in pattern.finditer(text):
            before, after = text[: found.start()], text[found.end() :]
            if not _IN_BETWEEN.search(before):
                yield node.with_changes(value=before + instead + after)


OPERATORS: list[tuple[type[cst.CSTNode], Callable[[Any], Iterator[cst.CSTNode]]]] = [
    (cst.Set, without_element),
    (cst.List, without_element),
    (cst.Tuple, without_element),
    (cst.Dict, without_element),
    (cst.BooleanOperation, one_side),
    (cst.BinaryOperation, one_term),
    (cst.IfExp, one_case),
    (cst.SimpleStatementLine, without_statement),
    (cst.If, without_guard),
    (cst.CompFor, without_filter),
    (cst.With, without_manager),
    (cst.FunctionDef, without_decorator),
    (cst.Call, without_call),
    (cst.Call, of_all_environments),
    (cst.Call, opposite),
    (cst.SimpleString, without_condition),
    (cst.FormattedStringText, without_condition),
]
