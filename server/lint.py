"""``python -m server lint FILE``: what requests would miss in the cache that they need not."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from radix_engine.model.errors import ModelError
from radix_engine.model.source import resolve_model
from server.lint_replay import Replayed, replay
from server.lint_requests import LintRequest, WrongLine, read_requests
from server.near_miss import Group, finding_body, how_to_mend
from server.one_line_parser import OneLineParser
from server.text import TextCodec

CLEAN, FOUND, WRONG = 0, 1, 2
"""Exit statuses: no near-miss repeats; some do; a file, or a line of it, is wrong."""

_LINES = 5


def lint(arguments: Sequence[str]) -> int:
    """Run the command; its exit status."""
    options = _parser().parse_args(arguments)
    try:
        text = TextCodec(tokenizer_folder(options.model))
        read = list(read_requests(options.file, text))
    except (ModelError, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return WRONG
    wrong = [each for each in read if isinstance(each, WrongLine)]
    requests = (each for each in read if isinstance(each, LintRequest))
    done = replay(requests, text, options.kv_tokens)
    if options.json:
        print(json.dumps(as_json(done, wrong), indent=2))
    else:
        print(as_text(str(options.file), done))
    for each in wrong:
        print(f"error: {options.file}, line {each.line}: {each.message}", file=sys.stderr)
    if wrong:
        return WRONG
    return FOUND if done.groups else CLEAN


def tokenizer_folder(model: str | None) -> Path:
    """The folder of a model's tokenizer: one that holds nothing else will do. Raises ModelError."""
    if model is not None and (Path(model) / "tokenizer.json").is_file():
        return Path(model)
    return resolve_model(model).path


def as_json(done: Replayed, wrong: Sequence[WrongLine]) -> dict[str, Any]:
    """The result for programs."""
    return {
        "requests": done.requests,
        "prompt_tokens": done.prompt_tokens,
        "cached_tokens": done.cached_tokens,
        "hit_rate": round(done.hit_rate, 4),
        "mended_hit_rate": round(done.mended_hit_rate, 4),
        "near_misses": [
            {
                **finding_body(group.latest),
                "times": group.times,
                "lost_tokens": group.lost_each,
                "lost_tokens_total": group.lost_tokens,
                "lines": done.lines[group.latest.shape],
            }
            for group in done.groups
        ],
        "errors": [{"line": each.line, "message": each.message} for each in wrong],
    }


def as_text(name: str, done: Replayed) -> str:
    """The result for people."""
    requests = "1 request" if done.requests == 1 else f"{done.requests:,} requests"
    lines = [
        f"{name}: {requests}, {done.prompt_tokens:,} prompt tokens",
        f"  hit rate  {done.hit_rate:.1%} ({done.cached_tokens:,} tokens from the cache)",
    ]
    if not done.groups:
        return "\n".join([*lines, "  no near-misses that repeat"])
    lines.append(f"  mended    {done.mended_hit_rate:.1%} without what follows")
    for group in done.groups:
        lines += ["", *_about(group, done.lines[group.latest.shape])]
    return "\n".join(lines)


def _about(group: Group, lines: Sequence[int]) -> list[str]:
    found = group.latest
    more = "" if len(lines) <= _LINES else f" and {len(lines) - _LINES} more"
    listed = ", ".join(map(str, lines[:_LINES])) + more
    return [
        f"{found.kind}: {group.times} times, {group.lost_each:,} tokens each (lines {listed})",
        f"  where   diverged at token {found.position}, {found.section.name}, characters "
        f"{found.first} to {found.last}",
        f"  here    {found.here!r}",
        f"  before  {found.stored!r}",
        f"  mend    {how_to_mend(found)}",
    ]


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="python -m server lint",
        description="Replay requests through a prefix cache, without a model, and tell at which "
        "places they keep missing it. Exit status: 0 none, 1 some, 2 something is wrong.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "file",
        type=Path,
        help="requests, one a line: bodies of OpenAI's API or Anthropic's, or lines of their batch "
        "files",
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="whose tokenizer and chat template to use, as of the server's --model; a folder with "
        "tokenizer.json will do (default: the server's default model)",
    )
    parser.add_argument(
        "--kv-tokens",
        type=_tokens,
        metavar="N",
        help="how many tokens the cache holds (default: all of the file)",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def _tokens(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 16:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 16 (a block) on")
    return int(text)
