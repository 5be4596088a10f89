"""All options of the server, in the order of the help."""

from __future__ import annotations

from server.config.chat_table import CHAT
from server.config.engine_table import MEMORY, MODEL, SCHEDULING
from server.config.http_table import HTTP
from server.config.log_table import LOGS

OPTIONS = (*MODEL, *MEMORY, *SCHEDULING, *CHAT, *HTTP, *LOGS)
