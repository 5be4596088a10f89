"""The head that all prompts of a kind begin with, as something that can be computed and stored.

::

    head      <system>You are ...<end><user>|
    filled    <system>You are ...<end><user>|<system><system>    up to a whole block

The cache stores whole blocks. A head ends inside one, so that block is filled up with the head's
own first token, over and over: no prompt goes on like that, and a request that shares the head is
served its tokens to the last, as with any two prompts that part inside a block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from radix_engine.cache import Namespace
from server.chat.prompt import ChatOptions
from server.http.breakpoints import Messages, Tools, tokens_before, unused_character
from server.http.engine_like import TextLike
from server.outputs import EngineInfo

# Whoever speaks next after these: the assistant, whose answer the prompt leaves room for.
_ANSWERED = ("user", "tool")


@dataclass(frozen=True, slots=True)
class PromptHead:
    """``filled``: what is to be computed and stored; the head are its first ``tokens`` tokens."""

    filled: Sequence[int]
    tokens: int

    @property
    def ids(self) -> Sequence[int]:
        """The head alone."""
        return self.filled[: self.tokens]


def head_of_chat(
    text: TextLike,
    info: EngineInfo,
    messages: Messages,
    tools: Tools,
    variables: Mapping[str, Any],
    namespace: Namespace,
) -> PromptHead:
    """What conversations that begin with these messages have in common, as the template writes
    them: up to where the next user's text begins, or the assistant's answer to the last message.

    ``variables``: of the template. ``namespace``: whose answers are given the tokens that they had.
    Raises what the codec raises. Cost: that of a prompt, and a look at each token.
    """
    options = ChatOptions(variables=variables)
    if messages and messages[-1].get("role") in _ANSWERED:
        prompt = text.chat_prompt(messages, tools, options=options, namespace=namespace)
        return filled(prompt.ids, info)
    character = unused_character(f"{messages}{tools}")
    asked = [*messages, {"role": "user", "content": character}]
    prompt = text.chat_prompt(asked, tools, options=options, namespace=namespace)
    place = prompt.text.find(character)
    if place < 0:  # a template that does not show what a user says
        return filled(prompt.ids, info)
    (tokens,) = tokens_before(text, prompt.ids, prompt.text, [place])
    return filled(prompt.ids[:tokens], info)


def filled(ids: Sequence[int], info: EngineInfo) -> PromptHead:
    """A head that is filled up, where hits end at the exact token and it then still fits."""
    missing = -len(ids) % info.block_size
    if not ids or not info.partial_blocks or len(ids) + missing > info.max_prompt_tokens:
        return PromptHead(ids, len(ids))
    return PromptHead([*ids, *[ids[0]] * missing], len(ids))
