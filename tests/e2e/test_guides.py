"""The documentation at `/docs/` in a browser: every page under its own policy, accessible, searchable, and as text."""

import re
from pathlib import Path
from typing import Any

import pytest
import requests
from playwright.sync_api import Browser, Page, ViewportSize, expect

from gateway.guides import documentation
from tests.accessibility import AXE, CHECKS
from tests.e2e.conftest import Stack, until

pytestmark = pytest.mark.e2e

WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
DESK: ViewportSize = {"width": 1280, "height": 800}
PHONE: ViewportSize = {"width": 360, "height": 800}
QUICK = """
    XMLHttpRequest.prototype.send = () => {};
    Worker = class extends EventTarget { postMessage() {} };
    document.adoptedStyleSheets = [new CSSStyleSheet()];
    document.adoptedStyleSheets[0].replaceSync("* { transition: none !important }");
"""
"""Prevents pages from loading the search index and starting its worker, which takes longer than the checks. Also
disables transitions, so that a change of the colour scheme shows at once."""
RULES = """async (tags) => (await axe.run(document, {
    runOnly: tags, rules: {"color-contrast": {enabled: false}}, resultTypes: ["violations"], preload: false,
})).violations"""
CONTRAST = """async (seen) => {
    const known = new Set(seen), marks = new Map([[document.body, "0"]]), fresh = [];
    const mark = (it) => {
        if (!marks.has(it)) {
            const own = [
                mark(it.parentElement), it.localName, ...it.classList, it.getAttribute("style"), it.ariaCurrent,
                it.ariaSelected, it.disabled
            ].join(".");
            marks.set(it, checks.digest(own));
        }
        return marks.get(it);
    };
    for (const it of document.body.querySelectorAll("*")) {
        const hasText = it.matches("input, select, textarea")
            || [...it.childNodes].some((one) => one.nodeType === Node.TEXT_NODE && one.data.trim());
        if (hasText && !known.has(mark(it)) && it.checkVisibility({opacityProperty: true, visibilityProperty: true})) {
            known.add(mark(it));
            fresh.push(it);
        }
    }
    const options = {runOnly: ["color-contrast"], resultTypes: ["violations"], preload: false};
    return [
        fresh.map(mark),
        fresh.length ? (await axe.run({include: fresh}, options)).violations : [],
    ];
}"""
"""Checks the contrast only of elements that no earlier page had, because this check takes most of axe's time.

`mark` is a digest of the tags and classes of an element and its ancestors. Elements with the same mark have the same
colours."""
MARKS = """
    const marks = new Map();
    const name = /^(id|href|src|for|name|alt|title|aria-label|data-.*)$/;
    const mark = (it) => {
        if (it === null || it === document.body) return "";
        if (!marks.has(it)) {
            const own = [
                mark(it.parentElement), it.localName, it.childElementCount > 0, it.textContent.trim() !== "",
                [...it.childNodes].some((one) => one.nodeType === Node.TEXT_NODE && one.data.trim()),
                it.scrollWidth > it.clientWidth, it.ariaLabel?.includes(it.textContent.trim()),
                ...[...it.attributes].map((one) => [one.name, name.test(one.name) ? one.value !== "" : one.value]),
            ].join("|");
            marks.set(it, checks.digest(own));
        }
        return marks.get(it);
    };
"""
"""Defines `mark`, a digest of what axe reads of an element: its tags and attributes and those of its ancestors, and
whether it has text and scrolls."""
UNSEEN = f"""([seen, parts]) => {{
    {MARKS}
    const known = new Set(seen), fresh = [], kept = new Set();
    for (const it of document.body.querySelectorAll("*")) {{
        if (known.has(mark(it))) continue;
        known.add(mark(it));
        fresh.push(mark(it));
        for (let around = it; around; around = around.parentElement) kept.add(around);
    }}
    for (const it of document.querySelectorAll(parts)) if (!kept.has(it)) it.remove();
    return fresh;
}}"""
"""Removes those parts of a page that have no new elements, and returns the marks of the new elements."""
PUT = f"""async ([seen, path]) => {{
    {MARKS}
    const answer = await fetch(path), known = new Set(seen);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const code = [...page.querySelectorAll("script:not([src]), style, meta[http-equiv], meta[name=viewport]")];
    const files = [...page.querySelectorAll("[src], link[rel=stylesheet]")].map(
        (it) => new URL(it.getAttribute("src") ?? it.getAttribute("href"), answer.url).href);
    const around = [...page.querySelectorAll("*")].filter((it) => !it.closest("article > *"));
    const article = document.querySelector("article");
    article.replaceChildren(...page.querySelectorAll("article > *"));
    const found = [
        answer.status, answer.headers.get("Content-Security-Policy"), ...files, ...code.map((it) => it.outerHTML),
        ...[...around, ...article.querySelectorAll("*")].map(mark),
    ];
    return [[...new Set(found)].filter((it) => !known.has(it)), document.documentElement.scrollWidth];
}}"""
"""Puts the text of another page into a page. Returns the width, and what no earlier page had: a policy, a file, a
script, or the mark of an element."""
PARTS = "article > *, tbody > tr:not(:first-child), .md-nav__item, .md-header__inner > *, .md-footer > *"
PLAIN = (
    """() => document.querySelectorAll("pre > code").forEach((it) => { it.textContent = it.textContent })"""
)
"""Removes the elements that colour code. There are thousands of these elements, and only the contrast check needs them.
"""
DARK = "document.body.dataset.mdColorScheme = 'slate'"
"""Switches a page to dark colours, like the theme's script."""
SETTLED = """() => [...document.querySelectorAll("pre > code")].every(
    (code) => code.scrollWidth <= code.clientWidth || code.tabIndex >= 0)"""
