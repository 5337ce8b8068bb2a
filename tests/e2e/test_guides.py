"""The documentation at `/docs/` in a browser: every page under its own policy, accessible, searchable, and as text."""

import re
from pathlib import Path

import pytest
import requests
from playwright.sync_api import Browser, Page, expect

from gateway.guides import serving
from tests.e2e.conftest import Stack, until
from tests.pages import ROOT

pytestmark = pytest.mark.e2e

WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
DARK = """() => {
    const still = new CSSStyleSheet();
    still.replaceSync("* { transition: none !important }");
    document.adoptedStyleSheets = [still];
    document.body.dataset.mdColorScheme = "slate";
}"""
"""Switches a page as the theme's script does, at once."""
SETTLED = """() => [...document.querySelectorAll("pre > code")].every(
    (code) => code.scrollWidth <= code.clientWidth || code.tabIndex >= 0)"""
"""Whether the theme has made code blocks that scroll focusable, which it does some time after the layout."""
AXE = ROOT / "tests/node/node_modules/axe-core/axe.min.js"


def paths() -> list[str]:
    """Every page of the built site, as its path below the host."""
    assert serving.PUBLIC.is_dir(), "`make pytest` builds the documentation"
    return sorted(
        "/" + page.parent.relative_to(serving.PUBLIC).as_posix() + "/"
        for page in serving.PUBLIC.rglob("*/*/index.html")
    )


def violations(page: Page, rules: list[str]) -> list[str]:
    found = page.evaluate("async rules => (await axe.run({runOnly: rules})).violations", rules)
    return [f"{page.url} {row['id']}: {row['nodes'][0]['html'][:120]} ({len(row['nodes'])})" for row in found]


def test_every_page_is_accessible_in_light_and_dark_fits_a_phone_and_obeys_its_policy(
    stack: Stack, browser: Browser
) -> None:
    page = browser.new_context(color_scheme="light").new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    for path in paths():
        page.set_viewport_size({"width": 1280, "height": 800})
        page.goto(stack.ready["base_url"] + path)
        page.evaluate(AXE.read_text())
        complaints += violations(page, WCAG)
        page.evaluate(DARK)
        complaints += violations(page, ["color-contrast"])
        page.set_viewport_size({"width": 360, "height": 800})
        until(lambda page=page: page.evaluate(SETTLED), f"the focus of code blocks at {path}")
        complaints += violations(page, ["scrollable-region-focusable"])
        if page.evaluate("document.documentElement.scrollWidth") > 360:
            complaints.append(f"{path} scrolls sideways on a phone")
    assert complaints == []


def test_the_documentation_is_dark_for_who_prefers_that(stack: Stack, browser: Browser) -> None:
    page = browser.new_context(color_scheme="dark").new_page()
    page.goto(stack.ready["base_url"] + "/docs/quickstart/")
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")


def test_the_start_leads_to_the_quickstart_and_the_search_finds_offline(
    stack: Stack, browser: Browser
) -> None:
    page = browser.new_page()
    page.goto(stack.ready["base_url"] + "/docs")
    # The page that leads here has no search; what is typed before the script of this one has run is lost.
    page.wait_for_url("**/docs/quickstart/")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    page.get_by_placeholder("Search").first.press_sequentially("Idempotency")
    expect(page.locator(".md-search-result__link").first).to_be_visible(timeout=20_000)


def test_each_page_is_served_as_markdown_and_listed_for_programs(stack: Stack) -> None:
    index = requests.get(stack.ready["base_url"] + "/llms.txt", timeout=10)
    listed = re.findall(r"\]\((/docs/[\w/-]+\.md)\)", index.text)
    assert {path.removesuffix("/") + ".md" for path in paths()} == set(listed)
    for path in listed:
        answer = requests.get(stack.ready["base_url"] + path, timeout=10)
        assert answer.status_code == 200
        assert answer.headers["Content-Type"].startswith("text/markdown")
        assert answer.text == (serving.PUBLIC / Path(path.lstrip("/"))).read_text()
    whole = requests.get(stack.ready["base_url"] + "/llms-full.txt", timeout=10).text
    assert "Idempotency-Key" in whole


def test_the_policy_allows_no_foreign_and_no_unknown_script(stack: Stack) -> None:
    policy = requests.get(stack.ready["base_url"] + "/docs/quickstart/", timeout=10).headers[
        "Content-Security-Policy"
    ]
    scripts = re.search(r"script-src ([^;]*);", policy)
    assert scripts is not None
    assert set(re.findall(r"'([^']+)'", scripts[1])) == {
        "self",
        *re.findall(r"'(sha256-[\w+/=]+)'", scripts[1]),
    }
    assert "unsafe" not in scripts[1]
