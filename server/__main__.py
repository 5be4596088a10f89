"""``python -m server``: load a model and serve it until Ctrl-C or SIGTERM."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from typing import TYPE_CHECKING

from tqdm import tqdm

from radix_engine.memory.sizing import format_size
from radix_engine.model.errors import ModelError
from server.command_line import ServerOptions, parse
from server.http.lifecycle import bind, serve

if TYPE_CHECKING:
    from server.engine import Engine


def main() -> int:
    """Run the server; the exit status is 0 after a clean end."""
    options = parse()
    # Threads of torch that wait for each other spin; with a busy neighbour on the processors that
    # costs several times the work itself, so they sleep soon. Read when torch is loaded.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    listener = bind(options.host, options.port)  # before the long part, so that a clash shows now
    try:
        engine = load(options)
    except (ModelError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130

    engine.tame_garbage_collector()

    def on_ready(address: str) -> None:
        print(ready_message(engine, address), flush=True)

    serve(engine, options.host, options.port, options.grace_s, on_ready, bound=listener)
    return 0


def load(options: ServerOptions) -> Engine:
    """Load the engine, with a progress bar where somebody watches."""
    with tqdm(desc="Loading", unit=" layers", leave=False, disable=None) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        from server.engine import Engine  # imports torch, which takes seconds

        return Engine.load(options.engine, progress)


def ready_message(engine: Engine, address: str) -> str:
    """What the server says when it can be used."""
    info = engine.info
    size = format_size(info.kv_tokens * info.kv_bytes_per_token)
    question = '[{"role": "user", "content": "What is the capital of France?"}]'
    body = f'{{"messages": {question}, "max_tokens": 50}}'
    curl = f"curl {address}/v1/chat/completions -H 'Content-Type: application/json' -d "
    return "\n".join(
        (
            f"Ready at {address}",
            f"  model         {info.model}, weights in {info.weights}, "
            f"context of {info.context_length:,} tokens",
            f"  computed by   {info.kernels} kernels, "
            f"{'exact to the bit' if info.exact else 'not exact to the bit'} on a cache hit",
            f"  KV memory     {size}: {info.num_blocks:,} blocks of {info.block_size} tokens = "
            f"{info.kv_tokens:,} tokens, {info.kv_bytes_per_token:,} bytes each ({info.kv_dtype})",
            f"  prefix cache  {'on' if info.prefix_cache else 'off'}",
            "Ask it something:",
            f"  {curl}{shlex.quote(body)}",
        )
    )


if __name__ == "__main__":
    sys.exit(main())
