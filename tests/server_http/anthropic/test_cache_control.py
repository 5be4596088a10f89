"""cache_control keeps marked prefixes, and the counts of each prompt sum to its tokens."""

from __future__ import annotations

from typing import Any

import anthropic
import pytest

from server.http.cache_fields import CacheFields
from tests.server_http.anthropic.talking import BLOCK, TOOLS, Talk

FIVE, HOUR = {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}
SYSTEM = "You are a helpful assistant that answers in as few words as it can. "
ASKED = "What is the weather like in all the cities that are named here? "
HEAD = "<|im_start|>system\n" + SYSTEM


def text(words: str, mark: Any = None) -> dict[str, Any]:
    return {"type": "text", "text": words} | ({} if mark is None else {"cache_control": mark})


def user(*blocks: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(blocks)}]


def counts(message: anthropic.types.Message) -> tuple[int, int, int]:
    """Read, written and neither."""
    usage = message.usage
    assert usage.cache_read_input_tokens is not None
    assert usage.cache_creation_input_tokens is not None
    return usage.cache_read_input_tokens, usage.cache_creation_input_tokens, usage.input_tokens


def by_ttl(message: anthropic.types.Message) -> tuple[int, int]:
    """Written for five minutes, and for an hour."""
    creation = message.usage.cache_creation
    assert creation is not None
    return creation.ephemeral_5m_input_tokens, creation.ephemeral_1h_input_tokens


def blocks(tokens: int) -> int:
    return tokens // BLOCK * BLOCK


def test_a_marked_system_prompt_is_written_then_read(talk: Talk) -> None:
    asked = {"system": [text(SYSTEM, FIVE)], "messages": user(text(ASKED))}
    total, marked = talk.count(**asked), blocks(talk.tokens(HEAD))
    first = talk.ask(**asked)
    assert counts(first) == (0, marked, total - marked)
    assert by_ttl(first) == (marked, 0)
    (kept,) = talk.retained()
    assert kept["tokens"] == marked
    assert 280 < kept["seconds_left"] <= 300
    again = talk.ask(**asked)
    assert counts(again) == (blocks(total), 0, total - blocks(total))
    assert total > blocks(total)
    other = talk.ask(system=[text(SYSTEM, FIVE)], messages=user(text("Other words.")))
    read, written, rest = counts(other)
    assert (written, read >= talk.tokens(HEAD)) == (0, True)
    assert read + rest == talk.count(system=SYSTEM, messages=user(text("Other words.")))


def test_an_hour_up_to_its_last_mark_and_five_minutes_after_it(talk: Talk) -> None:
    asked = {
        "system": [text(SYSTEM, HOUR)],
        "messages": user(text(ASKED, FIVE), text(ASKED)),
    }
    hour = blocks(talk.tokens(HEAD))
    five = blocks(talk.tokens(HEAD + "<|im_end|>\n<|im_start|>user\n" + ASKED))
    first = talk.ask(**asked)
    assert by_ttl(first) == (five - hour, hour)
    assert counts(first) == (0, five, talk.count(**asked) - five)
    assert [each["tokens"] for each in talk.retained()] == [hour, five]
    left = [each["seconds_left"] for each in talk.retained()]
    assert 280 < left[1] <= 300 < 3580 < left[0] <= 3600
    # The system prompt alone comes from the cache now; what is new is written for five minutes.
    changed = user(text("Is it warm? " + ASKED, FIVE), text(ASKED))
    second = talk.ask(system=[text(SYSTEM, HOUR)], messages=changed)
    assert by_ttl(second) == (counts(second)[1], 0)
    assert sum(counts(second)) == talk.count(system=SYSTEM, messages=changed)


def test_each_read_lets_the_time_begin_anew(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = talk.engine._cache._tree  # type: ignore[union-attr]
    now = tree.clock
    asked = {"system": [text(SYSTEM, FIVE)], "messages": user(text(ASKED))}
    talk.ask(**asked)
    monkeypatch.setattr(tree, "clock", lambda: now() + 200)
    assert talk.retained()[0]["seconds_left"] < 101
    talk.ask(system=SYSTEM, messages=user(text("No mark, but read.")))
    assert talk.retained()[0]["seconds_left"] > 280


def test_the_automatic_mark_is_at_the_end_of_the_last_block(talk: Talk) -> None:
    asked = {"system": SYSTEM, "messages": user(text(ASKED), text(ASKED))}
    whole = HEAD + "<|im_end|>\n<|im_start|>user\n" + ASKED + ASKED
    first = talk.ask(**asked, cache_control=HOUR)
    assert by_ttl(first) == (0, blocks(talk.tokens(whole)))
    marked = {"system": SYSTEM, "messages": user(text(ASKED), text(ASKED, FIVE))}
    talk.flush()
    assert by_ttl(talk.ask(**marked, cache_control=HOUR)) == (blocks(talk.tokens(whole)), 0)


def test_tools_calls_and_results_can_be_marked(talk: Talk) -> None:
    tools = [{**TOOLS[0], "cache_control": FIVE}]
    messages = [
        *user(text(ASKED)),
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Paris"}}
            ],
        },
        *user({"type": "tool_result", "tool_use_id": "a", "content": [text(ASKED, FIVE)]}),
    ]
    message = talk.ask(tools=tools, system=SYSTEM, messages=messages)
    kept = [each["tokens"] for each in talk.retained()]
    total = talk.count(tools=tools, system=SYSTEM, messages=messages)
    assert len(kept) == 2
    assert kept[0] == blocks(kept[0]) < talk.tokens(HEAD) + kept[0] < kept[1]
    assert total - 2 * BLOCK < kept[1] < total
    assert counts(message) == (0, kept[1], total - kept[1])


