"""Reads of the Graph API: nodes by field names, lists page by page (upstream fact 1.0).

Used by the modules that know the nodes (`numbers.py`, `templates.py`). Every field is asked for by name, because
the upstream's default is a few; one that it retired meanwhile is left out instead of failing the read.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gateway.upstream.calls import GraphAnswer, UpstreamUnreachable
from gateway.upstream.client import request

PAGE_SIZE = 100
MAX_PAGES = 100

_UNKNOWN_FIELD = re.compile(r"nonexisting field \((\w+)\)")


def read(
    *,
    environment: str,
    token: str,
    path: str,
    fields: tuple[str, ...],
    params: Mapping[str, str] | None = None,
) -> GraphAnswer:
    """A read by field names. A field that the upstream retired (error 100 names it) is left out."""
    wanted = list(fields)
    while True:
        answer = request(
            environment=environment,
            method="GET",
            path=path,
            token=token,
            params={"fields": ",".join(wanted), **(params or {})},
        )
        error = answer.json().get("error")
        message = str(error.get("message", "")) if not answer.ok and isinstance(error, dict) else ""
        retired = _UNKNOWN_FIELD.search(message)
        if retired is None or retired[1] not in wanted or len(wanted) == 1:
            return answer
        wanted.remove(retired[1])


def pages(*, environment: str, token: str, path: str, fields: tuple[str, ...]) -> Iterator[GraphAnswer]:
    """A list, page by page; ends after the last page or the first error.

    The `next` link is never followed: its cursor goes into a request that is made here.
    """
    after: str | None = None
    for _ in range(MAX_PAGES):
        paging = {"limit": str(PAGE_SIZE)} | ({"after": after} if after else {})
        answer = read(environment=environment, token=token, path=path, fields=fields, params=paging)
        yield answer
        position = answer.json().get("paging")
        position = position if isinstance(position, dict) else {}
        cursors = position.get("cursors")
        after = cursors.get("after") if isinstance(cursors, dict) else None
        if not answer.ok or not position.get("next") or not isinstance(after, str):
            return


def rows(answer: GraphAnswer) -> list[dict[str, Any]]:
    """The objects of a list answer. Raises UpstreamUnreachable for what is no list: nobody's rows are gone by that."""
    data = answer.json().get("data")
    if not isinstance(data, list):
        raise UpstreamUnreachable("unreadable_answer", answer.ms, is_unsent=False)
    return [row for row in data if isinstance(row, dict)]
