"""``python -m workloads.http.path_server ours|bare PORT``: one of the two servers compared."""

from __future__ import annotations

import sys

import uvicorn

from server.http import bind, serve
from workloads.http.bare_app import BareApp
from workloads.http.instant_engine import InstantEngine


def main(which: str, port: int) -> None:
    """Serve until SIGTERM."""
    if which == "ours":
        engine = InstantEngine()
        serve(engine, "127.0.0.1", port, 0.0, lambda url: engine.tame_garbage_collector())
        return
    config = uvicorn.Config(
        BareApp(),
        lifespan="off",
        ws="none",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
    )
    with bind("127.0.0.1", port) as listener:
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
