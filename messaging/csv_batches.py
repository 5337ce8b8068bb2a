"""Batches from a CSV file: turns rows into messages, starts an uploaded file, and writes a file of failed rows.

Functions that map columns and check rows are pure. A file becomes only one batch, however often it is started,
because its row is locked while the batch is created (decision "Batches from a file").

The file of failed rows can be corrected and uploaded again, so it leaves out messages that may have been sent. It is
built from the sent bodies, so a batch from the API has such a file too. After retention or expunging it has only the
errors.
"""

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from http import HTTPStatus
from typing import Any
from uuid import UUID

import orjson
from django.db import transaction

from gateway.api.errors import Conflict, NotFound
from gateway.csv_cells import as_text, from_text
from gateway.upstream.notifications.lossless_json import member
from messaging.batches import lifecycle
from messaging.batches.body import MAX_MESSAGES
from messaging.message_templates import parameters
from messaging.message_templates.parameters import BREAKS, Parameter
from messaging.models import Batch, BatchFile, BatchItem, MessageTemplate
from messaging.sending.outbound import (
    OUTCOME_UNKNOWN,
    international,
    lacks_country_code,
    object_in,
    typed_number,
)
from webhooks.events import envelope

# --- CSV files as spreadsheets write them: a row of column names, then a row for each message. Pure functions with
# limits.
MOST_COLUMNS = 50
LONGEST_CELL = 4096
MOST_CELLS = MOST_COLUMNS * (MAX_MESSAGES + 1)
MOST_LINES = 10 * MAX_MESSAGES
"""How many lines a file may have, including blank lines and line breaks in cells. More lines would take too long to
parse.
"""
_SEPARATORS = ",;\t"
_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb\xbf": "utf-8-sig"}


class UnreadableFileError(ValueError):
    """Raised when a file cannot become a batch. The message gives the reason and how to fix the file."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a file. `number` is the row's number in the spreadsheet."""

    number: int
    cells: Sequence[str]


@dataclass(frozen=True, slots=True)
class Table:
    """The content of a file: the names of its columns, and its rows."""

    columns: Sequence[str]
    rows: Sequence[Row]


def read_table(content: bytes) -> Table:
    """Parse the table in a file. Raises UnreadableFileError."""
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
        raise UnreadableFileError("The file has column names, but no rows below them.")
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
        raise UnreadableFileError(
            "The file is not a CSV file. In Excel, save it as “CSV UTF-8 (comma delimited)”."
        )
    return text


def _records(text: str, separator: str) -> Iterator[tuple[int, Sequence[str]]]:
    """The records that are not empty, each with its number in the file, counted from 1."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        for number, cells in enumerate(reader, 1):
            if "".join(cells).strip():
                # Cells are stored in tuples, because the garbage collector does not track tuples of texts.
                yield number, tuple([from_text(cell) if cell.startswith("'") else cell for cell in cells])
    except csv.Error as error:
        raise UnreadableFileError(f"The file cannot be read near line {reader.line_num}: {error}.") from None


TO = "to"
"""The key of the recipient's column. All other columns have the key of a template parameter."""

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
_LONGEST_CODE = 15

Mapped = Mapping[str, int]
"""The index of the column for each key."""


@dataclass(slots=True)
class Filled:
    """The messages and problems of a file's rows. The counts include rows that the lists omit."""

    messages: list[tuple[Row, str, dict[str, str]]] = field(default_factory=list)
    """For each message: its row, its recipient and the values of the parameters."""
    problems: list[tuple[Row, str]] = field(default_factory=list)
    """Rows that cannot be sent, each with the reason."""
    message_count: int = 0
    problem_count: int = 0


