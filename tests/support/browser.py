"""A real headless Chromium, logged in to Airflow as a person logs in."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, Page, StorageState, sync_playwright

from tests.support.servers import FOUND, REPOSITORY

SCREENSHOTS = REPOSITORY / ".cache" / "screenshots"
WIDTHS = {"wide": 1280, "narrow": 390}
EVERY_LOOK = (("light", "wide"), ("light", "narrow"), ("dark", "wide"), ("dark", "narrow"))
BOTH_THEMES = (("light", "wide"), ("dark", "narrow"))
DARK_AND_NARROW = (("dark", "narrow"),)
"""Colour modes and widths: all, as few as have each of them, and the one in which most can go wrong."""
_PATIENCE_MS = 60_000


def chromium_binary() -> Path | None:
    """The Chromium of `TXN_ENGINE_CHROMIUM`, or the one that set-up found or fetched, or None."""
    binary = Path(os.environ.get("TXN_ENGINE_CHROMIUM") or FOUND / "chromium")
    return binary if os.access(binary, os.X_OK) else None


@contextlib.contextmanager
def running_browser(binary: Path) -> Iterator[Browser]:
    """A headless Chromium. As root it runs without its sandbox, because it only opens pages of the tests' own
    server."""
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=binary, args=arguments)
        yield browser
        browser.close()


def log_in(browser: Browser, url: str, user: str, password: str) -> BrowserContext:
    """A person's browser after the log-in form of Airflow."""
    context = _new_context(browser, url)
    page = context.new_page()
    page.goto("/")
    page.get_by_label("Username").fill(user)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(lambda there: "/auth/login" not in there)
    page.close()
    return context


def logged_in_again(context: BrowserContext, url: str) -> BrowserContext:
    """The same person in a second window, which shares only the log-in with the first."""
    assert context.browser is not None
    return _new_context(context.browser, url, context.storage_state())


def open_page(context: BrowserContext, path: str, width: str = "wide", *, has_clock: bool = False) -> Page:
    """Open a page of the engine and wait until it is filled. An error in the browser's console fails the test.

    has_clock: the context has a clock of the test's own from here on, which can be put forward.
    """
    page = context.new_page()
    if has_clock:
        page.clock.install()
    page.set_viewport_size({"width": WIDTHS[width], "height": 900})
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.goto(f"/txn-engine/{path}")
    page.locator('#content[aria-busy="false"]').wait_for(state="attached")
    assert not complaints, f"{path}: {complaints}"
    return page


def _new_context(browser: Browser, url: str, state: StorageState | None = None) -> BrowserContext:
    # frames follow the colours of the page they are in
    context = browser.new_context(base_url=url, color_scheme="null", storage_state=state)
    context.set_default_timeout(_PATIENCE_MS)
    return context


def screenshots(
    context: BrowserContext, path: str, name: str, looks: Iterable[tuple[str, str]] = EVERY_LOOK
) -> list[Path]:
    """Take a picture of the whole page in each colour mode and width. Fails if the page is wider than the window."""
    taken = []
    for theme, width in looks:
        page = open_page(context, path, width)
        if page.evaluate("document.documentElement.dataset.theme") != theme:
            page.evaluate("theme => localStorage.setItem('theme', theme)", theme)
            page.reload()
            page.locator('#content[aria-busy="false"]').wait_for(state="attached")
        assert page.evaluate("document.documentElement.dataset.theme") == theme
        for frame in page.main_frame.child_frames:
            frame.wait_for_load_state("networkidle")
        wider = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert wider <= 0, f"{name} at {WIDTHS[width]} pixels is {wider} pixels too wide"
        taken.append(SCREENSHOTS / f"{name}-{theme}-{width}.png")
        page.screenshot(path=taken[-1], full_page=True)
        page.close()
    return taken
