"""Pages in a real browser: Debian's chromium, driven by playwright. ``HOLDFAST_CHROMIUM`` names another one."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PATIENCE_MS = 90_000  # the machine may be busy
SCREENSHOTS = os.environ.get("HOLDFAST_SCREENSHOTS")  # a directory, to look at


class Tab:
    """A page, with everything that went wrong in it."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.errors: list[str] = []
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("dialog", self._dialog)
        page.on("console", lambda message: message.type == "error" and self.errors.append(message.text))

    def _dialog(self, dialog: Any) -> None:
        if dialog.type == "alert":
            self.errors.append(f"alert: {dialog.message}")
        dialog.accept()

    @contextlib.contextmanager
    def beside(self, *, dark: bool, width: int) -> Iterator[Tab]:
        """Another tab of the same browser, with other colours and another width."""
        scheme: Any = "dark" if dark else "light"
        context = self.page.context.browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
        try:
            yield Tab(context.new_page())
        finally:
            context.close()

    def text(self, selector: str = "body") -> str:
        return str(self.page.inner_text(selector))

    def awaits(self, condition: str, within_s: float = PATIENCE_MS / 1000) -> None:
        """Until that JavaScript is true. (The pages' policy forbids the eval that playwright's own wait needs.)"""
        deadline = time.monotonic() + within_s
        while not self.page.evaluate(f"() => Boolean({condition})"):
            assert time.monotonic() < deadline, condition
            self.page.wait_for_timeout(50)

    def keeps_picture(self, name: str) -> None:
        if SCREENSHOTS:
            Path(SCREENSHOTS).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=str(Path(SCREENSHOTS, f"{name}.png")), full_page=True)


@contextlib.contextmanager
def browser_tab(*, dark: bool = False, width: int = 1300) -> Iterator[Tab]:
    from playwright.sync_api import sync_playwright

    chromium = os.environ.get("HOLDFAST_CHROMIUM") or shutil.which("chromium")
    assert chromium, "install chromium, or name one in HOLDFAST_CHROMIUM"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        try:
            scheme: Any = "dark" if dark else "light"
            context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
            yield Tab(context.new_page())
        finally:
            browser.close()


def looks_dark_and_fits(tab: Tab, name: str) -> None:
    tab.keeps_picture(name)
    wide = tab.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, f"{name} scrolls sideways by {wide} px"
    dark = tab.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert max(map(int, dark.strip("rgb()").split(","))) < 60
