"""The options of the HTTP side: where, for whom, and how much at a time."""

from __future__ import annotations

from server.config.option import Option
from server.config.readers import number, origin, size, some_text

MAX_TIMEOUT_S = 86_400

HTTP = (
    Option(
        "host",
        "HTTP",
        some_text,
        "address to listen on; 0.0.0.0 is all of this machine's",
        "127.0.0.1",
        word="ADDRESS",
    ),
    Option(
        "port",
        "HTTP",
        number(0, 65535, whole=True),
        "port to listen on; 0 takes a free one",
        "8000",
    ),
    Option(
        "grace",
        "HTTP",
        number(0.0),
        "how long running answers may go on after Ctrl-C or SIGTERM",
        "5",
        "5 s",
        word="SECONDS",
    ),
    Option(
        "wedged_after",
        "HTTP",
        number(0.1, MAX_TIMEOUT_S),
        "an engine that has work to do and has not ended a step for so long is taken for wedged: "
        "/ready says so, and new requests get 503, until it ends one",
        "60",
        "60 s",
        word="SECONDS",
    ),
    Option(
        "api_key_file",
        "HTTP",
        some_text,
        "the API keys, whose they are and how much each tenant may ask for at a time, in TOML or "
        "JSON; read again when it changes, or on SIGHUP",
        otherwise="no keys: everybody may generate, and this machine's users may do all else",
        word="FILE",
    ),
    Option(
        "cors_origin",
        "HTTP",
        origin,
        "web pages of this origin, such as https://app.example.org, may use the server; may be "
        "given several times; * is any page",
        otherwise="none",
        word="ORIGIN",
        is_list=True,
    ),
    Option(
        "request_timeout",
        "HTTP",
        number(0.001, MAX_TIMEOUT_S),
        "the most that a request may ask for as timeout_s, and what it has where it does not ask",
        otherwise="no limit",
        word="SECONDS",
    ),
    Option(
        "max_body_size",
        "HTTP",
        size(1024, 2**30),
        "the longest body of a request; longer ones are refused, with status 413",
        "16MiB",
        "16 MiB",
        word="SIZE",
    ),
    Option(
        "model_alias",
        "HTTP",
        some_text,
        "another name that requests may give for the model, in which * is any characters, such as "
        "claude-*; may be given several times",
        otherwise="none: only its own name",
        word="NAME",
        is_list=True,
    ),
    Option(
        "strip_head_noise",
        "HTTP",
        some_text,
        "what is stripped from the head of system prompts, since it changes with each request and "
        "leaves nothing to reuse: a file of regular expressions (Python's), one a line; off strips "
        "nothing",
        otherwise="the line that Claude Code writes for billing",
        word="FILE",
    ),
)
