"""Debian's Chromium, driven as a person drives it."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Self

from playwright.sync_api import Browser, Page, ViewportSize, expect, sync_playwright

CHROMIUM = "chromium"
PATIENCE = 15_000.0  # milliseconds: the machine may be busy
# What a page must never do, noted where the page cannot reach it.
WATCH = """
addEventListener("securitypolicyviolation", (event) => {
  (window.refused ??= []).push(`${event.violatedDirective} ${event.blockedURI}`)
})
"""


class Tab:
    """One tab, with a storage of its own.

    `problems`: errors, refusals of the policy, dialogs, new windows, and requests that left the page's own origin.
    """

    def __init__(self, browser: Browser, url: str, width: int, height: int, theme: Any, motion: Any) -> None:
        self.url = url
        self.problems: list[str] = []
        self.allowed: tuple[str, ...] = ()
        size = ViewportSize(width=width, height=height)
        self._context = browser.new_context(viewport=size, color_scheme=theme, reduced_motion=motion)
        self._context.add_init_script(WATCH)
        self.page: Page = self._context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("console", lambda message: self._note(message.type, message.text))
        self.page.on("request", lambda request: self._check(request.url))
        self.page.on("dialog", lambda dialog: (self.problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self._context.on("page", lambda page: self.problems.append(f"a window was opened: {page.url}"))

    def _note(self, kind: str, text: str) -> None:
        # A browser reports each answer that is an error, and each lost connection.
        if kind == "error" and not any(each in text for each in ("Failed to load resource", *self.allowed)):
            self.problems.append(f"console: {text}")

    def _check(self, url: str) -> None:
        if not url.startswith((self.url, "blob:")):
            self.problems.append(f"request: {url}")

    def go(self, place: str) -> Self:
        """Opens a place of the page, such as `#/chat`."""
        self.page.goto(f"{self.url}/{place}")
        expect(self.page.locator("main .view")).to_be_visible(timeout=PATIENCE)
        return self

    def button(self, name: str, **options: Any) -> Any:
        """The button of this name."""
        return self.page.get_by_role("button", name=name, exact=True, **options)

    def chat(self, agent: str, text: str) -> None:
        """Chooses an agent, and sends it a message."""
        self.page.get_by_label("Agent", exact=True).select_option(agent)
        self.page.get_by_label("Message", exact=True).fill(text)
        self.page.keyboard.press("Enter")

    def see(self, text: Any) -> None:
        """Waits until a text can be seen."""
        expect(self.page.locator("body")).to_contain_text(text, timeout=PATIENCE)

    def close(self) -> None:
        """Closes the tab, as a person does: its connections end."""
        self.problems += self.page.evaluate("() => window.refused ?? []")
        self._context.close()


class Chromium:
    """A running browser."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser

    @classmethod
    @contextmanager
    def started(cls) -> Generator[Chromium]:
        """A browser that runs until the end of the block."""
        with sync_playwright() as playwright:
            path = shutil.which(CHROMIUM)
            browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
            try:
                yield cls(browser)
            finally:
                browser.close()

    def tab(
        self, url: str, *, width: int = 1_200, height: int = 800, theme: str = "light", motion: str = "no-preference"
    ) -> Tab:
        """A new tab."""
        return Tab(self._browser, url, width, height, theme, motion)
