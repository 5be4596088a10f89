"""``python -m tests.server_http.process GRACE [--hang]``: a server; its address is its first line.

With --hang its engine does not end when it is told to.
"""

from __future__ import annotations

import sys
import threading

from server.http import serve
from server.http.settings import HttpSettings
from tests.server_http.scripted import ScriptedEngine


class HangingEngine(ScriptedEngine):
    """Whose step never ends."""

    def shutdown(self, grace_s: float, /) -> None:
        threading.Event().wait()


def main() -> None:
    """Serve a scripted engine on any free port."""
    engine = HangingEngine() if "--hang" in sys.argv else ScriptedEngine()
    serve(
        engine,
        "127.0.0.1",
        0,
        float(sys.argv[1]),
        lambda url: print(url, flush=True),
        settings=HttpSettings(wedged_after_s=0.5),
    )


if __name__ == "__main__":
    main()