def guessed(table: Table, wanted: Sequence[Parameter]) -> dict[str, int]:
    """Guess the column of each key by the column's name. Parameters without a match get the free columns in order."""
    # The plain name of a column in another script is empty, and so is that of a parameter without a variable.
    names = {_plain(name): place for place, name in reversed(list(enumerate(table.columns)))}
    names.pop("", None)
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
    """Turn each row into a message or a problem. A row that repeats an earlier message is a problem.

    The result lists only the first `keep` messages and problems, enough for the preview of a long file.
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
    """The messages of a batch, built from a template and the rows of a file."""
    wanted = parameters.parameters_of(document)
    for _, to, values in found.messages:
        filled_in = parameters.message(document, values, wanted)
        yield {"to": international(to), "type": "template", "template": filled_in}


def _problem(
    row: Row,
    table: Table,
    to: str | None,
    wanted: Sequence[Parameter],
    values: Mapping[str, str],
    mapped: Mapped,
) -> str | None:
    """Why a row cannot be sent. None when it can be sent."""
    if any(cell.strip() for cell in row.cells[len(table.columns) :]):
        return (
            f"It has {len(row.cells)} cells, but there are {len(table.columns)} columns: is a quote missing?"
        )
    place = mapped[TO]
    typed = row.cells[place].strip() if place < len(row.cells) else ""
    if to is None:
        if not typed:
            return "The recipient's number is empty."
        if _SCIENTIFIC.fullmatch(typed):
            return f"“{typed}” was shortened by the spreadsheet: format the column as text."
        return f"“{typed[:40]}” is not a phone number with its country code, e.g. +91 98000 00001."
    if lacks_country_code(typed):
        return f"“{typed}” lacks its country code: write it with + and the code, e.g. +91 98123 45678."
    for parameter in wanted:
        value = values[parameter.key]
        column = table.columns[mapped[parameter.key]]
        if not value:
            return f"“{column}” is empty."
        if parameter.kind in {"image", "video", "document"} and not _LINK.fullmatch(value):
            return f"“{column}” is not a link that begins with https://."
        if parameter.kind == "coupon_code" and len(value) > _LONGEST_CODE:
            return f"“{column}” is longer than {_LONGEST_CODE} characters."
        if BREAKS.search(value):
            return f"“{column}” has a line break, a tab or more than four spaces: Meta refuses them."
    return None


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


MAX_FILE_BYTES = 4 * 1024 * 1024
"""The largest file, in bytes."""
KEPT = timedelta(days=1)
MOST_FILES = 10
"""How many files of a tenant may wait for their start. A newer file replaces the oldest."""


def store_file(*, tenant_id: UUID, environment: str, name: str, content: bytes) -> BatchFile:
    """Store an uploaded file. Raises UnreadableFileError when the file cannot become a batch."""
    read_table(content)
    with transaction.atomic():
        stored = BatchFile.objects.create(
            tenant_id=tenant_id, environment=environment, name=name[:200], content=content
        )
        waiting = BatchFile.objects.filter(tenant_id=tenant_id, batch_id__isnull=True)
        waiting.exclude(pk__in=waiting.order_by("-id").values("id")[:MOST_FILES]).delete()
    return stored


def find_file(*, tenant_id: UUID, environment: str, file_id: UUID, locked: bool = False) -> BatchFile:
    """A tenant's file. Raises NotFound."""
    rows = BatchFile.objects.select_for_update() if locked else BatchFile.objects.all()
    found = rows.filter(tenant_id=tenant_id, environment=environment, pk=file_id).first()
    if found is None:
        raise NotFound("There is no such file. Files are kept for a day.")
    return found


def table_of(stored: BatchFile) -> Table:
    """The table in a file without a batch. Raises UnreadableFileError."""
    return read_table(bytes(stored.content))


def filled_file(stored: BatchFile, template: MessageTemplate, mapped: Mapped) -> Filled:
    """Fill a template with the file's rows. Raises CannotBeFilled."""
    wanted = parameters.parameters_of(orjson.loads(template.document))
    return filled(table_of(stored), wanted, mapped)


def start_batch(
    stored: BatchFile,
    *,
    from_: str,
    template: MessageTemplate,
    mapped: Mapped,
    skip_opted_out: bool = False,
) -> Batch | None:
    """Create the batch of a file. Returns None if the file already has a batch (`batch_id`).

    Raises the errors of `lifecycle.create`, NotFound when the file was deleted meanwhile, CannotBeFilled, and Conflict
    when no row can be sent.
    """
    with transaction.atomic():
        locked = find_file(
            tenant_id=stored.tenant_id, environment=stored.environment, file_id=stored.pk, locked=True
        )
        if locked.batch_id is not None:
            return None
        found = filled_file(locked, template, mapped)
        if not found.messages:
            raise Conflict("No row of this file can be sent.")
        document = orjson.loads(template.document)
        head = {
            "from": from_,
            "client_ref": f"{locked.name} ({locked.pk})",
            "skip_opted_out": skip_opted_out,
        }
        body = orjson.dumps({**head, "messages": list(bodies(document, found))})
        made = lifecycle.create(tenant_id=locked.tenant_id, environment=locked.environment, raw=body)
        batch = made.batch
        locked.batch_id, locked.content = batch.id, b""
        locked.row_numbers = [row.number for row, _, _ in found.messages]
        locked.save(update_fields=["batch_id", "content", "row_numbers"])
    return batch


