"""Split rows into batches of messages. Because of each batch's `client_ref`, a repeated call sends nothing twice."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from whabuzz import types
from whabuzz.calls import json_bytes
from whabuzz.errors import BatchDiffers

MOST = 10_000
"""The most messages that a batch can have."""
MOST_BYTES = 30 * 1024 * 1024
"""The most bytes of the messages of a batch. The service accepts 32 MiB, with the members around the messages."""
FINAL = frozenset({"completed", "cancelled"})


def bodies(
    rows: Iterable[Mapping[str, Any]],
    *,
    from_: str,
    client_ref: str,
    size: int = MOST,
    skip_opted_out: bool = False,
) -> Iterator[types.MessageBatch]:
    """Yield the bodies of `POST /v1/messages/batch` for rows. Each row is a message without `from`.

    The `client_ref` of each body is the given `client_ref` with a hash of the body's rows. The same rows give the same
    batches, so a repeated call sends nothing twice. A batch with a changed row is a new batch, so it is sent in full.
    """
    parts = _Parts(from_, client_ref, size, skip_opted_out)
    for row in rows:
        yield from parts.add(row)
    yield from parts.rest()


async def bodies_async(
    rows: Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]],
    *,
    from_: str,
    client_ref: str,
    size: int = MOST,
    skip_opted_out: bool = False,
) -> AsyncIterator[types.MessageBatch]:
    """Like `bodies`, for rows that may come from an asynchronous iterator."""
    parts = _Parts(from_, client_ref, size, skip_opted_out)
    async for row in _each(rows):
        for body in parts.add(row):
            yield body
    for body in parts.rest():
        yield body


async def _each(
    rows: Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]],
) -> AsyncIterator[Mapping[str, Any]]:
    if isinstance(rows, AsyncIterable):
        async for row in rows:
            yield row
    else:
        for row in rows:
            yield row


def stored(answer: types.CreatedBatch | types.RepeatedBatch) -> types.Batch:
    """The batch in an answer. Raises BatchDiffers if its `client_ref` already belongs to a batch of other messages."""
    if answer.get("same_messages") is False:
        raise BatchDiffers(
            f"The client_ref {answer['client_ref']} belongs to the batch {answer['id']} of other messages: "
            "nothing of this call was sent. Send it with another client_ref."
        )
    return cast("types.Batch", answer)


class _Parts:
    """Collects rows, and yields the body of a batch as soon as the batch is full."""

    def __init__(self, from_: str, client_ref: str, size: int, skip_opted_out: bool) -> None:
        self._from, self._client_ref, self._size = from_, client_ref, size
        self._skip = {"skip_opted_out": True} if skip_opted_out else {}
        self._seen: Counter[str] = Counter()
        self._rows: list[Mapping[str, Any]] = []
        self._bytes = 0

    def add(self, row: Mapping[str, Any]) -> Iterator[types.MessageBatch]:
        length = len(json_bytes(row)) + 1
        if self._bytes + length > MOST_BYTES:
            yield from self.rest()
        self._rows.append(row)
        self._bytes += length
        if len(self._rows) == self._size:
            yield from self.rest()

    def rest(self) -> Iterator[types.MessageBatch]:
        """The batch of the collected rows. No batch without rows."""
        if self._rows:
            yield self._body(self._rows)
        self._rows, self._bytes = [], 0

    def _body(self, part: Sequence[Mapping[str, Any]]) -> types.MessageBatch:
        written = json.dumps([self._from, part], sort_keys=True, separators=(",", ":")).encode()
        name = f"{self._client_ref}-{hashlib.sha256(written).hexdigest()[:16]}"
        self._seen[name] += 1
        if self._seen[name] > 1:
            name += f"-{self._seen[name]}"  # Two equal batches of rows are both sent.
        return cast(
            "types.MessageBatch", {"from": self._from, "client_ref": name, **self._skip, "messages": part}
        )
