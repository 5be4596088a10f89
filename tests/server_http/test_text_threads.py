"""What is short never waits for what is long, and of the latter one thing is done at a time."""

from __future__ import annotations

import asyncio
import threading

from server.http.text_threads import LONG_BYTES, TextThreads

WAIT_S = 20.0


def test_a_short_text_passes_long_ones_of_which_one_is_worked_on() -> None:
    async def main() -> list[str]:
        threads, done = TextThreads(), []
        go_on, begun = threading.Event(), threading.Semaphore(0)

        def long() -> None:
            begun.release()
            assert go_on.wait(WAIT_S)
            done.append("long")

        waiting = [asyncio.create_task(threads.run(long, LONG_BYTES)) for _ in range(3)]
        assert await asyncio.to_thread(begun.acquire, timeout=WAIT_S)
        for size in (0, LONG_BYTES - 1):
            await threads.run(lambda: done.append("short"), size)
        assert not begun.acquire(blocking=False), "only one long one has begun"
        go_on.set()
        await asyncio.gather(*waiting)
        threads.close()
        return done

    assert asyncio.run(main()) == ["short", "short", "long", "long", "long"]