def row_numbers_of(batch_id: UUID) -> Sequence[int] | None:
    """For each message of a batch, the number of its row in the file. None for a batch without a file."""
    return BatchFile.objects.filter(batch_id=batch_id).values_list("row_numbers", flat=True).first()


_TAIL = ("http_status", "error_code", "error")
_AT_ONCE = 1_000
_READ = ("idx", "http_status", "event_id", "body", "response")


def failed_rows(batch: Batch) -> Iterator[Sequence[str]]:
    """The names of columns, then the failed rows that were not sent. The last column is the number that `places_in`
    gives.
    """
    name, place_of = places_in(batch.id)
    tail_names = (*_TAIL, name.lower())
    places: dict[str, int] = {TO: 0}
    # Rows are stored in tuples, because the garbage collector does not track tuples of texts.
    found = [
        (*_in_columns(places, values), *tail, str(place_of(idx)))
        for chunk in _chunks(batch)
        for idx, values, tail in _rows_of(batch.tenant_id, chunk)
    ]
    yield (*map(as_text, places), *tail_names)
    for row in found:
        cells, tail = row[: -len(tail_names)], row[-len(tail_names) :]
        yield [as_text(text) for text in (*cells, *("",) * (len(places) - len(cells)), *tail)]


def places_in(batch_id: UUID) -> tuple[str, Callable[[int], int]]:
    """A label for the numbers of a batch's messages, and a function that returns the number for an `idx`.

    For a batch from a file, the number is that of the row in the spreadsheet. Otherwise it is the position from 1 on.
    """
    rows_of_file = row_numbers_of(batch_id)
    if rows_of_file is None:
        return "Message", lambda idx: idx + 1
    return "Row", rows_of_file.__getitem__


def error_of(response: bytes | None) -> dict[str, Any]:
    """The `error` in a failed item's answer."""
    return member(object_in(response or b""), "error")


def may_have_been_sent(http_status: int | None, code: object) -> bool:
    """Whether a failed message may have been sent: its answer was lost, or WhatsApp failed while it handled it."""
    return code == OUTCOME_UNKNOWN or (http_status or 0) >= HTTPStatus.INTERNAL_SERVER_ERROR


def _in_columns(places: dict[str, int], values: Mapping[str, str]) -> tuple[str, ...]:
    """Arrange values in columns by their names. A new name gets the next free column."""
    for name in values:
        places.setdefault(name, len(places))
    return tuple([values.get(name, "") for name in places])


def _chunks(batch: Batch) -> Iterator[list[tuple[Any, ...]]]:
    items = batch.items.filter(status=BatchItem.Status.FAILED).order_by("idx").values_list(*_READ)
    at = -1
    while chunk := list(items.filter(idx__gt=at)[:_AT_ONCE]):
        yield chunk
        at = chunk[-1][0]


def _rows_of(
    tenant_id: UUID, items: Sequence[tuple[Any, ...]]
) -> Iterator[tuple[int, dict[str, str], tuple[str, ...]]]:
    # Only a message that was certainly not sent keeps its body.
    unsent = [
        each for each in items if each[3] or not may_have_been_sent(each[1], error_of(each[4]).get("code"))
    ]
    wanted = [event_id for _, _, event_id, body, _ in unsent if event_id and not body]
    stored = envelope.load(wanted, tenant_id=tenant_id)
    for idx, http_status, event_id, body, response in unsent:
        found = None if body else stored.get(event_id)
        sent = member(object_in(found.data), "request") if found else object_in(body)
        template = sent.get("template")
        values = {TO: str(sent.get("to", ""))}
        values |= parameters.values_of(template) if isinstance(template, dict) else {}
        error = error_of(response)
        details = member(error, "error_data").get("details")
        tail = (http_status, error.get("code"), details or error.get("message"))
        yield idx, values, tuple(["" if each is None else str(each) for each in tail])
