"""``python -m server``: load a model and serve it until Ctrl-C or SIGTERM; or, with ``lint`` as the
first word, look at a file of requests."""

from __future__ import annotations

import logging
import os
import shlex
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from tqdm import tqdm

from radix_engine.memory.sizing import format_size
from radix_engine.model.errors import ModelError
from server.config.command import parse
from server.config.server_options import ServerOptions
from server.debug.terminal import COMMANDS, run
from server.head_noise import HeadNoise, read_head_noise
from server.http.access import is_loopback
from server.http.lifecycle import bind, serve
from server.http.settings import HttpSettings
from server.http.text_threads import let_threads_take_turns
from server.http.while_loading import answering_while_loading
from server.key_ring import KeyRing
from server.logs import configure, fields, join_libraries

if TYPE_CHECKING:
    from server.engine import Engine

logger = logging.getLogger("server")

_ANY_ADDRESS = ("0.0.0.0", "::")


def main() -> int:
    """Run the server, or look into one (explain, tree); the exit status is 0 after a clean end."""
    if sys.argv[1:2] and sys.argv[1] in COMMANDS:
        return run(sys.argv[1:], os.environ)
    if sys.argv[1:2] == ["lint"]:
        from server.lint import lint

        return lint(sys.argv[2:])
    options = parse()
    # Threads of torch that wait for each other spin; with a busy neighbour on the processors that
    # costs several times the work itself, so they sleep soon. Read when torch is loaded.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    configure(options.log_format, options.log_level)
    # Before the long part, so that what is wrong shows now.
    try:
        settings = http_settings(options)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    listener = bind(options.host, options.port)
    for line in (*options.warnings, *warnings_of(options.host, settings.keys)):
        logger.warning("%s", line)
    signal.signal(signal.SIGTERM, _ended_while_loading)  # `serve` has a handler of its own
    if settings.keys is not None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # likewise
    try:
        with answering_while_loading(listener):
            engine = load(options)
    except (ModelError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130

    join_libraries()
    engine.tame_garbage_collector()
    let_threads_take_turns()

    def on_ready(address: str) -> None:
        logger.info("ready", extra=fields(address=address, model=engine.info.model))
        print(ready_message(engine, address, needs_key=settings.keys is not None), flush=True)

    where = (options.host, options.port, options.grace_s)
    serve(engine, *where, on_ready, bound=listener, settings=settings)
    return 0


def http_settings(options: ServerOptions) -> HttpSettings:
    """How HTTP is served, with the files read that say more. Raises ValueError or OSError, for the
    user."""
    return HttpSettings(
        max_body_bytes=options.max_body_bytes,
        wedged_after_s=options.wedged_after_s,
        request_timeout_s=options.request_timeout_s,
        cors_origins=options.cors_origins,
        hosts=() if options.host in _ANY_ADDRESS else (options.host,),
        keys=None if options.api_key_file is None else KeyRing(options.api_key_file),
        head_noise=head_noise(options.strip_head_noise),
        model_aliases=options.model_aliases,
        log_prompts=options.log_prompts,
    )


def head_noise(setting: str | None) -> HeadNoise:
    """What --strip-head-noise names. Raises ValueError or OSError."""
    if setting is None:
        return HeadNoise()
    return HeadNoise(()) if setting == "off" else read_head_noise(Path(setting))


def warnings_of(host: str, keys: KeyRing | None) -> list[str]:
    """What the operator should know about who can reach the server."""
    if keys is not None:
        return keys.warnings
    if host == "localhost" or is_loopback(host):
        return []
    return [
        f"--host {host} lets others reach this server, and without --api-key-file all of them may "
        "have it generate, and share one cache"
    ]


def _ended_while_loading(number: int, frame: FrameType | None) -> NoReturn:
    """Nothing was promised to anybody yet: what was begun is given up, and that is a clean end."""
    raise SystemExit(0)


def load(options: ServerOptions) -> Engine:
    """Load the engine, with a progress bar where somebody watches."""
    with tqdm(desc="Loading", unit=" layers", leave=False, disable=None) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        from server.engine import Engine  # imports torch, which takes seconds

        return Engine.load(options.engine, progress)


def ready_message(engine: Engine, address: str, *, needs_key: bool = False) -> str:
    """What the server says when it can be used."""
    info = engine.info
    size = format_size(info.kv_tokens * info.kv_bytes_per_token)
    question = '[{"role": "user", "content": "What is the capital of France?"}]'
    body = f'{{"messages": {question}, "max_tokens": 50}}'
    key = "-H 'Authorization: Bearer KEY' " if needs_key else ""
    curl = f"curl {address}/v1/chat/completions {key}-H 'Content-Type: application/json' -d "
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