"""Whether the theme has made scrolling code blocks focusable. It does so some time after the layout."""


def paths() -> list[str]:
    """The path of every page of the built site, the largest page first."""
    assert documentation.PUBLIC.is_dir(), "`make pytest` builds the documentation"
    pages = (documentation.PUBLIC / "docs").rglob("index.html")
    return [
        "/" + page.parent.relative_to(documentation.PUBLIC).as_posix() + "/"
        for page in sorted(pages, key=lambda page: (-page.stat().st_size, page))
    ]


def violations(page: Page, tags: list[str]) -> list[str]:
    """Return the violations of the rules with these tags, except those of contrast."""
    return _lines(page.evaluate(RULES, tags))


def low_contrast(page: Page, seen: set[str]) -> list[str]:
    """Return the contrast violations of the elements whose marks are not in `seen`, and add their marks."""
    fresh, found = page.evaluate(CONTRAST, list(seen))
    seen.update(fresh)
    return _lines(found)


def _lines(found: list[dict[str, Any]]) -> list[str]:
    return [
        f"{rule['id']}: {node['target'][0]} {node['html'][:120]}"
        for rule in found
        for node in rule["nodes"][:3]
    ]


def test_every_page_is_accessible_in_light_and_dark_fits_a_phone_and_obeys_its_policy(
    stack: Stack, browser: Browser
) -> None:
    """A page is only loaded if it has something new, and axe only reads pages with new elements. The largest pages come
    first, because they have most of them.
    """
    page = browser.new_context(color_scheme="light", viewport=PHONE).new_page()
    page.context.add_init_script(path=CHECKS)
    page.add_init_script(path=AXE)
    page.add_init_script(QUICK)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    seen: list[str] = []
    light, dark = set[str](), set[str]()
    put: list[str] = []
    host = page.context.new_page()

    def settle(path: str) -> None:
        until(lambda: page.evaluate(SETTLED), f"the focus of code blocks at {path}")

    host.goto(stack.ready["base_url"] + paths()[0])
    for path in paths():
        is_new, width = host.evaluate(PUT, [put, path])
        put += is_new
        if is_new:
            page.goto(stack.ready["base_url"] + path)
            settle(path)
            width = page.evaluate("document.documentElement.scrollWidth")
        if width > PHONE["width"]:
            complaints.append(f"{path} scrolls sideways on a phone")
        if is_new and (fresh := page.evaluate(UNSEEN, [seen, PARTS])):
            seen += fresh
            page.set_viewport_size(DESK)
            found = low_contrast(page, light)
            page.evaluate(DARK)
            found += low_contrast(page, dark)
            page.evaluate(PLAIN)
            found += violations(page, WCAG)
            page.set_viewport_size(PHONE)
            settle(path)
            found += violations(page, ["scrollable-region-focusable"])
            complaints += [f"{path} {problem}" for problem in found]
    assert complaints == []


