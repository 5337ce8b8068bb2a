"""Rows of a CSV file as messages: which column fills what, and what is wrong with a row. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from messaging.batches.body import MAX_MESSAGES
from messaging.csv_batches.file import Row, Table
from messaging.message_templates import parameters
from messaging.message_templates.parameters import Parameter
from messaging.recipient import lacks_country_code, typed_number

TO = "to"
"""The key of the recipient's column, beside the keys of the template's parameters."""

_TO_NAMES = {
    "to",
    "phone",
    "mobile",
    "number",
    "whatsapp",
    "wa_id",
    "phone_number",
    "mobile_number",
    "contact",
}
_SCIENTIFIC = re.compile(r"[0-9][.,]?[0-9]*[eE]\+?[0-9]+")
_LINK = re.compile(r"https?://[^\s/]+\.[^\s]+")
_BREAKS = re.compile(r"[\n\r\t]| {5}")
_LONGEST_CODE = 15

Mapped = Mapping[str, int]
"""Which column fills what: key → place of the column."""


@dataclass(slots=True)
class Filled:
    """The rows of a file, filled into a template. The counts are of all rows, also of those that were not kept."""

    messages: list[tuple[Row, str, dict[str, str]]] = field(default_factory=list)
    """Row, recipient, and the parameters' values."""
    problems: list[tuple[Row, str]] = field(default_factory=list)
    """Rows that cannot be sent, with the reason."""
    message_count: int = 0
    problem_count: int = 0


def guessed(table: Table, wanted: Sequence[Parameter]) -> dict[str, int]:
    """The columns that fit by their names; parameters that are left take the columns that are left, in their order."""
    names = {_plain(name): place for place, name in reversed(list(enumerate(table.columns)))}
    found = {TO: next((place for name, place in names.items() if name in _TO_NAMES), 0)}
    for parameter in wanted:
        place = names.get(_plain(parameter.key), names.get(_plain(parameter.variable or "")))
        if place is not None:
            found[parameter.key] = place
    free = iter([place for place in range(len(table.columns)) if place not in found.values()])
    for parameter in wanted:
        if parameter.key not in found and (place := next(free, None)) is not None:
            found[parameter.key] = place
    return found


def filled(table: Table, wanted: Sequence[Parameter], mapped: Mapped, *, keep: int = MAX_MESSAGES) -> Filled:
    """Every row as a message or with its problem. The same message twice is a problem: it is sent once.

    Only the first `keep` messages and problems are kept, which is what a preview of a long file shows.
    """
    result = Filled()
    seen: dict[str, int] = {}
    for row in table.rows:
        values = {
            key: row.cells[place].strip() if place < len(row.cells) else "" for key, place in mapped.items()
        }
        to = typed_number(values.pop(TO))
        problem = _problem(row, table, to, wanted, values, mapped)
        if problem is None and to is not None:
            whole = "\n".join((to, *values.values()))
            if (before := seen.setdefault(whole, row.number)) == row.number:
                result.message_count += 1
                if result.message_count <= keep:
                    result.messages.append((row, to, values))
                continue
            problem = f"The same message as row {before}: it is sent once."
        result.problem_count += 1
        if result.problem_count <= keep:
            result.problems.append((row, str(problem)))
    return result


def bodies(document: Mapping[str, Any], found: Filled) -> Iterator[dict[str, Any]]:
    """The messages of a batch."""
    wanted = parameters.parameters_of(document)
    for _, to, values in found.messages:
        yield {"to": to, "type": "template", "template": parameters.message(document, values, wanted)}


def _problem(
    row: Row,
    table: Table,
    to: str | None,
    wanted: Sequence[Parameter],
    values: Mapping[str, str],
    mapped: Mapped,
) -> str | None:
    """Why a row cannot be sent; None when it can."""
    if any(cell.strip() for cell in row.cells[len(table.columns) :]):
        return (
            f"It has {len(row.cells)} cells, but there are {len(table.columns)} columns: is a quote missing?"
        )
    place = mapped[TO]
    typed = row.cells[place].strip() if place < len(row.cells) else ""
    if lacks_country_code(typed):
        return f"“{typed}” lacks its country code: write it with + and the code, e.g. +91 {typed}."
    if to is None:
        if not typed:
            return "The recipient's number is empty."
        if _SCIENTIFIC.fullmatch(typed):
            return f"“{typed}” was shortened by the spreadsheet: format the column as text."
        return f"“{typed[:40]}” is no phone number with its country code, e.g. +91 98000 00001."
    for parameter in wanted:
        value = values[parameter.key]
        column = table.columns[mapped[parameter.key]]
        if not value:
            return f"“{column}” is empty."
        if parameter.kind in {"image", "video", "document"} and not _LINK.fullmatch(value):
            return f"“{column}” is no link that begins with https://."
        if parameter.kind == "coupon_code" and len(value) > _LONGEST_CODE:
            return f"“{column}” is longer than {_LONGEST_CODE} characters."
        if _BREAKS.search(value):
            return f"“{column}” has a line break, a tab or more than four spaces: the platform refuses them."
    return None


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
