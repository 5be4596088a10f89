"""The parts of a chat model's answer, as they come."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReasoningText:
    """More of what the model thinks before it answers."""

    text: str


@dataclass(frozen=True, slots=True)
class ContentText:
    """More of what it says."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallBegin:
    """A call of the tool ``name``; ``index`` counts the answer's calls from 0, ``call_id`` is made
    up here. Its arguments follow, in pieces, before anything else."""

    index: int
    call_id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallArguments:
    """More of a call's arguments: all pieces together are a JSON object. Where the model never
    finished the call they are no JSON, so that nobody takes it for a whole one."""

    index: int
    text: str


AnswerEvent = ReasoningText | ContentText | ToolCallBegin | ToolCallArguments
