"""Split rows into batches of messages. Because of each batch's `client_ref`, a repeated call sends nothing twice."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from whabuzz import types
from whabuzz.errors import BatchDiffers

MOST = 10_000
"""The most messages that a batch can have."""
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
    part: list[Mapping[str, Any]] = []
    seen: Counter[str] = Counter()
    for row in rows:
        part.append(row)
        if len(part) == size:
            yield _body(part, from_, client_ref, seen, skip_opted_out)
            part = []
    if part:
        yield _body(part, from_, client_ref, seen, skip_opted_out)


async def bodies_async(
    rows: Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]],
    *,
    from_: str,
    client_ref: str,
    size: int = MOST,
    skip_opted_out: bool = False,
) -> AsyncIterator[types.MessageBatch]:
    """Like `bodies`, for rows that may come from an asynchronous iterator."""
    part: list[Mapping[str, Any]] = []
    seen: Counter[str] = Counter()
    async for row in _each(rows):
        part.append(row)
        if len(part) == size:
            yield _body(part, from_, client_ref, seen, skip_opted_out)
            part = []
    if part:
        yield _body(part, from_, client_ref, seen, skip_opted_out)


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


def _body(
    part: Sequence[Mapping[str, Any]], from_: str, client_ref: str, seen: Counter[str], skip_opted_out: bool
) -> types.MessageBatch:
    written = json.dumps([from_, part], sort_keys=True, separators=(",", ":")).encode()
    name = f"{client_ref}-{hashlib.sha256(written).hexdigest()[:16]}"
    seen[name] += 1
    if seen[name] > 1:
        name += f"-{seen[name]}"  # Two equal batches of rows are both sent.
    skip = {"skip_opted_out": True} if skip_opted_out else {}
    return cast("types.MessageBatch", {"from": from_, "client_ref": name, **skip, "messages": part})
