"""Many messages from an iterator of rows: cut into batches, each with a `client_ref` that makes a repeat harmless."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from typing import Any

MOST = 10_000
"""Messages that a batch takes."""
FINAL = frozenset({"completed", "cancelled"})


def bodies(
    rows: Iterable[Mapping[str, Any]], *, from_: str, client_ref: str, size: int = MOST
) -> Iterator[dict[str, Any]]:
    """The bodies of `POST /v1/messages/batch` for rows, which are messages without `from`.

    The same rows under the same `client_ref` give the same batches, so starting over sends nothing twice.
    """
    part: list[Mapping[str, Any]] = []
    number = 1
    for row in rows:
        part.append(row)
        if len(part) == size:
            yield _body(part, from_, client_ref, number)
            part, number = [], number + 1
    if part:
        yield _body(part, from_, client_ref, number)


async def bodies_async(
    rows: AsyncIterable[Mapping[str, Any]], *, from_: str, client_ref: str, size: int = MOST
) -> AsyncIterator[dict[str, Any]]:
    """The same for rows that come asynchronously."""
    part: list[Mapping[str, Any]] = []
    number = 1
    async for row in rows:
        part.append(row)
        if len(part) == size:
            yield _body(part, from_, client_ref, number)
            part, number = [], number + 1
    if part:
        yield _body(part, from_, client_ref, number)


def _body(part: list[Mapping[str, Any]], from_: str, client_ref: str, number: int) -> dict[str, Any]:
    return {"from": from_, "client_ref": f"{client_ref}-{number}", "messages": part}
