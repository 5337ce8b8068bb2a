"""References to the specification, the upstream facts, the decisions and modules resolve."""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.pages import PAGES, ROOT, headings, page

THIS = Path(__file__).resolve()
SECTION = r"\d+(?:\.\d+)*"
LIST = rf"({SECTION}(?:(?:,| and| to|, and) {SECTION})*)"
FORMS = {
    "specification": rf"\bspecification {LIST}",
    "send rule": rf"\bsend rules? {LIST}",
    "upstream fact": rf"\bupstream facts? {LIST}",
    "decision": r'\bdecision \\?"([^"\\]+)\\?"',
}


FORMER = (
    r"\bfact sheet",
    r"\bupstream facts?,? \d+\b(?!\.\d)",
    r"\bof the upstream facts",
    r"(?<!upstream )\bfact \d\.\d",
    r"\bsections? \d+(?:\.\d+)? of the specification",
    r"\bspecification, section",
    r"\((?:[^()]*[;,] )?section \d\b",
    r"\bdecisions(?:, (?-i:[A-Z])| on (?:batches|events|responses)\b)",
    r"(?<!docs/)(?<!\[)\barchitecture\.md",
    r"\b(?:signup|layout|targets|found|libraries|spec|upstream)\.md",
)
"""Former forms of references, from before the documents were in the repository."""


def sources() -> Iterator[Path]:
    """Yield every file of code, and every page."""
    for folder in ROOT.iterdir():
        if folder.is_dir() and folder.name[0] != "." and folder.name != "docs":
            yield from (path for path in folder.rglob("*.py") if "node_modules" not in path.parts)
    yield from (path for path in ROOT.glob("*.py"))
    yield from (ROOT / name for name in PAGES)


@cache
def targets(form: str) -> set[str]:
    if form == "decision":
        return set(headings("docs/decisions.md"))
    if form == "upstream fact":
        text = page("docs/upstream-facts.md")
        listed = text.split("\n## 0. ")[1].split("\n## ")[0]
        items = {f"0.{item}" for item in re.findall(r"^(\d+)\. ", listed, re.MULTILINE)}
        return items | set(re.findall(rf"^#+ ({SECTION})[. ]", text, re.MULTILINE))
    text = page("docs/specification.md")
    if form == "send rule":
        rules = text.split("\n### Send rules\n")[1].split("\n## ")[0]
        return set(re.findall(r"^(\d+)\. ", rules, re.MULTILINE))
    numbers = re.findall(r"^## (\d+)\. ", text, re.MULTILINE)
    return {*numbers, *re.findall(r"^- \*\*(\d+\.\d+)\*\*", text, re.MULTILINE)}


@cache
def prose(path: Path) -> str:
    """Return a file as one line, because a comment may wrap a reference."""
    return re.sub(r"\s*\n\s*(?:# )?", " ", path.read_text())


def references(text: str) -> Iterator[tuple[str, str]]:
    for form, pattern in FORMS.items():
        for named in re.findall(pattern, text, re.IGNORECASE):
            if form == "decision":
                yield form, named
            else:
                yield from ((form, number) for number in re.findall(SECTION, named))


def test_every_reference_resolves() -> None:
    found = [
        (path, *reference) for path in sources() if path != THIS for reference in references(prose(path))
    ]
    assert {form for _, form, _ in found} == set(FORMS)
    unknown = [
        f"{path.relative_to(ROOT)}: {form} {name}" for path, form, name in found if name not in targets(form)
    ]
    assert unknown == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(specification 4.12; send rule 5)", [("specification", "4.12"), ("send rule", "5")]),
        ("(send rules 1 to 3)", [("send rule", "1"), ("send rule", "3")]),
        ("(upstream facts 1.5 and 1.6).", [("upstream fact", "1.5"), ("upstream fact", "1.6")]),
        ('(decision "Webhooks to customers")', [("decision", "Webhooks to customers")]),
        ("the specification of 2026", []),
    ],
)
def test_references_are_found_in_prose(text: str, expected: list[tuple[str, str]]) -> None:
    assert list(references(text)) == expected


