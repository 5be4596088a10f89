"""Our engine as a worker of bench-cpu: ``python -m workloads.cpu.ours SETTINGS``."""

from __future__ import annotations

import dataclasses
import os
import queue
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from workloads.cpu.line_protocol import Sessions, Times, serve, settings, take_stdout

if TYPE_CHECKING:
    from server import Engine, GenerationParams, Output

FIELDS = ("model", "kv_gib", "threads", "cache", "quantization")


def main() -> None:
    """Load the engine as the settings (`FIELDS`) say, and serve loads."""
    out, given = take_stdout(), settings()
    # As the server does it: threads that wait for each other sleep soon.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    from server import Engine, EngineOptions
    from server.options import CacheOptions

    quantization = given.get("quantization")
    more: dict[str, Any] = {"quantization": quantization} if quantization else {}
    options = EngineOptions(
        model=given.get("model"),
        kv_memory=f"{given['kv_gib']}GiB",
        threads=given.get("threads"),
        cache=CacheOptions(enabled=given["cache"]),
        **more,
    )
    with Engine.load(options) as engine:
        engine.tame_garbage_collector()
        about = dataclasses.asdict(engine.info) | {"kv_tokens": engine.info.kv_tokens}
        about.pop("sampling", None)
        serve(out, about, lambda sessions, tokens: run(engine, sessions, tokens))


def run(engine: Engine, sessions: Sessions, tokens: int) -> tuple[list[list[Times]], float]:
    """Run a load; each session's next call is queued when its last one ends."""
    params = _params(tokens)
    ended: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    found: list[list[Times]] = [[] for _ in sessions]
    start = time.perf_counter()

    def receiver(index: int) -> Callable[[Output], None]:
        first = last = 0.0
        count = 0

        def push(piece: Output) -> None:
            nonlocal first, last, count
            if piece.token_ids:
                last = time.perf_counter() - start
                first = first if count else last
                count += len(piece.token_ids)
            if piece.finish_reason == "error":
                ended.put(piece.error or "no reason was given")
            elif piece.finish_reason is not None:
                found[index].append((first, last, count))
                if len(found[index]) < len(sessions[index]):
                    submit(index)
                else:
                    ended.put(None)

        return push

    def submit(index: int) -> None:
        engine.submit(sessions[index][len(found[index])], params, receiver(index))

    for index in range(len(sessions)):
        submit(index)
    problems = [problem for _ in sessions if (problem := ended.get()) is not None]
    if problems:
        raise RuntimeError(problems[0])
    return found, time.perf_counter() - start


def _params(tokens: int) -> GenerationParams:
    from server import GenerationParams, SamplingParams

    return GenerationParams(tokens, SamplingParams(temperature=0.0), ignore_eos=True)


if __name__ == "__main__":
    main()
