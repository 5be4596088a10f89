"""Conversations through a prefix cache, a byte a token, and what is found out about each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from radix_engine.cache import DEFAULT, TOKEN_BYTES, Namespace, PrefixCache, branch_after, pack
from server.near_miss import Finding, PromptSource, judge
from server.token_text import TokenText

Message = dict[str, Any]
BLOCK = 16
BEGIN, END = "\x01", "\x02"


class Bytes:
    """Bytes as token ids, of which two mark where messages begin and end."""

    def token_text(self, token: int, /) -> TokenText:
        data = bytes([token])
        return TokenText(data.decode(errors="replace"), data, token in (1, 2))


def rendered(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> str:
    """The tools after the system's text, calls after what a message says."""
    text = ""
    for message in messages:
        text += f"{BEGIN}{message['role']}\n{message['content']}"
        if message["role"] == "system" and tools:
            text += "\nTools:" + "".join("\n" + json.dumps(tool) for tool in tools)
        for call in message.get("tool_calls", ()):
            text += f"\n<call>{call['function']['arguments']}</call>"
        text += f"{END}\n"
    return text + f"{BEGIN}assistant\n"


class Replaying:
    """One cache."""

    def __init__(self, blocks: int = 8192) -> None:
        self.cache = PrefixCache(blocks, BLOCK)

    def ask(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        namespace: Namespace = DEFAULT,
    ) -> Finding | None:
        """What a conversation's prompt lost, which is stored then."""
        text = rendered(messages, tools)
        return self.prompt(text, PromptSource(text, messages, tools), namespace)

    def prompt(
        self, text: str, source: PromptSource, namespace: Namespace = DEFAULT
    ) -> Finding | None:
        """Likewise, of a text."""
        tokens = list(text.encode())
        run = pack(tokens)
        match = self.cache.match(run, namespace)
        end = self.cache.account(match, run)
        lease = self.cache.lease(match)
        start = lease.num_tokens
        whole = len(tokens) // BLOCK * BLOCK
        blocks = self.cache.allocate((whole - start) // BLOCK)
        assert blocks is not None
        if blocks:
            self.cache.publish(lease, run[start * TOKEN_BYTES : whole * TOKEN_BYTES], blocks)
        self.cache.release(lease)
        branch = branch_after(self.cache, run, namespace, end.position)
        return None if branch is None else judge(Bytes(), tokens, source, branch, namespace)


def system(text: str) -> Message:
    return {"role": "system", "content": text}


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str, **more: Any) -> Message:
    return {"role": "assistant", "content": text, **more}


def call(arguments: str) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": "look", "arguments": arguments}}


def prose(seed: int, words: int = 60) -> str:
    """Some text that no other seed has."""
    return " ".join(f"w{seed}x{place * 7919 % 9973}" for place in range(words))
