"""The options of chats reach the codec, and what it keeps of turns goes with the cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from server import Engine, EngineOptions
from server.options import TextOptions
from tests.server.conftest import MakeEngine

QUESTION = {"role": "user", "content": "the cat"}


def tell(engine: Engine, answer: str, follows: str) -> int:
    """Remember an answer to a question, ask on, and say how many tokens are stored ones."""
    prompt = engine.text.chat_prompt([QUESTION])
    prompt.remember(engine.text.encode(answer))
    turns = [
        QUESTION,
        {"role": "assistant", "content": answer},
        {"role": "user", "content": follows},
    ]
    before = engine.counters()["transcript_reused_tokens"]
    engine.text.chat_prompt(turns)
    return engine.counters()["transcript_reused_tokens"] - before


def test_options_of_text_reach_the_codec(tiny_folder: Path) -> None:
    options = EngineOptions(
        model=str(tiny_folder),
        kv_memory="1MiB",
        kernels="torch",
        text=TextOptions("hermes", "mistral", transcript_bytes=0),
    )
    with Engine.load(options) as engine:
        forms = engine.text.forms
        assert forms.calls == "hermes"
        assert forms.reasoning is not None
        assert forms.reasoning.opening == "[THINK]"
        assert tell(engine, "sat", "on") == 0, "nothing is kept"
        assert engine.state()["transcript_bytes"] == 0


def test_a_flush_forgets_the_tokens_of_turns_too(make_engine: MakeEngine) -> None:
    engine = make_engine()
    reused = tell(engine, "sat", "on")
    counters = engine.counters()
    assert reused > 0
    assert (counters["transcript_prompts"], counters["transcript_reused_tokens"]) == (1, reused)
    assert engine.state()["transcript_bytes"] > 0
    engine.flush_cache()
    assert engine.state()["transcript_bytes"] == 0
    engine.text.chat_prompt([QUESTION])
    assert engine.counters()["transcript_prompts"] == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tool_call_form": "xml"}, "tool_call_form must be one of auto, mistral"),
        ({"reasoning_form": "xml"}, "reasoning_form must be one of auto, think"),
        ({"transcript_bytes": -1}, "transcript_bytes must be at least 0, not -1"),
    ],
)
def test_what_there_is_not_is_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TextOptions(**options)  # type: ignore[arg-type]
