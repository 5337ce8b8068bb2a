"""The pages for tenants and the contract say "WhatsApp" and "Meta". The pages name nothing that only operators have."""

import re

import pytest

from tests.pages import PAGES, ROOT, page

CODE = re.compile(r"^ *```.*?^ *```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
BANISHED = re.compile(r"\b(upstream|stand-in|fake|pretend)\w*", re.IGNORECASE)
"""Words that no tenant would search for. Names of members such as `upstream_ms` are code, so they are allowed."""
SETTINGS = set(re.findall(r"^# ([A-Z]+_[A-Z_]+)=", page(".env.example"), re.MULTILINE)) - {"BASE_URL"}
OPERATORS = re.compile(
    r"manage\.py|(?<=`)make \w+|Valkey|Postgres|Prometheus|Celery|/v1/admin|"
    r"\bgateway_[a-z]+_[a-z_]+|\btests/\w|\bstaff\b"
)
OF_WHO_RUNS_IT = {"quickstart", "simulator"}
"""Pages for readers who run the service themselves."""
MAY = {
    # The changelog names removed settings for operators.
    "changelog": {"DELIVERY_CONCURRENCY"},
    "reminders": {"Celery"},
    "django": {"Celery", "manage.py"},
    "frameworks": {"Celery"},
    "answering": {"make run"},
    "sandbox": {"make run"},
    "console": {"make run"},
}
"""Allowed words by page, because readers have their own Celery or Django, or run the gateway on their own computer."""


def served() -> list[str]:
    """Return the names of the pages that are served to tenants."""
    left_out = page("mkdocs.yml").partition("exclude_docs: |\n")[2].partition("\nvalidation:")[0].split()
    names = [name.removeprefix("docs/") for name in PAGES if name.startswith("docs/")]
    return sorted(name.removesuffix(".md") for name in names if name not in left_out)


@pytest.mark.parametrize("name", served())
def test_a_page_names_whatsapp_and_meta(name: str) -> None:
    prose = CODE.sub("", page(f"docs/{name}.md"))
    assert [found[0] for found in BANISHED.finditer(prose)] == []


@pytest.mark.parametrize("name", sorted(set(served()) - OF_WHO_RUNS_IT))
def test_a_page_speaks_of_what_its_reader_has(name: str) -> None:
    text = page(f"docs/{name}.md")
    found = {match[0] for match in OPERATORS.finditer(text)} | (
        set(re.findall(r"\b[A-Z_]+\b", text)) & SETTINGS
    )
    assert found - MAY.get(name, set()) == set()


def test_every_page_is_in_the_navigation() -> None:
    navigation = page("mkdocs.yml").partition("\nnav:\n")[2]
    assert set(re.findall(r": ([\w-]+)\.md$", navigation, re.MULTILINE)) == set(served()) | {
        "whatsapp-errors"
    }


def test_the_contract_names_whatsapp_and_meta() -> None:
    described = re.findall(
        r'"(?:description|summary|message)": "((?:[^"\\]|\\.)*)"', page("docs/openapi.json")
    )
    assert len(described) > 1000
    assert [text for text in described if BANISHED.search(CODE.sub("", text))] == []


def test_the_pages_link_metas_reference() -> None:
    linking = [name for name in served() if "https://developers.facebook.com/" in page(f"docs/{name}.md")]
    assert set(linking) >= {
        "index",
        "errors",
        "media",
        "sending",
        "templates",
        "cloud-api",
        "numbers",
        "webhooks",
    }


def test_pictures_of_the_pages_are_there() -> None:
    for name in served():
        for picture in re.findall(r"!\[[^]]+\]\(([^)]+)\)", page(f"docs/{name}.md")):
            assert (ROOT / "docs" / picture).is_file()
