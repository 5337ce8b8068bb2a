"""Accessibility checks of pages in Chromium: axe, the width on a phone, and journeys with the keyboard alone."""

import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

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
CHECKS = ROOT / "tests" / "accessibility.js"
LIGHT = """async (parts) => {
    await checks.rest();
    const found = [document.body.innerText, checks.tooWide(), checks.doubleIds()], isNew = checks.findFresh() > 0;
    if (parts) checks.removeKnown(parts);
    return [...found, isNew, await checks.rules(isNew)];
}"""
DARK = "async () => { await checks.rest(); return await checks.contrast() }"
PARTS = "div, p, form, ul, ol, li, dl, table, tbody > tr:not(:first-child), details, article, option, nav a"
"""The elements that `complaints` removes from a page if nothing in them is new."""
ACCOUNT_MENU = "details.account > summary"
"""The selector of the element that opens the account menu in the console."""
PYTHON_VALUE = re.compile(
    r"\b[A-Z]\w*\(\w+=|<[\w.]+ object|object at 0x|\[\(?'|\{'|\bdatetime\.|\b(?:True|False)\b"
)
"""Matches a Python value that a template shows unformatted."""
PHONE = 360
"""The width of a phone in pixels."""
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
    for script in (AXE, CHECKS):
        context.add_init_script(path=script)
    page, refused = context.new_page(), list[str]()

    def note(message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text:
            refused.append(f"{page.url}: {message.text}")

    page.on("console", note)
    yield page
    context.close()
    assert not refused, "\n".join(refused)


def complaints(
    page: Page, path: str, or_no_page: bool = False, problems_of: Callable[[str], list[str]] = lambda html: []
) -> list[str]:
    """Show a page. Returns its problems, in light and dark. Removes those parts of it in which nothing is new.

    Opens the page only if it needs its own scripts. With `or_no_page`, the path may also be a download, a part of a
    page, a redirection or an error of the client. These have no problems. `problems_of` finds more problems in the HTML
    of the page.
    """
    answer = page.request.get(path, max_redirects=0)
    assert answer.status < 500, f"{path} answers {answer.status}"
    if answer.status != 200 or not answer.body().lstrip().lower().startswith(b"<!doctype html>"):
        assert or_no_page, f"{path} is no page"
        return []
    given = [path, answer.headers["content-security-policy"], answer.text()]
    if page.url == "about:blank" or not page.evaluate("(given) => checks.put(...given)", given):
        page.goto(path)
    more = [f"{path} {problem}" for problem in problems_of(answer.text())]
    return [*more, *complaints_here(page, path, PARTS)]


def complaints_here(page: Page, name: str, parts: str | None = None) -> list[str]:
    """Return the problems of the page as the window shows it now, in light and dark.

    Checks the contrast only of elements that are new to the window at its width. The selector `parts` has the elements
    that are removed if nothing in them is new.
    """
    page.emulate_media(color_scheme="light")
    text, pixels, double, is_new, problems = page.evaluate(LIGHT, parts)
    if pixels > 0:
        problems.append(f"is {pixels} px too wide")
    problems += [f"has more than one #{each}" for each in double]
    problems += [f"shows {value[0]!r}" for value in PYTHON_VALUE.finditer(text)]
    if is_new:
        page.emulate_media(color_scheme="dark")
        problems += [f"dark {problem}" for problem in page.evaluate(DARK)]
    return [f"{name} {problem}" for problem in problems]
