"""Failed messages of a batch as a CSV file that can be corrected and uploaded again.

Made of what was sent, so it serves batches of the API too; after retention, or once expunged, only the errors are left.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from gateway.csv_cells import as_text
from gateway.upstream.notifications.lossless_json import member
from messaging.csv_batches import uploads
from messaging.csv_batches.rows import TO
from messaging.message_templates import parameters
from messaging.models import Batch, BatchItem
from messaging.sending.outbound_event import object_in
from webhooks.events import envelope

_TAIL = ("http_status", "error_code", "error")
_AT_ONCE = 1_000
_READ = ("idx", "http_status", "event_id", "body", "response")


def rows(batch: Batch) -> Iterator[Sequence[str]]:
    """The rows, the names of the columns first; the last column is where the message was in what was sent."""
    name, place_of = places_in(batch.id)
    tail_names = (*_TAIL, name.lower())
    places: dict[str, int] = {TO: 0}
    # Tuples of texts alone: the garbage collector does not follow them.
    found = [
        (*_in_columns(places, values), *tail, str(place_of(idx)))
        for chunk in _chunks(batch)
        for idx, values, tail in _rows_of(chunk)
    ]
    yield (*map(as_text, places), *tail_names)
    for row in found:
        cells, tail = row[: -len(tail_names)], row[-len(tail_names) :]
        yield [as_text(text) for text in (*cells, *("",) * (len(places) - len(cells)), *tail)]


def places_in(batch_id: UUID) -> tuple[str, Callable[[int], int]]:
    """How people count a batch's messages: the name of the count, and the count of an item's `idx`.

    Of a batch from a file it is the row that the spreadsheet shows, else the message from 1 on.
    """
    rows_of_file = uploads.row_numbers_of(batch_id)
    if rows_of_file is None:
        return "Message", lambda idx: idx + 1
    return "Row", rows_of_file.__getitem__


def error_of(response: bytes | None) -> dict[str, Any]:
    """The `error` of a failed item's answer."""
    return member(object_in(response or b""), "error")


def _in_columns(places: dict[str, int], values: Mapping[str, str]) -> tuple[str, ...]:
    """Values at the places of their columns; a name that has none yet gets the next."""
    for name in values:
        places.setdefault(name, len(places))
    return tuple([values.get(name, "") for name in places])


def _chunks(batch: Batch) -> Iterator[list[tuple[Any, ...]]]:
    items = batch.items.filter(status=BatchItem.Status.FAILED).order_by("idx").values_list(*_READ)
    at = -1
    while chunk := list(items.filter(idx__gt=at)[:_AT_ONCE]):
        yield chunk
        at = chunk[-1][0]


def _rows_of(items: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, dict[str, str], tuple[str, ...]]]:
    stored = envelope.load([event_id for _, _, event_id, body, _ in items if event_id and not body])
    for idx, http_status, event_id, body, response in items:
        found = None if body else stored.get(event_id)
        sent = member(object_in(found.data), "request") if found else object_in(body)
        template = sent.get("template")
        values = {TO: str(sent.get("to", "")).lstrip("+")}
        values |= parameters.values_of(template) if isinstance(template, dict) else {}
        error = error_of(response)
        details = member(error, "error_data").get("details")
        tail = (http_status, error.get("code"), details or error.get("message"))
        yield idx, values, tuple(["" if each is None else str(each) for each in tail])
