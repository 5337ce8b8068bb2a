"""The built documentation: served at `/docs/` by WhiteNoise, and searchable as text."""

import json
import math
import re
from collections.abc import Iterator, MutableMapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

# --- Serving of the built documentation by WhiteNoise at `/docs/`, with its own content security policy.

SITE = Path(__file__).resolve().parents[2] / "site"
"""The output of `make guides`: `public/` is served, and `csp.json` has the hashes of the pages' inline scripts."""
PUBLIC = SITE / "public"


def add_headers(headers: MutableMapping[str, str], path: str, url: str) -> None:
    """Allow a page's own inline scripts and styles, and nothing from other origins. The theme sets styles inline."""
    if url.startswith("/packages/"):
        headers["Content-Security-Policy"] = "default-src 'none'; base-uri 'none'; frame-ancestors 'none'"
        headers["X-Content-Type-Options"] = "nosniff"
    if url.startswith("/docs/"):
        headers["Content-Security-Policy"] = _policy(Path(path.partition("/public/")[0]) / "csp.json")
        headers["X-Content-Type-Options"] = "nosniff"
        headers["Referrer-Policy"] = "same-origin"
        if path.endswith(".md"):
            headers["Content-Type"] = "text/markdown; charset=utf-8"


@cache
def _policy(hashes: Path) -> str:
    scripts = " ".join(f"'{value}'" for value in json.loads(hashes.read_text()))
    return (
        f"default-src 'self'; script-src 'self' {scripts}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


# --- The built documentation as text: its pages, and a search for sections.

_WORD = re.compile(r"[a-z0-9_./]{2,}")
_HEADING = re.compile(r"^(#{1,6}) (.+)$", re.MULTILINE)
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
MOST_WORDS = 20
_HISTORY = "changelog"
"""The page of former behaviour. A search leaves it out, because its long sections have the words of most questions."""
_IN_HEADING, _IN_TITLE, _MOST_OF_A_WORD = 5, 3, 4


class Guide(NamedTuple):
    """A page: its path below `/docs/` without an extension, its title, its Markdown."""

    name: str
    title: str
    text: str


class Section(NamedTuple):
    """A part of a page under one heading."""

    guide: str
    heading: str
    text: str


def guides() -> Iterator[Guide]:
    """All served pages, sorted by name. Empty when the documentation was not built."""
    folder = PUBLIC / "docs"
    for path in sorted(folder.rglob("*.md")):
        yield _read(path, folder)


def guide(name: str) -> Guide | None:
    """The page with this name. None when there is no such page."""
    folder = PUBLIC / "docs"
    # The name is compared with those of existing pages, so it never becomes a path.
    found = next((path for path in folder.rglob("*.md") if _name(path, folder) == name), None)
    return _read(found, folder) if found is not None else None


def search(question: str, *, most: int) -> list[Section]:
    """The sections that match the question's words best, best first."""
    words = list(dict.fromkeys(_WORD.findall(question.lower())))[:MOST_WORDS]
    sections = [
        (page.title.lower(), section)
        for page in guides()
        if page.name != _HISTORY
        for section in _sections(page)
    ]
    matches = [_matches(words, title, section) for title, section in sections]
    # A word in few sections has more weight than a word in all.
    weights = {
        word: math.log((1 + len(sections)) / (1 + sum(word in found for found in matches))) for word in words
    }
    rated = [
        (sum(weights[word] ** 2 * count for word, count in found.items()), section)
        for found, (_, section) in zip(matches, sections, strict=True)
        if found
    ]
    rated.sort(key=lambda found: -found[0])
    return [section for _, section in rated[:most]]


def _matches(words: list[str], title: str, section: Section) -> dict[str, int]:
    """How well a section fits each of the words."""
    heading, text = section.heading.lower(), section.text.lower()
    return {
        word: min(text.count(word), _MOST_OF_A_WORD)
        + _IN_HEADING * (word in heading)
        + _IN_TITLE * (word in title)
        for word in words
        if word in text or word in heading
    }


def _sections(page: Guide) -> Iterator[Section]:
    # Comments in code blocks look like headings.
    outside = _FENCE.sub(lambda block: re.sub(r"\S", " ", block[0]), page.text)
    headings = list(_HEADING.finditer(outside))
    for found, following in zip(headings, [*headings[1:], None], strict=True):
        end = following.start() if following else len(page.text)
        yield Section(page.name, found[2].strip(), page.text[found.end() : end].strip())


def _read(path: Path, folder: Path) -> Guide:
    text = path.read_text()
    title = _HEADING.search(text)
    return Guide(_name(path, folder), title[2].strip() if title else path.stem, text)


def _name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).with_suffix("").as_posix()
