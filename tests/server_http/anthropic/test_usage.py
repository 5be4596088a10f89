"""The counts of a prompt: read, written and neither, whatever was cached, marked and kept."""

from __future__ import annotations

import pytest

from radix_engine.cache import MatchEnd, Reason
from server.chat.events import AnswerEvent, ContentText, ToolCallArguments, ToolCallBegin
from server.http.anthropic.content import ContentEvents, whole_blocks
from server.http.anthropic.usage import Written, usage_body
from server.outputs import Retained, Usage

FIVE_AT_100 = Written(100, 96, 300.0)
FIVE_AT_200 = Written(200, 192, 300.0)
HOUR_AT_50 = Written(50, 48, 3600.0)
HOUR_AT_100 = Written(100, 96, 3600.0)


@pytest.mark.parametrize(
    ("cached", "kept", "marks", "expected"),
    [
        # prompt 300: (read, for five minutes, for an hour, neither)
        (0, None, (), (0, 0, 0, 300)),
        (150, None, (), (150, 0, 0, 150)),
        (0, 96, (FIVE_AT_100,), (0, 96, 0, 204)),
        (0, 96, (HOUR_AT_100,), (0, 0, 96, 204)),
        (40, 96, (FIVE_AT_100,), (40, 56, 0, 204)),
        (99, 96, (FIVE_AT_100,), (99, 0, 0, 201)),
        (299, 96, (FIVE_AT_100,), (299, 0, 0, 1)),
        (0, 192, (HOUR_AT_50, FIVE_AT_200), (0, 144, 48, 108)),
        (20, 192, (HOUR_AT_50, FIVE_AT_200), (20, 144, 28, 108)),
        (60, 192, (HOUR_AT_50, FIVE_AT_200), (60, 132, 0, 108)),
        (0, 192, (HOUR_AT_100, HOUR_AT_50, FIVE_AT_200), (0, 96, 96, 108)),
        (0, 192, (FIVE_AT_200, FIVE_AT_100), (0, 192, 0, 108)),
        (0, 96, (HOUR_AT_100, FIVE_AT_200), (0, 0, 96, 204)),  # the longer was refused
        (0, 0, (FIVE_AT_100,), (0, 0, 0, 300)),  # all were
        (0, 288, (FIVE_AT_100,), (0, 96, 0, 204)),  # the whole prompt is kept as well
    ],
)
def test_the_counts_sum_to_the_prompt(
    cached: int, kept: int | None, marks: tuple[Written, ...], expected: tuple[int, int, int, int]
) -> None:
    retained = None if kept is None else Retained(kept)
    usage = Usage(300, 7, cached, MatchEnd(Reason.COLD, cached), retained)
    body = usage_body(usage, marks)
    creation = body["cache_creation"]
    assert (
        body["cache_read_input_tokens"],
        creation["ephemeral_5m_input_tokens"],
        creation["ephemeral_1h_input_tokens"],
        body["input_tokens"],
    ) == expected
    assert body["cache_creation_input_tokens"] == sum(creation.values())
    assert sum(expected) == 300
    assert body["output_tokens"] == 7
    assert body["match_end"]["position"] == cached


@pytest.mark.parametrize(
    ("arguments", "input_"),
    [
        (['{"city": "Pa', 'ris", "days": 3}'], {"city": "Paris", "days": 3}),
        (['{"city": "Paris", "days'], {"city": "Paris"}),
        (["{"], {}),
        ([], {}),
        (['{"a": [1, 2'], {"a": [1, 2]}),
        (['{"a": nonsense'], {}),
    ],
)
def test_a_calls_input_is_what_came_of_it(arguments: list[str], input_: object) -> None:
    parts: list[AnswerEvent] = [ContentText("so"), ToolCallBegin(0, "id", "look")]
    parts += [ToolCallArguments(0, piece) for piece in arguments]
    content = ContentEvents()
    text, call = whole_blocks([*content.of(parts), *content.end()])
    assert text == {"type": "text", "text": "so"}
    assert call == {"type": "tool_use", "id": "id", "name": "look", "input": input_}


def test_text_after_a_call_is_a_block_of_its_own() -> None:
    content = ContentEvents()
    parts: list[AnswerEvent] = [
        ContentText("a"),
        ContentText("b"),
        ToolCallBegin(0, "x", "look"),
        ToolCallArguments(0, "{}"),
        ToolCallBegin(1, "y", "look"),
        ToolCallArguments(1, "{}"),
        ContentText("c"),
    ]
    events = [event for part in parts for event in content.of([part])] + content.end()
    assert [block["type"] for block in whole_blocks(events)] == [
        "text",
        "tool_use",
        "tool_use",
        "text",
    ]
    assert [block.get("text") for block in whole_blocks(events)] == ["ab", None, None, "c"]
    open_: list[int] = []
    for event in events:  # one at a time, each opened once and closed
        if event["type"] == "content_block_start":
            assert open_ == []
            open_.append(event["index"])
        elif event["type"] == "content_block_stop":
            assert open_ == [event["index"]]
            open_.clear()
        else:
            assert open_ == [event["index"]]
    assert open_ == []
    assert content.end() == []
