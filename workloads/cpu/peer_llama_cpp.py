"""llama.cpp as a worker of bench-cpu, run by the interpreter of its own environment.

It answers one stream at a time: sessions run one after the other. What a prompt shares with the
last one is taken from its context.
"""

from __future__ import annotations

import time
from importlib.metadata import version
from itertools import islice

from llama_cpp import Llama

from workloads.cpu.line_protocol import Sessions, Times, serve, settings, take_stdout


def main() -> None:
    """Load the model's file and serve loads. Settings: model, context, threads."""
    out, given = take_stdout(), settings()
    model = Llama(
        given["model"],
        n_ctx=given["context"],
        n_threads=given["threads"],
        n_threads_batch=given["threads"],
        verbose=False,
    )

    def call(prompt: list[int], tokens: int, begin: float) -> Times:
        first = last = 0.0
        count = 0
        # Goes on past the end of the text, as long as somebody takes tokens.
        for _ in islice(model.generate(prompt, temp=0.0, repeat_penalty=1.0), tokens):
            last = time.perf_counter() - begin
            first = first if count else last
            count += 1
        return first, last, count

    def run(sessions: Sessions, tokens: int) -> tuple[list[list[Times]], float]:
        begin = time.perf_counter()
        found = [[call(prompt, tokens, begin) for prompt in calls] for calls in sessions]
        return found, time.perf_counter() - begin

    serve(out, {"version": version("llama-cpp-python")}, run)


if __name__ == "__main__":
    main()
