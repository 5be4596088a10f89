"""How the server is configured: by flags, the environment and a file, in that order of strength."""

from server.config.command import parse
from server.config.server_options import ServerOptions

__all__ = ["ServerOptions", "parse"]
