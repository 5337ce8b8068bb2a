"""A user without a mouse: Tab, Enter, Space and letters."""

from playwright.sync_api import Error, Locator, Page

MOST_STOPS = 200
IS_FOCUSED = "(element) => element === document.activeElement"


class Keyboard:
    """Reaches elements with Tab only, and counts actions: filling a field, pressing a button or link."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.actions = 0

    def reach(self, target: Locator) -> None:
        """Move the focus to an element with Tab only."""
        target.wait_for()
        for _ in range(MOST_STOPS):
            if target.evaluate(IS_FOCUSED):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"the keyboard does not reach {target}")

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
