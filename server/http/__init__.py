"""The HTTP side of the server: OpenAI's API over one engine."""

from server.http.app import create_app
from server.http.engine_like import EngineLike, TextLike
from server.http.lifecycle import bind, serve
from server.http.shutdown import Shutdown

__all__ = ["EngineLike", "Shutdown", "TextLike", "bind", "create_app", "serve"]
