"""``python -m tests.server_http.process GRACE``: a server whose address is its first line."""

from __future__ import annotations

import sys

from server.http import serve
from tests.server_http.scripted import ScriptedEngine


def main() -> None:
    """Serve a scripted engine on any free port."""
    serve(ScriptedEngine(), "127.0.0.1", 0, float(sys.argv[1]), lambda url: print(url, flush=True))


if __name__ == "__main__":
    main()