def test_the_documentation_is_dark_for_who_prefers_that(stack: Stack, browser: Browser) -> None:
    page = browser.new_context(color_scheme="dark").new_page()
    page.add_init_script(QUICK)
    page.goto(stack.ready["base_url"] + "/docs/quickstart/")
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")


def test_the_start_says_what_this_is_and_the_search_finds_what_people_look_for(
    stack: Stack, browser: Browser
) -> None:
    page = browser.new_page()
    page.goto(stack.ready["base_url"] + "/docs")
    page.wait_for_url("**/docs/")
    expect(page.get_by_role("heading", level=1)).to_contain_text("WhatsApp")
    expect(page.get_by_role("img", name="Your software sends")).to_be_visible()
    search = page.get_by_placeholder("Search").first
    for words, name in {
        "php": "frameworks",
        "Idempotency": "sending",
        "schedule": "reminders",
        "opt out": "broadcast",
        "131047": "whatsapp-errors",
    }.items():
        # The page searches after each key. The first search types every key, because the page loses keys before its
        # script has run. Later searches type only the last key.
        typed = 1 if search.input_value() else len(words)
        search.fill(words[:-typed])
        search.press_sequentially(words[-typed:])
        found = page.locator(f".md-search-result__link[href*='/{name}/']").first
        expect(found).to_be_visible(timeout=20_000)
        expect(page.locator(".md-search-result__meta")).to_contain_text("matching")


def test_the_errors_of_the_service_and_of_whatsapp_are_one_place(stack: Stack, browser: Browser) -> None:
    page = browser.new_page()
    page.add_init_script(QUICK)
    page.goto(stack.ready["base_url"] + "/errors#invalid_request")
    page.wait_for_url("**/docs/errors/#invalid_request")
    expect(page.locator("#invalid_request")).to_be_in_viewport()
    page.goto(stack.ready["base_url"] + "/errors/131047")
    page.get_by_role("link", name="All codes of WhatsApp").click()
    page.wait_for_url("**/docs/whatsapp-errors/")
    expect(page.locator("[id='131047']")).to_contain_text("Re-engagement message")


def test_machines_find_what_they_look_for(stack: Stack) -> None:
    base = stack.ready["base_url"]
    assert f"Sitemap: {base}/sitemap.xml" in requests.get(f"{base}/robots.txt", timeout=10).text
    sitemap = requests.get(f"{base}/sitemap.xml", timeout=10)
    assert sitemap.headers["Content-Type"] == "application/xml"
    assert set(re.findall(r"<loc>(.*?)</loc>", sitemap.text)) == {base + path for path in paths()}
    contact = requests.get(f"{base}/.well-known/security.txt", timeout=10).text
    assert re.search(r"^Contact: mailto:\S+@\S+$", contact, re.MULTILINE)
    assert re.search(r"^Expires: \d{4}-\d\d-\d\dT00:00:00Z$", contact, re.MULTILINE)


def test_each_page_is_served_as_markdown_and_listed_for_programs(stack: Stack) -> None:
    index = requests.get(stack.ready["base_url"] + "/llms.txt", timeout=10)
    listed = re.findall(r"\]\((/docs/[\w/-]+\.md)\)", index.text)
    pages = {"/docs/index.md" if path == "/docs/" else path.removesuffix("/") + ".md" for path in paths()}
    assert pages == set(listed)
    for path in listed:
        answer = requests.get(stack.ready["base_url"] + path, timeout=10)
        assert answer.status_code == 200
        assert answer.headers["Content-Type"].startswith("text/markdown")
        assert answer.text == (documentation.PUBLIC / Path(path.lstrip("/"))).read_text()
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
