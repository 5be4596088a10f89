"""OpenVINO GenAI as a worker of bench-cpu, run by the interpreter of its own environment."""

from __future__ import annotations

import itertools
import time
from importlib.metadata import version
from typing import Any

import numpy as np
import openvino
import openvino_genai as genai

from workloads.cpu.line_protocol import Sessions, Times, serve, settings, take_stdout

# The most prompt tokens in one step: a whole prompt of the benchmark, as one pass is fastest.
STEP_TOKENS = 8192


def main() -> None:
    """Load the model's IR and serve loads. Settings: model, kv_gib, threads, dtype, cache."""
    out, given = take_stdout(), settings()
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = given["kv_gib"]
    scheduler.enable_prefix_caching = given["cache"]
    scheduler.max_num_batched_tokens = STEP_TOKENS
    properties = {
        "INFERENCE_PRECISION_HINT": given["dtype"],
        # Its own default keeps K and V in 8 bits; ours are in the precision of the model.
        "KV_CACHE_PRECISION": given["dtype"],
        "INFERENCE_NUM_THREADS": given["threads"],
    }
    pipe = genai.ContinuousBatchingPipeline(given["model"], scheduler, "CPU", properties)
    about = {"version": version("openvino-genai")} | properties
    numbers = itertools.count()

    def start(prompt: list[int], config: Any) -> Any:
        tokens = openvino.Tensor(np.array([prompt], dtype=np.int64))
        return pipe.add_request(next(numbers), tokens, config)

    def run(sessions: Sessions, tokens: int) -> tuple[list[list[Times]], float]:
        config = genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = tokens, True, False
        found: list[list[Times]] = [[] for _ in sessions]
        begin = time.perf_counter()
        running = {i: [start(calls[0], config), 0.0, 0.0, 0] for i, calls in enumerate(sessions)}
        while running:
            pipe.step()
            now = time.perf_counter() - begin
            for index, call in list(running.items()):
                handle = call[0]
                while handle.can_read():
                    new = sum(len(each.generated_ids) for each in handle.read().values())
                    if new:
                        call[1:] = [call[1] if call[3] else now, now, call[3] + new]
                if handle.get_status() != genai.GenerationStatus.RUNNING:
                    found[index].append((call[1], call[2], call[3]))
                    done = len(found[index])
                    if done < len(sessions[index]):
                        running[index] = [start(sessions[index][done], config), 0.0, 0.0, 0]
                    else:
                        del running[index]
        return found, time.perf_counter() - begin

    serve(out, about, run)


if __name__ == "__main__":
    main()
