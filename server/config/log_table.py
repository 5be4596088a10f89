"""The options of the log."""

from __future__ import annotations

from server.config.option import Option
from server.config.readers import Choice, switch
from server.logs import FORMATS, LEVELS

LOGS = (
    Option(
        "log_format",
        "log",
        Choice(FORMATS),
        "how a line looks: text, for people, or json, an object a line",
        "text",
    ),
    Option(
        "log_level",
        "log",
        Choice(LEVELS),
        "what is logged: this and what is worse. Each request has a line at info",
        "info",
    ),
    Option(
        "log_prompts",
        "log",
        switch,
        "let the log show text of prompts: the few characters in which those differ that keep "
        "missing the cache",
        "off",
        "it shows none",
        is_switch=True,
    ),
)
