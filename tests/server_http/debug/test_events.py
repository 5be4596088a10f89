"""GET /debug/events: one look for all listeners, none while nobody listens, and no end of them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from server import Engine
from server.debug.inspector import Inspector, Look
from server.debug.tree_query import TreeQuery
from server.http.debug import feed
from server.http.debug.tree_changes import TreeChanges
from tests.server_http.real import COMPLETIONS
from tests.server_http.running import serving
from tests.server_http.scripted import TIMEOUT_S


@pytest.fixture(autouse=True)
def looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When the engine was looked at; updates come ten times as often as they do."""
    times: list[float] = []
    look = Inspector.look

    def counting(self: Inspector, query: TreeQuery) -> Look:
        times.append(time.monotonic())
        return look(self, query)

    monkeypatch.setattr(Inspector, "look", counting)
    monkeypatch.setattr(feed, "EVERY_S", 0.1)
    monkeypatch.setattr(feed.Feed.__init__, "__defaults__", (0.1,))
    return times


@contextmanager
def listening(url: str) -> Iterator[Iterator[dict[str, Any]]]:
    """The updates of one listener."""
    with httpx.stream("GET", f"{url}/debug/events", timeout=TIMEOUT_S) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = (line for line in response.iter_lines() if line.startswith("data: "))
        yield (json.loads(line.removeprefix("data: ")) for line in lines)


def test_a_listener_gets_the_tree_and_then_its_changes(url: str) -> None:
    with listening(url) as updates:
        first = next(updates)
        assert first["tree"]["full"]
        assert [node["tokens"] for node in first["tree"]["nodes"]] == [0]
        quiet = next(updates)
        assert (quiet["tree"]["full"], quiet["tree"]["nodes"]) == (False, [])
        httpx.post(f"{url}{COMPLETIONS}", json={"prompt": list(range(50, 82)), "max_tokens": 1})
        update = next(each for each in updates if any(n["tokens"] for n in each["tree"]["nodes"]))
        assert update["state"]["blocks_cached"] == 2
        assert update["counters"]["prompt_tokens"] == 32
        assert update["missed_tokens"]["cold"] == 32
        assert update["steps"]["count"] >= 1
        assert update["problem"] is None
        told = {node["id"]: node for node in first["tree"]["nodes"]}
        told |= {node["id"]: node for node in update["tree"]["nodes"]}
        now = httpx.get(f"{url}/debug/tree").json()["nodes"]
        assert {node["id"] for node in now} == told.keys()


def test_all_listeners_share_one_look_and_none_is_taken_for_nobody(
    url: str, looks: list[float]
) -> None:
    time.sleep(0.25)
    assert looks == []
    with listening(url) as one, listening(url) as two:
        numbers = [[next(each)["number"] for _ in range(4)] for each in (one, two)]
        assert numbers[0] != []
        assert len(looks) <= max(map(max, numbers)) + 1
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() - looks[-1] < 0.5:  # one every 0.1 s while anybody listens
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_running_requests_and_what_was_evicted_are_told(engine: Engine, url: str) -> None:
    with listening(url) as updates:
        next(updates)
        body = {"prompt": [60] * 40, "max_tokens": 4000, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", f"{url}{COMPLETIONS}", json=body, timeout=TIMEOUT_S) as answer:
            name = answer.headers["X-Request-Id"]
            found = next(each for each in updates if each["active"])["active"][0]
            assert (found["id"], found["prompt_tokens"]) == (name, 40)
            assert found["state"] in ("running", "waiting")
        cache = engine.inspector._cache
        assert cache is not None
        next(each for each in updates if not each["active"])
        freed = engine._loop.call(lambda: cache.evict(1))
        lines = next(each["log"] for each in updates if each["log"])
        assert freed == 1
        assert [(line["kind"], line["text"]) for line in lines] == [
            ("evicted", "1 blocks evicted to make room")
        ]


def test_there_are_only_so_many_listeners(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "MOST_LISTENERS", 1)
    with listening(url) as updates:
        next(updates)
        refused = httpx.get(f"{url}/debug/events")
        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "too_many_listeners"
    deadline = time.monotonic() + TIMEOUT_S
    status = 429
    while status == 429 and time.monotonic() < deadline:
        with httpx.stream("GET", f"{url}/debug/events") as response:
            status = response.status_code
    assert status == 200


def test_a_shutdown_ends_the_stream(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "shutdown", lambda grace_s: None)
    with serving(engine) as (address, shutdown, thread), listening(address) as updates:
        next(updates)
        shutdown.begin()
        for _ in updates:
            pass
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
    monkeypatch.undo()


def test_changes_add_up_to_the_tree() -> None:
    changes = TreeChanges()
    first = [{"id": "a", "x": 1}, {"id": "b", "x": 1}]
    assert changes.since_last(first) == {"full": False, "nodes": first, "gone": []}
    second = [{"id": "a", "x": 2}, {"id": "c", "x": 1}]
    assert changes.since_last(second) == {"full": False, "nodes": second, "gone": ["b"]}
    assert changes.since_last(second) == {"full": False, "nodes": [], "gone": []}


def test_a_look_from_many_threads_is_sound(engine: Engine) -> None:
    problems: list[BaseException] = []

    def look() -> None:
        try:
            for _ in range(20):
                engine.inspector.look(TreeQuery(limit=50))
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    engine.generate([[60 + number] * 40 for number in range(8)])
    for thread in threads:
        thread.join()
    assert problems == []
