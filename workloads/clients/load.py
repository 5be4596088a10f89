"""aiperf: conversations of several turns behind one system prompt, and what it reads of usage."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ENDPOINTS = ("chat", "messages")
SESSIONS, TURNS = 6, 4
REQUESTS = SESSIONS * TURNS
_SYSTEM_TOKENS, _USER_TOKENS, _ANSWER_TOKENS = 300, 60, 12
_TOGETHER = 3


@dataclass(frozen=True, slots=True)
class Told:
    """What a client says of a run, or the server of what it counted: requests and tokens.

    ``failed``: requests without a whole answer; of the server None, since it tells in other ways.
    """

    requests: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    failed: int | None = None

    @property
    def cached_share(self) -> float:
        """Cached tokens of the prompt tokens; 0 without any."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


def load_command(
    program: Path, url: str, model: str, tokenizer: Path, endpoint: str, output: Path
) -> list[str]:
    """aiperf's command line for an endpoint. It empties the server's cache before it begins, and
    writes into ``output``. ``tokenizer``: a folder, for making prompts."""
    options = {
        "model-names": model,
        "tokenizer": tokenizer,
        "url": url,
        "endpoint-type": endpoint,
        "conversation-num": SESSIONS,
        "conversation-turn-mean": TURNS,
        "conversation-turn-stddev": 0,
        "shared-system-prompt-length": _SYSTEM_TOKENS,
        "isl": _USER_TOKENS,
        "isl-stddev": 0,
        "osl": _ANSWER_TOKENS,
        "osl-stddev": 0,
        "concurrency": _TOGETHER,
        "random-seed": 1,
        "workers-max": 1,
        "record-processor-service-count": 1,
        "ui": "none",
        "output-artifact-dir": output,
    }
    switches = ("streaming", "use-server-token-count", "no-gpu-telemetry", "reset-kv-cache")
    words = [str(program), "profile"]
    for name, value in options.items():
        words += [f"--{name}", str(value)]
    return [*words, *(f"--{name}" for name in switches)]


def read_load(output: Path) -> Told:
    """What aiperf has written of a run. Raises ValueError where that lacks a sum."""
    file = output / "profile_export_aiperf.json"
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"aiperf wrote no result: {error}") from error
    return Told(
        requests=_sum(told, "request_count"),
        prompt_tokens=_sum(told, "total_usage_prompt_tokens"),
        cached_tokens=_sum(told, "total_usage_prompt_cache_read_tokens"),
        completion_tokens=_sum(told, "total_usage_completion_tokens"),
        failed=sum(int(each["count"]) for each in told.get("error_summary", [])),
    )


def counted(before: Mapping[str, int], after: Mapping[str, int]) -> Told:
    """What the server's own counters say of the time between two readings."""

    def grown(name: str) -> int:
        return after[name] - before[name]

    return Told(
        requests=grown("requests_finished"),
        prompt_tokens=grown("prompt_tokens"),
        cached_tokens=grown("cached_tokens"),
        completion_tokens=grown("generated_tokens"),
    )


def _sum(told: Mapping[str, Any], name: str) -> int:
    try:
        return round(float(told[name]["avg"]))  # so it calls the value of a sum
    except (KeyError, TypeError) as error:
        raise ValueError(f"aiperf's result has no {name}") from error
