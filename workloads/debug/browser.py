"""How long the page takes to draw, in a browser without a window."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_UPDATES = 8
_EVERY_MS = 1100
_LIMIT_MS = 20_000
_TOOK = "(({takeMs, drawMs}) => Number(takeMs) + Number(drawMs))(document.documentElement.dataset)"


@dataclass(frozen=True, slots=True)
class Drawn:
    """Milliseconds from an update's coming to its picture: the first, and those after it."""

    first_ms: float
    updates_ms: list[float]


def drawing(url: str) -> Drawn | None:
    """Open the page and watch it for some seconds; None where there is no browser."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        return None
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1360, "height": 900})
        page.goto(f"{url}/debug")
        # The page's policy lets no condition be evaluated again and again within it.
        page.wait_for_selector("html[data-draw-ms]", state="attached", timeout=_LIMIT_MS)
        first = float(page.evaluate(_TOOK))
        updates = []
        for _ in range(_UPDATES):
            page.wait_for_timeout(_EVERY_MS)
            updates.append(float(page.evaluate(_TOOK)))
        browser.close()
    return Drawn(first, updates)
