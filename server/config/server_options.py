"""From settings to what an engine and its HTTP side are made with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scheduler import Limits
from server.config.sources import DEFAULT, ConfigError, Setting
from server.logs import LogFormat
from server.options import CacheOptions, EngineOptions, TextOptions


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """An engine's options, and where, for whom and how to serve it. Sizes in bytes, times in
    seconds; see the table for what each means. ``warnings``: for the log."""

    engine: EngineOptions
    host: str
    port: int
    grace_s: float
    api_key_file: Path | None
    cors_origins: tuple[str, ...]
    request_timeout_s: float | None
    max_body_bytes: int
    model_aliases: tuple[str, ...]
    strip_head_noise: str | None
    wedged_after_s: float
    log_format: LogFormat
    log_level: str
    log_prompts: bool
    warnings: tuple[str, ...] = ()


def make_options(settings: Mapping[str, Setting], warnings: tuple[str, ...]) -> ServerOptions:
    """Raises ConfigError where settings do not go together."""
    values: dict[str, Any] = {name: setting.value for name, setting in settings.items()}
    if values["prefix_index"] == "hash" and values["eviction"] != "lru":
        raise ConfigError(
            f"--eviction {values['eviction']} goes with --prefix-index tree only: the hash index "
            "evicts what was not used for longest (lru). Leave one of the two out"
            + _sources(settings, ("eviction", "prefix_index"))
        )
    try:
        engine = _engine(values)
    except ValueError as error:
        message = _with_flags(str(error), settings)
        named = [name for name, each in settings.items() if each.option.flag in message.split()]
        raise ConfigError(message + _sources(settings, named)) from None
    key_file = values["api_key_file"]
    return ServerOptions(
        engine=engine,
        host=values["host"],
        port=values["port"],
        grace_s=values["grace"],
        api_key_file=None if key_file is None else Path(key_file),
        cors_origins=values["cors_origin"],
        request_timeout_s=values["request_timeout"],
        max_body_bytes=values["max_body_size"],
        model_aliases=values["model_alias"],
        strip_head_noise=values["strip_head_noise"],
        wedged_after_s=values["wedged_after"],
        log_format=values["log_format"],
        log_level=values["log_level"],
        log_prompts=values["log_prompts"],
        warnings=warnings,
    )


def _engine(values: Mapping[str, Any]) -> EngineOptions:
    running, most = values["max_running"], values["max_step_tokens"]
    if running is None:
        running = Limits().max_running
        running = running if most is None else max(1, min(running, most))
    return EngineOptions(
        **{
            name: values[name]
            for name in (
                "model",
                "dtype",
                "quantization",
                "kv_dtype",
                "kernels",
                "attention",
                "exact",
                "kv_memory",
                "gpu_memory_utilization",
                "threads",
                "tensor_parallel",
                "order",
                "fair",
            )
        },
        step_timeout_s=values["step_timeout"],
        cache=CacheOptions(
            enabled=values["prefix_cache"],
            index=values["prefix_index"],
            eviction=values["eviction"],
            partial_blocks=values["partial_blocks"],
            ttl_s=values["cache_ttl"],
        ),
        limits=Limits(
            most,
            running,
            values["max_passed_by"],
            values["max_waiting"],
            values["max_sessions"],
        ),
        text=TextOptions(
            tool_call_form=values["tool_call_form"],
            reasoning_form=values["reasoning_form"],
            transcript_bytes=values["transcript_memory"],
        ),
    )


def _with_flags(message: str, settings: Mapping[str, Setting]) -> str:
    """A message about fields, in the words of the command line: those with an underscore, which
    stand for nothing else, and the first word."""

    def flag(found: re.Match[str]) -> str:
        setting = settings.get(found[0])
        is_meant = setting is not None and ("_" in found[0] or found.start() == 0)
        return setting.option.flag if setting is not None and is_meant else found[0]

    return re.sub(r"[a-z_]+", flag, message)


def _sources(settings: Mapping[str, Setting], names: Iterable[str]) -> str:
    """Where those of the named were set that are not on the command line."""
    found = [settings[name] for name in names]
    told = [
        f"{each.option.flag} {' '.join(each.texts)} comes from {each.source}"
        for each in found
        if each.source not in (DEFAULT, each.option.flag)
    ]
    return f" ({'; '.join(told)})" if told else ""
