"""How the HTTP side is set up."""

from __future__ import annotations

from dataclasses import dataclass, field

from server.head_noise import HeadNoise
from server.key_ring import KeyRing

MAX_BODY_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """``max_body_bytes``: larger bodies get 413. ``request_timeout_s``: the most that a request's
    ``timeout_s`` may be, and what it is where none is sent (None: no bound). ``cors_origins``: web
    pages of these origins may use the server, ``*`` those of all. ``hosts``: names of this machine,
    besides localhost. ``keys``: who may send requests (None: everybody). ``wedged_after_s``: an
    engine with work to do that has not ended a step for so long is taken for wedged.
    ``head_noise``: what is taken out of system prompts. ``model_aliases``: other names under which
    the model may be asked for; in these, ``*`` is any characters. ``ping_s``: in a stream whose API
    knows pings one is sent after so many seconds without anything else. ``log_prompts``: the log
    may show text of prompts, where it tells of near-misses.
    """

    max_body_bytes: int = MAX_BODY_BYTES
    request_timeout_s: float | None = None
    cors_origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    keys: KeyRing | None = None
    wedged_after_s: float = 60.0
    head_noise: HeadNoise = field(default_factory=HeadNoise)
    model_aliases: tuple[str, ...] = ()
    ping_s: float = 10.0
    log_prompts: bool = False
