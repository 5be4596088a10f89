"""From a bound port to a clean exit."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from types import FrameType

import uvicorn

from server.http.app import create_app
from server.http.engine_like import EngineLike
from server.http.errors import engine_lost
from server.http.service import Service
from server.http.settings import HttpSettings
from server.http.shutdown import Shutdown
from server.logs import fields

logger = logging.getLogger("server.http")

# Seconds that clients get to read what is already written once the engine has ended.
_FLUSH_S = 5
# Seconds after the grace for the step that runs then to end: steps are that short.
_LAST_STEP_S = 15.0
_BACKLOG = 2048
_LOST_ENGINE = 1
_INTERRUPTED = 130
_MAX_PORT = 65535


def serve(
    engine: EngineLike,
    host: str,
    port: int,
    grace_s: float,
    on_ready: Callable[[str], None],
    *,
    bound: socket.socket | None = None,
    shutdown: Shutdown | None = None,
    settings: HttpSettings | None = None,
) -> None:
    """Serve until SIGTERM, Ctrl-C or ``shutdown.begin()``, then end the engine and return.

    ``on_ready`` is called once with the address, such as ``http://127.0.0.1:8000``, when
    connections are accepted; with ``port`` 0 a free port is taken. When the end begins, new
    requests get 503 and running ones ``grace_s`` seconds; what still runs then ends with
    finish_reason "abort". Where the engine hangs in a step they end with an error, and the process
    with status 1. A second Ctrl-C ends the process at once with status 130. With keys,
    SIGHUP has their file read again.

    ``bound`` is a socket from ``bind``, for a caller that wants to know early whether the port is
    free; it replaces ``host`` and ``port``. Raises SystemExit as ``bind`` does.
    """
    listener = bound or bind(host, port)
    shutdown, settings = shutdown or Shutdown(), settings or HttpSettings()
    app = create_app(engine, shutdown=shutdown, settings=settings)
    config = uvicorn.Config(
        app,
        lifespan="on",
        ws="none",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # where a request comes from is not for a header to say
        backlog=_BACKLOG,
        timeout_graceful_shutdown=_FLUSH_S,
    )
    with listener:
        ready = functools.partial(on_ready, _address(listener))
        server = _Server(config, app.state.service, grace_s, ready)
        server.run(sockets=[listener])
    if server.has_lost_engine:
        # Python would wait for threads that wait for the engine, and so for ever.
        logging.shutdown()
        os._exit(_LOST_ENGINE)


def bind(host: str, port: int) -> socket.socket:
    """A socket bound to the address, not listening yet. ``port`` 0 takes a free one.

    Raises SystemExit with one line for people (status 1) when the address cannot be had.
    """
    if not 0 <= port <= _MAX_PORT:
        raise SystemExit(f"{port} is no port: --port takes 0 (any free one) to {_MAX_PORT}.")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise SystemExit(f"Cannot serve on {host!r}: {error}. See --host.") from None
    family, kind, protocol, _, address = found[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            raise SystemExit(
                f"Port {port} on {host} is in use. Stop what uses it, or choose another with "
                "--port (0: any free one)."
            ) from None
        raise SystemExit(
            f"Cannot serve on {host!r}, port {port}: {error}. See --host and --port."
        ) from None
    return bound


def _address(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Server(uvicorn.Server):
    """uvicorn that keeps answering, with 503, until the engine has ended its requests."""

    def __init__(
        self,
        config: uvicorn.Config,
        service: Service,
        grace_s: float,
        on_ready: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self.has_lost_engine = False
        self._service = service
        self._keys = service.settings.keys
        self._engine = service.engine
        self._shutdown = service.shutdown
        self._grace_s = grace_s
        self._on_ready = on_ready
        self._end: asyncio.Task[None] | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The handler of SIGTERM and SIGINT."""
        if sig == signal.SIGINT and self._shutdown.begun:
            # Nothing may delay this: neither a step of the engine nor a thread that Python joins.
            with contextlib.suppress(RuntimeError, OSError):  # the signal came during a flush
                sys.stdout.flush()
            os.write(2, b"Ended at once.\n")
            os._exit(_INTERRUPTED)
        self._shutdown.begin()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections, then report it."""
        await super().startup(sockets)
        loop = asyncio.get_running_loop()
        asked = asyncio.Event()
        self._end = loop.create_task(self._end_when(asked))

        def ask() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has closed: it has ended already
                loop.call_soon_threadsafe(asked.set)

        self._shutdown.listen(ask)
        if self._keys is not None and threading.current_thread() is threading.main_thread():
            loop.add_signal_handler(signal.SIGHUP, self._keys.reload)
        self._on_ready()

    async def _end_when(self, asked: asyncio.Event) -> None:
        await asked.wait()
        state = self._engine.state()
        unfinished = state.get("running", 0) + state.get("waiting", 0)
        if unfinished:
            logger.info("shutting down; what runs (%d) has %g s to end", unfinished, self._grace_s)
        else:
            logger.info("shutting down")
        try:
            await self._end_engine()
        finally:
            self.should_exit = True

    async def _end_engine(self) -> None:
        """Wait for the engine to end, or give it up where it hangs in a step after the grace."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def end() -> None:
            try:
                self._engine.shutdown(self._grace_s)
            except Exception:
                logger.exception("the engine did not end cleanly")
            with contextlib.suppress(RuntimeError):  # the loop has closed: it was given up
                loop.call_soon_threadsafe(ended.set)

        # No thread that Python would wait for at its end.
        threading.Thread(target=end, name="ending", daemon=True).start()
        patience_s = min(_LAST_STEP_S, self._service.readiness.wedged_after_s)
        try:
            await asyncio.wait_for(ended.wait(), self._grace_s + patience_s)
        except TimeoutError:
            self.has_lost_engine = True
            stack = self._engine.stack()
            logger.critical(
                "the engine hangs in a step and is left behind; this is what its thread is doing",
                extra=fields(stack=stack),
            )
            self._service.abandon(engine_lost())
