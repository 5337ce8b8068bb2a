"""CSV files as spreadsheets write them: a row of column names, then a row for each message. Pure, and bounded."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gateway.csv_cells import from_text
from messaging.batches.body import MAX_MESSAGES

MOST_COLUMNS = 50
LONGEST_CELL = 4096
MOST_CELLS = MOST_COLUMNS * (MAX_MESSAGES + 1)
MOST_LINES = 10 * MAX_MESSAGES
"""Blank ones and those inside of cells included. Four million blank lines, or separators in a row, took 0.7 seconds."""
_SEPARATORS = ",;\t"
_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb\xbf": "utf-8-sig"}


class UnreadableFileError(ValueError):
    """A file that no batch can be made of; its text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the file. `number` is what the spreadsheet shows beside it."""

    number: int
    cells: Sequence[str]


@dataclass(frozen=True, slots=True)
class Table:
    """The content of a file."""

    columns: Sequence[str]
    rows: Sequence[Row]


def read(content: bytes) -> Table:
    """The table in a file. Raises UnreadableFileError."""
    text = _decoded(content)
    first_line = text.lstrip("\r\n").partition("\n")[0]
    separator = max(_SEPARATORS, key=first_line.count)
    if text.count(separator) > MOST_CELLS:
        raise UnreadableFileError(f"The file has more than {MOST_CELLS:,} cells. Split it.")
    if text.count("\n") + text.count("\r") > 2 * MOST_LINES:
        raise UnreadableFileError(f"The file has more than {MOST_LINES:,} lines. Split it.")
    records = _records(text, separator)
    _, columns = next(records, (0, ()))
    columns = [name.strip() for name in columns]
    if not any(columns):
        raise UnreadableFileError("The file is empty. Its first row names the columns, e.g. to,name.")
    if len(columns) > MOST_COLUMNS:
        raise UnreadableFileError(f"The file has more than {MOST_COLUMNS} columns.")
    rows: list[Row] = []
    for number, cells in records:
        if len(rows) == MAX_MESSAGES:
            raise UnreadableFileError(f"The file has more than {MAX_MESSAGES:,} rows. Split it.")
        if len(cells) > MOST_COLUMNS or len(max(cells, key=len)) > LONGEST_CELL:
            raise UnreadableFileError(
                f"Row {number} is too long: at most {MOST_COLUMNS} cells of {LONGEST_CELL:,} characters."
            )
        rows.append(Row(number, cells))
    if not rows:
        raise UnreadableFileError("The file has column names, but no row below them.")
    return Table(columns, rows)


def _decoded(content: bytes) -> str:
    encoding = next((name for mark, name in _MARKS.items() if content.startswith(mark)), "utf-8")
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError:
        raise UnreadableFileError(
            "The file is not UTF-8 text. In Excel, save it as “CSV UTF-8 (comma delimited)”."
        ) from None
    if "\0" in text:
        raise UnreadableFileError("The file is no CSV. In Excel, save it as “CSV UTF-8 (comma delimited)”.")
    return text


def _records(text: str, separator: str) -> Iterator[tuple[int, Sequence[str]]]:
    """The records that hold anything, each with its number; the first is 1."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        for number, cells in enumerate(reader, 1):
            if "".join(cells).strip():
                # Tuples of texts: the garbage collector does not follow them.
                yield number, tuple([from_text(cell) if cell.startswith("'") else cell for cell in cells])
    except csv.Error as error:
        raise UnreadableFileError(f"The file cannot be read near line {reader.line_num}: {error}.") from None
