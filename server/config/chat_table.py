"""The options of chats: in which form a model answers, and what is kept of earlier turns."""

from __future__ import annotations

from server.chat.answer_forms import AUTO, REASONING_FORMS, TOOL_CALL_FORMS
from server.config.option import Option
from server.config.readers import Choice, size

MAX_TRANSCRIPT_BYTES = 2**40

CHAT = (
    Option(
        "tool_call_form",
        "chats",
        Choice(TOOL_CALL_FORMS),
        "in which form the model writes tool calls: mistral, [TOOL_CALLS]; qwen-xml, "
        "<function=...> in <tool_call>; hermes, JSON in <tool_call>; llama, JSON alone; none: "
        "calls stay text; auto is as the model's chat template tells",
        AUTO,
    ),
    Option(
        "reasoning_form",
        "chats",
        Choice(REASONING_FORMS),
        "what stands around the model's reasoning: think, <think> and </think>; mistral, [THINK] "
        "and [/THINK]; none: it stays text; auto is as the model's chat template tells",
        AUTO,
    ),
    Option(
        "transcript_memory",
        "chats",
        size(0, MAX_TRANSCRIPT_BYTES),
        "memory for the tokens of earlier turns, so that an answer that is sent back is found in "
        "the cache though its text could be other tokens; 0 keeps none",
        "64MiB",
        word="SIZE",
    ),
)
