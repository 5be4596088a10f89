"""Texts that each option takes, for tests that try them all."""

from __future__ import annotations

from server.config.option import Option
from server.config.readers import Choice, switch
from server.config.table import OPTIONS

_OTHERS = {
    "model": ("org/name", "./a folder/with 'quotes'\" and \\", "m\u00f6del.gguf"),
    "threads": ("1", "3"),
    "tensor_parallel": ("1", "2", "4", "8"),
    "step_timeout": ("1", "90.5", "86400"),
    "kv_memory": ("1GiB", "40%", "1000000", "1.5G"),
    "gpu_memory_utilization": ("0.1", "0.5", "1"),
    "cache_ttl": ("0.5", "60", "1e3"),
    "max_step_tokens": ("100", "2048"),
    "max_running": ("1", "9"),
    "max_passed_by": ("0", "7"),
    "transcript_memory": ("0", "1MiB", "1.5GiB"),
    "max_sessions": ("off", "auto", "1", "24"),
    "max_waiting": ("unlimited", "0", "1", "5000"),
    "host": ("0.0.0.0", "::1", "localhost"),
    "port": ("0", "8001", "65535"),
    "grace": ("0", "2.5"),
    "api_key_file": ("keys.toml", "/etc/keys.json"),
    "cors_origin": ("*", "https://a.example", "http://b.example:3000"),
    "request_timeout": ("0.5", "86400"),
    "max_body_size": ("1KiB", "64MiB", "1000000"),
    "wedged_after": ("5", "600"),
    "model_alias": ("*", "claude-*", "gpt-4o"),
    "strip_head_noise": ("off", "noise.txt"),
}


def texts_of(option: Option) -> tuple[str, ...]:
    """Some that it takes, as different as they may be."""
    if option.name in _OTHERS:
        return _OTHERS[option.name]
    if isinstance(option.read, Choice):
        return option.read.known
    if option.read is switch:
        return ("on", "off")
    assert option.default is not None, f"say here what {option.name} takes"
    return (option.default,)


BY_NAME = {option.name: option for option in OPTIONS}
