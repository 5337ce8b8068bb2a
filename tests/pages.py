"""The documentation as tests read it: its pages and the code blocks in them."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def page(name: str) -> str:
    """The text of a page, e.g. `docs/webhooks.md`."""
    return (ROOT / name).read_text()


def blocks(name: str, language: str) -> list[str]:
    """The code blocks of one language on a page, in their order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page(name), re.MULTILINE | re.DOTALL)
