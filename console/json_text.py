"""JSON for people: stored bytes as text with one member on each line, and as collapsible lists."""

from collections.abc import Iterator
from typing import Any

import orjson
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

MOST_BYTES = 50_000
"""Longer documents are shown only as text, because their lists would be megabytes of HTML."""
DEEPEST = 20
"""Values nested deeper than this are shown as text."""


def indented(body: bytes) -> str:
    """A JSON document with indentation."""
    return orjson.dumps(orjson.loads(body), option=orjson.OPT_INDENT_2).decode()


def tree(body: bytes) -> SafeString | None:
    """A JSON document as nested lists. Each value has its path. None for a document of more than `MOST_BYTES`."""
    if len(body) > MOST_BYTES:
        return None
    return _list(orjson.loads(body), "", 0)


def _list(value: Any, path: str, depth: int) -> SafeString:
    return format_html(
        '<ul class="json">{}</ul>', format_html_join("", "<li>{}</li>", _items(value, path, depth))
    )


def _items(value: Any, path: str, depth: int) -> Iterator[tuple[SafeString]]:
    if isinstance(value, dict):
        members = [(name, f"{path}.{name}" if path else name, child) for name, child in value.items()]
    elif isinstance(value, list):
        members = [(str(place), f"{path}[{place}]", child) for place, child in enumerate(value)]
    else:
        members = [("", path, value)]
    for name, where, child in members:
        yield (_member(name, where, child, depth),)


def _member(name: str, path: str, value: Any, depth: int) -> SafeString:
    if isinstance(value, dict | list) and value and depth < DEEPEST:
        count = f"[{len(value)}]" if isinstance(value, list) else ""
        inner = _list(value, path, depth + 1)
        return format_html("<details open><summary>{} {}</summary>{}</details>", name, count, inner)
    text = orjson.dumps(value).decode() if depth < DEEPEST else "…"
    return format_html('<span class="member" data-path="{}">{}</span> <code>{}</code>', path, name, text)
