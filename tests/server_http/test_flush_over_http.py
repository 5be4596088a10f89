"""Emptying the cache while it is used: done at once, and nobody's answer is another one for it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from scheduler import Limits
from server import Engine
from tests.server_http.real import make_tiny_engine
from tests.server_http.running import serving
from tests.server_http.stepping import COMPLETIONS, TIMEOUT_S, Steps, wait_until

PROMPTS = ["x" * 120, "x" * 100 + "y" * 20, "x" * 100 + "z" * 30]
LIMITS = Limits(16, 2)  # prompts in chunks; of three, one waits


def post(url: str, path: str, body: Any, answers: list[Any]) -> threading.Thread:
    """A request on a thread, whose answer is put into the list."""

    def ask() -> None:
        answers.append(httpx.post(url + path, json=body, timeout=60))

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


def body_of(prompt: str) -> dict[str, Any]:
    return {"prompt": prompt, "max_tokens": 12, "temperature": 0, "ignore_eos": True}


def texts_alone(folder: Path) -> list[str]:
    """What the prompts are answered where nothing is cached."""
    with make_tiny_engine(folder, 64, enabled=False) as engine, serving(engine) as (url, _, _):
        asked = [httpx.post(url + COMPLETIONS, json=body_of(each), timeout=60) for each in PROMPTS]
    return [each.json()["choices"][0]["text"] for each in asked]


@pytest.mark.parametrize("path", ["/flush_cache", "/reset_prefix_cache"])
@pytest.mark.parametrize("steps", [1, 6, 12, 20], ids="after-{}-steps".format)
def test_it_is_done_while_prompts_are_computed_answered_and_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int, path: str
) -> None:
    folder = tmp_path / "tiny"
    engine: Engine = make_tiny_engine(folder, 64, LIMITS)
    expected = texts_alone(folder)
    with engine, serving(engine) as (url, _, _):
        gate = Steps(engine, monkeypatch)
        answers: list[list[httpx.Response]] = [[], [], []]
        threads = []
        for number, (prompt, answer) in enumerate(zip(PROMPTS, answers, strict=True), start=1):
            threads.append(post(url, COMPLETIONS, body_of(prompt), answer))
            wait_until(lambda count=number: is_known(engine, count))  # type: ignore[misc]
        gate.allow(steps)
        gate.wait_until_begun(steps + 1)
        flushed: list[httpx.Response] = []
        flushing = post(url, path, {}, flushed)
        wait_until(lambda: bool(engine._loop._inbox))
        assert engine.state()["running"] > 0
        gate.allow(1)  # the step that runs ends, and the cache is emptied before the next
        flushing.join(TIMEOUT_S)
        assert flushed[0].status_code == 200, "no request has to end for it"
        assert flushed[0].json()["freed_blocks"] >= 0
        assert engine.counters()["flushes"] == 1
        gate.allow(10_000)
        for thread in threads:
            thread.join(TIMEOUT_S)
        assert [each[0].json()["choices"][0]["text"] for each in answers] == expected
        assert engine.audit() == []
        httpx.post(url + path, timeout=60)
        state = engine.state()
        assert (state["blocks_free"], state["blocks_cached"]) == (64, 0)
        again = httpx.post(url + COMPLETIONS, json=body_of(PROMPTS[0]), timeout=60).json()
        assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        assert again["choices"][0]["text"] == expected[0]


def is_known(engine: Engine, count: int) -> bool:
    """Whether so many requests have come to the engine."""
    state = engine.state()
    return state["running"] + state["waiting"] == count
