"""Failed messages of a batch as a CSV file that can be corrected and uploaded again.

Made of what was sent, so it serves batches of the API too; after retention, or once expunged, only the errors are left.
"""

from collections.abc import Iterator
from typing import Any

import orjson

from gateway.csv_cells import as_text
from messaging.csv_batches.rows import TO
from messaging.message_templates import parameters
from messaging.models import Batch, BatchItem
from webhooks.events import envelope

_TAIL = ("http_status", "error_code", "error", "place")
_AT_ONCE = 500


def rows(batch: Batch) -> Iterator[list[str]]:
    """The rows, the names of the columns first."""
    found = [row for some in _chunks(batch) for row in _some(some)]
    names = dict.fromkeys(name for values, _ in found for name in values if name != TO)
    yield [TO, *names, *_TAIL]
    for values, tail in found:
        yield [as_text(text) for text in (*(values.get(name, "") for name in (TO, *names)), *tail)]


def error_of(item: BatchItem) -> dict[str, Any]:
    """The `error` of a failed item's answer."""
    error = _object(bytes(item.response or b"")).get("error")
    return error if isinstance(error, dict) else {}


def _chunks(batch: Batch) -> Iterator[list[BatchItem]]:
    items = batch.items.filter(status=BatchItem.Status.FAILED).order_by("idx")
    at = -1
    while some := list(items.filter(idx__gt=at)[:_AT_ONCE]):
        yield some
        at = some[-1].idx


def _some(items: list[BatchItem]) -> Iterator[tuple[dict[str, str], list[str]]]:
    stored = envelope.load([item.event_id for item in items if item.event_id and not item.body])
    for item in items:
        body = bytes(item.body)
        if not body and item.event_id and (found := stored.get(item.event_id)):
            request = _object(found.data).get("request")
        else:
            request = _object(body)
        sent = request if isinstance(request, dict) else {}
        template = sent.get("template")
        values = {TO: str(sent.get("to", "")).lstrip("+")}
        values |= parameters.values_of(template) if isinstance(template, dict) else {}
        error = error_of(item)
        said = (
            error.get("error_data", {}).get("details") if isinstance(error.get("error_data"), dict) else None
        )
        tail = [item.http_status, error.get("code"), said or error.get("message"), item.idx]
        yield values, ["" if each is None else str(each) for each in tail]


def _object(content: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}
