"""Reads the samples of the guides for type checkers, compilers and tests."""

import re
from textwrap import dedent

from gateway.guides import hooks, reference
from tests.pages import PAGES, ROOT, page

MARKED = re.compile(r"^ *<!-- ([^>]+) -->\n *```(python|ts)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def samples(language: str) -> dict[str, str]:
    """Return the marked samples in one language by mark."""
    return {
        mark: dedent(code)
        for name in PAGES
        if name.startswith("docs/")
        for mark, found, code in MARKED.findall(page(name))
        if found == language
    }


def made(language: str) -> dict[str, str]:
    """Return the generated samples in one language: those of each operation, and the calls of the guides."""
    document = ROOT / "docs/openapi.json"
    texts = {name: text for name, _, text in reference.pages(document)}
    texts |= {name: hooks.with_tabs(page(f"docs/{name}"), document) for name in sorted(hooks.WITH_TABS)}
    fence = re.compile(rf"^    ```{language}\n(.*?)^    ```", re.MULTILINE | re.DOTALL)
    return {
        f"{re.sub(r'[^a-z]+', '_', name)}_{place}": re.sub(r"^    ", "", code, flags=re.MULTILINE)
        for name, text in texts.items()
        for place, code in enumerate(fence.findall(text))
    }
