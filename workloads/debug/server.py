"""``python -m workloads.debug.server FOLDER PORT NODES STEP_MS FILE``: a server with a large tree
and steps of a known length; when each of them began is written to FILE at the end."""

from __future__ import annotations

import sys
from array import array
from pathlib import Path

from radix_engine.cache import PrefixCache
from scheduler import Limits
from server import Engine
from server.http import serve
from server.options import CacheOptions
from server.text import TextCodec
from workloads.debug.grown import grow
from workloads.debug.timed_model import TimedRunner, timed_model

BLOCKS_PER_NODE = 1.0  # so about half of the nodes have been evicted
VOCABULARY = 50_000  # as the tree's tokens are
MAX_RUNNING = 8


def main(folder: Path, port: int, nodes: int, step_s: float, file: Path) -> None:
    """Serve until SIGTERM."""
    made: list[TimedRunner] = []
    text = TextCodec(folder)
    engine = Engine(
        timed_model(VOCABULARY, step_s, made),
        text,
        int(nodes * BLOCKS_PER_NODE),
        limits=Limits(max_running=MAX_RUNNING),
        cache=CacheOptions(),
    )
    cache = engine._cache
    assert isinstance(cache, PrefixCache)
    found = engine._loop.call(lambda: grow(cache, nodes))
    print(f"{found} nodes")
    serve(engine, "127.0.0.1", port, 0.0, lambda url: engine.tame_garbage_collector())
    file.write_bytes(array("d", made[0].began).tobytes())


if __name__ == "__main__":
    main(
        Path(sys.argv[1]),
        int(sys.argv[2]),
        int(sys.argv[3]),
        float(sys.argv[4]) / 1e3,
        Path(sys.argv[5]),
    )
