"""A user without a mouse: Tab, Enter, Space and letters."""

from playwright.sync_api import ElementHandle, Error, Locator, Page

MOST_STOPS = 200
STOPS_AHEAD = """(element) => {
    if (!element.isConnected) return null;
    if (element === document.activeElement) return 0;
    const part = document.activeElement.getAttribute("href")?.match(/^#(.+)/)?.[1];
    if (part && document.getElementById(part)?.contains(element)) return -1;
    const isStop = (one) => one.tabIndex >= 0 && !one.disabled && one.type !== "radio"
        && one.checkVisibility({visibilityProperty: true});
    const possible = "a[href], button, input, select, textarea, summary, [tabindex]";
    const stops = [...document.querySelectorAll(possible)].filter(isStop);
    const [now, then] = [document.activeElement, element].map((one) => stops.indexOf(one));
    return now >= 0 && then > now ? then - now : 1;
}"""
"""The number of Tabs from the focus to an element, by the order of the page. 1 if the number is uncertain, 0 if the
element has the focus, -1 if a link that skips to the element's part of the page has it, null if the page has replaced
the element."""


class Keyboard:
    """Reaches elements with Tab only, and counts actions: filling a field, pressing a button or link."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.actions = 0

    def reach(self, target: Locator) -> None:
        """Move the focus to an element with Tab, and with Enter on a link that skips the navigation.

        The element is looked up again only if the page has replaced it, because a look-up by role reads the whole page.
        """
        element = self._find(target)
        presses = 0
        while presses <= MOST_STOPS:
            try:
                ahead = element.evaluate(STOPS_AHEAD)
            except Error:  # the element belongs to the previous page
                ahead = None
            if ahead == 0:
                return
            if ahead is None:
                element = self._find(target)
            elif ahead < 0:
                self.page.keyboard.press("Enter")
            for _ in range(ahead or 0):
                self.page.keyboard.press("Tab")
            presses += max(ahead or 0, 1)
        raise AssertionError(f"the keyboard does not reach {target}")

    def _find(self, target: Locator) -> ElementHandle:
        target.wait_for()
        return target.element_handle()

    def press(self, target: Locator) -> None:
        """Press a button, or follow a link."""
        self.reach(target)
        try:
            self.page.keyboard.press("Enter")
        except Error:
            # The pressed element may close the window before Playwright confirms the press.
            if not self.page.is_closed():
                raise
        self.actions += 1

    def fill(self, target: Locator, text: str) -> None:
        """Type into a field. In a list of choices, select the one that begins with the text."""
        self.reach(target)
        self.page.keyboard.type(text)
        self.actions += 1

    def tick(self, target: Locator) -> None:
        """Tick a box."""
        self.reach(target)
        self.page.keyboard.press("Space")
        self.actions += 1

    def button(self, name: str) -> None:
        """Press the button with this name in the page's content or head."""
        self.press(self.page.get_by_role("button", name=name, exact=True).first)

    def link(self, name: str) -> None:
        """Follow the first link of that name."""
        self.press(self.page.get_by_role("link", name=name).first)

    def field(self, label: str, text: str) -> None:
        """Type into the field of that label."""
        self.fill(self.page.get_by_label(label, exact=True).first, text)
