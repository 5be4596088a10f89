"""The way from the engine's thread to the event loop."""

from __future__ import annotations

import asyncio
import threading

from server.http.bridge import Bridge


def test_items_arrive_on_the_loop_in_order() -> None:
    async def scenario() -> tuple[list[int], set[int]]:
        bridge: Bridge[int] = Bridge()
        bridge.attach()
        got: list[int] = []
        threads: set[int] = set()
        done = asyncio.Event()

        def receive(item: int) -> None:
            got.append(item)
            threads.add(threading.get_ident())
            if item == 9999:
                done.set()

        def post_all() -> None:
            for item in range(10000):
                bridge.post(receive, item)

        poster = threading.Thread(target=post_all)
        poster.start()
        await asyncio.wait_for(done.wait(), 20)
        poster.join()
        return got, threads

    got, threads = asyncio.run(scenario())
    assert got == list(range(10000))
    assert threads == {threading.get_ident()}


def test_the_loop_is_woken_once_for_all_that_waits() -> None:
    async def scenario() -> tuple[int, list[int]]:
        bridge: Bridge[int] = Bridge()
        bridge.attach()
        loop = asyncio.get_running_loop()
        wakes = 0
        original = loop.call_soon_threadsafe

        def counting(*arguments: object, **keywords: object) -> object:
            nonlocal wakes
            wakes += 1
            return original(*arguments, **keywords)  # type: ignore[arg-type]

        loop.call_soon_threadsafe = counting  # type: ignore[method-assign, assignment]
        got: list[int] = []
        for item in range(256):
            bridge.post(got.append, item)
        await asyncio.sleep(0)
        return wakes, got

    wakes, got = asyncio.run(scenario())
    assert wakes == 1
    assert got == list(range(256))


def test_posting_after_the_loop_has_closed_does_not_raise() -> None:
    bridge: Bridge[int] = Bridge()

    async def attach() -> None:
        bridge.attach()

    asyncio.run(attach())
    got: list[int] = []
    bridge.post(got.append, 1)
    assert got == []
