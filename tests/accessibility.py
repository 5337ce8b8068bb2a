"""Accessibility checks of pages in Chromium: axe, the width on a phone, and journeys with the keyboard alone."""

import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from django.conf import settings
from django.test import Client
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Playwright,
    expect,
    sync_playwright,
)

from tenants.models import User
from tests.pages import ROOT

AXE = ROOT / "tests" / "node" / "node_modules" / "axe-core" / "axe.min.js"
RULES = """async ([tags, part]) => (await axe.run(part ?? document, {
    ...(tags && {runOnly: tags}), rules: {"color-contrast": {enabled: false}},
    resultTypes: ["violations"], preload: false,
})).violations"""
CONTRAST = """async (seen) => {
    const known = new Set(seen), marks = new Map([[document.body, "0"]]), fresh = [];
    const mark = (it) => {
        if (!marks.has(it)) {
            const own = [
                mark(it.parentElement), it.localName, ...it.classList, it.getAttribute("style"), it.ariaCurrent,
                it.ariaSelected, it.disabled
            ].join(".");
            let [one, two] = [0xdeadbeef, 0x41c6ce57];
            for (let place = 0; place < own.length; place += 1) {
                one = Math.imul(one ^ own.charCodeAt(place), 2654435761);
                two = Math.imul(two ^ own.charCodeAt(place), 1597334677);
            }
            marks.set(it, (one >>> 0).toString(36) + (two >>> 0).toString(36));
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
"""Checks the contrast only of elements that a window has not shown before, because this check takes most of axe's time.

`mark` is a digest of the tags and classes of an element and its ancestors. Elements with the same mark have the same
colours."""
AT_REST = """async () => {
    for (let frame = 0; frame < 2; frame += 1) await new Promise(requestAnimationFrame);
    const running = document.getAnimations().filter((one) => one.effect.getComputedTiming().endTime !== Infinity);
    await Promise.allSettled(running.map((one) => one.finished));
}"""
"""Waits until a change of the colour scheme is drawn and its transitions have ended. Themes have transitions even with
reduced motion."""
TOO_WIDE = "document.documentElement.scrollWidth - window.innerWidth"
ACCOUNT_MENU = "details.account > summary"
"""The selector of the element that opens the account menu in the console."""
TEXT = "document.body.innerText"
PYTHON_VALUE = re.compile(
    r"\b[A-Z]\w*\(\w+=|<[\w.]+ object|object at 0x|\[\(?'|\{'|\bdatetime\.|\b(?:True|False)\b"
)
"""Matches a Python value that a template shows unformatted."""
PHONE = 360
"""The width of a phone in pixels."""
MOST_STOPS = 150
"""How many times `tab_to` presses Tab before it fails."""
Seen = TypeVar("Seen")


def launched(driver: Playwright) -> Browser:
    """Launch a headless browser: Chromium's headless shell if it is installed, else the full browser.

    To open a page, the shell needs a quarter of the full browser's CPU time.
    """
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    assert path is not None, "the browser tests need Chromium (make browser)"
    expect.set_options(timeout=30_000)
    return driver.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])


class Chromium:
    """A headless browser that runs journeys in its own thread, because its driver runs an event loop."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "chromium")
        self._driver = self._thread.submit(sync_playwright().start).result()
        self._browser = self._thread.submit(launched, self._driver).result()

    def __call__(self, journey: Callable[[Browser], Seen]) -> Seen:
        """Run a journey, close its windows, and return its result."""

        def play() -> Seen:
            try:
                return journey(self._browser)
            finally:
                for context in self._browser.contexts:
                    context.close()

        return self._thread.submit(play).result()

    def close(self) -> None:
        """End the browser and its driver."""
        self._thread.submit(self._browser.close).result()
        self._thread.submit(self._driver.stop).result()
        self._thread.shutdown()


def session_of(user: User) -> str:
    """Log a user in. Returns the value of the session cookie."""
    client = Client()
    client.force_login(user)
    return client.cookies[settings.SESSION_COOKIE_NAME].value


@contextmanager
def window(browser: Browser, url: str, session: str | None = None, width: int = PHONE) -> Iterator[Page]:
    """Open a window, logged in if `session` is given. Yields its page, in which every document has axe.

    Fails if a page did something that its content security policy blocks.
    """
    context: BrowserContext = browser.new_context(
        base_url=url, reduced_motion="reduce", viewport={"width": width, "height": 740}
    )
    if session is not None:
        context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": url}])
    context.add_init_script(path=AXE)
    page, refused = context.new_page(), list[str]()

    def note(message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text:
            refused.append(f"{page.url}: {message.text}")

    page.on("console", note)
    yield page
    context.close()
    assert not refused, "\n".join(refused)


def complaints(page: Page, path: str) -> list[str]:
    """Open a page. Returns its problems, in light and dark."""
    page.emulate_media(color_scheme="light")
    page.goto(path)
    return complaints_here(page, path)


def complaints_here(page: Page, name: str) -> list[str]:
    """Return the problems of the page as the window shows it now, in light and dark."""
    page.emulate_media(color_scheme="light")
    page.evaluate(AT_REST)
    found = [f"{name} {problem}" for problem in [*violations(page), *low_contrast(page, "light")]]
    if (pixels := page.evaluate(TOO_WIDE)) > 0:
        found.append(f"{name} is {pixels} px too wide")
    found += [f"{name} shows {value[0]!r}" for value in PYTHON_VALUE.finditer(page.evaluate(TEXT))]
    page.emulate_media(color_scheme="dark")
    page.evaluate(AT_REST)
    return found + [f"{name} dark {problem}" for problem in low_contrast(page, "dark")]


def violations(page: Page, tags: list[str] | None = None, part: str | None = None) -> list[str]:
    """Return the violations that axe finds, except those of contrast.

    `tags` limits the rules, and the selector `part` limits the check to a part of the page.
    """
    return _lines(page.evaluate(RULES, [tags, part]))


def low_contrast(page: Page, scheme: str) -> list[str]:
    """Return the contrast violations of the elements that the window has not shown before in this colour scheme."""
    seen = _seen.setdefault(page, {}).setdefault(scheme, set())
    fresh, found = page.evaluate(CONTRAST, list(seen))
    seen.update(fresh)
    return _lines(found)


_seen: WeakKeyDictionary[Page, dict[str, set[str]]] = WeakKeyDictionary()


def _lines(found: list[dict[str, Any]]) -> list[str]:
    return [
        f"{rule['id']}: {node['target'][0]} {node['html'][:120]}"
        for rule in found
        for node in rule["nodes"][:3]
    ]


def tab_to(page: Page, expression: str) -> None:
    """Press Tab until a JavaScript expression is true. In the expression, `it` is the element with the focus."""
    for _ in range(MOST_STOPS):
        page.keyboard.press("Tab")
        if page.evaluate(f"(() => {{ const it = document.activeElement; return {expression} }})()"):
            return
    raise AssertionError(f"the keyboard does not reach {expression}")
