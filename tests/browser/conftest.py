"""A browser, and a server with a tiny model that it looks at. Skipped where there is no chromium.

Screenshots go to results/debug-page/.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from server import Engine
from server.http.settings import HttpSettings
from tests.server_http.keys import ring
from tests.server_http.real import tiny_engine
from tests.server_http.running import serving
from tests.tiny import make_tiny_folder

NAMES = ("chromium", "chromium-browser", "google-chrome")  # as tools/browser.py knows them
SHOTS = Path(__file__).parents[2] / "results" / "debug-page"
SYSTEM = "You are a careful assistant. Answer in one sentence, and say where you have it from. "


@dataclass
class Watched:
    """A page, with what went wrong on it and what it asked for."""

    page: Page
    url: str
    problems: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def shot(self, name: str) -> None:
        """Take a picture of the whole page."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SHOTS / f"{name}.png", full_page=True)

    def chat(self, *texts: str, system: str = SYSTEM) -> str:
        """Have a conversation answered; the request's id."""
        messages = [{"role": "system", "content": system}]
        for place, text in enumerate(texts):
            messages.append({"role": ("user", "assistant")[place % 2], "content": text})
        body = {"messages": messages, "max_tokens": 4, "ignore_eos": True}
        response = httpx.post(f"{self.url}/v1/chat/completions", json=body, timeout=30)
        assert response.status_code == 200, response.text
        name: str = response.headers["X-Request-Id"]
        return name


@pytest.fixture(scope="module")  # not longer: while it is open, this thread has a running loop
def browser() -> Iterator[Browser]:
    """Debian's chromium, without a window."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("there is no chromium; as root, `python3 tools/browser.py` installs it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has a long context."""
    path = tmp_path_factory.mktemp("tiny")
    return make_tiny_folder(path, tokenizer=True, max_position_embeddings=8192)


@pytest.fixture
def engine(folder: Path) -> Iterator[Engine]:
    """One whose cache is empty: a flush would leave what it remembers."""
    with tiny_engine(folder, 512) as engine:
        yield engine


@pytest.fixture
def address(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server without keys."""
    with monkeypatch.context() as patch:
        patch.setattr(engine, "shutdown", lambda grace_s: None)
        with serving(engine) as (url, _, _):
            yield url


@pytest.fixture
def guarded(engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """A server with keys."""
    with monkeypatch.context() as patch:
        patch.setattr(engine, "shutdown", lambda grace_s: None)
        with serving(engine, settings=HttpSettings(keys=ring(tmp_path))) as (url, _, _):
            yield url


@pytest.fixture
def watched(browser: Browser, address: str) -> Iterator[Watched]:
    """The page, open and live. At the end nothing may have gone wrong on it, and it may have asked
    nobody but its server."""
    yield from watch(browser, address, expects=())


def watch(browser: Browser, url: str, expects: tuple[str, ...]) -> Iterator[Watched]:
    """Open the page. ``expects``: problems that contain one of these are as they should be."""
    context = browser.new_context(viewport={"width": 1360, "height": 900})
    watched = Watched(context.new_page(), url)
    page = watched.page
    page.on("pageerror", lambda error: watched.problems.append(str(error)))
    page.on(
        "console",
        lambda message: (
            watched.problems.append(message.text) if message.type in ("error", "warning") else None
        ),
    )
    page.on("request", lambda request: watched.asked.append(request.url))
    page.goto(f"{url}/debug")
    yield watched
    unexpected = [each for each in watched.problems if not any(one in each for one in expects)]
    assert unexpected == []
    assert [each for each in watched.asked if not each.startswith(url)] == []
    context.close()