def is_module(named: str, *, by: Path) -> bool:
    """Return whether a path leads to a file, from the root or from a parent folder of the referring file."""
    return any((folder / named).is_file() for folder in by.parents if folder.is_relative_to(ROOT))


def test_every_module_that_code_names_exists() -> None:
    modules = [path for path in sources() if path.suffix == ".py"]
    named = [
        (path, name) for path in modules for name in re.findall(r"`((?:[\w-]+/)*\w+\.py)`", path.read_text())
    ]
    assert len(named) > 100
    unknown = [f"{path.relative_to(ROOT)}: {name}" for path, name in named if not is_module(name, by=path)]
    assert unknown == []


def test_our_packages_are_installed_from_the_gateway_alone() -> None:
    """No public registry has them: a stranger could register the name there."""
    folders = [ROOT / name for name in ("docs", "sdks", "templates")]
    texts = [
        path
        for folder in folders
        for kind in ("*.md", "*.py", "*.ts", "*.html", "*.toml")
        for path in folder.rglob(kind)
        if "node_modules" not in path.parts
    ]
    install = r"\b(?:(?:pipx?|npm|uv) (?:install|add|tool)|uvx|npx) [^`]{0,100}?whabuzz"
    found = [(path, match[0]) for path in texts for match in re.finditer(install, prose(path))]
    assert len(found) > 5
    assert [
        f"{path.relative_to(ROOT)}: {command}" for path, command in found if "/packages/" not in command
    ] == []


def test_no_reference_has_a_former_form() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in sources()
        if path != THIS
        for pattern in FORMER
        for match in re.finditer(pattern, prose(path), re.IGNORECASE)
        if not (path.suffix == ".md" and "architecture" in pattern)
    ]
    assert found == []


@pytest.mark.parametrize("name", PAGES)
def test_no_heading_is_twice_on_a_page(name: str) -> None:
    assert [heading for heading, times in Counter(headings(name)).items() if times > 1] == []


def test_every_rule_of_the_specification_names_its_tests() -> None:
    table = page("docs/specification.md").split("\n## The tests of each rule\n")[1]
    rows = re.findall(r"^\| (.*?) \| (.*?) \|$", table, re.MULTILINE)[1:]
    named = {number for rules, _ in rows for number in re.findall(r"\d+\.\d+", rules)}
    named_for_sending = {
        number for rules, _ in rows if rules.startswith("send rule") for number in re.findall(r"\d+", rules)
    }
    assert named == {target for target in targets("specification") if "." in target}
    assert named_for_sending == targets("send rule")
    assert all(tests for _, tests in rows)


def test_every_threat_has_a_test_that_exists() -> None:
    table = re.findall(r"^\| (.*) \| (.*?) \|$", page("docs/security.md"), re.MULTILINE)
    rows = [(threat, proof) for threat, proof in table if proof not in {"test", "---"}]
    assert len(rows) > 90
    unknown = [
        name
        for _, proof in rows
        for name in re.findall(r"`([\w/.-]+\.py)`", proof)
        if not (ROOT / name).is_file() or "test" not in name
    ]
    assert unknown == []
    benchmarks = {name for _, proof in rows for name in re.findall(r"benchmark `(\w+)`", proof)}
    assert {name for name in benchmarks if not (ROOT / f"benchmarks/{name}.py").is_file()} == set()
    unproved = [threat for threat, proof in rows if not re.search(r"\.py`|^the (same|benchmark)", proof)]
    assert [threat.partition(" | ")[0] for threat in unproved] == ["learns a key by timing"]


def test_the_test_of_every_rule_exists() -> None:
    named = set(re.findall(r"`((?:[\w-]+/)+\w+\.py)`", page("docs/specification.md")))
    assert named
    assert {name for name in named if not (ROOT / name).is_file()} == set()
