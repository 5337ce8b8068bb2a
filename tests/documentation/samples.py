"""The samples of the guides that name Python or TypeScript, as files that checkers and tests take."""

import re
from textwrap import dedent

from tests.pages import PAGES, page

MARKED = re.compile(r"^ *<!-- ([^>]+) -->\n *```(python|ts)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def samples(language: str) -> dict[str, str]:
    """The marked samples of one language by their mark."""
    return {
        mark: dedent(code)
        for name in PAGES
        if name.startswith("docs/")
        for mark, found, code in MARKED.findall(page(name))
        if found == language
    }
