"""Reads the pages of the documentation and their code blocks for tests."""

import re
import secrets
from pathlib import Path
from textwrap import dedent

from cryptography.fernet import Fernet

ROOT = Path(__file__).resolve().parents[1]
PAGES = [str(path.relative_to(ROOT)) for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]]


def page(name: str) -> str:
    """Return the text of a page, such as `docs/webhooks.md`."""
    return (ROOT / name).read_text()


def headings(name: str) -> list[str]:
    """Return the headings of a page in order, without those inside code blocks."""
    text = re.sub(r"^ *```.*?^ *```$", "", page(name), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^#+ (.*)$", text, re.MULTILINE)


def blocks(name: str, language: str) -> list[str]:
    """Return the code blocks of one language on a page, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page(name), re.MULTILINE | re.DOTALL)


def marked_block(name: str, mark: str) -> str:
    """Return the code block after the comment `<!-- mark -->`, without the indentation of a surrounding list."""
    [block] = re.findall(rf"^ *<!-- {mark} -->\n *```\w+\n(.*?)^ *```$", page(name), re.MULTILINE | re.DOTALL)
    return dedent(block)


def production_settings() -> dict[str, str]:
    """Return the production settings of docs/operations.md, with random secrets in place of "replace-me"."""
    lines = marked_block("docs/operations.md", "production settings").strip().splitlines()
    shown = dict(line.split("=", 1) for line in lines)
    made = {
        name: Fernet.generate_key().decode() if name == "ENCRYPTION_KEYS" else secrets.token_urlsafe(48)
        for name, value in shown.items()
        if value.startswith("replace-me")
    }
    return shown | made
