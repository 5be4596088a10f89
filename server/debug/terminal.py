"""``python -m server explain`` and ``python -m server tree``: the debug API of a running server, in
a terminal."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from server.one_line_parser import OneLineParser

COMMANDS = ("explain", "tree")

_URL = "http://127.0.0.1:8000"
_TIMEOUT_S = 60.0
_MARKS = {"cached": "=", "in_flight": "~", "evicted": "x", "new": "."}
_WIDTH = 72


def run(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Carry out a command line that begins with one of `COMMANDS`; the exit status. The key comes
    from --key, or from OPERATOR_KEY in the environment."""
    options = _parser().parse_args(arguments)
    key = options.key or environment.get("OPERATOR_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        with httpx.Client(base_url=options.url, headers=headers, timeout=_TIMEOUT_S) as client:
            if options.command == "tree":
                _tree(client, options)
            else:
                _explain(client, options)
    except (httpx.UnsupportedProtocol, httpx.InvalidURL):
        return _failed(f"--url: {options.url!r} is no address such as {_URL}")
    except httpx.TransportError as error:
        return _failed(f"{options.url} does not answer: {error}. Is a server running there? --url")
    except httpx.HTTPStatusError as error:
        return _failed(_message(error.response))
    except OSError as error:
        return _failed(f"--file: {options.file} cannot be read: {error.strerror}")
    except ValueError as error:
        return _failed(str(error))
    return 0


def body_of(text: str) -> dict[str, Any]:
    """What a file asks about: a request's JSON body, a list of messages or of token ids, or else a
    prompt's text."""
    try:
        value = json.loads(text)
    except ValueError:
        return {"prompt": text}
    if isinstance(value, dict):
        return value
    if isinstance(value, list) and value:
        return {"messages" if isinstance(value[0], dict) else "prompt": value}
    return {"prompt": text}


def explanation_lines(told: Mapping[str, Any]) -> list[str]:
    """An answer of POST /debug/explain, for people."""
    lines = [told["reason"], told["advice"], "", _strip(told)]
    lines += [
        f"  {_MARKS[part['state']]} {part['state'].replace('_', ' '):<9} tokens {part['start']} to "
        f"{part['end']}"
        for part in told["segments"]
    ]
    parts = told["parting"]
    if parts is not None:
        where = f", in {parts['section']}" if parts["section"] else ""
        lines += [
            "",
            f"They part at token {parts['position']}{where}:",
            f"  both    ...{_shown(parts['before'])}",
            f"  prompt  {_shown(parts['prompt'])}",
            f"  stored  {_shown(parts['stored'])}",
        ]
    return lines


def _tree(client: httpx.Client, options: argparse.Namespace) -> None:
    query: dict[str, str | int] = {"format": options.format, "limit": options.limit}
    if options.depth is not None:
        query["depth"] = options.depth
    if options.namespace is not None:
        query["namespace"] = options.namespace
    response = client.get("/debug/tree", params=query)
    response.raise_for_status()
    print(response.text, end="")


def _explain(client: httpx.Client, options: argparse.Namespace) -> None:
    if options.request is not None:
        body: dict[str, Any] = {"request_id": options.request}
    elif options.file == "-":
        body = body_of(sys.stdin.read())
    else:
        body = body_of(Path(options.file).read_text(encoding="utf-8"))
    if options.tenant is not None:
        body["tenant"] = options.tenant
    response = client.post("/debug/explain", json=body)
    response.raise_for_status()
    print("\n".join(explanation_lines(response.json())))


def _strip(told: Mapping[str, Any]) -> str:
    """The prompt as a line of marks."""
    total, strip = told["prompt_tokens"], ""
    for part in told["segments"]:
        cells = round(part["end"] * _WIDTH / total) - len(strip)
        strip += _MARKS[part["state"]] * cells
    return f"[{strip}]"


def _shown(text: str) -> str:
    """As JSON writes it, so that nothing a prompt holds moves the terminal's cursor."""
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


def _message(response: httpx.Response) -> str:
    try:
        message: str = response.json()["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return f"the server answered {response.status_code}"
    return message


def _failed(message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return 1


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--url", default=_URL, help=f"the server's address (default: {_URL})")
    common.add_argument("--key", help="an operator's key (default: OPERATOR_KEY)")
    parser: argparse.ArgumentParser = OneLineParser(prog="python -m server")
    commands = parser.add_subparsers(dest="command", required=True)
    explain = commands.add_parser(
        "explain", parents=[common], help="why no more of a prompt is cached"
    )
    what = explain.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--file", help="a request's JSON body, messages, token ids or plain text; - is the input"
    )
    what.add_argument("--request", help="in place of it, the id of a recent request")
    explain.add_argument("--tenant", help="whose request it would be")
    tree = commands.add_parser("tree", parents=[common], help="the cached prefixes")
    tree.add_argument("--limit", type=int, default=200, help="nodes at most (default: 200)")
    tree.add_argument("--depth", type=int, help="edges below a namespace's start")
    tree.add_argument("--namespace", help="only this tenant's; '': of nobody in particular")
    tree.add_argument("--format", choices=("text", "json", "dot"), default="text")
    return parser