def test_a_growing_conversation_reads_its_past_and_writes_what_is_new(talk: Talk) -> None:
    turns: list[dict[str, Any]] = user(text(ASKED))
    past = 0
    for number in range(3):
        message = talk.ask(system=SYSTEM, messages=turns, cache_control=FIVE)
        read, written, rest = counts(message)
        assert read + written + rest == talk.count(system=SYSTEM, messages=turns)
        assert read >= past
        assert 0 < rest < 2 * BLOCK
        past = read + written
        said = {"role": "assistant", "content": f"Answer number {number}."}
        turns = [*turns, said, *user(text(ASKED))]


@pytest.mark.parametrize("mode", ["read-only", "none"])
def test_what_is_not_stored_is_not_written(talk: Talk, mode: str) -> None:
    asked = {"system": [text(SYSTEM, FIVE)], "messages": user(text(ASKED))}
    message = talk.ask(**asked, extra_body={"cache_mode": mode})
    assert counts(message) == (0, 0, talk.count(**asked))
    assert talk.retained() == []


def test_without_marks_nothing_is_written_and_hits_are_read_all_the_same(talk: Talk) -> None:
    asked = {"system": SYSTEM, "messages": user(text(ASKED))}
    total = talk.count(**asked)
    assert counts(talk.ask(**asked)) == (0, 0, total)
    assert counts(talk.ask(**asked)) == (blocks(total), 0, total - blocks(total))
    assert talk.retained() == []


def test_the_reason_for_a_miss_is_beside_the_counts(talk: Talk) -> None:
    asked = {"system": [text(SYSTEM, FIVE)], "messages": user(text(ASKED))}
    talk.ask(**asked)
    other = {"system": [text(SYSTEM + "Now.", FIVE)], "messages": user(text(ASKED))}
    extra = talk.ask(**other).usage.model_extra
    assert extra is not None
    assert extra["match_end"]["reason"] == "diverged"
    assert extra["match_end"]["position"] == talk.tokens(HEAD)
    assert extra["cache_retention"]["refused"] is None
    assert extra["cache_retention"]["id"] in [each["id"] for each in talk.retained()]


def test_streamed_counts_are_those_of_a_whole_answer(talk: Talk) -> None:
    asked = talk.body(system=[text(SYSTEM, HOUR)], messages=user(text(ASKED)))
    whole = talk.client.messages.create(**asked)
    talk.flush()
    with talk.client.messages.stream(**asked) as stream:
        streamed = stream.get_final_message()
    assert (counts(streamed), by_ttl(streamed)) == (counts(whole), by_ttl(whole))
    assert streamed.usage.output_tokens == whole.usage.output_tokens == 1


def test_a_prompt_alone_is_stored(talk: Talk) -> None:
    asked = {"system": [text(SYSTEM, HOUR)], "messages": user(text(ASKED))}
    message = talk.ask(**asked, max_tokens=0)
    assert (message.content, message.stop_reason) == ([], "max_tokens")
    assert message.usage.output_tokens == 0
    assert by_ttl(message) == (0, blocks(talk.tokens(HEAD)))
    assert counts(talk.ask(**asked))[0] == blocks(talk.count(**asked))


@pytest.mark.parametrize("automatic", [None, FIVE])
def test_more_than_four_marks_are_refused(talk: Talk, automatic: Any) -> None:
    marked = [text(ASKED, FIVE)] * (5 if automatic is None else 4)
    with pytest.raises(anthropic.BadRequestError, match="5 places; the limit is 4") as refused:
        talk.ask(messages=user(*marked, text("end")), cache_control=automatic)
    assert refused.value.type == "invalid_request_error"
    talk.ask(messages=user(*marked[:4], text("end")))
    assert len(talk.retained()) == 4


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        ({"type": "forever"}, "cache_control.type"),
        ({"type": "ephemeral", "ttl": "30m"}, "cache_control.ttl"),
        ({}, "cache_control.type is required"),
        ("5m", "cache_control"),
    ],
)
def test_a_wrong_mark_is_refused_by_name(talk: Talk, mark: Any, words: str) -> None:
    with pytest.raises(anthropic.BadRequestError, match=words):
        talk.ask(messages=user(text(ASKED, mark)))
    with pytest.raises(anthropic.BadRequestError, match=words):
        talk.ask(messages=user(text(ASKED)), cache_control=mark)


def test_the_caches_own_fields_are_taken_too(talk: Talk) -> None:
    assert set(CacheFields.model_fields) > {"cache_salt", "cache_mode", "session_id"}
    asked = {"system": SYSTEM, "messages": user(text(ASKED))}
    talk.ask(**asked, extra_body={"cache_salt": "mine"})
    assert counts(talk.ask(**asked))[0] == 0
    assert counts(talk.ask(**asked, extra_body={"cache_salt": "mine"}))[0] > 0
