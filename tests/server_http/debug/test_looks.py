"""Looks at the tree take many steps; whoever waits for one step does not wait for them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from server.debug.inspector import Inspector
from server.debug.tree_query import TreeQuery

TIMEOUT_S = 20


def test_a_flush_does_not_wait_for_looks_at_the_tree(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()
    tree = Inspector.tree

    def slow(self: Inspector, query: TreeQuery) -> list[dict[str, Any]]:
        begun.release()
        assert go_on.wait(TIMEOUT_S)
        return tree(self, query)

    monkeypatch.setattr(Inspector, "tree", slow)
    with ThreadPoolExecutor(4) as threads:
        looks = [
            threads.submit(httpx.get, f"{url}/debug/tree", timeout=2 * TIMEOUT_S) for _ in range(4)
        ]
        try:
            assert begun.acquire(timeout=TIMEOUT_S)
            assert httpx.post(f"{url}/flush_cache", timeout=TIMEOUT_S / 2).status_code == 200
            assert not any(look.done() for look in looks)
        finally:
            go_on.set()
        assert [look.result().status_code for look in looks] == [200] * 4
