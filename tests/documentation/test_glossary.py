"""The glossary: no name and no docstring contains a word that `docs/words.md` rules out."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages import ROOT, page

PACKAGES = (
    *("gateway", "tenants", "webhooks", "phone_numbers", "messaging", "billing", "web", "console"),
    *("simulator", "tests", "benchmarks"),
)
"""The checked packages, each with its tests."""
_TABLE = page("docs/words.md").split("## Words that no name and no docstring holds")[1].split("\n## ")[0]
WORDS = [
    word for row in re.findall(r"^\| (.+?) \| .+ \|$", _TABLE, re.MULTILINE)[1:] for word in row.split(", ")
]
_ANY_WORD = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, WORDS))})(?![\w-])")
ALLOWED = {
    ("webhooks/models.py", "told"): "the column told_failing_since",
    ("webhooks/endpoints/notices.py", "told"): "the same",
    ("billing/ledger.py", "give back"): "paying back a surplus",
    ("billing/payments/bank_transfers.py", "give back"): "the same",
}
"""Permitted uses by file and word, each with its reason."""


def modules(package: str) -> Iterator[Path]:
    """Yield the modules of a package, without migrations and installed libraries."""
    for path in sorted((ROOT / package).rglob("*.py")):
        if not {"migrations", "node_modules"} & set(path.relative_to(ROOT).parts):
            yield path


def texts(tree: ast.Module) -> Iterator[str]:
    """Yield the docstrings of a module, and the names that it defines or assigns, as words."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield in_words(name)
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.alias(asname=str(name)):
                yield in_words(name)
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield in_words(name)
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield text


def in_words(name: str) -> str:
    """Return `twoWords`, `TwoWords` or `TWO_WORDS` as "two words"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).replace("_", " ").lower()


def ruled_out(text: str) -> list[str]:
    """Return the words of a text that the glossary rules out."""
    return _ANY_WORD.findall(" ".join(text.split()).lower())


def test_the_glossary_is_read() -> None:
    assert {"door", "stand-in", "give back"} <= set(WORDS)
    assert ruled_out("Tell the tenant, and give\n    back what is left.") == ["tell", "give back"]
    assert ruled_out(in_words("_GIVE_BACK")) == ruled_out(in_words("giveBack")) == ["give back"]
    assert ruled_out("A doorway, retold by an intelligent bookkeeper.") == []


@pytest.mark.parametrize("package", PACKAGES)
def test_names_and_docstrings_use_the_glossary(package: str) -> None:
    found = {
        (str(path.relative_to(ROOT)), word)
        for path in modules(package)
        for text in set(texts(ast.parse(path.read_text())))
        for word in ruled_out(text)
    }
    assert found - set(ALLOWED) == set()
    assert {use for use in ALLOWED if use[0].startswith(f"{package}/")} <= found, "remove unneeded exceptions"
